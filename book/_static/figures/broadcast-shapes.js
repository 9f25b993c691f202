/* Chapter 6: a + b for two shapes. In forward the copies that broadcasting makes fly out, in backward their gradients fold back. */
(() => {
  "use strict";
  const { html, svg, whole, sum, range, choice, read, speak, sketch } = figureKit;

  const PAIRS = [[[3, 1], [4]], [[3, 4], [4]], [[3, 4], [1, 4]], [[3, 4], []], [[3, 4], [3]], [[64], [64]], [[64, 1], [64]]];
  const TURN = 10, END = 20; // places of the slider: forward is done, backward is done
  const count = (n) => Array.from({ length: n }, (_, i) => i);
  const size = (shape) => shape.reduce((a, b) => a * b, 1);
  const tuple = (shape) => (shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`);
  const padded = (shape, n) => [...count(n - shape.length).map(() => 1), ...shape];

  // The shape of a + b; null where torch refuses.
  const together = (a, b) => {
    const [one, two] = [padded(a, 2), padded(b, 2)];
    if (one.some((n, i) => n !== two[i] && n !== 1 && two[i] !== 1)) return null;
    return one.map((n, i) => Math.max(n, two[i])).slice(2 - Math.max(a.length, b.length));
  };
  // Which number of a tensor of this shape stands in row i and column j of the result.
  const source = (shape, i, j) => {
    const [rows, columns] = padded(shape, 2);
    return (rows === 1 ? 0 : i) * columns + (columns === 1 ? 0 : j);
  };
  const cells = (shape) => {
    const [rows, columns] = padded(shape, 2);
    return count(rows).flatMap((i) => count(columns).map((j) => [i, j]));
  };
  const folded = (result, shape) => { // the upstream gradients 1, 2, 3, ..., summed to this shape
    const sums = count(size(shape)).map(() => 0);
    cells(result).forEach(([i, j], n) => (sums[source(shape, i, j)] += n + 1));
    return sums;
  };
  const code = (result, shape) => { // the same in torch
    const [from, to] = [padded(result, 2), padded(shape, 2)];
    const axes = count(2).filter((i) => from[i] !== to[i]);
    if (!axes.length) return "g";
    if (shape.length === 0) return "g.sum()";
    return `g.sum(${axes[0]}${shape.length === result.length ? ", keepdim=True" : ""})`;
  };

  figureKit.add("broadcast-shapes", () => {
    const pair = choice("shapes of a and b", PAIRS.map(([a, b]) => `${tuple(a)} and ${tuple(b)}`));
    const slider = range("forward, then backward", 0, END, 1, END);
    const chosen = () => PAIRS.find(([a, b]) => `${tuple(a)} and ${tuple(b)}` === read(pair));

    const drawing = sketch({
      name: "Two panels: in forward a and b are copied into the grid of their sum; in backward the grid of upstream gradients is summed back",
      draw: (width) => {
        const [a, b] = chosen();
        const result = together(a, b);
        const large = size(a) > 12;
        const narrow = width < 560;
        const [gap, label, panel] = [16, 20, narrow ? width : (width - 24) / 2];
        const unit = Math.min((panel - gap) / 8, 42);
        const height = 3 * label + 4 * unit + gap + (narrow ? 12 : 0);
        const parts = [];
        const forward = Math.min(read(slider) / TURN, 1);
        const backward = Math.max(read(slider) / TURN - 1, 0);

        const draw = (left, top, title, names, grids, share, back) => {
          const [x0, y0] = [left + 4 * unit + gap, top + 2 * label + unit + gap]; // the corner of the result
          const scale = large ? (3 * unit) / 64 : unit;
          const extent = (shape) => { // width and height of a tensor's drawing
            const [rows, columns] = padded(shape, 2);
            return [Math.max(columns * scale, large ? 6 : 0), Math.max(rows * scale, large ? 6 : 0)];
          };
          const homes = [
            (shape) => [x0 - gap - extent(shape)[0], y0],
            (shape) => [x0, y0 - gap - extent(shape)[1]],
          ];
          const look = back ? "grad" : "value";
          const rect = ([x, y], [w, h], more, fill) =>
            parts.push(svg("rect", { class: `${look} ${more}`, x, y, width: w, height: h, rx: 2, style: fill ? `fill: var(--${back ? "two" : "one"}); fill-opacity: ${fill}` : "" }));
          const box = ([x, y], text, more = "") => {
            rect([x + 1.5, y + 1.5], [unit - 3, unit - 3], more, more === "off" ? 0 : 0.12);
            if (text !== "") parts.push(svg("text", { class: `middle number ${back ? "back" : "fore"}`, x: x + unit / 2, y: y + unit / 2 + 5 }, text));
          };
          const name = (x, y, text, look = "small") => parts.push(svg("text", { class: look, x, y }, text));
          const between = (from, to) => from.map((value, k) => value + (back ? 1 - share : share) * (to[k] - value));
          parts.push(svg("text", { class: "bold", x: left, y: top + 14 }, title));
          [a, b].forEach((shape, n) => {
            const home = homes[n](shape);
            const [w, h] = extent(shape);
            if (n === 0) name(x0 - gap, y0 + h + 14, names[n], "end small");
            else name(x0, home[1] - 5, names[n]);
            const ready = back ? share === 1 : true;
            if (large) {
              rect(home, [w, h], ready ? "" : "off", ready ? 0.5 : 0);
            } else {
              const at = ([i, j]) => [home[0] + j * unit, home[1] + i * unit];
              cells(shape).forEach((cell, k) => box(at(cell), ready ? grids[n][k] : "", ready ? "" : "off"));
              if (result && share > 0 && share < 1) {
                cells(result).forEach(([i, j]) => {
                  const from = at(cells(shape)[source(shape, i, j)]);
                  box(between(from, [x0 + j * unit, y0 + i * unit]), "", "flying");
                });
              }
            }
          });
          if (!result) {
            name(x0 + 2 * unit, y0 + 1.5 * unit, back ? "no backward" : "refused", "middle bold");
            return;
          }
          const [w, h] = extent(result);
          name(x0, y0 + h + 14, names[2]);
          const shown = back || share === 1;
          if (!large) {
            cells(result).forEach(([i, j], k) => box([x0 + j * unit, y0 + i * unit], shown ? grids[2][k] : "", shown ? "" : "off"));
            return;
          }
          rect([x0, y0], [w, h], shown ? "" : "off", shown ? 0.25 : 0);
          if (share > 0 && share < 1) {
            [a, b].forEach((shape, n) => rect(between(homes[n](shape), [x0, y0]), between(extent(shape), [w, h]), "", 0.3));
          }
        };
        const values = [a, b].map((shape, n) => count(size(shape)).map((k) => (n === 0 ? 10 : 1) * (k + 1)));
        const sums = result ? [a, b].map((shape) => folded(result, shape)) : [[], []];
        const [total, upstream] = [result && cells(result).map(([i, j]) => values[0][source(a, i, j)] + values[1][source(b, i, j)]), result && cells(result).map((_, k) => k + 1)];
        draw(0, 0, "forward: copy", [`a ${tuple(a)}`, `b ${tuple(b)}`, result ? `y = a + b ${tuple(result)}` : ""], [...values, total], forward, false);
        const [left, top] = narrow ? [0, height] : [panel + 24, 0];
        draw(left, top, "backward: sum", ["gradient for a", "gradient for b", result ? `g ${tuple(result)}` : ""], [...sums, upstream], result ? backward : 0, true);
        return { height: narrow ? 2 * height : height, parts };
      },
    });

    const update = () => {
      const [a, b] = chosen();
      const result = together(a, b);
      const place = read(slider);
      speak(slider, place < TURN ? "forward, on its way" : place === TURN ? "forward is done" : place < END ? "backward, on its way" : "backward is done");
      drawing.show();
      const head = html("strong", {}, `${tuple(a)} with ${tuple(b)}`);
      if (!result) {
        return [[head, " ", html("span", { class: "verdict wrong" }, "is refused.")],
          [`Shapes are aligned at their right end: ${a.at(-1)} meets ${b.at(-1)}, and neither is 1.`], ["You hear of it at once, in forward."]];
      }
      const trap = size(result) > 64;
      const each = (name, shape) => {
        const times = size(result) / size(shape);
        const used = `Each number of ${name} is used ${times === 1 ? "once" : `${times} times`}`;
        if (place <= TURN) return [`${used}.`];
        return [`${used}: its gradient is `, place < END ? "on its way back." : whole(html("code", {}, code(result, shape)))];
      };
      const met = trap ? [" Each of a meets each of b: ", html("span", { class: "verdict wrong" }, "the trap")] : size(a) === 64 ? [" Each of a meets its own b."] : [];
      return [[head, " gives ", whole(`${tuple(result)}, ${size(result)} numbers.`), ...met], each("a", a), each("b", b)];
    };
    return { controls: [pair, slider], drawings: [drawing], update, play: slider };
  });
})();
