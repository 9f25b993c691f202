/* Figures that the reader moves: drawn in the page, without a kernel, a request or a library.
 *
 * A chapter holds <figure data-figure="NAME"> with a table or picture in it that says the same without a script.
 * This file replaces all of it but the caption by what figures[NAME] builds. To add a figure, add a function to
 * `figures`; the parts above it draw axes, lines and marks, and make the controls. Nothing here moves by itself, and
 * every control is a native one, so the keyboard and a screen reader work as the reader expects.
 */
(() => {
  "use strict";

  // ---------------------------------------------------------------- elements and numbers
  const element = (namespace) => (name, attributes = {}, ...children) => {
    const node = document.createElementNS(namespace, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const html = element("http://www.w3.org/1999/xhtml");
  const svg = element("http://www.w3.org/2000/svg");
  const power = (exponent) => "10" + [...String(exponent)].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] ?? "⁻").join("");
  const short = (number) => (number === 0 ? "0" : number.toExponential(1));

  // ---------------------------------------------------------------- controls: each a label around a native input
  const control = (text, input) => html("label", {}, html("span", {}, text), input);
  const range = (text, from, to, step, value) =>
    control(text, html("input", { type: "range", min: from, max: to, step, value }));
  const choice = (text, values) => control(text, html("select", {}, ...values.map((v) => html("option", {}, v))));
  const check = (text) => control(text, html("input", { type: "checkbox" }));
  const input = (label) => label.lastChild;

  // ---------------------------------------------------------------- a plot
  // An axis says where a value lies (`along`, from 0 to 1) and which values have a tick, with their text: the multiples
  // of `every`, or of twice that where there is little room. A logarithmic axis is given in powers of ten.
  const multiples = (step, from, to) =>
    Array.from({ length: Math.floor(to / step) - Math.ceil(from / step) + 1 }, (_, i) => (Math.ceil(from / step) + i) * step);
  const axis = (scale, inverse, text) => ({ from, to, every, name }) => ({
    name,
    along: (value) => (scale(value) - from) / (to - from),
    ticks: (narrow) => multiples(narrow ? 2 * every : every, from, to).map((k) => [inverse(k), text(k)]),
  });
  const linear = axis((value) => value, (k) => k, (k) => String(k).replace("-", "−"));
  const logarithmic = axis(Math.log10, (k) => 10 ** k, power);

  // show(layers) draws; a layer is {line: points}, {mark: point} or {note: point, text}, each with a class for its
  // look; points are pairs of numbers, and `lift` moves a note up by pixels.
  function plot({ x, y, name, height }) {
    const root = svg("svg", { role: "img", "aria-label": name });
    const [left, right, top, bottom] = [52, 12, 26, 44];
    let layers = [];
    const draw = () => {
      const width = Math.max(root.getBoundingClientRect().width, 280);
      const px = (value) => left + x.along(value) * (width - left - right);
      const py = (value) => height - bottom - Math.min(Math.max(y.along(value), 0), 1) * (height - top - bottom);
      const parts = [];
      for (const [value, text] of x.ticks(width < 480)) {
        parts.push(svg("path", { class: "grid", d: `M${px(value)},${top}V${height - bottom}` }));
        parts.push(svg("text", { x: px(value), y: height - bottom + 18, class: "middle" }, text));
      }
      for (const [value, text] of y.ticks(false)) {
        parts.push(svg("path", { class: "grid", d: `M${left},${py(value)}H${width - right}` }));
        parts.push(svg("text", { x: left - 6, y: py(value) + 4, class: "end" }, text));
      }
      parts.push(svg("text", { x: (left + width - right) / 2, y: height - 6, class: "middle" }, x.name));
      parts.push(svg("text", { x: 4, y: 14 }, y.name));
      for (const { line, mark, note, text, look = "", lift = 0 } of layers) {
        if (line) parts.push(svg("polyline", { class: look, points: line.map(([a, b]) => `${px(a)},${py(b)}`).join(" ") }));
        if (mark) parts.push(svg("circle", { class: look, cx: px(mark[0]), cy: py(mark[1]), r: 6 }));
        if (note) parts.push(svg("text", { class: look, x: px(note[0]), y: py(note[1]) - lift }, text));
      }
      root.setAttribute("viewBox", `0 0 ${width} ${height}`);
      root.replaceChildren(...parts);
    };
    new ResizeObserver(draw).observe(root);
    return { root, show: (next) => { layers = next; draw(); } };
  }

  // ---------------------------------------------------------------- the figures
  const figures = {
    // Chapter 2: the step of a central difference of arctan against its error, in float64 and float32.
    "fd-step"() {
      const exact = (number) => number; // JavaScript's numbers are float64
      const types = [
        { name: "float64", round: exact, epsilon: 2 ** -52, look: "one", note: [1e-9, 1e-11] },
        { name: "float32", round: Math.fround, epsilon: 2 ** -23, look: "two dashed", note: [2e-6, 2e-1] },
      ];
      const slope = (x) => 1 / (1 + x * x);
      const third = (x) => (6 * x * x - 2) / (1 + x * x) ** 3;
      const step = (exponent) => Number((10 ** exponent).toPrecision(2)); // the h shown is the h used
      const measure = (x, h, { round, epsilon }) => {
        const f = (t) => round(Math.atan(t));
        const [a, b] = [round(x + round(h)), round(x - round(h))];
        const quotient = round(round(f(a) - f(b)) / round(2 * round(h)));
        const truncation = (Math.abs(third(x)) * h * h) / 6;
        const rounding = (epsilon * (Math.abs(Math.atan(x)) + Math.abs(x * slope(x)))) / (2 * h);
        return { quotient, error: Math.abs(quotient - slope(x)), truncation, rounding, stuck: a === b };
      };
      const say = ({ quotient, error, truncation, rounding, stuck }) => {
        const digits = Number(quotient.toPrecision(12));
        const why = stuck
          ? ["all rounding:", "x + h and x − h round to the same number"]
          : truncation > rounding
            ? ["mostly truncation,", `|f‴(x)| h²/6 = ${short(truncation)}`]
            : ["mostly rounding,", `which may reach ${short(rounding)}`];
        return [`quotient ${digits},`, `error ${short(error)},`, ...why].flatMap((words) => [" ", html("span", {}, words)]);
      };

      const point = choice("point x", ["0.5", "2"]);
      const single = check("float32 too");
      const slider = range("step h", -14, -1, 0.1, -6);
      const output = html("output", { "aria-live": "polite" });
      const drawing = plot({
        name: "Error of the central difference of arctan against the step h, both axes logarithmic",
        x: logarithmic({ from: -14, to: -1, every: 2, name: "step h" }),
        y: logarithmic({ from: -14, to: 0, every: 2, name: "error of the central difference" }),
        height: 340,
      });
      const update = () => {
        const x = Number(input(point).value);
        const h = step(Number(input(slider).value));
        const shown = types.slice(0, input(single).checked ? 2 : 1);
        const steps = Array.from({ length: 131 }, (_, i) => step(i / 10 - 14));
        // Each law is drawn where it rules, and a little beyond.
        const law = (key, other) =>
          steps.filter((s) => { const m = measure(x, s, types[0]); return m[key] > m[other] / 30 && m[key] < 1; })
            .map((s) => [s, measure(x, s, types[0])[key]]);
        drawing.show([
          { line: law("truncation", "rounding"), look: "law" },
          { line: law("rounding", "truncation"), look: "law" },
          { note: [0.09, 2e-13], text: "truncation ∝ h²", look: "end" },
          { note: [3e-12, 1e-3], text: "rounding ∝ ε/h" },
          ...shown.flatMap((type) => [
            { line: steps.map((s) => [s, measure(x, s, type).error]), look: type.look },
            { note: type.note, text: type.name, look: "bold" },
          ]),
          ...shown.map((type) => ({ mark: [h, measure(x, h, type).error], look: type.look })),
        ]);
        input(slider).setAttribute("aria-valuetext", `h = ${short(h)}`);
        output.replaceChildren(
          html("span", {}, `h = ${short(h)}, f′(x) = ${slope(x)}`),
          ...shown.map((type) => html("span", {}, html("strong", {}, `${type.name}:`), ...say(measure(x, h, type)))),
        );
      };
      for (const label of [point, single, slider]) label.addEventListener("input", update);
      return { parts: [html("div", { class: "controls" }, slider, point, single), drawing.root, output], update };
    },

    // Chapter 5: the clipped ReLU and its gradient; the clip value decides which of five inputs reach which branch.
    "clip-value"() {
      const inputs = [-0.85, 0.35, 0.95, 1.45, 2.25];
      const slider = range("clip value C", 0.5, 3, 0.1, 1.5);
      const output = html("output", { "aria-live": "polite" });
      const drawing = plot({
        name: "Clipped ReLU with five inputs on it, and its gradient, which is 0 at both edges",
        x: linear({ from: -1, to: 3.5, every: 0.5, name: "input x" }),
        y: linear({ from: -0.25, to: 3.25, every: 0.5, name: "output, and gradient for x (dashed)" }),
        height: 340,
      });
      const branch = (count, where) => html("span", {}, ` ${count} ${where}${where === "above" ? "" : ","}`);
      const update = () => {
        const clip = Number(input(slider).value);
        const f = (x) => Math.min(Math.max(x, 0), clip);
        const below = inputs.filter((x) => x <= 0).length;
        const above = inputs.filter((x) => x >= clip).length;
        drawing.show([
          { line: [[-1, 0], [0, 0], [clip, clip], [3.5, clip]], look: "one" },
          { line: [[-1, 0], [0, 0]], look: "two dashed" },
          { line: [[0, 1], [clip, 1]], look: "two dashed" },
          { line: [[clip, 0], [3.5, 0]], look: "two dashed" },
          ...[0, clip].flatMap((x) => [{ mark: [x, 1], look: "two open" }, { mark: [x, 0], look: "two" }]),
          ...inputs.map((x) => ({ mark: [x, f(x)], look: "one" })),
          { note: [3.45, clip], text: "clipped ReLU", look: "bold end", lift: 9 },
          { note: [3.45, 0], text: "gradient", look: "bold end", lift: 9 },
        ]);
        input(slider).setAttribute("aria-valuetext", `C = ${clip}`);
        output.replaceChildren(
          html("span", {}, `C = ${clip}. Inputs:`, branch(below, "below 0"),
            branch(inputs.length - below - above, "inside"), branch(above, "above")),
          html("span", {}, `Gradient of the sum of the outputs for C: ${above}`),
          html("span", {}, "gradcheck without the upper mask: ", html("strong", {}, above ? "fails" : "passes")),
        );
      };
      slider.addEventListener("input", update);
      return { parts: [html("div", { class: "controls" }, slider), drawing.root, output], update };
    },

    // Chapter 10: attention's score matrix by tiles, 10 queries in blocks of 4 against 11 keys in blocks of 3.
    "attention-tiles"() {
      const cut = (length, block) =>
        Array.from({ length: Math.ceil(length / block) }, (_, n) => [n * block, Math.min((n + 1) * block, length)]);
      const [rows, columns] = [cut(10, 4), cut(11, 3)]; // [first, last + 1] of each block
      const score = (i, j) => ((4 * i + 3 * j + 2) % 11) - 5;
      const hidden = (i, j) => input(causal).checked && j > i; // query i sees the keys up to i
      const numbers = ([from, to]) => (to - from === 1 ? `${from}` : `${from} to ${to - 1}`);
      const signed = (number) => (number === -Infinity ? "−∞" : String(number).replace("-", "−"));
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
        return { m, sum: weights.reduce((a, b) => a + b), out: weights.reduce((a, w, n) => a + w * keys[n], 0) };
      };

      const pass = choice("pass", ["forward", "backward"]);
      const causal = check("causal");
      const slider = range("step", 1, all.length, 1, 6); // some tiles done, some ahead
      const output = html("output", { "aria-live": "polite" });
      const root = svg("svg", { role: "img", "aria-label": "The score matrix, 10 queries by 11 keys, cut into 12 tiles" });
      const draw = () => {
        const order = all.filter((tile) => !skipped(tile));
        const now = order[Number(input(slider).value) - 1];
        const back = input(pass).value === "backward";
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
          const look = tile === now ? "now" : step === 0 ? "skipped" : step < input(slider).value ? "done" : "";
          box(`tile score ${look}`, x + 1, y + 1, w - 2, h - 2);
          if (step === 0) parts.push(svg("path", { class: "cross", d: `M${x + 1},${y + 1}l${w - 2},${h - 2}m0,${2 - h}l${2 - w},${h - 2}` }));
          if (tile === now)
            for (const [i, j] of cells(tile))
              say(px(j + 0.5), py(i + 0.5), hidden(i, j) ? "−∞" : signed(score(i, j)), "middle small score");
          else if (step) say(x + w / 2, y + h / 2, String(step));
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
        const step = Number(input(slider).value);
        const now = order[step - 1];
        const [queries, keys] = [numbers(now.row), numbers(now.column)];
        const masked = cells(now).filter(([i, j]) => hidden(i, j)).length;
        const query = now.row[1] - 1;
        const { m, sum, out } = state(query, now.column[1]);
        const last = order[step]?.row !== now.row;
        const lines = input(pass).value === "backward"
          ? [`Computes P again from lse. Adds to dq of queries ${queries}, to dk and dv of keys ${keys}`]
          : [`Updates m, ℓ and a of queries ${queries}. Query ${query}: m ${signed(m)}, ℓ ${sum.toFixed(2)}, a ${out.toFixed(2)}`,
            ...(last ? [`Rows ${queries} are done: o = a/ℓ (query ${query}: ${(out / sum).toFixed(2)}) and lse = m + log ℓ are stored`] : [])];
        input(slider).setAttribute("aria-valuetext", `step ${step} of ${order.length}`);
        output.replaceChildren(
          html("span", {}, html("strong", {}, `Step ${step} of ${order.length}:`), ` queries ${queries}, keys ${keys}; `,
            html("span", {}, `${cells(now).length} scores in memory`), masked ? `, ${masked} masked` : ""),
          html("span", {}, `Tiles skipped: ${all.length - order.length} of ${all.length}`),
          ...lines.map((line) => html("span", {}, line)),
        );
        draw();
      };
      for (const label of [pass, causal, slider]) label.addEventListener("input", update);
      new ResizeObserver(draw).observe(root);
      return { parts: [html("div", { class: "controls" }, slider, pass, causal), root, output], update };
    },
  };

  // ---------------------------------------------------------------- start
  for (const figure of document.querySelectorAll("figure[data-figure]")) {
    const build = figures[figure.dataset.figure];
    if (!build) throw new Error(`interactive.js has no figure "${figure.dataset.figure}"`);
    const { parts, update } = build();
    figure.replaceChildren(...parts, ...figure.querySelectorAll("figcaption"));
    for (const remark of figure.querySelectorAll(".without-script")) remark.remove();
    figure.classList.add("ready");
    update();
  }
})();
