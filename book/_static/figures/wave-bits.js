/* Chapter 8: a wave and 32 weights on a grid of few bits, of a net that was rounded after training, or trained with the rounding. */
(() => {
  "use strict";
  const { html, whole, choice, read, linear, plot } = figureKit;

  // All numbers are the chapter's: its first net, test wave 10, hidden unit 15; what is trained has LearnedStep's scales.
  const WAVE = [
    -0.261, -0.281, -0.584, -0.81, -1.006, -1.161, -1.469, -1.618, -1.431, -1.337, -1.172, -0.866, -0.641, -0.493, -0.368, -0.037,
    0.131, 0.386, 0.488, 0.787, 1.134, 1.236, 1.537, 1.656, 1.662, 1.449, 1.097, 0.99, 0.587, 0.577, 0.242, -0.108,
  ];
  const UNIT = [
    -0.515, -0.651, -0.398, 0.334, 0.637, 0.685, 0.35, 0.26, 0.419, 0.231, -0.58, -0.538, -0.846, -0.706, -0.271, 0.624,
    0.781, 1.103, 0.531, -0.31, -0.472, -0.541, -0.317, -0.11, 0.193, -0.363, -0.044, 0.803, 0.961, 0.484, -0.575, -0.56,
  ]; // in float64, before
  const NETS = {
    8: {
      rounded: { scales: [0.0154072, 0.0118927], right: 0.956, zeros: 14, says: "triangle" },
      trained: { scales: [0.0153495, 0.0122781], right: 0.96, zeros: 15, says: "triangle" },
      unit: [
        -0.56, -0.689, -0.417, 0.334, 0.66, 0.715, 0.375, 0.283, 0.439, 0.222, -0.613, -0.553, -0.863, -0.715, -0.272, 0.629,
        0.804, 1.125, 0.541, -0.321, -0.481, -0.57, -0.343, -0.123, 0.194, -0.347, -0.024, 0.825, 0.979, 0.496, -0.577, -0.563,
      ],
    },
    4: {
      rounded: { scales: [0.279531, 0.215768], right: 0.866, zeros: 196, says: "triangle" },
      trained: { scales: [0.234601, 0.148546], right: 0.928, zeros: 138, says: "triangle" },
      unit: [
        -0.609, -0.803, -0.486, 0.309, 0.668, 0.728, 0.405, 0.306, 0.489, 0.238, -0.587, -0.583, -0.845, -0.694, -0.264, 0.639,
        0.847, 1.143, 0.525, -0.284, -0.495, -0.602, -0.389, -0.143, 0.166, -0.324, -0.038, 0.843, 1.007, 0.514, -0.6, -0.577,
      ],
    },
    3: {
      rounded: { scales: [0.65224, 0.503459], right: 0.596, zeros: 438, says: "triangle" },
      trained: { scales: [0.476502, 0.246679], right: 0.862, zeros: 220, says: "triangle" },
      unit: [
        -0.695, -0.746, -0.469, 0.317, 0.6, 0.712, 0.363, 0.233, 0.464, 0.2, -0.78, -0.635, -0.869, -0.669, -0.341, 0.679,
        0.883, 1.103, 0.594, -0.294, -0.458, -0.609, -0.362, -0.17, 0.209, -0.343, 0.085, 0.85, 0.961, 0.45, -0.493, -0.617,
      ],
    },
    2: {
      rounded: { scales: [1.95672, 1.51038], right: 0.29, zeros: 946, says: "sawtooth" },
      trained: { scales: [0.931678, 0.419257], right: 0.712, zeros: 359, says: "triangle" },
      unit: [
        -0.631, -0.696, -0.473, 0.189, 0.578, 0.685, 0.37, 0.165, 0.383, 0.212, -0.625, -0.685, -0.974, -0.654, -0.239, 0.64,
        0.781, 1.103, 0.658, -0.191, -0.437, -0.713, -0.341, 0.055, 0.332, -0.371, 0, 0.803, 0.961, 0.609, -0.535, -0.639,
      ],
    },
  };
  const AFTER = "rounded after training", WITH = "trained with the rounding";
  const even = (v) => (Math.abs(v % 1) === 0.5 ? 2 * Math.round(v / 2) : Math.round(v)); // halves to even

  figureKit.add("wave-bits", () => {
    const bits = choice("bits", ["8", "4", "3", "2"]);
    const way = choice("the net was", [AFTER, WITH]);
    bits.lastChild.value = "2";
    const panel = (y, most, name) => plot({
      name, height: 190,
      x: linear({ from: -0.5, to: 31.5, every: 5, name: "sample" }),
      y: linear({ from: -most, to: most, every: 1, name: y }),
    });
    const panels = [
      panel("a triangle", 2.4, "32 samples of a triangle wave, and the same on the grid"),
      panel("a hidden unit's weight for each sample", 1.8, "32 weights of one hidden unit, and the same on the grid"),
    ];
    const update = () => {
      const b = Number(read(bits)), trained = read(way) === WITH;
      const net = NETS[b][trained ? "trained" : "rounded"];
      const high = 2 ** (b - 1) - 1, low = trained ? -high - 1 : -high;
      const clipped = [WAVE, trained ? NETS[b].unit : UNIT].map((numbers, n) => {
        const s = net.scales[n];
        const inside = (t) => even(t / s) >= low && even(t / s) <= high;
        const onGrid = (t) => Math.min(Math.max(even(t / s), low), high) * s;
        const edge = n === 0 ? 2.4 : 1.8;
        const levels = Array.from({ length: high - low + 1 }, (_, i) => (low + i) * s);
        const shown = b === 8 ? [] : levels.filter((level) => Math.abs(level) < edge);
        panels[n].show([
          ...shown.map((level) => ({ line: [[-0.5, level], [31.5, level]], look: "grid" })),
          { line: numbers.flatMap((t, i) => [[i - 0.5, onGrid(t)], [i + 0.5, onGrid(t)]]), look: "one" },
          { line: numbers.map((t, i) => [i, t]), look: "law" },
          ...numbers.map((t, i) => ({ mark: [i, t], size: inside(t) ? 3 : 6, look: inside(t) ? "float" : "wrong" })),
        ]);
        return numbers.filter((t) => !inside(t)).length;
      });
      const right = net.says === "triangle";
      return [
        [html("strong", {}, `${b} bits, ${trained ? WITH : AFTER}: `), whole(`right ${(100 * net.right).toFixed(1)} % of the time`)],
        [`${net.zeros} of 1024 weights are 0. `, whole(`Gradient 0 here: ${clipped[0]} samples, ${clipped[1]} weights`)],
        [`It takes this triangle for a ${net.says}: `, html("span", { class: `verdict ${right ? "right" : "wrong"}` }, right ? "right" : "wrong")],
      ];
    };
    return { controls: [bits, way], drawings: panels, update };
  });
})();
