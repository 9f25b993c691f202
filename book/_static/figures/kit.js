/* The kit for figures that the reader moves: drawn in the page, without a kernel, a request or a library.
 *
 * A page holds <figure class="interactive" data-figure="NAME"> with a table or picture in it that says the same without a
 * script. The build loads this file and figures/NAME.js there, and figures/NAME.js says how it is built:
 *
 *   figureKit.add("NAME", (figure) => ({ controls, drawings, update, play }));
 *
 * - controls: labels made by `range`, `choice` or `check`: native inputs, so that the keyboard and a screen reader work;
 * - drawings: made by `plot`, which has axes, or by `sketch`, which has none; both are drawn again where the width changes;
 * - update: called after each input; draws what the controls say, and returns the lines of text that tell it;
 * - play, optional: a range. The first time that a reader sees the figure, it runs once from its start to where it rests.
 *   It does not where motion is to be reduced, and any input ends it.
 *
 * What stands in the figure is replaced by all that, but for the caption. The smallest whole figure (`sine-fit.js` is the
 * model of a longer one):
 *
 *   const { html, range, read, speak, linear, plot } = figureKit;
 *   figureKit.add("NAME", () => {
 *     const slider = range("x", 0, 10, 1, 3); // its words, from, to, step, where it rests
 *     const drawing = plot({
 *       name: "x squared, and the chosen x", // the alternative text: what is drawn, no number that moves
 *       x: linear({ from: 0, to: 10, every: 2, name: "x" }), // also: [[3, "3"]] would be a tick of its own
 *       y: linear({ from: 0, to: 100, every: 20, name: "x²" }),
 *       height: 300,
 *     });
 *     const update = () => {
 *       const x = read(slider);
 *       drawing.show([ // layers, the last on top; their forms stand above `plot`, their looks in CONTRIBUTING.md
 *         { line: [[0, 0], [1, 1], [2, 4], [3, 9]], look: "one" },
 *         { mark: [x, x * x], look: "two", size: 6 },
 *       ]);
 *       speak(slider, `x is ${x}`); // what a screen reader says of the slider's place; nothing says it by itself
 *       return [[html("strong", {}, "x squared: "), String(x * x)]]; // lines; each is a list of texts and elements
 *     };
 *     return { controls: [slider], drawings: [drawing], update, play: slider };
 *   });
 *
 * `whole` keeps words on one line, so that a read-out breaks between them.
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
  const whole = (words) => html("span", {}, words); // words that stay on one line
  const power = (exponent) => "10" + [...String(exponent)].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] ?? "⁻").join("");
  const short = (number, digits = 1) => (number === 0 ? "0" : number.toExponential(digits).replace("+", ""));
  const signed = (text) => String(text).replace("-", "−").replace("Infinity", "∞");
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

  // ---------------------------------------------------------------- controls: each a label around a native input
  const control = (text, input) => html("label", {}, html("span", {}, text), input);
  const range = (text, from, to, step, value) =>
    control(text, html("input", { type: "range", min: from, max: to, step, value }));
  const choice = (text, values) => control(text, html("select", {}, ...values.map((v) => html("option", {}, v))));
  const check = (text) => control(text, html("input", { type: "checkbox" }));
  const input = (label) => label.lastChild;
  const read = (label) => (input(label).type === "range" ? Number(input(label).value) : input(label).value);
  const speak = (label, text) => input(label).setAttribute("aria-valuetext", text); // what the slider's place means

  // ---------------------------------------------------------------- a plot
  // An axis says where a value lies (`along`, from 0 to 1) and which values have a tick, with their text: the multiples
  // of `every`, or of twice that where there is little room, and what is in `also`. A logarithmic axis is given in powers of ten.
  const multiples = (step, from, to) =>
    Array.from({ length: Math.floor(to / step) - Math.ceil(from / step) + 1 }, (_, i) => (Math.ceil(from / step) + i) * step);
  const axis = (scale, inverse, text) => ({ from, to, every, also = [], name }) => ({
    name,
    along: (value) => (scale(value) - from) / (to - from),
    ticks: (narrow) => [...also, ...multiples(narrow ? 2 * every : every, from, to).map((k) => [inverse(k), text(k)])],
  });
  const linear = axis((value) => value, (k) => k, (k) => signed(Number(k.toPrecision(12)))); // 0.6, not 0.6000000000000001
  const logarithmic = axis(Math.log10, (k) => 10 ** k, power);

  // show(layers) draws; a layer is {line: points}, {mark: point, size}, {note: point, text} or {band: [from, to]}, a part
  // of the x axis, each with a class for its look; points are pairs of numbers, and `lift` moves a note up by pixels.
  function plot({ x, y, name, height }) {
    const root = svg("svg", { role: "img", "aria-label": name });
    const [left, right, top, bottom] = [52, 12, 26, 44];
    let layers = [];
    const draw = () => {
      const width = Math.max(root.getBoundingClientRect().width, 280);
      const inside = (share) => Math.min(Math.max(share, 0), 1);
      const px = (value) => left + inside(x.along(value)) * (width - left - right);
      const py = (value) => height - bottom - inside(y.along(value)) * (height - top - bottom);
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
      for (const { line, mark, note, band, text, size = 6, look = "", lift = 0 } of layers) {
        if (band) parts.push(svg("path", { class: "band", d: `M${px(band[0])},${top}H${px(band[1])}V${height - bottom}H${px(band[0])}Z` }));
        if (line?.length) parts.push(svg("polyline", { class: look, points: line.map(([a, b]) => `${px(a)},${py(b)}`).join(" ") }));
        if (mark) parts.push(svg("circle", { class: look, cx: px(mark[0]), cy: py(mark[1]), r: size }));
        if (note) parts.push(svg("text", { class: look, x: px(note[0]), y: py(note[1]) - lift }, text));
      }
      root.setAttribute("viewBox", `0 0 ${width} ${height}`);
      root.replaceChildren(...parts);
    };
    new ResizeObserver(draw).observe(root);
    return { root, show: (next) => { layers = next; draw(); } };
  }

  // A drawing of its own: draw(width) returns its height and its parts, both in pixels.
  function sketch({ name, draw }) {
    const root = svg("svg", { role: "img", "aria-label": name });
    const show = () => {
      const width = Math.max(root.getBoundingClientRect().width, 280);
      const { height, parts } = draw(width);
      root.setAttribute("viewBox", `0 0 ${width} ${height}`);
      root.replaceChildren(...parts);
    };
    new ResizeObserver(show).observe(root);
    return { root, show };
  }

  // ---------------------------------------------------------------- one run, the first time that it is seen
  const SECONDS = 2.5; // for the whole run
  function playOnce(figure, label, tell) {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches || !("IntersectionObserver" in window)) return;
    const slider = input(label);
    const [from, to, step] = [slider.min, slider.value, slider.step].map(Number);
    const places = Math.round((to - from) / step);
    let timer;
    const seen = new IntersectionObserver(([entry]) => {
      if (!entry.isIntersecting) return;
      seen.disconnect();
      figure.querySelector("output").setAttribute("aria-live", "off"); // a screen reader hears where it rests, no more
      let place = 0;
      const go = () => {
        slider.value = from + place * step;
        tell();
        if (place++ === places) return stop();
        timer = setTimeout(go, (1000 * SECONDS) / places);
      };
      go();
    }, { threshold: 0.6 });
    const stop = () => {
      clearTimeout(timer);
      seen.disconnect();
      figure.querySelector("output").setAttribute("aria-live", "polite");
      for (const kind of ["pointerdown", "keydown", "input"]) figure.removeEventListener(kind, stop, true);
    };
    for (const kind of ["pointerdown", "keydown", "input"]) figure.addEventListener(kind, stop, true);
    seen.observe(figure);
  }

  // ---------------------------------------------------------------- start
  function add(name, build) {
    for (const figure of document.querySelectorAll(`figure[data-figure="${name}"]`)) {
      const { controls, drawings, update, play } = build(figure);
      const output = html("output", { "aria-live": "polite" });
      const tell = () => output.replaceChildren(...update().map((line) => html("span", {}, ...line)));
      for (const label of controls) label.addEventListener("input", tell);
      figure.replaceChildren(
        html("div", { class: "controls" }, ...controls), ...drawings.map((drawing) => drawing.root), output,
        ...figure.querySelectorAll("figcaption"),
      );
      for (const remark of figure.querySelectorAll(".without-script")) remark.remove();
      figure.classList.add("ready");
      tell();
      if (play) playOnce(figure, play, tell);
    }
  }

  window.figureKit = {
    add, html, svg, whole, power, short, signed, sum, range, choice, check, input, read, speak, linear, logarithmic, plot, sketch,
  };
})();
