/* Chapter 1: what forward keeps for backward, and what comes back, for L = 10 y0 + y1 with y = ReLU(3 x). */
(() => {
  "use strict";
  const { html, svg, whole, signed, range, choice, read, speak, sketch } = figureKit;

  const ALL_RIGHT = "nothing", IN_PLACE = "u is changed in place", ON_CTX = "u is changed, and was kept on ctx", NONE = "ReLU returns None";
  const pair = (numbers) => `(${numbers.map(signed).join(", ")})`;

  figureKit.add("tape", () => {
    const slider = range("step", 0, 7, 1, 7);
    const fault = choice("what goes wrong", [ALL_RIGHT, IN_PLACE, ON_CTX, NONE]);

    // What stands where, after so many steps: values, what is kept, gradients; null is nothing yet.
    const state = (step, wrong) => {
      const x = [-1, 2];
      const u = x.map((t) => 3 * t);
      const y = u.map((t) => Math.max(t, 0));
      const changed = step >= 4 && (wrong === IN_PLACE || wrong === ON_CTX);
      const now = changed ? u.map((t) => -t) : u;
      const raises = wrong === IN_PLACE;
      const back = now.map((t, n) => (t > 0 ? [10, 1][n] : 0)); // what ReLU sends, from the u that it finds
      const sent = wrong === NONE ? "None" : pair(back);
      const version = wrong === ON_CTX ? "no version" : "version 0";
      return {
        values: [pair(x), step >= 1 ? pair(now) : null, step >= 2 ? pair(y) : null, step >= 3 ? String(10 * y[0] + y[1]) : null],
        kept: [step >= 1 ? "3" : null, step >= 2 ? `u, ${version}` : null, step >= 3 ? "10, 1" : null],
        gradients: [
          step >= 7 && !raises ? (wrong === NONE ? "None" : pair(back.map((t) => 3 * t))) : null,
          step >= 6 ? (raises ? "error" : sent) : null,
          step >= 5 ? pair([10, 1]) : null,
          step >= 5 ? "1" : null,
        ],
        changed, raises, sent, red: wrong !== ALL_RIGHT && step >= (wrong === NONE ? 6 : 4),
        end: wrong === NONE ? "None" : pair(back.map((t) => 3 * t)),
      };
    };

    const drawing = sketch({
      name: "Forward from x over u and y to L, with what each step keeps; below it the gradients on their way back",
      draw: (width) => {
        const [step, wrong] = [read(slider), read(fault)];
        const found = state(step, wrong);
        const narrow = width < 560;
        const [boxWidth, boxHeight] = [narrow ? 84 : Math.min(92, width / 8.6), 30];
        const along = (n) => (narrow ? 40 + n * 52 : boxWidth / 2 + 6 + (n * (width - boxWidth - 12)) / 6); // n: 0 to 6
        const lanes = narrow ? [boxWidth / 2 + 6, width / 2, width - boxWidth / 2 - 6] : [46, 106, 166];
        const at = (n, lane) => (narrow ? [lanes[lane], along(n)] : [along(n), lanes[lane]]);
        const parts = [];
        const box = (n, lane, look, text, wide = boxWidth) => {
          const [x, y] = at(n, lane);
          parts.push(svg("rect", { class: look, x: x - wide / 2, y: y - boxHeight / 2, width: wide, height: boxHeight, rx: look.includes("grad") ? 14 : 3 }));
          parts.push(svg("text", { class: "middle score", x, y: y + 5 }, text));
        };
        const name = (n, lane, text) => {
          const [x, y] = at(n, lane);
          parts.push(svg("text", { class: "middle small", x, y: y - boxHeight / 2 - 4 }, text));
        };
        const arrow = (from, to, lane, look) => {
          const [[x1, y1], [x2, y2]] = [at(from, lane), at(to, lane)];
          const gap = narrow ? boxHeight / 2 + 2 : boxWidth / 2 + 2;
          const sign = Math.sign(to - from);
          const [a, b] = narrow ? [[x1, y1 + sign * gap], [x2, y2 - sign * gap]] : [[x1 + sign * gap, y1], [x2 - sign * gap, y2]];
          const [dx, dy] = narrow ? [4, -6 * sign] : [-6 * sign, 4];
          const head = narrow ? `M${b[0] - dx},${b[1] + dy}L${b}L${b[0] + dx},${b[1] + dy}` : `M${b[0] + dx},${b[1] - dy}L${b}L${b[0] + dx},${b[1] + dy}`;
          parts.push(svg("path", { class: look, d: `M${a}L${b}${head}` }));
        };
        const heads = narrow ? ["forward", "kept", "backward"] : [];
        heads.forEach((text, lane) => parts.push(svg("text", { class: "middle bold", x: lanes[lane], y: 12 }, text)));
        if (!narrow) {
          parts.push(svg("text", { class: "bold", x: 4, y: 14 }, "forward"));
          parts.push(svg("text", { class: "bold end", x: width - 4, y: 200 }, "backward"));
        }
        const operations = ["times 3", "ReLU", "weigh, add"];
        operations.forEach((text, n) => {
          const done = step > n;
          box(2 * n + 1, 0, `node ${done ? "" : "off"}`, text);
          arrow(2 * n, 2 * n + 1, 0, done ? "way" : "way off");
          arrow(2 * n + 1, 2 * n + 2, 0, done ? "way" : "way off");
          if (found.kept[n] !== null) {
            const bad = n === 1 && found.red && wrong !== NONE;
            const text = n === 1 && found.changed && wrong === IN_PLACE ? "u, version 1" : found.kept[n];
            box(2 * n + 1, 1, `kept ${bad ? "wrong" : ""}`, text, narrow ? 96 : boxWidth + 8);
          }
        });
        ["x", "u", "y", "L"].forEach((text, n) => {
          if (!narrow) name(2 * n, 0, text);
          const bad = n === 1 && found.changed;
          box(2 * n, 0, `value ${found.values[n] === null ? "off" : ""} ${bad ? "wrong" : ""}`, (narrow && found.values[n] !== null ? `${text} ` : "") + (found.values[n] ?? text));
        });
        ["x.grad", "to u", "to y", "start"].forEach((text, n) => {
          const sent = found.gradients[n];
          const bad = found.red && n < 2 && sent !== null;
          if (!narrow) name(2 * n, 2, text);
          box(2 * n, 2, `grad ${sent === null ? "off" : ""} ${bad ? "wrong" : ""}`, sent ?? (narrow ? text : ""));
          if (n < 3) arrow(2 * n + 2, 2 * n, 2, sent === null ? "way back off" : "way back");
        });
        return { height: narrow ? along(6) + 26 : 206, parts };
      },
    });

    const update = () => {
      const [step, wrong] = [read(slider), read(fault)];
      const found = state(step, wrong);
      const between = wrong === IN_PLACE || wrong === ON_CTX
        ? [whole("u.neg_()"), " changes u to ", whole("(3, −6),"), wrong === IN_PLACE ? " and its version to 1." : " and nothing on ctx notices."]
        : ["Nothing changes u before backward."];
      const relu = {
        [ALL_RIGHT]: ["ReLU finds u at version 0, as it was kept, and sends ", whole("(0, 1).")],
        [IN_PLACE]: ["ReLU finds u at version 1 where 0 was kept: ", whole("torch raises an error.")],
        [ON_CTX]: ["ReLU reads the changed u from ctx, and sends ", whole("(10, 0),"), " which belongs to another input."],
        [NONE]: ["ReLU sends None, which torch takes for zero."],
      }[wrong];
      const said = [
        ["Nothing has run yet."],
        ["u = 3 x. Backward will need the 3."],
        [wrong === ON_CTX ? "y = ReLU(u). u is kept as an attribute of ctx." : "y = ReLU(u). u is kept by save_for_backward, at version 0."],
        ["L = 10 y", html("sub", {}, "0"), " + y", html("sub", {}, "1"), " = 6. Backward will need 10 and 1."],
        between,
        ["Backward begins with 1, and sends ", whole("(10, 1)"), " to y."],
        relu,
        found.raises ? ["Backward has stopped; x.grad is None."] : ["times 3: x.grad is ", whole(`${found.end}.`)],
      ][step];
      const right = { [ALL_RIGHT]: "right", [IN_PLACE]: "an error, which you hear", [ON_CTX]: "wrong, and silent", [NONE]: "wrong, and silent" }[wrong];
      speak(slider, `step ${step} of 7`);
      drawing.show();
      return [
        [html("strong", {}, `Step ${step} of 7. `), ...said],
        ["At the end: ", html("span", { class: `verdict ${right === "right" ? "right" : "wrong"}` }, right), ", ",
          whole(wrong === IN_PLACE ? "no x.grad" : `x.grad ${found.end}`)],
      ];
    };
    return { controls: [slider, fault], drawings: [drawing], update, play: slider };
  });
})();
