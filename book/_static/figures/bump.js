/* The first page: a bump in a small net, with its gradient by hand. The losses are those of the page's own code. */
(() => {
  "use strict";
  const { html, whole, signed, check, input, linear, logarithmic, plot } = figureKit;

  figureKit.add("bump", (figure) => {
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
  });
})();
