/* Chapter 10: attention's score matrix by tiles, 10 queries in blocks of 4 against 11 keys in blocks of 3. */
(() => {
  "use strict";
  const { html, svg, whole, signed, sum, range, choice, check, input, read, speak } = figureKit;

  figureKit.add("attention-tiles", () => {
    const cut = (length, block) =>
      Array.from({ length: Math.ceil(length / block) }, (_, n) => [n * block, Math.min((n + 1) * block, length)]);
    const [rows, columns] = [cut(10, 4), cut(11, 3)]; // [first, last + 1] of each block
    const score = (i, j) => ((4 * i + 3 * j + 2) % 11) - 5;
    const hidden = (i, j) => input(causal).checked && j > i; // query i sees the keys up to i
    const numbers = ([from, to]) => (to - from === 1 ? `${from}` : `${from} to ${to - 1}`);
    const all = rows.flatMap((row, r) => columns.map((column, c) => ({ r, c, row, column })));
    const cells = ({ row, column }) =>
      Array.from({ length: row[1] - row[0] }, (_, a) =>
        Array.from({ length: column[1] - column[0] }, (_, b) => [row[0] + a, column[0] + b])).flat();
    const skipped = (tile) => cells(tile).every(([i, j]) => hidden(i, j));
    // What the loop knows of a query after it has met the keys before `end`; the value of key j is the number j.
    const state = (i, end) => {
      const keys = Array.from({ length: end }, (_, j) => j).filter((j) => !hidden(i, j));
      const m = Math.max(...keys.map((j) => score(i, j)));
      const weights = keys.map((j) => Math.exp(score(i, j) - m));
      return { m, total: sum(weights), out: sum(weights.map((w, n) => w * keys[n])) };
    };

    const pass = choice("pass", ["forward", "backward"]);
    const causal = check("causal");
    const slider = range("step", 1, all.length, 1, 6); // some tiles done, some ahead
    const root = svg("svg", { role: "img", "aria-label": "The score matrix, 10 queries by 11 keys, cut into 12 tiles" });
    const draw = () => {
      const order = all.filter((tile) => !skipped(tile));
      const now = order[read(slider) - 1];
      const back = read(pass) === "backward";
      const width = Math.max(root.getBoundingClientRect().width, 280);
      const [left, top, right] = [66, 48, 50];
      const size = Math.min((width - left - right) / 11, 38);
      const [px, py] = [(j) => left + j * size, (i) => top + i * size];
      const parts = [];
      const box = (look, x, y, w, h) => parts.push(svg("rect", { class: look, x, y, width: w, height: h }));
      const say = (x, y, text, look = "middle") => parts.push(svg("text", { class: look, x, y: y + 4 }, text));
      const strip = (blocks, at, current) => blocks.forEach((b) => at(b, b === current ? "tile now" : "tile"));
      say(px(5.5), 10, "keys and values");
      say(left - 6, 10, "queries", "end");
      strip(columns, (b, look) => {
        box(look, px(b[0]) + 1, 20, (b[1] - b[0]) * size - 2, 22);
        say(px((b[0] + b[1]) / 2), 31, `${b[0]}–${b[1] - 1}`, "middle small");
      }, now.column);
      strip(rows, (b, look) => {
        box(look, left - 44, py(b[0]) + 1, 38, (b[1] - b[0]) * size - 2);
        say(left - 25, py((b[0] + b[1]) / 2), `${b[0]}–${b[1] - 1}`, "middle small");
      }, now.row);
      for (const tile of all) {
        const { row, column } = tile;
        const [x, y] = [px(column[0]), py(row[0])];
        const [w, h] = [(column[1] - column[0]) * size, (row[1] - row[0]) * size];
        const step = order.indexOf(tile) + 1;
        const look = tile === now ? "now" : step === 0 ? "skipped" : step < read(slider) ? "done" : "";
        box(`tile score ${look}`, x + 1, y + 1, w - 2, h - 2);
        if (step === 0) parts.push(svg("path", { class: "cross", d: `M${x + 1},${y + 1}l${w - 2},${h - 2}m0,${2 - h}l${2 - w},${h - 2}` }));
        const mid = (column[0] + column[1] - 1) / 2;
        if (tile === now)
          for (const [i, j] of cells(tile)) // a little closer than the cells: clear of the border
            say(px(mid + 0.5) + (j - mid) * (size - 2), py(i + 0.5), hidden(i, j) ? "−∞" : signed(score(i, j)), "middle small score");
        else if (step) say(x + w / 2, y + h / 2, String(step), "middle number");
      }
      // What the step writes: m, ℓ and a of its rows, or the gradients of its rows and columns.
      const written = back ? ["dq"] : ["m", "ℓ", "a"];
      const [from, to] = now.row;
      box("tile now", px(11) + 6, py(from) + 1, 38, (to - from) * size - 2);
      written.forEach((name, n) =>
        say(px(11) + 25, py(from) + ((n + 1) * (to - from) * size) / (written.length + 1), name, "middle small"));
      if (back) {
        const [first, last] = now.column;
        box("tile now", px(first) + 1, py(10) + 6, (last - first) * size - 2, 22);
        say(px((first + last) / 2), py(10) + 17, "dk, dv", "middle small");
      }
      root.setAttribute("viewBox", `0 0 ${width} ${py(10) + 32}`);
      root.replaceChildren(...parts);
    };
    const update = () => {
      const order = all.filter((tile) => !skipped(tile));
      input(slider).max = order.length; // the browser moves the value inside
      const step = read(slider);
      const now = order[step - 1];
      const [queries, keys] = [numbers(now.row), numbers(now.column)];
      const masked = cells(now).filter(([i, j]) => hidden(i, j)).length;
      const query = now.row[1] - 1;
      const { m, total, out } = state(query, now.column[1]);
      const last = order[step]?.row !== now.row;
      const lines = read(pass) === "backward"
        ? [`Computes P again from lse. Adds to dq of queries ${queries}, to dk and dv of keys ${keys}`]
        : [`Updates m, ℓ and a of queries ${queries}. Query ${query}: m ${signed(m)}, ℓ ${total.toFixed(2)}, a ${out.toFixed(2)}`,
          ...(last ? [`Rows ${queries} are done: o = a/ℓ (query ${query}: ${(out / total).toFixed(2)}) and lse = m + log ℓ are stored`] : [])];
      speak(slider, `step ${step} of ${order.length}`);
      draw();
      return [
        [html("strong", {}, `Step ${step} of ${order.length}:`), ` queries ${queries}, keys ${keys}; `,
          whole(`${cells(now).length} scores in memory`), masked ? `, ${masked} masked` : ""],
        [`Tiles skipped: ${all.length - order.length} of ${all.length}`],
        ...lines.map((line) => [line]),
      ];
    };
    new ResizeObserver(draw).observe(root);
    return { controls: [slider, pass, causal], drawings: [{ root }], update };
  });
})();
