/* Chapter 7: six pieces of a vector are merged one by one; float32, as the plain sum that they are compared with. */
(() => {
  "use strict";
  const { html, whole, short, signed, range, choice, read, speak, linear, plot } = figureKit;

  figureKit.add("streaming-lse", () => {
    const pieces = [[85, 87], [88, 86], [90, 89, 90], [84], [91, 88.5], [-Infinity, -Infinity]];
    const orders = { "as given": [0, 1, 2, 3, 4, 5], reversed: [5, 4, 3, 2, 1, 0], shuffled: [3, 2, 5, 0, 4, 1] };
    const float = Math.fround;
    const total = (terms) => terms.reduce((a, b) => float(a + b), 0);
    const exp = (x) => float(Math.exp(float(x)));
    const guard = (m) => (Number.isFinite(m) ? m : 0);
    const state = (x) => {
      const m = Math.max(...x);
      return { m, ell: total(x.map((t) => exp(t - guard(m)))) };
    };
    const merge = (one, two) => {
      const m = Math.max(one.m, two.m);
      return { m, ell: float(float(one.ell * exp(one.m - guard(m))) + float(two.ell * exp(two.m - guard(m)))) };
    };
    const lse = ({ m, ell }) => float(m + float(Math.log(ell)));
    const nothing = { m: -Infinity, ell: 0 };
    // The states after 0, 1, ... 6 pieces.
    const stream = (order) => order.reduce((states, k) => [...states, merge(states.at(-1), state(pieces[k]))], [nothing]);
    const decimals = (number) => (Number.isFinite(number) ? number.toFixed(4) : signed(number));
    const end = (order) => decimals(lse(stream(order).at(-1)));

    const chosen = choice("order", Object.keys(orders));
    const slider = range("pieces merged", 0, pieces.length, 1, 2);
    const drawing = plot({
      name: "m and m + log ℓ after each piece, in three orders that end at the same point",
      x: linear({ from: 0, to: pieces.length, every: 1, name: "pieces merged" }),
      y: linear({ from: 82.5, to: 92.5, every: 2, also: [[-Infinity, "−∞"]], name: "m (dashed), m + log ℓ; elements of a piece (small)" }),
      height: 320,
    });
    const update = () => {
      const [order, count] = [orders[read(chosen)], read(slider)];
      const states = stream(order);
      const seen = order.slice(0, count).map((k) => pieces[k]);
      const plain = total(seen.flat().map(exp));
      const now = states[count];
      const piece = count ? seen.at(-1) : [];
      const own = count ? state(piece) : nothing;
      const trace = (f, list) => list.map((each, n) => [n, f(each)]);
      const limit = Math.log(2 ** 128); // beyond it, exp is infinite in float32
      drawing.show([
        { line: [[0, limit], [6, limit]], look: "limit" },
        { note: [5.95, limit], text: "float32: exp = ∞", look: "end", lift: 6 },
        ...Object.values(orders).map((each) => ({ line: trace(lse, stream(each)), look: "law" })),
        ...seen.flatMap((x, n) => x.map((t) => ({ mark: [n + 1, t], look: "element", size: 4 }))),
        { line: trace(({ m }) => m, states.slice(0, count + 1)), look: "two dashed" },
        { line: trace(lse, states.slice(0, count + 1)), look: "one" },
        { mark: [count, now.m], look: "two" },
        { mark: [count, lse(now)], look: "one" },
      ]);
      speak(slider, `${count} of ${pieces.length} pieces`);
      return [
        [html("strong", {}, `${count} of ${pieces.length} pieces.`),
          count ? ` The last, (${piece.map(signed).join(", ")}): ` : " Nothing: ",
          whole(`m = ${signed(own.m)},`), " ", whole(`ℓ = ${decimals(own.ell)}`)],
        ["Merged: ", whole(`m = ${signed(now.m)},`), " ", whole(`ℓ = ${decimals(now.ell)},`), " ",
          whole(`m + log ℓ = ${decimals(lse(now))}`)],
        ["Plain sum in float32: ", whole(`${plain === Infinity ? "∞" : short(plain)},`), " ",
          whole(`its log ${decimals(float(Math.log(plain)))}`)],
        ["At the end: ", ...Object.entries(orders).flatMap(([name, each], n) => [n ? ", " : "", whole(`${name} ${end(each)}`)])],
      ];
    };
    return { controls: [slider, chosen], drawings: [drawing], update };
  });
})();
