/* Chapter 5: PACT, a ReLU clipped at a learnable alpha, its slope, and which of five inputs pull on alpha. */
(() => {
  "use strict";
  const { html, whole, range, read, speak, linear, plot } = figureKit;

  figureKit.add("clip-value", () => {
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
  });
})();
