/* Chapter 8: twelve inputs on a signed grid of b bits. Its scale is a fraction of the one at which all of them fit. */
(() => {
  "use strict";
  const { html, whole, short, signed, sum, range, read, speak, linear, logarithmic, plot } = figureKit;

  figureKit.add("quantiser-bits", () => {
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
  });
})();
