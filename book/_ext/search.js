/* The search of the course. Sphinx writes this file into language_data.js, which the search page alone reads, after
   searchtools.js. Sphinx's own search asks for every word, so it finds nothing for an error message that holds a name
   of the reader's. Here a word that no page has is taken for the word that is one letter from it, or else left out; rare
   words count most, of a page its best section is shown with a few of its words, and a text that is mostly one of the
   messages listed by course_search.py leads to its section. What is typed on the search page is sought while it is typed.
   (The first semicolon ends what stands before it there.) */
;(() => {
  const own = (map, key) => (Object.hasOwn(map, key) ? [map[key]].flat() : []);
  const words = (text) =>
    new Set(splitQuery(text.toLowerCase()).filter((word) => !/^\d+$/.test(word) && !stopwords.includes(word)));
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

  /* Whether one letter more, less, other, or two exchanged, make one word of the other. */
  const near = (a, b) => {
    if (Math.abs(a.length - b.length) > 1) return false;
    let start = 0;
    while (start < a.length && a[start] === b[start]) start++;
    const [restA, restB] = [a.slice(start), b.slice(start)];
    return restA.slice(1) === restB || restA === restB.slice(1) || restA.slice(1) === restB.slice(1)
      || (restA.slice(2) === restB.slice(2) && restA[0] === restB[1] && restA[1] === restB[0]);
  };

  /* The pages that have a word, or words that contain it, or the commonest word that is one letter from it. */
  const meant = new Map(); // what was typed, and what it was taken for
  const having = (word) => {
    const { terms, titleterms } = Search._index;
    const of = (term) => [...own(terms, term), ...own(titleterms, term)];
    const found = of(word);
    const known = Object.keys(terms);
    if (!found.length && word.length > 2) for (const term of known) if (term.includes(word)) found.push(...own(terms, term));
    if (!found.length && word.length > 3) {
      const others = known.filter((term) => near(word, term)).sort((a, b) => of(b).length - of(a).length);
      if (others.length) {
        meant.set(word, others[0]);
        found.push(...of(others[0]));
      }
    }
    return new Set(found);
  };

  /* Of a page the section that has most of the words, by weight, and some words around the first of them, as HTML. */
  const stemmer = new Stemmer();
  const stem = (word) => stemmer.stemWord(word.toLowerCase());
  const escaped = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const best = (page, weights) => {
    let [score, chosen] = [0, null];
    for (const [id, title, text] of window.courseSections?.[page] ?? []) {
      const has = new Set(splitQuery(text).map(stem));
      const heads = new Set(splitQuery(title).map(stem));
      const own = sum([...weights].map(([word, weight]) => weight * (2 * heads.has(word) + has.has(word))));
      if (own > score) [score, chosen] = [own, { id, title, text }];
    }
    if (!chosen) return null;
    const { text } = chosen;
    const place = [...text.matchAll(/[\p{L}\p{N}_]+/gu)].find((found) => weights.has(stem(found[0])))?.index ?? 0;
    const from = place < 60 ? 0 : text.lastIndexOf(" ", place - 50) + 1;
    const to = text.length < from + 160 ? text.length : text.lastIndexOf(" ", from + 160);
    const words = text.slice(from, to).split(/([\p{L}\p{N}_]+)/u);
    const marked = words.map((word) => (weights.has(stem(word)) ? `<mark>${escaped(word)}</mark>` : escaped(word))).join("");
    return { ...chosen, snippet: `${from ? "… " : ""}${marked}${to < text.length ? " …" : ""}` };
  };

  /* In place of Sphinx's function: pages with at least 0.6 of the weight of what was asked, as it returns them. */
  const pages = (asked, excluded) => {
    const { docnames, filenames, titles, titleterms } = Search._index;
    const scores = new Map();
    const weights = new Map();
    let total = 0;
    for (const word of asked) {
      const files = having(word);
      if (!files.size) continue;
      const weight = Math.log(1 + titles.length / files.size);
      const inTitle = new Set(own(titleterms, word));
      total += weight;
      weights.set(meant.get(word) ?? word, weight);
      for (const file of files) scores.set(file, (scores.get(file) ?? 0) + weight * (inTitle.has(file) ? 2 : 1));
    }
    for (const word of excluded) for (const file of having(word)) scores.delete(file);
    return [...scores]
      .filter(([, score]) => score >= 0.6 * total)
      .map(([file, score]) => {
        const section = best(docnames[file], weights);
        const inside = section && section.id !== window.courseSections[docnames[file]][0][0]; // the first is the page
        return [docnames[file], titles[file] + (inside ? ` > ${section.title}` : ""), inside ? `#${section.id}` : "",
          section?.snippet || null, (10 * score) / total, filenames[file]];
      });
  };

  /* The three listed messages that are most like the text, the best last, as results. */
  const messages = (text) => {
    const { alltitles, docnames, filenames, indexentries, titles } = Search._index;
    const listed = Object.entries(indexentries).map(([entry, places]) => [words(entry), places]);
    const counts = new Map();
    for (const [entry] of listed) for (const word of entry) counts.set(word, (counts.get(word) ?? 0) + 1);
    const weigh = (set) => sum([...set].map((word) => Math.log(1 + listed.length / (counts.get(word) ?? 1))));

    const asked = words(text);
    const found = new Map();
    for (const [entry, places] of listed) {
      const shared = new Set([...entry].filter((word) => asked.has(word)));
      const ofEntry = weigh(shared) / weigh(entry);
      const ofAsked = weigh(shared) / weigh(asked);
      if (shared.size < 3 || Math.max(ofEntry, ofAsked) < 0.7) continue;
      for (const [file, id] of places) {
        const score = Math.max(ofEntry + ofAsked, found.get(id)?.[4] ?? 0);
        const heading = Object.keys(alltitles).find((title) =>
          alltitles[title].some((place) => place[0] === file && place[1] === id));
        found.set(id, [docnames[file], `${titles[file]} > ${heading}`, `#${id}`, null, score, filenames[file]]);
      }
    }
    return [...found.values()].sort((a, b) => a[4] - b[4]).slice(-3);
  };

  /* What is marked on the page that the reader opens: the words that say something, not each "an" and "was" in it. */
  const common = `all any been can could did does from had has have how its may must one only should than those were what
    when where which who you your`.split(/\s+/);
  const parse = Search._parseQuery;
  Search._parseQuery = (query) => {
    const parsed = parse(query);
    const telling = [...parsed[3]].filter((word) => word.length > 2 && !common.includes(word));
    if (SPHINX_HIGHLIGHT_ENABLED) localStorage.setItem("sphinx_highlight_terms", telling.join(" "));
    return parsed;
  };

  const perform = Search._performSearch;
  Search.performTermsSearch = pages;
  Search._performSearch = (query, ...rest) => {
    const quoted = messages(query);
    const places = new Set(quoted.map((result) => result[2]));
    const named = (result) => result[1].split(" > ").at(-1).toLowerCase() === query.trim().toLowerCase();
    const others = perform(query, ...rest).filter((result) => !places.has(result[2]));
    const every = [...others.filter((result) => !named(result)), ...others.filter(named), ...quoted]; // the last is first
    const kept = new Map(); // one for each place, with the snippet of any
    for (const result of every.reverse()) {
      const place = result[5] + result[2];
      if (kept.has(place)) kept.get(place)[3] ??= result[3];
      else kept.set(place, result);
    }
    return [...kept.values()].reverse();
  };

  /* What a word was taken for is said above what was found. */
  const show = Search.query;
  Search.query = (query) => {
    meant.clear();
    show(query);
    const typed = new Map(splitQuery(query).map((word) => [stem(word), word])); // the index has stems
    for (const [word, taken] of meant) {
      const line = document.createElement("p");
      line.className = "search-typo";
      line.textContent = `No page has “${typed.get(word) ?? word}”. Shown is what has “${taken}”, or begins so.`;
      Search.output?.before(line);
    }
  };

  /* On the search page, what is typed is sought when the typing pauses. */
  const begin = () => {
    let timer;
    for (const field of document.querySelectorAll('.bd-article input[name="q"], .bd-search-container input[name="q"]'))
      field.addEventListener("input", () => {
        clearTimeout(timer);
        timer = setTimeout(() => {
          document.getElementById("search-results").replaceChildren();
          const query = field.value.trim();
          history.replaceState(null, "", query ? `?q=${encodeURIComponent(query)}` : location.pathname);
          if (query) Search.performSearch(query);
        }, 250);
      });
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
