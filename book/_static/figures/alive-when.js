/* Chapter 9: which activations of sixteen layers autograd keeps at each step, under seven plans. */
(() => {
  "use strict";
  const { html, svg, whole, range, choice, input, read, speak, sketch } = figureKit;

  const LAYERS = 16, MOST_STEPS = 64; // the longest plan: 48 forwards and 16 layers backward
  const PLANS = ["none", "every 1", "every 2", "every 4", "every 8", "every 16", "halves"];
  const FIRST = "runs", AGAIN = "runs again";

  // Each step of a plan: what happens, and the numbers of the activations that are kept, or were computed again.
  function timeline(plan) {
    const [kept, again, steps] = [new Set(), new Set(), []];
    const note = (text) => steps.push({ text, kept: new Set(kept), again: new Set([...again].filter((i) => !kept.has(i))) });
    const drop = (i) => [kept, again].forEach((some) => some.delete(i));
    const run = (i, how) => note(`layer ${i} ${how}`);
    const back = (i) => { drop(i); note(`backward of layer ${i}`); };

    const halfForward = (a, b, into, how) => { // keeps a, and treats the second half alike
      into.add(a);
      if (b - a === 1) { into.add(b); run(b, how); return; }
      const middle = (a + b) / 2;
      for (let i = a + 1; i <= middle; i++) run(i, how);
      halfForward(middle, b, into, how);
    };
    const halfBackward = (a, b) => {
      if (b - a === 1) { back(b); return; }
      const middle = (a + b) / 2;
      halfBackward(middle, b);
      drop(middle);
      halfForward(a, middle, again, AGAIN);
      halfBackward(a, middle);
    };

    if (plan === "halves") {
      halfForward(0, LAYERS, kept, FIRST);
      halfBackward(0, LAYERS);
      return steps;
    }
    const every = plan === "none" ? 0 : Number(plan.split(" ")[1]);
    for (let i = 1; i <= LAYERS; i++) {
      if (every) kept.add(Math.floor((i - 1) / every) * every);
      else [i - 1, i].forEach((j) => kept.add(j));
      run(i, FIRST);
    }
    for (let start = LAYERS - (every || LAYERS); start >= 0; start -= every || LAYERS) {
      const end = start + (every || LAYERS);
      for (let i = start + 1; every && i <= end; i++) { again.add(i); run(i, AGAIN); }
      for (let i = end; i > start; i--) back(i);
      drop(start);
    }
    return steps;
  }

  const alive = (step) => step.kept.size + step.again.size;
  const summary = (steps) => ({
    peak: Math.max(...steps.map(alive)),
    forwards: steps.filter((step) => step.text.startsWith("layer")).length,
  });

  figureKit.add("alive-when", () => {
    const which = choice("checkpoint", PLANS);
    input(which).value = "every 4";
    const slider = range("step", 0, MOST_STEPS, 1, MOST_STEPS); // up to the last of the plan

    const drawing = sketch({
      name: "A row for each activation, time to the right: blue while it is kept, orange while it is kept after it was computed again; below, how many are alive",
      draw: (width) => {
        const steps = timeline(read(which));
        const now = Math.min(read(slider), steps.length);
        const { peak } = summary(steps);
        const [left, top, row, gap, bars] = [34, 22, width < 560 ? 10 : 12, 30, 76];
        const column = (width - left - 8) / MOST_STEPS;
        const bottom = top + (LAYERS + 1) * row;
        const floor = bottom + gap + bars;
        const across = (step) => left + step * column;
        const parts = [];
        parts.push(svg("text", { class: "bold", x: left, y: 14 }, "forward"));
        parts.push(svg("text", { class: "bold", x: across(LAYERS) + 5, y: 14 }, "backward"));
        for (let i = 0; i <= LAYERS; i++) {
          const y = top + (LAYERS - i) * row;
          if (i % 4 === 0) parts.push(svg("text", { class: "end small", x: left - 5, y: y + row - 2 }, `a${[...String(i)].map((c) => "₀₁₂₃₄₅₆₇₈₉"[c]).join("")}`));
          const look = (n) => (steps[n]?.kept.has(i) ? "forward" : steps[n]?.again.has(i) ? "backward" : "") + (n < now ? "" : " ahead");
          for (let from = 0, n = 1; n <= steps.length; n++) { // one rectangle for a run of like steps
            if (n < steps.length && look(n) === look(from)) continue;
            const [kind, ahead] = look(from).split(" ");
            if (kind) parts.push(svg("rect", { class: `cell ${kind}`, "fill-opacity": ahead ? 0.15 : 0.75, x: across(from), y: y + 0.5, width: (n - from) * column, height: row - 1 }));
            from = n;
          }
        }
        parts.push(svg("text", { x: 4, y: bottom + gap - 10 }, "alive: kept (blue), computed again (orange)"));
        const height = (count) => (count / (LAYERS + 1)) * (bars - 8);
        steps.forEach((step, n) => {
          const all = alive(step);
          const opacity = n < now ? 0.75 : 0.15;
          const at = { x: across(n), width: column, "fill-opacity": opacity };
          parts.push(svg("rect", { class: "cell forward", y: floor - height(step.kept.size), height: height(step.kept.size), ...at }));
          parts.push(svg("rect", { class: "cell backward", y: floor - height(all), height: height(step.again.size), ...at }));
        });
        parts.push(svg("path", { class: "law", d: `M${left},${floor - height(peak)}H${width - 8}` }));
        parts.push(svg("text", { class: "end", x: width - 8, y: floor - height(peak) + (peak > 15 ? 16 : -5) }, `${peak} at most`));
        parts.push(svg("path", { class: "law", d: `M${across(LAYERS)},${top - 4}V${floor}` }));
        parts.push(svg("path", { class: "way", d: `M${across(now)},${top - 4}V${floor}` }));
        return { height: floor + 4, parts };
      },
    });

    const update = () => {
      const plan = read(which);
      const steps = timeline(plan);
      input(slider).max = steps.length; // which takes a value beyond it back
      const now = read(slider);
      const { peak, forwards } = summary(steps);
      const step = now ? steps[now - 1] : { text: "nothing has run", kept: new Set(), again: new Set() };
      drawing.show();
      speak(slider, `step ${now}, ${step.text}`);
      return [
        [html("strong", {}, `${plan}: `), whole(`${peak} alive at the peak,`), " ", whole(`${forwards} layer forwards`)],
        [whole(`step ${now} of ${steps.length}:`), " ", whole(step.text)],
        [whole(`alive ${alive(step)}:`), " ", whole(`${step.kept.size} kept,`), " ", whole(`${step.again.size} computed again`)],
      ];
    };
    return { controls: [which, slider], drawings: [drawing], update, play: slider };
  });
})();
