/* Chapter 2: the two Jacobians of y = 2 (r(x0) + ... + r(xi)), r(t) = t² where t > 0, else t, for backwards with one fault each. */
(() => {
  "use strict";
  const { html, svg, whole, signed, sum, choice, input, read, sketch } = figureKit;

  const slope = (x) => (x > 0 ? 2 * x : 1);
  const after = (g, i) => sum(g.slice(i)); // what the outputs from i on send back
  const FAULTS = [ // what backward sends to input i, the pattern, and where to look
    { name: "right", send: (x, g, i) => 2 * slope(x[i]) * after(g, i),
      code: "2 * slope * (sum of g from here on)", see: "The two agree, and the difference is 0 everywhere.", look: "nothing" },
    { name: "summed over everything", send: (x, g, i) => 2 * slope(x[i]) * sum(g),
      code: "2 * slope * g.sum()", see: "Each row is constant, where the numerical one has zeros.", look: "g summed or broadcast" },
    { name: "summed from the wrong end", send: (x, g, i) => 2 * slope(x[i]) * sum(g.slice(0, i + 1)),
      code: "2 * slope * (sum of g up to here)", see: "The zeros are on the other side of the diagonal.", look: "a matrix, or an order, not turned round" },
    { name: "a factor forgotten", send: (x, g, i) => slope(x[i]) * after(g, i),
      code: "slope * (sum of g from here on)", see: "Divide the two: the ratio is the same everywhere.", look: "a factor, a sign or a mean" },
    { name: "one branch wrong", send: (x, g, i) => 2 * 2 * x[i] * after(g, i),
      code: "2 * 2 * x * (sum of g from here on)", see: "Only the rows of negative inputs differ.", look: "the formula of that branch" },
    { name: "detached", send: () => 0,
      code: "0 * g", see: "The analytical one is zero everywhere.", look: "a detach, or a mask" },
  ];
  const SHOWN = [1, -1, 2, -2];
  const MYSTERIES = [ // inputs, and the number of the fault
    [[2, -1, 1, -3], 2], [[-2, 1, 3, -1], 4], [[1, 3, -2, -1], 0], [[-1, 2, -3, 1], 3], [[3, -2, -1, 2], 5], [[-3, -1, 2, 1], 1],
  ];
  const UNSAID = "choose", PLACES = [0, 1, 2, 3];

  const forward = (x) => PLACES.map((i) => 2 * sum(x.slice(0, i + 1).map((t) => (t > 0 ? t * t : t))));
  const unit = (j, size) => PLACES.map((i) => (i === j ? size : 0));
  const byForward = (x, h = 1e-6) => PLACES.map((i) => { // a row for each input, as gradcheck prints it
    const [up, down] = [h, -h].map((step) => forward(x.map((t, k) => t + unit(i, step)[k])));
    return PLACES.map((j) => (up[j] - down[j]) / (2 * h));
  });
  const byBackward = (x, fault) => PLACES.map((i) => PLACES.map((j) => fault.send(x, unit(j, 1), i)));
  const rounded = (number) => Math.round(number * 1000) / 1000 + 0; // no −0

  figureKit.add("read-matrix", () => {
    const which = choice("backward is", [...FAULTS.map((fault) => fault.name), ...MYSTERIES.map((_, n) => `mystery ${n + 1}`)]);
    const answer = choice("which fault?", [UNSAID, ...FAULTS.map((fault) => fault.name)]);
    input(which).value = FAULTS[1].name;

    const chosen = () => {
      const mystery = MYSTERIES[Number(read(which).match(/\d/)?.[0]) - 1];
      const [x, number] = mystery ?? [SHOWN, FAULTS.findIndex((fault) => fault.name === read(which))];
      const [analytical, numerical] = [byBackward(x, FAULTS[number]), byForward(x)].map((rows) => rows.map((row) => row.map(rounded)));
      const difference = PLACES.map((i) => PLACES.map((j) => rounded(analytical[i][j] - numerical[i][j])));
      return { mystery, x, fault: FAULTS[number], matrices: [analytical, numerical, difference], off: difference.flat().filter(Boolean).length };
    };

    const drawing = sketch({
      name: "Three grids of numbers, rows for inputs and columns for outputs: the analytical Jacobian, minus the numerical one, is the difference",
      draw: (width) => {
        const { x, matrices } = chosen();
        const narrow = width < 560;
        const [labels, gap, top] = [narrow ? 26 : 58, narrow ? 26 : 34, 42];
        const cell = Math.min((width - labels - (narrow ? 1 : 2) * gap - 2) / (narrow ? 8 : 12), 52);
        const most = Math.max(...matrices.flat(2).map(Math.abs));
        const parts = [];
        const block = 4 * cell + top + 14;
        const titles = narrow ? ["analytical", "numerical", "difference"] : ["analytical (backward)", "numerical (forward)", "difference"];
        matrices.forEach((rows, n) => {
          const below = narrow && n === 2;
          const [left, up] = [labels + (below ? 0 : n) * (4 * cell + gap), below ? block + 4 : 0];
          parts.push(svg("text", { class: "middle bold", x: left + 2 * cell, y: up + 14 }, titles[n]));
          PLACES.forEach((j) => parts.push(svg("text", { class: "middle small", x: left + (j + 0.5) * cell, y: up + top - 6 }, `y${"₀₁₂₃"[j]}`)));
          if (n > 0) parts.push(svg("text", { class: "middle bold", x: below ? 10 : left - gap / 2, y: up + top + 2 * cell + 5 }, n === 1 ? "−" : "="));
          rows.forEach((row, i) => {
            if (n === 0 && !narrow) parts.push(svg("text", { class: "end small", x: left - 6, y: up + top + (i + 0.5) * cell + 4 }, `x${"₀₁₂₃"[i]} = ${signed(x[i])}`));
            if (n === 0 && narrow) parts.push(svg("text", { class: "end small", x: left - 5, y: up + top + (i + 0.5) * cell + 4 }, `x${"₀₁₂₃"[i]}`));
            row.forEach((number, j) => {
              const at = { x: left + j * cell + 1, y: up + top + i * cell + 1, width: cell - 2, height: cell - 2 };
              const look = ["backward", "forward", "apart"][n];
              parts.push(svg("rect", { class: "cell" + (number ? ` ${look}` : ""), "fill-opacity": number ? 0.15 + (0.4 * Math.abs(number)) / most : 0, ...at }));
              parts.push(svg("text", { class: "middle number", x: left + (j + 0.5) * cell, y: up + top + (i + 0.5) * cell + 5 }, signed(number)));
            });
          });
        });
        if (narrow) {
          const left = labels + 4 * cell + gap;
          x.forEach((t, i) => parts.push(svg("text", { class: "small", x: left + 8, y: block + 4 + top + (i + 0.5) * cell + 4 }, `x${"₀₁₂₃"[i]} = ${signed(t)}`)));
        }
        return { height: narrow ? 2 * block : block, parts };
      },
    });

    let last = read(which);
    const update = () => {
      if (read(which) !== last) input(answer).value = UNSAID; // another matrix, another question
      last = read(which);
      const { mystery, fault, off } = chosen();
      input(answer).disabled = !mystery;
      drawing.show();
      const check = ["gradcheck ", html("span", { class: `verdict ${off ? "wrong" : "right"}` }, off ? "fails" : "passes"), ": ", whole(`${off} of 16 entries differ`)];
      const told = (one) => [one.see, one.look === "nothing" ? "" : ` Look for ${one.look}.`];
      if (!mystery) return [[html("strong", {}, "backward returns "), fault.code], told(fault), check];
      const guess = FAULTS.find((one) => one.name === read(answer));
      if (!guess) return [[html("strong", {}, "Which fault is it?"), " Read the numbers, then choose an answer."], [""], check];
      if (guess === fault) return [[html("strong", {}, "Right. "), "backward returns ", fault.code], told(fault), check];
      return [[html("strong", {}, "Not so. "), `If it were "${guess.name}", you'd see this:`], [guess.see], check];
    };
    return { controls: [which, answer], drawings: [drawing], update };
  });
})();
