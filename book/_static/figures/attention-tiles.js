/* Chapter 10: attention by tiles, 10 queries in blocks of 4 against 11 keys in blocks of 3, each a single number. */
(() => {
  "use strict";
  const { html, svg, whole, signed, sum, range, choice, check, input, read, speak, sketch } = figureKit;

  const Q = [1, -1, 2, -2, 1, 2, -1, -2, 2, 1];
  const K = [0, 1, -1, 1, 2, 0, -2, -1, 1, 3, -3];
  const PLAIN = { // numbers read and written where the whole matrix is made, by one kernel after another
    forward: [Q.length + K.length + 110 + 110 + K.length, 110 + 110 + Q.length], // scores; softmax; output
    backward: [110 + 10 + 10 + 11 + 110 + 110 + 110 + 11 + 110 + 10, 11 + 110 + 110 + 10 + 11], // dv; dp; ds; dq; dk
  };

  figureKit.add("attention-tiles", () => {
    const cut = (length, block) =>
      Array.from({ length: Math.ceil(length / block) }, (_, n) => [n * block, Math.min((n + 1) * block, length)]);
    const [rows, columns] = [cut(Q.length, 4), cut(K.length, 3)]; // [first, last + 1] of each block
    const size = ([from, to]) => to - from;
    const score = (i, j) => Q[i] * K[j]; // divided by the root of d, which is 1
    const hidden = (i, j) => input(causal).checked && j > i; // query i sees the keys up to i
    const numbers = ([from, to]) => (to - from === 1 ? `${from}` : `${from} to ${to - 1}`);
    const all = rows.flatMap((row) => columns.map((column) => ({ row, column })));
    const cells = ({ row, column }) =>
      Array.from({ length: size(row) }, (_, a) =>
        Array.from({ length: size(column) }, (_, b) => [row[0] + a, column[0] + b])).flat();
    const skipped = (tile) => cells(tile).every(([i, j]) => hidden(i, j));
    // What the loop knows of a query after it has met the keys before `end`; the value of key j is the number j.
    const state = (i, end) => {
      const keys = Array.from({ length: end }, (_, j) => j).filter((j) => !hidden(i, j));
      const m = Math.max(...keys.map((j) => score(i, j)));
      const weights = keys.map((j) => Math.exp(score(i, j) - m));
      return { m, total: sum(weights), out: sum(weights.map((w, n) => w * keys[n])) };
    };
    // By what the tile shrinks what query i has: 1 where its maximum stays, and where it had nothing.
    const shrinks = (i, [from, to]) => (from === 0 ? 1 : Math.exp(state(i, from).m - state(i, to).m));

    const pass = choice("pass", ["forward", "backward"]);
    const causal = check("causal");
    const slider = range("step", 1, all.length, 1, 6); // some tiles done, some ahead, and two maxima have just moved
    const ordered = () => all.filter((tile) => !skipped(tile));
    const ends = (order, n) => order[n + 1]?.row !== order[n].row; // the last tile of its queries
    // Numbers read from slow memory and written to it, up to this step.
    const traffic = () => {
      const [order, back] = [ordered(), read(pass) === "backward"];
      let [got, put] = [0, back ? 2 * K.length : 0]; // dk and dv begin as zeros
      order.slice(0, read(slider)).forEach((tile, n) => {
        if (order[n - 1]?.row !== tile.row) got += (back ? 4 : 1) * size(tile.row); // q; also do, o, lse
        got += (back ? 4 : 2) * size(tile.column); // k, v; also dk, dv
        if (back) put += 2 * size(tile.column); // dk, dv
        if (ends(order, n)) put += (back ? 1 : 2) * size(tile.row); // dq; or o, lse
      });
      return [got, put];
    };

    const drawing = sketch({
      name: "The score matrix, 10 queries by 11 keys, cut into 12 tiles, of which one exists; beside it what each query carries",
      draw: (width) => {
        const order = ordered();
        const place = read(slider) - 1;
        const now = order[place];
        const back = read(pass) === "backward";
        const narrow = width < 600;
        const [left, top] = [narrow ? 62 : 70, 48];
        const side = narrow ? Math.min((width - left - 46) / 11, 30) : Math.min((width - left - 340) / 11, 28);
        const [px, py] = [(j) => left + j * side, (i) => top + i * side];
        const parts = [];
        const box = (look, x, y, w, h) => parts.push(svg("rect", { class: look, x, y, width: Math.max(w, 0), height: h }));
        const say = (x, y, text, look = "middle") => parts.push(svg("text", { class: look, x, y: y + 4 }, text));
        const strip = (blocks, at, current) => blocks.forEach((b) => at(b, b === current ? "tile now" : "tile"));
        say(px(5.5), 10, "keys and values");
        say(left - 6, 10, "queries", "end");
        strip(columns, (b, look) => {
          box(look, px(b[0]) + 1, 20, size(b) * side - 2, 22);
          say(px((b[0] + b[1]) / 2), 31, `${b[0]}–${b[1] - 1}`, "middle small");
        }, now.column);
        strip(rows, (b, look) => {
          box(look, left - 44, py(b[0]) + 1, 38, size(b) * side - 2);
          say(left - 25, py((b[0] + b[1]) / 2), `${b[0]}–${b[1] - 1}`, "middle small");
        }, now.row);
        for (const tile of all) {
          const { row, column } = tile;
          const [x, y] = [px(column[0]), py(row[0])];
          const [w, h] = [size(column) * side, size(row) * side];
          const step = order.indexOf(tile);
          const look = tile === now ? "now" : step < 0 ? "skipped" : step < place ? "done" : "ahead";
          box(`tile score ${look}`, x + 1, y + 1, w - 2, h - 2);
          if (step < 0) parts.push(svg("path", { class: "cross", d: `M${x + 1},${y + 1}l${w - 2},${h - 2}m0,${2 - h}l${2 - w},${h - 2}` }));
          const mid = (column[0] + column[1] - 1) / 2;
          if (tile === now)
            for (const [i, j] of cells(tile)) // a little closer than the cells: clear of the border
              say(px(mid + 0.5) + (j - mid) * (side - 2), py(i + 0.5), hidden(i, j) ? "−∞" : signed(score(i, j)), "middle small score");
          else if (step >= 0) say(x + w / 2, y + h / 2, step < place ? "gone" : String(step + 1), "middle small number");
        }
        if (back) {
          const [first, last] = now.column;
          box("tile now", px(first) + 1, py(10) + 4, (last - first) * side - 2, 22);
          say(px((first + last) / 2), py(10) + 15, "dk, dv", "middle small");
        }

        // What each query carries: beside the matrix, or below it for the queries of the tile alone.
        const from = narrow ? 0 : px(11) + 16;
        const above = narrow ? py(10) + 50 : top;
        const step = narrow ? 24 : side;
        const bar = narrow ? Math.max((width - 224) / 2, 20) : 64;
        const at = { m: from + 42, ell: from + 54, out: from + 54 + bar + 46, c: from + 54 + 2 * bar + 132 };
        const heads = back ? [["lse", at.m, "end"]] : [["m", at.m, "end"], ["ℓ", at.ell, ""], ["a / ℓ", at.out, ""]];
        for (const [text, x, look] of heads) say(x, above - 12, text, look);
        const [first, last] = narrow ? now.row : [0, Q.length];
        for (let i = first; i < last; i++) {
          const y = above + (i - first + 0.5) * step;
          const mine = i >= now.row[0] && i < now.row[1];
          const steps = order.map((tile, n) => [tile, n]).filter(([tile, n]) => tile.row[0] <= i && i < tile.row[1] && n <= place);
          const finished = steps.length > 0 && ends(order, steps.at(-1)[1]);
          const look = mine ? "bar now" : "bar";
          if (narrow) say(0, y, `${i}`, "small");
          if (back) { // lse of all keys was kept by forward
            const { m, total } = state(i, K.length);
            say(at.m, y, signed((m + Math.log(total)).toFixed(2)), "end small carry lse");
            if (mine) say(at.ell, y, "dq", "small");
            continue;
          }
          if (!steps.length) {
            say(at.m, y, "−∞", "end small");
            continue;
          }
          const { column } = steps.at(-1)[0];
          const { m, total, out } = state(i, column[1]);
          say(at.m, y, signed(m), "end small carry m");
          box(look, at.ell, y - 5, (total / 3) * bar, 10);
          say(at.ell + (total / 3) * bar + 4, y, total.toFixed(2), "small carry ell");
          box(look, at.out, y - 5, (out / total / 10) * bar, 10);
          say(at.out + (out / total / 10) * bar + 4, y, (out / total).toFixed(2) + (finished ? " = o" : ""), `small carry out ${finished ? "bold" : ""}`);
          const c = shrinks(i, column);
          if (mine && c < 1) say(at.c, y, `× ${c.toFixed(2)}`, "end small bold moved");
        }

        // What is held at once, and what has moved, to scale against plain attention.
        const base = narrow ? above + 4 * 24 + 22 : py(10) + 52;
        const moved = sum(traffic());
        const plain = sum(PLAIN[read(pass)]);
        const bars = [["held, by tiles", cells(now).length, 110], ["held, plain", 110, 110], ["moved, by tiles", moved, plain], ["moved, plain", plain, plain]];
        bars.forEach(([text, count, most], n) => {
          const x = narrow || n < 2 ? 0 : width / 2;
          const y = base + (narrow ? n : n % 2) * 22;
          const room = (narrow ? width : width / 2) - 152;
          say(x, y, text, "small");
          box(n % 2 ? "bar plain" : "bar now", x + 96, y - 6, (count / most) * room, 12);
          say(x + 102 + (count / most) * room, y, String(count), "small bold count");
        });
        return { height: base + (narrow ? 4 : 2) * 22 - 4, parts };
      },
    });

    const update = () => {
      const order = ordered();
      input(slider).max = order.length; // the browser moves the value inside
      const step = read(slider);
      const now = order[step - 1];
      const [queries, keys] = [numbers(now.row), numbers(now.column)];
      const masked = cells(now).filter(([i, j]) => hidden(i, j)).length;
      const query = now.row[1] - 1;
      const { m, total, out } = state(query, now.column[1]);
      const c = shrinks(query, now.column);
      const [got, put] = traffic();
      const [plainGot, plainPut] = PLAIN[read(pass)];
      const lines = read(pass) === "backward"
        ? [`Computes P again from lse. Adds to dq of queries ${queries}, to dk and dv of keys ${keys}`]
        : [[`Updates m, ℓ and a of queries ${queries}. Query ${query}: `,
          whole(`m ${signed(m)},`), " ", whole(`ℓ ${total.toFixed(2)},`), " ", whole(`a ${out.toFixed(2)}`), ...(c < 1 ? [", ", whole(`what it had × ${c.toFixed(2)}`)] : [])],
          ...(ends(order, step - 1) ? [`Rows ${queries} are done: o = a/ℓ (query ${query}: ${(out / total).toFixed(2)}) and lse = m + log ℓ are stored`] : [])];
      speak(slider, `step ${step} of ${order.length}`);
      drawing.show();
      return [
        [html("strong", {}, `Step ${step} of ${order.length}:`), ` queries ${queries}, keys ${keys}; `,
          whole(`${cells(now).length} scores in memory`), masked ? `, ${masked} masked` : ""],
        [`Slow memory so far: ${got} read, ${put} written; `, whole(`plain attention ${plainGot} and ${plainPut}`)],
        [`Tiles skipped: ${all.length - order.length} of ${all.length}`],
        ...lines.map((line) => (Array.isArray(line) ? line : [line])),
      ];
    };
    return { controls: [slider, pass, causal], drawings: [drawing], update, play: slider };
  });
})();
