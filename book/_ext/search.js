/* The search of the course. Sphinx writes this file into language_data.js, which the search page alone reads, after
   searchtools.js. Sphinx's own search asks for every word, so it finds nothing for an error message that holds a name
   of the reader's. Here a word that no page has is left out, rare words count most, and a text that is mostly one of
   the messages listed by course_search.py leads to its section. (The first semicolon ends what stands before it there.) */
;(() => {
  const own = (map, key) => (Object.hasOwn(map, key) ? [map[key]].flat() : []);
  const words = (text) =>
    new Set(splitQuery(text.toLowerCase()).filter((word) => !/^\d+$/.test(word) && !stopwords.includes(word)));
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

  /* The pages that have a word, or words that contain it where none has it. */
  const having = (word) => {
    const { terms, titleterms } = Search._index;
    const found = [...own(terms, word), ...own(titleterms, word)];
    if (!found.length && word.length > 2)
      for (const term of Object.keys(terms)) if (term.includes(word)) found.push(...own(terms, term));
    return new Set(found);
  };

  /* In place of Sphinx's function: pages with at least 0.6 of the weight of what was asked, as it returns them. */
  const pages = (asked, excluded) => {
    const { docnames, filenames, titles, titleterms } = Search._index;
    const scores = new Map();
    let total = 0;
    for (const word of asked) {
      const files = having(word);
      if (!files.size) continue;
      const weight = Math.log(1 + titles.length / files.size);
      const inTitle = new Set(own(titleterms, word));
      total += weight;
      for (const file of files) scores.set(file, (scores.get(file) ?? 0) + weight * (inTitle.has(file) ? 2 : 1));
    }
    for (const word of excluded) for (const file of having(word)) scores.delete(file);
    return [...scores]
      .filter(([, score]) => score >= 0.6 * total)
      .map(([file, score]) => [docnames[file], titles[file], "", null, (10 * score) / total, filenames[file]]);
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
    const best = messages(query);
    const places = new Set(best.map((result) => result[2]));
    const named = (result) => result[1].split(" > ").at(-1).toLowerCase() === query.trim().toLowerCase();
    const others = perform(query, ...rest).filter((result) => !places.has(result[2]));
    return [...others.filter((result) => !named(result)), ...others.filter(named), ...best]; // the last is shown first
  };
})();
