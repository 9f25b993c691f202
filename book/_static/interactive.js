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

  // ---------------------------------------------------------------- a plot with two logarithmic axes
  // x and y: {from, to, every, name}, in powers of ten. show(layers) draws; a layer is {line: points},
  // {mark: point} or {note: point, text}, each with a class for its look; points are pairs of numbers.
  function logPlot({ x, y, name, height }) {
    const root = svg("svg", { role: "img", "aria-label": name });
    const [left, right, top, bottom] = [52, 12, 26, 44];
    let layers = [];
    const draw = () => {
      const width = Math.max(root.getBoundingClientRect().width, 280);
      const along = (axis, value) => (Math.log10(value) - axis.from) / (axis.to - axis.from);
      const px = (value) => left + along(x, value) * (width - left - right);
      const py = (value) => height - bottom - Math.min(Math.max(along(y, value), 0), 1) * (height - top - bottom);
      const parts = [];
      const every = width < 480 ? 2 * x.every : x.every;
      for (let k = x.to - 1 + ((every - x.to + 1) % every); k >= x.from; k -= every) {
        parts.push(svg("path", { class: "grid", d: `M${px(10 ** k)},${top}V${height - bottom}` }));
        parts.push(svg("text", { x: px(10 ** k), y: height - bottom + 18, class: "middle" }, power(k)));
      }
      for (let k = y.to; k >= y.from; k -= y.every) {
        parts.push(svg("path", { class: "grid", d: `M${left},${py(10 ** k)}H${width - right}` }));
        parts.push(svg("text", { x: left - 6, y: py(10 ** k) + 4, class: "end" }, power(k)));
      }
      parts.push(svg("text", { x: (left + width - right) / 2, y: height - 6, class: "middle" }, x.name));
      parts.push(svg("text", { x: 4, y: 14 }, y.name));
      for (const { line, mark, note, text, look = "" } of layers) {
        if (line) parts.push(svg("polyline", { class: look, points: line.map(([a, b]) => `${px(a)},${py(b)}`).join(" ") }));
        if (mark) parts.push(svg("circle", { class: look, cx: px(mark[0]), cy: py(mark[1]), r: 6 }));
        if (note) parts.push(svg("text", { class: look, x: px(note[0]), y: py(note[1]) }, text));
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
      const plot = logPlot({
        name: "Error of the central difference of arctan against the step h, both axes logarithmic",
        x: { from: -14, to: -1, every: 2, name: "step h" },
        y: { from: -14, to: 0, every: 2, name: "error of the central difference" },
        height: 340,
      });
      const input = (label) => label.lastChild;
      const update = () => {
        const x = Number(input(point).value);
        const h = step(Number(input(slider).value));
        const shown = types.slice(0, input(single).checked ? 2 : 1);
        const steps = Array.from({ length: 131 }, (_, i) => step(i / 10 - 14));
        // Each law is drawn where it rules, and a little beyond.
        const law = (key, other) =>
          steps.filter((s) => { const m = measure(x, s, types[0]); return m[key] > m[other] / 30 && m[key] < 1; })
            .map((s) => [s, measure(x, s, types[0])[key]]);
        plot.show([
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
      return { parts: [html("div", { class: "controls" }, slider, point, single), plot.root, output], update };
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
