/* What a page does for its reader: quizzes that answer, read marks, the code so far, cards for terms.
 *
 * Each is an addition: without this file a page says the same, and nothing of it is fetched. What is remembered stays in
 * this browser, in one entry of its storage, and the first page has a button that removes it. Storage may be refused, in
 * a private window or for a file, and then nothing is remembered.
 */
(() => {
  "use strict";
  const article = document.querySelector(".bd-article");
  if (!article) return;

  const element = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };

  // ---------------------------------------------------------------- what this browser remembers
  const base = new URL(document.documentElement.dataset.content_root, location.href).href;
  const page = location.href.replace(/[?#].*/, "").slice(base.length).replace(/\.html$/, ""); // such as book/01_relu
  const KEY = "custom-gradients";
  const recall = () => {
    try {
      return { read: [], answers: {}, last: null, ...JSON.parse(localStorage.getItem(KEY)) };
    } catch {
      return { read: [], answers: {}, last: null };
    }
  };
  const remember = (change) => {
    const memory = recall(); // anew: another tab may have written
    change(memory);
    try {
      localStorage.setItem(KEY, JSON.stringify(memory));
    } catch {} // nothing is remembered
  };

  // ---------------------------------------------------------------- quizzes
  const LETTER = /^[a-d]$/;
  const letter = (node) => (node?.nodeName === "STRONG" && LETTER.test(node.textContent) ? node.textContent : "");

  // An answer's sentences, as lists of copied nodes. A sentence ends in the text of its paragraph, before a space and
  // anything but a small letter: formulas and code are whole elements, so a point in them ends nothing.
  const sentences = (paragraph) => {
    const found = [[]];
    for (const node of paragraph.childNodes) {
      if (node.nodeType !== Node.TEXT_NODE) {
        found.at(-1).push(node.cloneNode(true));
        continue;
      }
      node.data.split(/(?<=[.?!][”’)]?\s+)(?![a-z\s])/).forEach((text, at) => {
        if (at) found.push([]);
        found.at(-1).push(text);
      });
      if (/[.?!][”’)]?\s+$/.test(node.data)) found.push([]);
    }
    return found.filter((nodes) => nodes.length);
  };

  // What an answer says of one option: the sentences that name it, with those that follow and name none. It begins with
  // the right one, on which it may go on until a sentence begins with another.
  function said(answer, chosen) {
    const all = [...answer.querySelectorAll("p")].flatMap(sentences);
    const right = letter(all[0]?.[0]);
    let named = [];
    let opening = true;
    const parts = all.filter((nodes, at) => {
      const here = nodes.map(letter).filter(Boolean);
      if (here.length) named = here;
      if (at && letter(nodes.find((node) => node.textContent ?? node.trim()))) opening = false;
      const bare = !at && /^[a-d]\.\s*$/.test(nodes.map((node) => node.textContent ?? node).join(""));
      return !bare && (named.includes(chosen) || (opening && chosen === right));
    });
    const nothing = chosen === right && !parts.length; // the answer explains the right one by the others
    return { right: chosen === right, parts: (nothing ? all.slice(1) : parts).flat() };
  }

  function quiz(question, list, answer) {
    const number = parseInt(question.textContent, 10);
    const verdict = element("p", { class: "quiz-verdict", "aria-live": "polite" });
    const judge = (option) => {
      const chosen = letter(option.querySelector("strong"));
      const { right, parts } = said(answer, chosen);
      for (const other of list.children) other.classList.remove("quiz-right", "quiz-wrong");
      option.classList.add(right ? "quiz-right" : "quiz-wrong");
      verdict.className = `quiz-verdict ${right ? "quiz-right" : "quiz-wrong"}`;
      verdict.replaceChildren(element("strong", {}, right ? "Right." : "Not so."), " ", ...parts);
    };
    const words = (option) => option.textContent.trim();
    const before = recall().answers[page]?.[number]; // the option's words: a quiz may be rewritten
    for (const option of list.children) {
      const input = element("input", { type: "radio", name: `quiz-${number}` });
      option.replaceChildren(element("label", {}, input, element("span", {}, ...option.querySelector("p").childNodes)));
      input.addEventListener("change", () => {
        judge(option);
        remember(({ answers }) => ((answers[page] ??= {})[number] = words(option)));
      });
      if (words(option) !== before) continue;
      input.checked = true;
      judge(option);
    }
    const group = element("fieldset", { class: "quiz" }, element("legend", {}, ...question.childNodes));
    question.before(group);
    while (group.nextSibling !== answer) {
      if (group.nextSibling === question) question.remove();
      else group.append(group.nextSibling);
    }
    list.classList.add("quiz-options");
    group.append(verdict, answer);
  }

  for (const answer of article.querySelectorAll("#predict-then-run > details")) {
    const list = answer.previousElementSibling;
    let question = list;
    while (question && !/^\d\.$/.test(question.querySelector(":scope > strong:first-child")?.textContent ?? ""))
      question = question.previousElementSibling;
    if (list?.nodeName === "UL" && question) quiz(question, list, answer);
  }

  // ---------------------------------------------------------------- what was read, and where to go on
  const CHAPTER = /^book\/(\d\d|[b-d])_/; // what is read from its start to its end
  const title = (heading) => {
    const copy = heading.cloneNode(true);
    for (const part of copy.querySelectorAll(".headerlink, .section-number, .katex-mathml")) part.remove();
    return copy.textContent.trim();
  };

  function tick() {
    const { read } = recall();
    for (const link of document.querySelectorAll(".bd-sidenav a.internal")) {
      const to = link.href.replace(/[?#].*/, "").slice(base.length).replace(/\.html$/, "");
      const mark = link.querySelector(".read-mark");
      if (mark && !read.includes(to)) mark.remove();
      if (mark || !read.includes(to)) continue;
      const spoken = element("span", { class: "visually-hidden" }, " (read)");
      link.append(element("span", { class: "read-mark" }, element("span", { "aria-hidden": "true" }, " ✓"), spoken));
    }
    for (const link of document.querySelectorAll("svg.map a")) {
      const done = read.includes(`book/${link.getAttribute("href").replace(/\.html$/, "")}`);
      const name = link.getAttribute("aria-label").replace(/ \(read\)$/, "");
      link.setAttribute("aria-label", done ? `${name} (read)` : name);
      link.classList.toggle("read", done);
      const text = link.querySelector("text:last-of-type");
      text.textContent = text.textContent.replace(/ ✓$/, "") + (done ? " ✓" : "");
    }
  }

  function follow() {
    const watch = (nodes, act, margin = "0px") => {
      const seen = new IntersectionObserver(
        (entries) => {
          const inView = entries.filter((entry) => entry.isIntersecting);
          if (inView.length) act(inView.at(-1).target);
        },
        { rootMargin: margin },
      );
      for (const node of nodes) seen.observe(node);
    };
    const place = (heading) => {
      const names = { section: title(heading), chapter: title(article.querySelector("h1")) };
      remember((memory) => (memory.last = { page, place: heading.parentElement.id, ...names }));
    };
    const end = () => {
      remember(({ read }) => read.includes(page) || read.push(page));
      tick();
    };
    watch(article.querySelectorAll("section[id] > :is(h2, h3)"), place, "0px 0px -25% 0px"); // at the lower edge: not yet
    // The summary ends the path that everybody reads; the last section, all of the page.
    watch(article.querySelectorAll(":scope > section > :is(section#summary, section:last-of-type)"), end);
  }

  function goOn() {
    const { last, read, answers, cells, held } = recall();
    if (!last && !read.length && !Object.keys(answers).length && !cells && !held) return;
    const line = element("p", { class: "continue", tabindex: "-1" });
    if (last) {
      const to = element("a", { href: `${base}${last.page}.html#${last.place}` }, last.section);
      line.append(element("span", {}, "Continue at: ", to, " of ", element("em", {}, last.chapter)));
    }
    const forget = element("button", { type: "button" }, "Forget what I have read, answered and written");
    forget.addEventListener("click", () => {
      try {
        localStorage.removeItem(KEY);
      } catch {} // then nothing was remembered
      tick();
      line.replaceChildren("This browser has forgotten what you read, answered and wrote here.");
      line.focus(); // the button is gone
    });
    line.append(forget);
    article.querySelector("h1").after(line);
  }

  tick();
  if (CHAPTER.test(page)) follow();
  if (page === "book/intro") goOn();

  // ---------------------------------------------------------------- the code so far
  // A second button on a cell: all code above it, and its own, as one piece that runs where it is pasted.
  const blocks = [...article.querySelectorAll("div.cell_input div.highlight pre")];
  blocks.forEach((block, at) => {
    if (!at) return; // the first one's own button copies the same
    const name = "Copy all code up to here";
    const button = element("button", { type: "button", class: "copyall o-tooltip--left", "data-tooltip": name, "aria-label": name }, "\u21c8");
    button.addEventListener("click", () => {
      const code = blocks.slice(0, at + 1).map((each) => each.textContent.trimEnd());
      const { ClipboardJS } = window; // sphinx-copybutton's
      button.dataset.tooltip = ClipboardJS?.copy(`${code.join("\n\n\n")}\n`) ? "Copied!" : "Could not copy";
      setTimeout(() => (button.dataset.tooltip = name), 2000);
    });
    block.after(button);
  });

  // ---------------------------------------------------------------- cells that run here
  // The button alone: what opens and runs a cell is loaded when it is pressed (book/_live/, book/_ext/course_live.py).
  function live(text, open) {
    const start = element("button", { type: "button", class: "live-start" }, text);
    start.addEventListener("click", async () => {
      start.disabled = true;
      const load = (src) =>
        new Promise((resolve, reject) => {
          const script = element("script", { src });
          script.onload = resolve;
          script.onerror = () => reject(new Error());
          document.head.append(script);
        });
      try {
        if (!window.live) await load(`${base}_static/live/live.js`);
        await open(start);
      } catch {
        start.replaceWith(element("span", { role: "alert" }, "This could not be loaded: reload the page and try again."));
      }
    });
    return start;
  }

  const written = recall().cells?.[page] ?? {};
  const held = recall().held?.[page] ?? [];
  for (const cell of article.querySelectorAll(".cell.live")) {
    const name = [...cell.classList].find((each) => /^tag_(turn|misconception):/.test(each)).slice(4);
    const word = name in written ? "Go on" : "Run";
    const start = live(word, async (own) => {
      const made = await window.live.open(cell);
      own.remove();
      made.edit.at("your turn");
      return made.go();
    });
    start.setAttribute("aria-label", `${word}: ${cell.querySelector(".rank").textContent}`);
    if (held.includes(name)) {
      cell.classList.add("live-held");
      cell.querySelector(".rank").append(element("span", { class: "live-done" }, " ✓ the checks hold"));
    }
    cell.querySelector(".rank").append(start);
  }
  for (const place of article.querySelectorAll(".live-open")) {
    place.hidden = false;
    place.append(
      live(Object.keys(written).some((name) => name.startsWith("task:")) ? "Go on with the exercises" : "Do the exercises here, in the page", async () => {
        const box = await window.live.tasks(place);
        box.tabIndex = -1;
        box.focus({ preventScroll: true });
      }),
    );
  }

  // ---------------------------------------------------------------- cards for the terms that are linked
  // The build puts the definitions into the page, book/_ext/course_page_data.py. A card can be hovered itself, stays as
  // long as the pointer or the focus does, and Escape takes it away. A finger follows the link, as ever.
  const definitions = document.querySelector("template#terms")?.content;
  const card = element("div", { class: "term-card", id: "term-card", role: "tooltip", hidden: "" });
  let shown = null;
  let waiting = 0;
  const later = (act, milliseconds) => {
    clearTimeout(waiting);
    waiting = setTimeout(act, milliseconds);
  };
  const hide = () => {
    clearTimeout(waiting);
    shown?.removeAttribute("aria-describedby");
    shown = null;
    card.hidden = true;
  };
  const show = (link, text, x) => {
    hide();
    shown = link;
    card.replaceChildren(text.cloneNode(true));
    card.hidden = false;
    link.setAttribute("aria-describedby", card.id);
    const lines = [...link.getClientRects()]; // a link may go on in the next line: the card stands by the one pointed at
    const line = lines.find((rect) => rect.left <= x && x <= rect.right) ?? lines[0];
    const origin = card.offsetParent.getBoundingClientRect();
    const below = line.bottom + card.offsetHeight < innerHeight || line.top < card.offsetHeight;
    const left = Math.max(8, Math.min(line.left, document.documentElement.clientWidth - card.offsetWidth - 8));
    card.style.left = `${left - origin.left}px`;
    card.style.top = `${(below ? line.bottom : line.top - card.offsetHeight) - origin.top}px`;
  };

  if (definitions) {
    article.append(card);
    for (const link of article.querySelectorAll('a[href*="glossary.html#"]')) {
      const text = definitions.querySelector(`[data-term="${CSS.escape(link.hash.slice(1))}"]`)?.content;
      if (!text) continue;
      const mouse = (event) => event.pointerType !== "touch";
      link.addEventListener("pointerenter", (event) => mouse(event) && later(() => show(link, text, event.clientX), 150));
      link.addEventListener("pointerleave", () => document.activeElement !== link && later(hide, 300));
      link.addEventListener("focus", () => link.matches(":focus-visible") && show(link, text));
      link.addEventListener("blur", hide);
    }
    card.addEventListener("pointerenter", () => clearTimeout(waiting));
    card.addEventListener("pointerleave", () => document.activeElement !== shown && later(hide, 300));
    document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  }
})();
