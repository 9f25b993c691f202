/* Chapter 4: two backward passes through y = T3(x) = 4 x³ − 3 x at x = 1, with x kept or the slope kept, for the loss y² or y. */
(() => {
  "use strict";
  const { html, svg, whole, range, choice, read, speak, sketch } = figureKit;

  const INPUT = "x", SLOPE = "the slope, computed early", SQUARE = "y²", PLAIN = "y";
  const x = 1, y = 4 * x ** 3 - 3 * x, slope = 12 * x * x - 3, bend = 24 * x; // T3 and its two derivatives

  figureKit.add("cut-path", () => {
    const keeps = choice("forward keeps", [SLOPE, INPUT]);
    const loss = choice("the loss is", [SQUARE, PLAIN]);
    const slider = range("step", 1, 4, 1, 4);

    const state = () => {
      const [step, cut, square] = [read(slider), read(keeps) === SLOPE, read(loss) === SQUARE];
      const v = square ? 2 * y : 1;
      const byV = square ? slope * 2 * slope : null; // b to v to y to x
      const bySlope = cut ? null : v * bend; // b to the slope to x
      return { step, cut, square, v, byV, bySlope, b: v * slope, end: (byV ?? 0) + (bySlope ?? 0), right: (byV ?? 0) + v * bend };
    };

    const drawing = sketch({
      name: "Two paths from x to b: above by y and v, below by the slope; and what a second backward sends along them",
      draw: (width) => {
        const { step, cut, square, v, byV, bySlope, b } = state();
        const narrow = width < 560;
        const [wide, high] = [narrow ? 88 : Math.min(96, width / 6.6), 30];
        const along = (n) => (narrow ? 24 + n * 58 : wide / 2 + 4 + (n * (width - wide - 8)) / 4); // n: 0 to 4
        const lanes = narrow ? [wide / 2 + 4, width / 2, width - wide / 2 - 4] : [64, 122, 180];
        const at = (n, lane) => (narrow ? [lanes[lane], along(n)] : [along(n), lanes[lane]]);
        const parts = [];
        const box = (n, lane, look, text) => {
          const [left, top] = at(n, lane);
          parts.push(svg("rect", { class: look, x: left - wide / 2, y: top - high / 2, width: wide, height: high, rx: 3 }));
          parts.push(svg("text", { class: "middle score", x: left, y: top + 5 }, text));
        };
        const pill = (n, lane, side, text, look = "") => { // a gradient, beside a box
          const [left, top] = at(n, lane);
          const [px, py] = narrow ? [left + side * (wide / 2 + 22), top] : [left, top + side * (high / 2 + 17)];
          parts.push(svg("rect", { class: `grad ${look}`, x: px - 20, y: py - 12, width: 40, height: 24, rx: 12 }));
          parts.push(svg("text", { class: "middle score", x: px, y: py + 5 }, text));
        };
        const arrow = ([n1, lane1], [n2, lane2], look, back) => {
          const [[x1, y1], [x2, y2]] = [at(n1, lane1), at(n2, lane2)];
          const ends = narrow ? [[x1, y1 + high / 2 + 2], [x2, y2 - high / 2 - 2]] : [[x1 + wide / 2 + 2, y1], [x2 - wide / 2 - 2, y2]];
          const [from, to] = back ? ends.reverse() : ends;
          const angle = Math.atan2(to[1] - from[1], to[0] - from[0]);
          const tip = (turn) => [to[0] - 8 * Math.cos(angle + turn), to[1] - 8 * Math.sin(angle + turn)];
          parts.push(svg("path", { class: look, d: `M${from}L${to}M${tip(0.5)}L${to}L${tip(-0.5)}` }));
          return [(from[0] + to[0]) / 2, (from[1] + to[1]) / 2];
        };
        const way = (from, to, reached, returned) =>
          arrow(from, to, `way ${step >= returned ? "back" : ""} ${step >= reached ? "" : "off"}`, step >= returned);

        const ends = square ? 4 : Infinity; // a constant v sends nothing on
        way([0, 1], [1, 0], 1, ends);
        way([1, 0], [2, 0], 1, ends);
        if (square) way([2, 0], [3, 0], 2, 4);
        way([3, 0], [4, 1], 2, square ? 3 : Infinity);
        way([3, 2], [4, 1], 2, 3);
        if (cut) {
          const [mx, my] = arrow([0, 1], [1, 2], "way cut", false);
          parts.push(svg("path", { class: "way wrong", d: `M${mx - 7},${my - 7}L${mx + 7},${my + 7}M${mx - 7},${my + 7}L${mx + 7},${my - 7}` }));
          arrow([1, 2], [3, 2], `way ${step >= 1 ? "" : "off"}`, false);
        } else {
          way([0, 1], [1, 2], 2, 4);
          way([1, 2], [3, 2], 2, 4);
        }
        const value = (reached) => `value ${step >= reached ? "" : "off"}`;
        box(0, 1, value(1), `x = ${x}`);
        box(1, 0, `node ${step >= 1 ? "" : "off"}`, "T₃");
        box(2, 0, value(1), `y = ${y}`);
        box(3, 0, value(2), step < 2 ? "v" : square ? `v = 2y = ${v}` : `v = ${v}`);
        box(1, 2, `node ${step >= (cut ? 1 : 2) ? "" : "off"}`, "12x² − 3");
        box(3, 2, cut ? "kept wrong" : value(2), step >= (cut ? 1 : 2) ? `slope ${slope}` : "slope");
        box(4, 1, value(2), step >= 2 ? `b = ${b}` : "b");
        if (step >= 3) {
          pill(4, 1, narrow ? 1 : -1, 1);
          if (square) pill(3, 0, narrow ? 1 : -1, slope);
          pill(3, 2, narrow ? -1 : 1, v);
        }
        if (step >= 4) {
          if (square) pill(2, 0, narrow ? 1 : -1, 2 * slope);
          pill(0, 1, -1, byV ?? "–");
          pill(0, 1, 1, bySlope ?? "–", cut ? "wrong" : "");
        }
        return { height: narrow ? along(4) + 24 : 228, parts };
      },
    });

    const update = () => {
      const { step, cut, square, v, byV, bySlope, b, end, right } = state();
      const said = [
        cut ? ["Forward: y = 1. The slope, 9, is computed early, and kept."] : ["Forward: y = 1. x itself is kept."],
        [`Backward: v is ${v}, times the slope: `, whole(`b = ${v} · ${slope} = ${b}.`), cut ? " The slope comes back as a constant." : " The slope is made from x."],
        ["Backward again, from b: ", square ? whole(`${slope} to v,`) : whole("v is a constant,"), " ", whole(cut ? `${v} to the slope, which ends there.` : `${v} to the slope.`)],
        [
          square ? whole(`By way of v: ${slope} · 2 · ${slope} = ${byV}.`) : "v is 1, a constant: nothing comes that way.", " ",
          cut ? "By way of the slope: no path." : whole(`By way of the slope: ${v} · ${bend} = ${bySlope}.`),
        ],
      ][step - 1];
      speak(slider, `step ${step} of 4`);
      drawing.show();
      return [
        [html("strong", {}, `Step ${step} of 4. `), ...said],
        ["Second derivative: ", whole(`${end},`), " ", html("span", { class: `verdict ${cut ? "wrong" : "right"}` }, cut ? "wrong, and silent" : "right"),
          ...(cut ? [". ", whole(`True: ${right}`)] : [])],
      ];
    };
    return { controls: [keeps, loss, slider], drawings: [drawing], update, play: slider };
  });
})();
