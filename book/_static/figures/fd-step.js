/* Chapter 2: the step of a central difference of arctan against its error, in float64 and float32. */
(() => {
  "use strict";
  const { html, whole, short, range, choice, check, input, read, speak, logarithmic, plot } = figureKit;

  figureKit.add("fd-step", () => {
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
  });
})();
