/* Chapter 7: six numbers slide through float32's window; less the largest, they stay where they are, piece by piece. */
(() => {
  "use strict";
  const { html, svg, whole, power, short, signed, range, read, speak, sketch } = figureKit;

  figureKit.add("float-window", () => {
    const base = [0, 1, 3, -20, 2, 4];
    const SIZE = 2; // numbers in a piece
    const float = Math.fround;
    const exp = (x) => float(Math.exp(float(x)));
    const log = (x) => float(Math.log(x));
    const total = (terms) => terms.reduce((a, b) => float(a + b), 0);
    const state = (x) => {
      const m = Math.max(...x);
      return { m, ell: total(x.map((t) => exp(t - m))) };
    };
    const merge = (one, two) => {
      const m = Math.max(one.m, two.m);
      return { m, ell: float(float(one.ell * exp(one.m - m)) + float(two.ell * exp(two.m - m))) };
    };
    const [TINY, HUGE] = [2 ** -126, (2 - 2 ** -23) * 2 ** 127]; // the least number with all its digits, and the largest
    const fate = (value) => (value === Infinity || value === 0 ? "lost" : value < TINY ? "short" : "whole");
    const decimals = (number) => (Number.isFinite(number) ? signed(number.toFixed(4)) : signed(number));

    const slider = range("a, added to all", -120, 120, 2, 100);
    const seen = range("pieces seen", 1, 3, 1, 3);
    const numbers = () => base.map((b) => read(slider) + b);
    // The states after 1, 2, 3 pieces.
    const states = () => {
      const pieces = [0, 1, 2].map((k) => state(numbers().slice(SIZE * k, SIZE * (k + 1))));
      return pieces.reduce((list, piece) => [...list, list.length ? merge(list.at(-1), piece) : piece], []);
    };

    const [ROW, END] = [22, 56]; // pixels; the left panel goes from 10^-56 to 10^56
    const drawing = sketch({
      name: "Above or left: six exponentials against float32's range. Below or right: the same, relative to the largest number",
      draw: (width) => {
        const narrow = width < 600;
        const parts = [];
        const say = (x, y, text, look = "") => parts.push(svg("text", { class: look, x, y: y + 4 }, text));
        const box = (look, x, y, w, h) => parts.push(svg("rect", { class: look, x, y, width: Math.max(w, 0), height: h }));
        const line = (x, from, to) => parts.push(svg("path", { class: "grid", d: `M${x},${from}V${to}` }));
        const xs = numbers();
        const count = SIZE * read(seen);
        const names = 40;
        const values = 58;
        const room = narrow ? width : (width - 24) / 2;

        // What float32 makes of each exponential.
        const [top, low] = [30, 30 + base.length * ROW];
        const px = (decade) => names + ((decade + END) / (2 * END)) * (room - names - values);
        say(0, 10, "exp(x), and what float32 can hold", "bold");
        parts.push(svg("path", { class: "band", d: `M${px(Math.log10(TINY))},${top}H${px(Math.log10(HUGE))}V${low}H${px(Math.log10(TINY))}Z` }));
        for (const k of [-38, 0, 38]) {
          line(px(k), top, low);
          say(px(k), low + 14, k ? power(k) : "1", "middle small");
        }
        say(px(-49), low + 14, "0", "middle small");
        say(px(49), low + 14, "∞", "middle small");
        xs.forEach((x, n) => {
          const y = top + n * ROW;
          const value = exp(x);
          say(names - 6, y + ROW / 2, signed(x), "end small name");
          box(`bar ${fate(value)}`, px(-END), y + 4, px(Math.min(x * Math.LOG10E, END)) - px(-END), ROW - 8);
          say(room - values + 8, y + ROW / 2, value === Infinity ? "∞" : short(value), `small bold value ${fate(value)}`);
        });

        // The terms of the pieces seen, relative to their largest number.
        const left = narrow ? 0 : room + 24;
        const above = narrow ? low + 58 : top;
        const below = above + (base.length + 1) * ROW;
        const m = Math.max(...xs.slice(0, count));
        const before = Math.max(...xs.slice(0, count - SIZE)); // -Infinity for the first piece
        const sx = (value) => left + names + (value / 2) * (room - names - values);
        say(left, above - 20, "exp(x − m), relative to the largest", "bold");
        for (const k of [0, 1, 2]) {
          line(sx(k), above, below);
          say(sx(k), below + 14, String(k), "middle small");
        }
        xs.slice(0, count).forEach((x, n) => {
          const y = above + n * ROW;
          const value = exp(x - m);
          const latest = n >= count - SIZE;
          say(left + names - 6, y + ROW / 2, signed(x), "end small name");
          if (!latest) box("bar ghost", sx(0), y + 4, sx(exp(x - before)) - sx(0), ROW - 8);
          box(latest ? "bar latest" : "bar", sx(0), y + 4, sx(value) - sx(0), ROW - 8);
          say(left + room - values + 8, y + ROW / 2, value < 0.001 ? short(value) : value.toFixed(4), "small bold term");
        });
        if (count > SIZE) say(sx(2) - 4, above + (count - SIZE) * ROW / 2, `× ${exp(before - m).toFixed(4)}`, "end small bold moved");
        const { ell } = states()[read(seen) - 1];
        const y = above + base.length * ROW;
        say(left + names - 6, y + ROW / 2, "ℓ", "end");
        box("bar latest", sx(0), y + 4, sx(ell) - sx(0), ROW - 8);
        say(left + room - values + 8, y + ROW / 2, ell.toFixed(4), "small bold ell");
        return { height: (narrow ? below : Math.max(low, below)) + 22, parts };
      },
    });

    const update = () => {
      const k = read(seen);
      const xs = numbers().slice(0, SIZE * k);
      const plain = total(xs.map(exp));
      const all = states();
      const { m, ell } = all[k - 1];
      const fates = xs.map((x) => fate(exp(x)));
      const count = (name) => fates.filter((found) => found === name).length;
      const c = k > 1 ? exp(all[k - 2].m - m) : 1;
      speak(slider, `a = ${signed(read(slider))}`);
      speak(seen, `${k} of 3 pieces`);
      drawing.show();
      return [
        [html("strong", {}, `a = ${signed(read(slider))}, ${xs.length} numbers.`), " Exponentials in float32: ",
          whole(`${count("whole")} whole,`), " ", whole(`${count("short")} short of digits,`), " ",
          whole(`${count("lost")} lost`)],
        ["Plain sum: ", whole(`${plain === Infinity ? "∞" : short(plain)},`), " ", whole(`its log ${decimals(log(plain))}`)],
        ["Relative to the largest: ", whole(`m = ${signed(m)},`), " ", whole(`ℓ = ${decimals(ell)}`),
          ...(k > 1 ? [", ", whole(`the old sum × ${c.toFixed(4)}`)] : [])],
        [whole(`m + log ℓ = ${decimals(float(m + log(ell)))}`)],
      ];
    };
    return { controls: [slider, seen], drawings: [drawing], update, play: slider };
  });
})();
