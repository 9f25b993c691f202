/* Chapter 5: the range alpha of a 3-bit store, pulled outwards by clipping and inwards by rounding; item() hides the first. */
(() => {
  "use strict";
  const { html, svg, whole, range, read, speak, linear, plot, sketch } = figureKit;

  // The chapter's 5000 activations, counted in bins of 0.05 from -4 to 4.
  const COUNTS = [
    0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 1, 1, 3, 2, 1, 1, 2, 5, 0, 3, 6, 4, 7, 3, 7,
    5, 5, 6, 10, 9, 13, 14, 7, 15, 21, 19, 13, 17, 23, 20, 29, 21, 43, 29, 43, 39, 48, 38, 45, 55, 57, 69, 54, 57, 59, 76, 79,
    64, 73, 73, 74, 97, 84, 97, 84, 94, 95, 92, 87, 105, 106, 121, 107, 112, 89, 118, 101, 78, 71, 101, 77, 93, 88, 78, 94, 70, 83, 86, 68,
    71, 67, 76, 63, 58, 49, 51, 55, 49, 37, 37, 47, 41, 40, 27, 19, 23, 28, 19, 17, 17, 13, 9, 16, 11, 13, 17, 10, 7, 8, 7, 9,
    6, 4, 3, 7, 0, 4, 3, 1, 3, 1, 3, 1, 0, 1, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
  ];
  const [WIDTH, END, RATE] = [0.05, 4, 2];
  const TOTAL = COUNTS.reduce((a, b) => a + b, 0);
  const half = COUNTS.length / 2;
  const sizes = Array.from({ length: half }, (_, n) => COUNTS[half + n] + COUNTS[half - 1 - n]); // of |x|

  // Of what lies beyond alpha: its share, how far beyond, and the square of that, on average over all.
  const beyond = (alpha) => {
    const mean = (power) => sizes.reduce((total, count, n) => {
      const [from, to] = [Math.max(n * WIDTH - alpha, 0), Math.max((n + 1) * WIDTH - alpha, 0)];
      return total + (count * (to ** (power + 1) - from ** (power + 1))) / ((power + 1) * WIDTH);
    }, 0) / TOTAL;
    return { share: mean(0), far: mean(1), square: mean(2) };
  };
  const spacing = (alpha) => (2 * alpha) / 7;
  const error = (alpha) => beyond(alpha).square + spacing(alpha) ** 2 / 12;
  const out = (alpha) => 2 * beyond(alpha).far;
  const inward = (alpha) => (2 * alpha) / 147; // the derivative of spacing ** 2 / 12
  const walk = (start, steps, slope) => {
    const path = [start];
    for (let n = 0; n < steps; n++) path.push(path[n] - RATE * slope(path[n]));
    return path;
  };

  figureKit.add("tug", () => {
    const slider = range("step of gradient descent", 0, 100, 1, 100);
    const handle = range("start at α", 0.5, 4, 0.25, 4);
    const now = () => {
      const paths = [(a) => inward(a) - out(a), inward].map((slope) => walk(read(handle), read(slider), slope));
      return { paths, alpha: paths[0].at(-1), ghost: paths[1].at(-1) };
    };

    const histogram = sketch({
      name: "Histogram of the activations, with the range from −α to α, the forces on α, and the range that item() leads to",
      draw: (width) => {
        const { alpha, ghost } = now();
        const [top, ground, height] = [58, 196, 240];
        const px = (x) => width / 2 + (x * (width / 2 - 8)) / END;
        const parts = [];
        const [wide, most] = [4, Math.max(...COUNTS) * 4];
        for (let n = 0; n < COUNTS.length; n += wide) {
          const count = COUNTS.slice(n, n + wide).reduce((a, b) => a + b, 0);
          const tall = (count * (ground - top)) / most;
          const left = -END + n * WIDTH;
          const lost = Math.abs(left + (wide * WIDTH) / 2) > alpha;
          parts.push(svg("rect", { class: lost ? "bar plain" : "bar", x: px(left) + 0.5, y: ground - tall, width: px(wide * WIDTH) - px(0) - 1, height: tall }));
        }
        const upright = (x, look, from) => parts.push(svg("polyline", { class: look, points: `${px(x)},${from} ${px(x)},${ground}` }));
        for (const side of [-1, 1]) {
          upright(side * ghost, "wrong dashed", top - 8);
          upright(side * alpha, "right", top - 8);
        }
        for (let level = 0; level < 8; level++) {
          const x = px(-alpha + level * spacing(alpha));
          parts.push(svg("path", { class: "way", d: `M${x},${ground + 2}v8` }));
        }
        const force = (x, y, size, sign, look) => {
          const long = Math.min(900 * size, 110);
          if (long < 2) return;
          const [a, b] = [px(x), px(x) + sign * long];
          parts.push(svg("path", { class: look, d: `M${a},${y}H${b}M${b - sign * 6},${y - 4}L${b},${y}L${b - sign * 6},${y + 4}` }));
        };
        force(alpha, top - 14, out(alpha), 1, "way back");
        force(alpha, top - 14, inward(alpha), -1, "way back");
        parts.push(svg("text", { class: "bold middle", x: Math.min(px(alpha), width - 34), y: top - 26 }, `α = ${alpha.toFixed(2)}`));
        parts.push(svg("text", { class: "bold middle", x: Math.max(px(-ghost), 24), y: top - 14 }, "item()"));
        parts.push(svg("text", { class: "small", x: 4, y: 14 }, "5000 activations; forces on α"));
        for (let x = -4; x <= 4; x += 2) parts.push(svg("text", { class: "middle", x: Math.min(Math.max(px(x), 10), width - 8), y: ground + 26 }, String(x).replace("-", "−")));
        parts.push(svg("text", { class: "middle small", x: width / 2, y: height - 2 }, "activation; ticks: the eight levels"));
        return { height, parts };
      },
    });

    const curve = plot({
      name: "Mean squared error against α, with the whole gradient's way down to the lowest point and that of item() past it",
      x: linear({ from: 0, to: 4.2, every: 1, name: "range α" }),
      y: linear({ from: 0, to: 0.75, every: 0.25, name: "mean squared error" }),
      height: 240,
    });
    const grid = Array.from({ length: 79 }, (_, n) => 0.1 + n * WIDTH);

    const update = () => {
      const { paths, alpha, ghost } = now();
      const at = (a) => [a, error(a)];
      histogram.show();
      curve.show([
        { line: grid.map(at), look: "law" },
        { line: paths[1].map(at), look: "wrong dashed" },
        { line: paths[0].map(at), look: "right" },
        { mark: at(ghost), look: "ghost" },
        { note: at(ghost), text: "item()", look: "bold", lift: ghost < 1 ? -18 : 12 },
        { mark: at(alpha), look: "found" },
      ]);
      speak(slider, `step ${read(slider)} of 100`);
      speak(handle, `start at ${read(handle)}`);
      const number = (value) => value.toFixed(3);
      return [
        [html("strong", {}, "whole gradient: "), html("span", { class: "verdict" }, `α = ${alpha.toFixed(2)}`), ", ", whole(`error ${number(error(alpha))}.`),
          " Clipping pulls out with ", whole(`${number(out(alpha))},`), " rounding in with ", whole(`${number(inward(alpha))}.`)],
        [html("strong", {}, "with item(): "), html("span", { class: "verdict wrong" }, `α = ${ghost.toFixed(2)}`), ", ", whole(`error ${number(error(ghost))}.`),
          " Rounding pulls in with ", whole(`${number(inward(ghost))};`), " clipping would pull out with ", whole(`${number(out(ghost))},`), " and isn't heard."],
      ];
    };
    return { controls: [slider, handle], drawings: [histogram, curve], update, play: slider };
  });
})();
