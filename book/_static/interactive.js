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
