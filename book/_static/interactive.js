/* Figures that the reader moves: drawn in the page, without a kernel, a request or a library.
 *
 * A chapter holds <figure data-figure="NAME"> with a table or picture in it that says the same without a script.
 * This file replaces all of it but the caption by controls, drawings and a few lines of text that tell what they show.
 * To add a figure, add a function to `figures`. It returns its controls, its drawings and `update`, which draws what
 * the controls say and returns the lines; the parts above `figures` make controls and plots. Nothing here moves by
 * itself, and every control is a native one, so the keyboard and a screen reader work as the reader expects.
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
  const linear = axis((value) => value, (k) => k, signed);
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

  // ---------------------------------------------------------------- the figures
  const figures = {
    // The first page: a bump in a small net, with its gradient by hand. The losses are those of the page's own code.
    "bump"(figure) {
      const losses = (name) => figure.dataset[name].split(" ").map((text, n) => [20 * n, 10 ** (Number(text) / 100)]);
      const bump = (x) => Math.exp(-x * x);
      const slope = (x) => -2 * x * bump(x);
      const xs = Array.from({ length: 121 }, (_, n) => -3 + n / 20);
      const asked = [-0.8, 0.5]; // gradcheck's inputs
      const forget = check("forget the factor y");
      input(forget).checked = true;
      const training = plot({
        name: "Loss of the small net against training step, the loss on a logarithmic axis",
        x: linear({ from: 0, to: 1050, every: 250, name: "step" }),
        y: logarithmic({ from: -3, to: 0, every: 1, name: "loss" }),
        height: 240,
      });
      const slopes = plot({
        name: "The slope of the bump as its author wrote it, and finite differences of the bump as points",
        x: linear({ from: -3, to: 3, every: 1, name: "x" }),
        y: linear({ from: -2, to: 2, every: 1, name: "slope by hand (line), measured (points)" }),
        height: 240,
      });
      const update = () => {
        const wrong = input(forget).checked;
        const [mine, look] = wrong ? [(x) => -2 * x, "wrong dashed"] : [slope, "right"];
        const [trained, other] = [losses(wrong ? "forgotten" : "autograd"), losses(wrong ? "autograd" : "forgotten")];
        const matrix = (f) => `[${asked.map((x) => signed(f(x).toFixed(4))).join(", ")}]`;
        training.show([
          { line: other, look: "law" },
          { note: other.at(-1), text: wrong ? "the right one" : "the wrong one", look: "end", lift: 10 },
          { line: trained, look },
          { note: trained.at(-12), text: `loss ${trained.at(-1)[1].toFixed(3)}`, look: "bold end", lift: 10 },
        ]);
        slopes.show([
          { line: xs.filter((x) => Math.abs(mine(x)) <= 2).map((x) => [x, mine(x)]), look },
          ...xs.filter((_, n) => n % 8 === 4).map((x) => ({ mark: [x, slope(x)], look: "element", size: 4 })),
        ]);
        return [
          [html("strong", {}, "by hand: "), whole(wrong ? "g * (−2 * x)" : "g * (−2 * x * y)")],
          [html("strong", {}, "training: "), whole("no error, no warning,"), " ", whole(`loss 0.646 → ${trained.at(-1)[1].toFixed(3)}`)],
          [html("strong", {}, "gradcheck: "), html("span", { class: `verdict ${wrong ? "wrong" : "right"}` }, wrong ? "fails" : "passes"),
            ". Diagonals: ", whole(`yours ${matrix(mine)},`), " ", whole(`measured ${matrix(slope)}`)],
        ];
      };
      return { controls: [forget], drawings: [training, slopes], update };
    },

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
        const cut = (third(x) * h * h) / 6; // of the error; the rest is rounding
        const truncation = Math.abs(cut);
        const rounding = (epsilon * (Math.abs(Math.atan(x)) + Math.abs(x * slope(x)))) / (2 * h);
        const error = quotient - slope(x);
        const cuts = truncation > Math.abs(error - cut);
        return { quotient, error: Math.abs(error), truncation, rounding, cuts, stuck: a === b };
      };
      const say = ({ quotient, error, truncation, rounding, cuts, stuck }) => {
        const digits = Number(quotient.toPrecision(12));
        const why = stuck
          ? ["all rounding:", "x + h and x − h round to the same number"]
          : cuts
            ? ["mostly truncation,", `|f‴(x)| h²/6 = ${short(truncation)}`]
            : ["mostly rounding,", `which may reach ${short(rounding)}`];
        return [`quotient ${digits},`, `error ${short(error)},`, ...why].flatMap((words) => [" ", whole(words)]);
      };

      const point = choice("point x", ["0.5", "2"]);
      const single = check("float32 too");
      const slider = range("step h", -14, -1, 0.1, -6);
      const drawing = plot({
        name: "Error of the central difference of arctan against the step h, both axes logarithmic",
        x: logarithmic({ from: -14, to: -1, every: 2, name: "step h" }),
        y: logarithmic({ from: -14, to: 0, every: 2, name: "error of the central difference" }),
        height: 340,
      });
      const update = () => {
        const x = Number(read(point));
        const h = step(read(slider));
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
        speak(slider, `h = ${short(h)}`);
        return [
          [`h = ${short(h)}, f′(x) = ${slope(x)}`],
          ...shown.map((type) => [html("strong", {}, `${type.name}:`), ...say(measure(x, h, type))]),
        ];
      };
      return { controls: [slider, point, single], drawings: [drawing], update };
    },

    // Chapter 5: PACT, a ReLU clipped at a learnable alpha, its slope, and which of five inputs pull on alpha.
    "clip-value"() {
      const inputs = [-0.85, 0.35, 0.95, 1.45, 2.25];
      const slider = range("clip value α", 0.5, 3, 0.1, 1.5);
      const drawing = plot({
        name: "x clipped to [0, α] with five inputs on it, and its slope in x, which is 0 at both edges",
        x: linear({ from: -1, to: 3.5, every: 0.5, name: "input x" }),
        y: linear({ from: -0.25, to: 3.25, every: 0.5, name: "output, and slope in x (dashed)" }),
        height: 340,
      });
      const update = () => {
        const alpha = read(slider);
        const f = (x) => Math.min(Math.max(x, 0), alpha);
        const above = inputs.filter((x) => x >= alpha);
        const below = inputs.filter((x) => x <= 0).length;
        const inside = inputs.length - below - above.length;
        const pulls = above.map(() => 1);
        drawing.show([
          { line: [[-1, 0], [0, 0], [alpha, alpha], [3.5, alpha]], look: "one" },
          { line: [[-1, 0], [0, 0]], look: "two dashed" },
          { line: [[0, 1], [alpha, 1]], look: "two dashed" },
          { line: [[alpha, 0], [3.5, 0]], look: "two dashed" },
          ...[0, alpha].flatMap((x) => [{ mark: [x, 1], look: "two open" }, { mark: [x, 0], look: "two" }]),
          ...inputs.map((x) => ({ mark: [x, f(x)], look: "one" })),
          ...above.map((x) => ({ note: [x, alpha], text: "+1", look: "bold middle", lift: -20 })), // its pull on alpha
          { note: [3.45, alpha], text: "PACT", look: "bold end", lift: 9 },
          { note: [3.45, 0], text: "slope", look: "bold end", lift: 9 },
        ]);
        speak(slider, `α = ${alpha}`);
        return [
          [`α = ${alpha}. Inputs: `, whole(`${below} below 0,`), " ", whole(`${inside} inside,`), " ", whole(`${above.length} above`)],
          ["Gradient for α, v summed over ", whole("x ≥ α:"), " ",
            whole(pulls.length > 1 ? `${pulls.join(" + ")} = ${pulls.length}` : pulls.length)],
          ["gradcheck without the upper mask: ", html("strong", {}, above.length ? "fails" : "passes")],
        ];
      };
      return { controls: [slider], drawings: [drawing], update };
    },

    // Chapter 7: six pieces of a vector are merged one by one; float32, as the plain sum that they are compared with.
    "streaming-lse"() {
      const pieces = [[85, 87], [88, 86], [90, 89, 90], [84], [91, 88.5], [-Infinity, -Infinity]];
      const orders = { "as given": [0, 1, 2, 3, 4, 5], reversed: [5, 4, 3, 2, 1, 0], shuffled: [3, 2, 5, 0, 4, 1] };
      const float = Math.fround;
      const total = (terms) => terms.reduce((a, b) => float(a + b), 0);
      const exp = (x) => float(Math.exp(float(x)));
      const guard = (m) => (Number.isFinite(m) ? m : 0);
      const state = (x) => {
        const m = Math.max(...x);
        return { m, s: total(x.map((t) => exp(t - guard(m)))) };
      };
      const merge = (one, two) => {
        const m = Math.max(one.m, two.m);
        return { m, s: float(float(one.s * exp(one.m - guard(m))) + float(two.s * exp(two.m - guard(m)))) };
      };
      const lse = ({ m, s }) => float(m + float(Math.log(s)));
      const nothing = { m: -Infinity, s: 0 };
      // The states after 0, 1, ... 6 pieces.
      const stream = (order) => order.reduce((states, k) => [...states, merge(states.at(-1), state(pieces[k]))], [nothing]);
      const decimals = (number) => (Number.isFinite(number) ? number.toFixed(4) : signed(number));
      const end = (order) => decimals(lse(stream(order).at(-1)));

      const chosen = choice("order", Object.keys(orders));
      const slider = range("pieces merged", 0, pieces.length, 1, 2);
      const drawing = plot({
        name: "m and m + log s after each piece, in three orders that end at the same point",
        x: linear({ from: 0, to: pieces.length, every: 1, name: "pieces merged" }),
        y: linear({ from: 82.5, to: 92.5, every: 2, also: [[-Infinity, "−∞"]], name: "m (dashed), m + log s; elements of a piece (small)" }),
        height: 320,
      });
      const update = () => {
        const [order, count] = [orders[read(chosen)], read(slider)];
        const states = stream(order);
        const seen = order.slice(0, count).map((k) => pieces[k]);
        const plain = total(seen.flat().map(exp));
        const now = states[count];
        const piece = count ? seen.at(-1) : [];
        const own = count ? state(piece) : nothing;
        const trace = (f, list) => list.map((each, n) => [n, f(each)]);
        const limit = Math.log(2 ** 128); // beyond it, exp is infinite in float32
        drawing.show([
          { line: [[0, limit], [6, limit]], look: "limit" },
          { note: [5.95, limit], text: "float32: exp = ∞", look: "end", lift: 6 },
          ...Object.values(orders).map((each) => ({ line: trace(lse, stream(each)), look: "law" })),
          ...seen.flatMap((x, n) => x.map((t) => ({ mark: [n + 1, t], look: "element", size: 4 }))),
          { line: trace(({ m }) => m, states.slice(0, count + 1)), look: "two dashed" },
          { line: trace(lse, states.slice(0, count + 1)), look: "one" },
          { mark: [count, now.m], look: "two" },
          { mark: [count, lse(now)], look: "one" },
        ]);
        speak(slider, `${count} of ${pieces.length} pieces`);
        return [
          [html("strong", {}, `${count} of ${pieces.length} pieces.`),
            count ? ` The last, (${piece.map(signed).join(", ")}): ` : " Nothing: ",
            whole(`m = ${signed(own.m)},`), " ", whole(`s = ${decimals(own.s)}`)],
          ["Merged: ", whole(`m = ${signed(now.m)},`), " ", whole(`s = ${decimals(now.s)},`), " ",
            whole(`m + log s = ${decimals(lse(now))}`)],
          ["Plain sum in float32: ", whole(`${plain === Infinity ? "∞" : short(plain)},`), " ",
            whole(`its log ${decimals(float(Math.log(plain)))}`)],
          ["At the end: ", ...Object.entries(orders).flatMap(([name, each], n) => [n ? ", " : "", whole(`${name} ${end(each)}`)])],
        ];
      };
      return { controls: [slider, chosen], drawings: [drawing], update };
    },

    // Chapter 8: twelve inputs on a signed grid of b bits. Its scale is a fraction of the one at which all of them fit.
    "quantiser-bits"() {
      const inputs = [-1.81, -1.12, -0.86, -0.58, -0.34, -0.07, 0.08, 0.34, 0.54, 0.76, 1.13, 2.3];
      const largest = Math.max(...inputs.map(Math.abs));
      const twentieths = Array.from({ length: 19 }, (_, i) => i + 2);
      const even = (v) => (Math.abs(v % 1) === 0.5 ? 2 * Math.round(v / 2) : Math.round(v)); // halves to even
      const grid = (bits, k) => {
        const [low, high] = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1];
        const s = ((largest / high) * k) / 20;
        const level = (x) => even(x / s);
        const passes = (x) => level(x) >= low && level(x) <= high;
        const y = (x) => Math.min(Math.max(level(x), low), high) * s;
        const error = (x) => (y(x) - x) ** 2 / inputs.length;
        const rounding = sum(inputs.filter(passes).map(error));
        const clipping = sum(inputs.filter((x) => !passes(x)).map(error));
        const ends = [(low - 0.5) * s, (high + 0.5) * s];
        return { low, high, s, y, passes, rounding, clipping, error: rounding + clipping, ends };
      };

      const width = range("bits b", 2, 8, 1, 3);
      const scale = range("scale s", 2, 20, 1, 12);
      const stairs = plot({
        name: "Twelve inputs on the staircase of the quantiser, and where its gradient is 0",
        x: linear({ from: -3, to: 3, every: 1, name: "input x" }),
        y: linear({ from: -3, to: 3, every: 1, name: "y, and x (dotted)" }),
        height: 250, // with the sliders and what is said, a telephone's screen
      });
      const errors = plot({
        name: "Rounding error and clipping error for 2 to 8 bits",
        x: linear({ from: 1.8, to: 8.2, every: 1, name: "bits b" }),
        y: logarithmic({ from: -6, to: 0, every: 2, name: "mean squared error: rounding, clipping (dashed)" }),
        height: 160,
      });
      const update = () => {
        const [bits, k] = [read(width), read(scale)];
        const { low, high, s, y, passes, rounding, clipping, error, ends } = grid(bits, k);
        const jumps = Array.from({ length: high - low }, (_, i) => low + i + 0.5).filter((q) => Math.abs(q * s) < 3);
        const risers = jumps.flatMap((q) => [[q * s, (q - 0.5) * s], [q * s, (q + 0.5) * s]]);
        const best = twentieths.reduce((a, b) => (grid(bits, b).error < grid(bits, a).error ? b : a));
        const zeros = inputs.filter((x) => !passes(x)).length;
        stairs.show([
          { band: [-3, ends[0]] }, { band: [ends[1], 3] },
          { line: [[-3, -3], [3, 3]], look: "law" },
          { line: [[-3, y(-3)], ...risers, [3, y(3)]], look: "one" },
          ...inputs.map((x) => ({ line: [[x, x], [x, y(x)]], look: "two" })),
          ...inputs.map((x) => ({ mark: [x, y(x)], look: passes(x) ? "one" : "two open" })),
          ...(ends[0] > -3 ? [{ note: [-2.95, 3], text: "gradient 0", lift: -14 }] : []),
          ...(ends[1] < 3 ? [{ note: [2.95, -3], text: "gradient 0", look: "end", lift: 8 }] : []),
        ]);
        const curve = (part) => [2, 3, 4, 5, 6, 7, 8].map((b) => [b, grid(b, k)[part]]).filter((point) => point[1] > 0);
        errors.show([
          { line: curve("rounding"), look: "one" },
          { line: curve("clipping"), look: "two dashed" },
          { mark: [bits, rounding], look: "one" },
          ...(clipping ? [{ mark: [bits, clipping], look: "two open" }] : []),
        ]);
        speak(width, `b = ${bits}`);
        speak(scale, `s = ${s.toPrecision(3)}, ${5 * k} % of the scale at which all inputs fit`);
        return [
          [html("strong", {}, `b = ${bits}:`), ` q from ${signed(low)} to ${high}, `, whole(`s = ${s.toPrecision(3)}`),
            ` (${5 * k} % of the scale at which all inputs fit)`],
          [`Mean squared error ${short(error, 2)}: `, whole(`rounding ${short(rounding, 2)},`), " ",
            whole(`clipping ${short(clipping, 2)}`)],
          [`Gradient 0 at ${zeros} of ${inputs.length} inputs: `, whole(`x below ${signed(ends[0].toFixed(2))}`), " ",
            whole(`or above ${ends[1].toFixed(2)}`)],
          [`Least error at ${bits} bits: `, whole(`${short(grid(bits, best).error, 2)}, at ${5 * best} %`)],
        ];
      };
      return { controls: [width, scale], drawings: [stairs, errors], update };
    },

    // Chapter 10: attention's score matrix by tiles, 10 queries in blocks of 4 against 11 keys in blocks of 3.
    "attention-tiles"() {
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
    },
  };

  // ---------------------------------------------------------------- start
  for (const figure of document.querySelectorAll("figure[data-figure]")) {
    const build = figures[figure.dataset.figure];
    if (!build) throw new Error(`interactive.js has no figure "${figure.dataset.figure}"`);
    const { controls, drawings, update } = build(figure);
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
  }
})();
