/* The filter of the page of error messages, which hides the entries that a message, or a few of its words, does not match.
 *
 * As in the search (book/_ext/search.js), words that no entry has, such as the reader's own names, do not count, and rare
 * words count most. A few words must all be there; of a long text most, or most of an entry's own message.
 */
(() => {
  "use strict";
  const article = document.querySelector(".bd-article");
  const section = article?.querySelector("#find-your-message:has(table)");
  if (!section) return;

  const element = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const words = (text) => [...new Set(text.toLowerCase().match(/[a-z_]\w+/g))];
  const entries = [...article.querySelectorAll("section:has(> h3)")].map((node) => {
    const told = [...node.querySelectorAll(":scope > :is(h3, p), .cell_output")].map((part) => part.textContent);
    const quotes = [...node.querySelectorAll(":scope > p > code:only-child")]; // alone in their paragraphs
    const messages = quotes.map((code) => code.textContent).filter((text, at) => text === quotes[at].parentElement.textContent);
    return { node, told: words(told.join(" ")), messages: messages.map(words) };
  });
  const groups = [...article.querySelectorAll("section:has(> section > h3)")];
  const rows = [...section.querySelectorAll("tbody tr")];
  const has = ({ told }, word) => told.some((own) => own.startsWith(word));
  const counts = new Map();
  const having = (word) => {
    if (!counts.has(word)) counts.set(word, entries.filter((entry) => has(entry, word)).length);
    return counts.get(word);
  };
  const weigh = (list) => list.reduce((sum, word) => sum + Math.log(1 + entries.length / (having(word) || 1)), 0);

  const field = element("input", { type: "search", id: "message-filter", autocomplete: "off", spellcheck: "false" });
  const state = element("output", { for: "message-filter" });
  const update = () => {
    const asked = words(field.value);
    const known = asked.filter(having);
    const all = weigh(known);
    for (const entry of entries) {
      const shared = known.filter((word) => has(entry, word));
      const quoted = entry.messages.some((message) => {
        const same = message.filter((word) => asked.includes(word));
        return asked.length > 4 && same.length > 2 && weigh(same) >= 0.7 * weigh(message);
      });
      const alike = all > 0 && weigh(shared) >= (known.length > 4 ? 0.7 : 0.999) * all;
      entry.node.hidden = asked.length > 0 && !quoted && !alike;
    }
    const hidden = new Set(entries.filter(({ node }) => node.hidden).map(({ node }) => node.id));
    for (const row of rows) row.hidden = hidden.has(row.querySelector("a")?.hash.slice(1));
    for (const group of groups) group.hidden = !group.querySelector(":scope > section:not([hidden])");
    const left = entries.length - hidden.size;
    const count = `${left} of ${entries.length} entries ${left === 1 ? "matches" : "match"}. Escape shows all of them.`;
    state.textContent = !asked.length ? `${entries.length} entries` : left ? count : "No entry matches. Try fewer words.";
  };
  const reset = () => {
    field.value = "";
    update();
  };
  field.addEventListener("input", update);
  field.addEventListener("keydown", (event) => event.key === "Escape" && reset());
  // A link to what is hidden, in the page's own contents too, leads there all the same.
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target?.closest("section[hidden]")) return;
    reset();
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => event.target.closest?.("a[href^='#']") && setTimeout(reveal));
  const label = element("label", { for: "message-filter" }, "Paste your message, or type a few of its words");
  section.querySelector("table").before(element("div", { class: "message-filter" }, label, field, state));
  update();
})();
