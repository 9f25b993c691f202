/* Chapter 4: the fit of a + b P3(c + d x) to sin x by gradient descent, as the chapter's own loop makes it. */
(() => {
  "use strict";
  const { html, whole, signed, sum, range, read, speak, linear, plot } = figureKit;

  const POINTS = 2000, RATE = 5e-6, STRIDE = 20, LAST = 100; // 100 places of the slider, 20 steps each
  const xs = Array.from({ length: POINTS }, (_, i) => -Math.PI + (2 * Math.PI * i) / (POINTS - 1));

  // b P3(d x) = b (p x³ + r x) with p = 2.5 d³, r = −1.5 d; a and c stay 0, since all is odd. Sums over the points are made once.
  function descend() {
    const moment = (k) => sum(xs.map((x) => x ** k));
    const against = (k) => sum(xs.map((x) => x ** k * Math.sin(x)));
    const [s2, s4, s6, c1, c3, sines] = [moment(2), moment(4), moment(6), against(1), against(3), sum(xs.map((x) => Math.sin(x) ** 2))];
    const square = (p, r) => p * p * s6 + 2 * p * r * s4 + r * r * s2;
    const states = [];
    let [b, d] = [-1, 0.3];
    for (let step = 0; step < STRIDE * LAST; step++) {
      const [p, r, dp, dr] = [2.5 * d ** 3, -1.5 * d, 7.5 * d * d, -1.5];
      states.push({ b, d, loss: b * b * square(p, r) - 2 * b * (p * c3 + r * c1) + sines });
      const slopeB = 2 * b * square(p, r) - 2 * (p * c3 + r * c1);
      const slopeD = 2 * b * b * (p * dp * s6 + (p * dr + r * dp) * s4 + r * dr * s2) - 2 * b * (dp * c3 + dr * c1);
      [b, d] = [b - RATE * slopeB, d - RATE * slopeD];
    }
    return states;
  }

  figureKit.add("sine-fit", () => {
    const states = descend();
    const slider = range("step", 0, LAST, 1, LAST);
    const some = xs.filter((_, i) => i % 25 === 0 || i === POINTS - 1);
    const drawing = plot({
      name: "sin x, and the fitted curve after the chosen number of steps",
      x: linear({ from: -3.5, to: 3.5, every: 1, name: "x" }),
      y: linear({ from: -1.25, to: 1.25, every: 0.5, name: "sin x (dotted), fit (line)" }),
      height: 300,
    });
    const update = () => {
      const step = Math.max(STRIDE * read(slider) - 1, 0);
      const { b, d, loss } = states[step];
      const curve = (x) => b * (2.5 * (d * x) ** 3 - 1.5 * d * x);
      const gap = Math.max(...xs.map((x) => Math.abs(curve(x) - Math.sin(x))));
      drawing.show([
        { line: some.map((x) => [x, Math.sin(x)]), look: "law" },
        { line: some.map((x) => [x, curve(x)]), look: "one" },
        ...[-Math.PI, Math.PI].map((x) => ({ mark: [x, curve(x)], look: "one", size: 5 })),
        { note: [1.5, -0.75], text: `loss ${loss.toFixed(2)}`, look: "bold middle" },
      ]);
      speak(slider, `step ${step}`);
      return [
        [html("strong", {}, `Step ${step}: `), whole(`loss ${loss.toFixed(2)},`), " ", whole(`b = ${signed(b.toFixed(3))},`), " ", whole(`d = ${d.toFixed(3)}`)],
        [whole(`Value at π: ${signed(curve(Math.PI).toFixed(3))}.`), " ", whole(`Largest gap: ${gap.toFixed(3)}`)],
      ];
    };
    return { controls: [slider], drawings: [drawing], update, play: slider };
  });
})();
