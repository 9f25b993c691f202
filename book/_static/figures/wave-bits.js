/* Chapter 8: a wave and 32 weights on a grid of few bits, of a net that was rounded after training, or trained with the rounding. */
(() => {
  "use strict";
  const { html, whole, choice, read, linear, plot } = figureKit;

  // All numbers are the chapter's: its first net, test wave 10, hidden unit 15; what is trained has LearnedStep's scales.
  const WAVE = [
    -0.261, -0.2808, -0.5843, -0.8099, -1.006, -1.1615, -1.4689, -1.6176, -1.4308, -1.3372, -1.1722, -0.8657, -0.6412, -0.4927, -0.3676, -0.0367,
    0.1313, 0.3856, 0.488, 0.7875, 1.1339, 1.2361, 1.5369, 1.6562, 1.6616, 1.4487, 1.0967, 0.9904, 0.5875, 0.5768, 0.2425, -0.1082,
  ];
  const UNIT = [
    -0.5155, -0.651, -0.3977, 0.3341, 0.6367, 0.685, 0.3495, 0.2604, 0.4191, 0.2312, -0.5802, -0.538, -0.8457, -0.7055, -0.2705, 0.6241,
    0.7815, 1.1035, 0.5312, -0.3104, -0.4718, -0.5409, -0.3174, -0.11, 0.1934, -0.3633, -0.0436, 0.8031, 0.9608, 0.4839, -0.5753, -0.5603,
  ]; // in float64, before
  const NETS = {
    8: {
      rounded: { scales: [0.0154072, 0.0118927], right: 0.956, zeros: 14, says: "triangle" },
      trained: { scales: [0.0153495, 0.0122781], right: 0.96, zeros: 15, says: "triangle" },
      unit: [
        -0.5595, -0.6886, -0.4167, 0.3338, 0.6602, 0.7155, 0.3751, 0.2827, 0.4388, 0.2223, -0.6131, -0.5533, -0.8635, -0.7151, -0.2722, 0.6293,
        0.8038, 1.1253, 0.5411, -0.3208, -0.4814, -0.5697, -0.3432, -0.1225, 0.1941, -0.3466, -0.0243, 0.8247, 0.9791, 0.4965, -0.577, -0.5626,
      ],
    },
    4: {
      rounded: { scales: [0.279531, 0.215768], right: 0.866, zeros: 196, says: "triangle" },
      trained: { scales: [0.234601, 0.148546], right: 0.928, zeros: 138, says: "triangle" },
      unit: [
        -0.6086, -0.8027, -0.486, 0.309, 0.6675, 0.728, 0.4048, 0.3058, 0.4886, 0.2382, -0.5874, -0.5833, -0.8447, -0.6937, -0.2641, 0.639,
        0.847, 1.1431, 0.5246, -0.2841, -0.4954, -0.6016, -0.3892, -0.1428, 0.166, -0.3244, -0.0375, 0.8432, 1.0071, 0.5136, -0.6001, -0.5765,
      ],
    },
    3: {
      rounded: { scales: [0.65224, 0.503459], right: 0.596, zeros: 438, says: "triangle" },
      trained: { scales: [0.476502, 0.246679], right: 0.862, zeros: 220, says: "triangle" },
      unit: [
        -0.6954, -0.7461, -0.4685, 0.3169, 0.6004, 0.712, 0.3626, 0.2329, 0.4638, 0.1996, -0.7797, -0.6347, -0.8689, -0.669, -0.3411, 0.6789,
        0.883, 1.1035, 0.5942, -0.2942, -0.4582, -0.609, -0.3624, -0.1695, 0.2086, -0.343, 0.0846, 0.8497, 0.9608, 0.4503, -0.4928, -0.6168,
      ],
    },
    2: {
      rounded: { scales: [1.95672, 1.51038], right: 0.29, zeros: 946, says: "sawtooth" },
      trained: { scales: [0.931678, 0.419257], right: 0.712, zeros: 359, says: "triangle" },
      unit: [
        -0.631, -0.6962, -0.4735, 0.1889, 0.578, 0.685, 0.3704, 0.1653, 0.3833, 0.2124, -0.6249, -0.685, -0.9739, -0.6537, -0.2387, 0.6398,
        0.7815, 1.1035, 0.6582, -0.191, -0.4373, -0.7134, -0.3412, 0.0545, 0.332, -0.3708, 0.0002, 0.8031, 0.9608, 0.609, -0.5353, -0.6391,
      ],
    },
  };
  const AFTER = "rounded after training", WITH = "trained with the rounding";
  const even = (v) => (Math.abs(v % 1) === 0.5 ? 2 * Math.round(v / 2) : Math.round(v)); // halves to even

  figureKit.add("wave-bits", () => {
    const bits = choice("bits", ["2", "3", "4", "8"]);
    const way = choice("the net was", [AFTER, WITH]);
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
        [`${net.zeros} of 1024 weights are 0. `, whole(`${trained ? "Gradient 0" : "Clipped"} here: ${clipped[0]} samples, ${clipped[1]} weights`)],
        [`It takes this triangle for a ${net.says}: `, html("span", { class: `verdict ${right ? "right" : "wrong"}` }, right ? "right" : "wrong")],
      ];
    };
    return { controls: [bits, way], drawings: panels, update };
  });
})();
