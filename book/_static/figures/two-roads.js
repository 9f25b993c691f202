/* Chapter 3: the value goes down a step, the gradient comes back up another function, and latent weights are trained so. */
(() => {
  "use strict";
  const { html, whole, signed, range, choice, read, speak, linear, plot } = figureKit;

  const ARRIVES = -2; // the upstream gradient
  const EVERY = 3; // training steps between two places of the slider
  const step = (x) => (x > 0 ? 1 : 0);
  const TIMES = Array.from({ length: 34 }, (_, n) => n * EVERY);
  // Of the chapter's run: the loss in hundredths before each third step, and eight latent weights in ten-thousandths.
  const WAYS = [
    { name: "a ramp", pretend: (x) => Math.min(Math.max(x + 0.5, 0), 1), slope: (x) => (Math.abs(x) <= 0.5 ? 1 : 0),
      knows: (x) => (Math.abs(x) <= 0.5 ? "the ramp's slope is 1 here" : "the ramp is flat here"),
      loss: [199, 58, 33, 25, 16, 14, 11, 8, 8, 6, 6, 6, 6, 5, 5, 5, 5, 5, 5, 5, 5, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
      weights: [
        [600, 1069, 1072, 1106, 1280, 1551, 1878, 2216, 2503, 2731, 2926, 3040, 3108, 3165, 3234, 3292, 3269, 3192, 3129, 3078, 3007, 2969, 2917, 2887, 2875, 2894, 2909, 2870, 2861, 2801, 2742, 2679, 2653, 2627],
        [-167, -8, 319, 470, 503, 426, 292, 157, 79, 32, 21, 19, 23, 72, 147, 205, 237, 251, 255, 269, 276, 295, 312, 334, 364, 403, 425, 439, 419, 382, 349, 312, 328, 372],
        [-710, -919, -458, -3, 397, 645, 787, 881, 983, 1098, 1208, 1305, 1394, 1498, 1605, 1701, 1809, 1926, 2020, 2118, 2229, 2341, 2453, 2554, 2647, 2753, 2867, 2982, 3069, 3168, 3276, 3403, 3536, 3674],
        [-185, -756, -1309, -1853, -2356, -2853, -3314, -3691, -3983, -4290, -4587, -4845, -5059, -5220, -5341, -5433, -5501, -5553, -5591, -5620, -5642, -5658, -5670, -5679, -5686, -5691, -5695, -5698, -5700, -5701, -5702, -5703, -5704, -5704],
        [663, 155, 216, 475, 602, 514, 301, 53, -131, -203, -170, -64, 95, 216, 282, 292, 296, 305, 257, 164, 69, -56, -112, -127, -99, -49, 4, 38, 7, -8, -26, 6, -14, -3],
        [217, 756, 1318, 1861, 2365, 2793, 3165, 3504, 3817, 4085, 4323, 4546, 4766, 4993, 5204, 5363, 5483, 5573, 5640, 5691, 5729, 5757, 5778, 5794, 5806, 5814, 5821, 5826, 5829, 5832, 5834, 5835, 5837, 5837],
        [642, 241, 111, -250, -614, -975, -1309, -1593, -1813, -2032, -2244, -2432, -2615, -2750, -2849, -2930, -3018, -3112, -3190, -3244, -3289, -3301, -3292, -3280, -3275, -3290, -3346, -3414, -3476, -3527, -3580, -3643, -3681, -3701],
        [946, 1533, 2083, 2596, 3053, 3515, 3944, 4294, 4565, 4801, 4997, 5165, 5292, 5387, 5460, 5514, 5555, 5586, 5609, 5626, 5639, 5649, 5656, 5661, 5665, 5668, 5671, 5672, 5673, 5674, 5675, 5675, 5676, 5676],
      ] },
    { name: "the identity", pretend: (x) => x + 0.5, slope: () => 1,
      knows: () => "the identity's slope is 1 everywhere",
      loss: [199, 67, 36, 25, 20, 19, 18, 15, 14, 13, 11, 11, 10, 10, 10, 10, 10, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 8, 8, 8, 8, 8],
      weights: [
        [600, 1162, 1438, 1575, 1675, 1757, 1837, 1938, 2044, 2145, 2232, 2305, 2383, 2467, 2559, 2683, 2820, 2941, 3069, 3188, 3287, 3371, 3452, 3534, 3622, 3724, 3824, 3915, 4010, 4114, 4227, 4338, 4449, 4571],
        [-167, -608, -607, -606, -535, -450, -402, -407, -414, -420, -425, -427, -416, -390, -364, -365, -370, -353, -334, -325, -338, -367, -400, -440, -482, -505, -535, -581, -629, -679, -736, -793, -844, -905],
        [-710, -1198, -1066, -811, -533, -248, 45, 331, 595, 836, 1059, 1269, 1476, 1685, 1890, 2077, 2261, 2457, 2654, 2842, 3028, 3217, 3403, 3583, 3760, 3942, 4119, 4294, 4463, 4625, 4785, 4951, 5121, 5284],
        [-185, -747, -1276, -1796, -2258, -2676, -3085, -3504, -3904, -4301, -4695, -5075, -5431, -5760, -6075, -6385, -6691, -6993, -7293, -7602, -7932, -8276, -8623, -8971, -9317, -9652, -9995, -10347, -10704, -11062, -11416, -11767, -12119, -12473],
        [663, 84, -115, -113, -64, -13, 17, 20, -6, -29, -33, -16, 1, -8, -37, -99, -174, -235, -291, -336, -361, -372, -380, -388, -397, -409, -415, -412, -408, -407, -412, -412, -400, -395],
        [217, 810, 1398, 1961, 2488, 2981, 3448, 3890, 4302, 4688, 5050, 5388, 5712, 6027, 6335, 6640, 6943, 7245, 7544, 7833, 8107, 8368, 8620, 8865, 9108, 9352, 9593, 9827, 10063, 10303, 10545, 10785, 11023, 11259],
        [642, 147, -147, -440, -635, -819, -1035, -1293, -1541, -1763, -1959, -2132, -2289, -2438, -2588, -2766, -2955, -3127, -3304, -3480, -3663, -3851, -4033, -4209, -4384, -4544, -4705, -4877, -5047, -5213, -5387, -5571, -5753, -5937],
        [946, 1540, 2130, 2680, 3175, 3627, 4065, 4491, 4885, 5256, 5610, 5945, 6260, 6562, 6859, 7155, 7450, 7738, 8021, 8296, 8568, 8836, 9100, 9362, 9623, 9883, 10146, 10412, 10681, 10955, 11230, 11504, 11780, 12063],
      ] },
    { name: "nothing", pretend: null, slope: () => 0,
      knows: () => "the step is flat",
      loss: TIMES.map(() => 199),
      weights: [600, -167, -710, -185, 663, 217, 642, 946].map((w) => TIMES.map(() => w)) },
  ];

  figureKit.add("two-roads", () => {
    const which = choice("backward pretends", WAYS.map((way) => way.name));
    const place = range("x", -1.5, 1.5, 0.25, -0.25);
    const time = range("training step", 0, 99, EVERY, 99);
    const roads = plot({
      name: "A step, and the function whose slope backward returns, with both at x",
      x: linear({ from: -1.5, to: 1.5, every: 0.5, name: "x" }),
      y: linear({ from: -1, to: 2, every: 0.5, name: "value" }),
      height: 300,
    });
    const walks = plot({
      name: "Eight latent weights of the net against the training step; the bit is 1 above 0",
      x: linear({ from: 0, to: 99, every: 20, name: "training step" }),
      y: linear({ from: -1.5, to: 1.5, every: 0.5, name: "latent weights; bit 1 above 0" }),
      height: 300,
    });

    const update = () => {
      const way = WAYS.find((one) => one.name === read(which));
      const [x, now] = [read(place), read(time) / EVERY];
      const value = step(x), slope = way.slope(x), back = ARRIVES * slope + 0;
      const pretended = way.pretend ?? step;
      const ends = [[-1.5, pretended(-1.5)], [-0.5, pretended(-0.5)], [0.5, pretended(0.5)], [1.5, pretended(1.5)]];
      const reach = slope ? 0.3 : 0.4; // of the piece of tangent
      roads.show([
        ...(way.pretend ? [{ line: ends, look: "two dashed" }] : []),
        { line: [[-1.5, 0], [0, 0]], look: "one" },
        { line: [[0, 1], [1.5, 1]], look: "one" },
        { line: [[x, -1], [x, Math.max(value, pretended(x))]], look: "law" },
        { line: [[x - reach, pretended(x) - reach * slope], [x + reach, pretended(x) + reach * slope]], look: "two thick" },
        { mark: [x, pretended(x)], look: "two" },
        { mark: [x, value], look: "one", size: value === pretended(x) ? 3 : 6 },
        { note: [1.45, 1], text: "forward", look: "bold end", lift: -18 },
        ...(way.pretend ? [{ note: [way.slope(-1.5) ? 1.05 : -0.35, way.slope(-1.5) ? 1.75 : 0.45], text: "backward", look: "bold end" }] : []),
      ]);
      const reached = way.weights.map((weights) => weights.slice(0, now + 1).map((w, n) => [n * EVERY, w / 10000]));
      walks.show([
        { line: [[0, 0.5], [99, 0.5]], look: "law" },
        { line: [[0, -0.5], [99, -0.5]], look: "law" },
        { line: [[0, 0], [99, 0]], look: "limit" },
        ...reached.map((line) => ({ line, look: line.at(-1)[1] > 0 ? "one" : "one dashed" })),
        ...reached.map((line) => ({ mark: line.at(-1), look: line.at(-1)[1] > 0 ? "one" : "one open", size: 5 })),
      ]);
      speak(place, `x = ${x}`);
      speak(time, `training step ${now * EVERY}`);
      const bits = way.weights.map((weights) => step(weights[now])).join(" ");
      return [
        [html("strong", {}, `x = ${signed(x)}. `), "Forward gives ", whole(`${value}.`), ` Backward gets ${signed(ARRIVES)}, and ${way.knows(x)}: `, whole(`x gets ${signed(back)}.`)],
        [html("strong", {}, `Training step ${now * EVERY}. `), whole(`Loss ${(way.loss[now] / 100).toFixed(2)},`), " ", whole(`bits ${bits}`)],
      ];
    };
    return { controls: [which, place, time], drawings: [roads, walks], update, play: time };
  });
})();
