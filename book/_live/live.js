/* Cells that a reader writes and runs in the page. Loaded when the first one is opened, never before; see
 * book/_ext/course_live.py for the files beside it.
 *
 * What runs them is `window.pagePython`, the page's own small torch; or `window.pageTorch`, where the host of a
 * site has put one into `_static/torch/page-torch.js`, which says what its parts are.
 */
"use strict";
window.live = (() => {
  const base = new URL(document.documentElement.dataset.content_root, location.href).href;
  const page = location.href.replace(/[?#].*/, "").slice(base.length).replace(/\.html$/, "");
  const KEY = "custom-gradients"; // of page.js: what it forgets is forgotten here
  const ELSEWHERE = /not in the page's (torch|Python)/;

  const element = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const button = (text, act) => {
    const node = element("button", { type: "button" }, text);
    node.addEventListener("click", act);
    return node;
  };

  // ---------------------------------------------------------------- what is loaded, once
  const scripts = new Map();
  function script(path) {
    if (!scripts.has(path)) {
      const loading = new Promise((resolve, reject) => {
        const node = element("script", { src: `${base}_static/${path}` });
        node.onload = resolve;
        node.onerror = () => {
          node.remove();
          scripts.delete(path);
          reject(new Error(`${path} could not be loaded`));
        };
        document.head.append(node);
      });
      scripts.set(path, loading);
    }
    return scripts.get(path);
  }

  let data = null; // of this page
  async function pageData() {
    await script(`live/${page.split("/").at(-1)}.js`);
    data = window.livePages[page];
    return data;
  }

  let runtime = null;
  let prepared = false; // whether the coach has its tasks
  async function python(say) {
    await pageData();
    if (!runtime) {
      say("Loading Python, once for this page …");
      await script("torch/page-torch.js"); // sets nothing, unless the host of this site has put another there
      if (!window.pageTorch) await script("live/python.js");
      runtime = window.pageTorch ?? window.pagePython;
      await runtime.start();
    }
    if (!prepared) {
      await script("live/coach.js");
      for (const [path, text] of Object.entries(window.liveCoach)) runtime.put(path, text);
      if (data.set) {
        await script(`live/tasks-${data.set}.js`);
        runtime.put("tasks.json", window.liveTasks[data.set]);
        await step("import coach as _c\nif not _c.TASKS:\n    _c.load(open('/tasks.json').read())", 30000);
      }
      prepared = true;
    }
  }

  async function step(code, limit) {
    const answer = await runtime.run(code, limit);
    if (answer.fresh) prepared = false;
    return answer;
  }

  // ---------------------------------------------------------------- what was written, kept in this browser
  const memory = () => {
    try {
      return JSON.parse(localStorage.getItem(KEY)) ?? {};
    } catch {
      return {};
    }
  };
  const kept = (name) => memory().cells?.[page]?.[name] ?? null;
  function keep(name, text) {
    const all = memory();
    all.cells ??= {};
    all.cells[page] ??= {};
    if (text === null) delete all.cells[page][name];
    else all.cells[page][name] = text;
    try {
      localStorage.setItem(KEY, JSON.stringify(all));
      return true;
    } catch {
      return false; // a private window, or a file in some browsers
    }
  }

  // A cell whose checks held once keeps its mark, whatever is written there later.
  function hold(name) {
    const all = memory();
    all.held ??= {};
    all.held[page] = [...new Set([...(all.held[page] ?? []), name])];
    try {
      localStorage.setItem(KEY, JSON.stringify(all));
    } catch {}
  }

  // ---------------------------------------------------------------- an editor
  // Code in the colours of the book's own: the classes are those of Pygments.
  const KEYWORDS = new Set(("and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield").split(" "));
  const CONSTANTS = new Set(["None", "True", "False"]);
  const BUILT_IN = new Set(("abs all any bool complex dict enumerate float int isinstance len list max min object print property range reversed round self set sorted staticmethod str sum super tuple type zip NotImplementedError ValueError").split(" "));
  const TOKEN = /(#.*)|([rbfu]{0,2}(?:"""[^]*?(?:"""|$(?![^]))|'''[^]*?(?:'''|$(?![^]))|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))|(^[ \t]*@[\w.]+)|(\b\d[\d_.]*(?:e[-+]?\d+)?\w*)|([\p{L}_][\p{L}\p{N}_]*)|([-+*/%=<>!&|^~@]+)/gimu;
  const CLASSES = [null, "c1", "s1", "nd", "mi", null, "o"];
  function coloured(code) {
    const found = document.createDocumentFragment();
    let at = 0;
    let before = "";
    for (const match of code.matchAll(TOKEN)) {
      const [text] = match;
      let kind = CLASSES[match.findIndex((part, i) => i && part !== undefined)];
      if (match[5] !== undefined) {
        const attribute = code[match.index - 1] === ".";
        if (before === "def" || before === "class") kind = before === "def" ? "nf" : "nc";
        else if (!attribute && KEYWORDS.has(text)) kind = "k";
        else if (!attribute && CONSTANTS.has(text)) kind = "kc";
        else if (!attribute && BUILT_IN.has(text)) kind = "nb";
        before = text;
      }
      const piece = (words) => element("span", { class: kind }, words);
      found.append(code.slice(at, match.index));
      if (kind === "s1" && /^\w*f/i.test(text)) {
        for (const part of text.split(/(\{[^{}]*\})/)) {
          const computed = part.match(/^\{([^:!}]*)([^]*)$/);
          if (computed) found.append(piece("{"), coloured(computed[1]), piece(computed[2]));
          else found.append(piece(part));
        }
      } else found.append(kind ? piece(text) : text);
      at = match.index + text.length;
    }
    found.append(code.slice(at));
    return found;
  }

  const INDENT = "    ";
  let count = 0;
  function editor(text, about, run, changed) {
    const id = `live-${(count += 1)}`;
    const area = element("textarea", {
      id, "aria-label": about, "aria-describedby": `${id}-how`, spellcheck: "false", autocapitalize: "off", autocomplete: "off",
      autocorrect: "off", wrap: "off", rows: "4",
    });
    const lines = element("div", { class: "live-lines", "aria-hidden": "true" });
    const colours = element("div", { class: "live-colours" }); // no <pre>: the theme makes a wide one a stop of the Tab key
    const under = element("div", { class: "live-under highlight", "aria-hidden": "true" }, colours);
    const how = element("p", { class: "live-how", id: `${id}-how` }, "Ctrl + Enter runs. Tab indents; after Escape it leaves the editor. A cell knows the book's code above it, not what you wrote in others.");
    let leaving = false;
    let marked = null;

    function fit() {
      const all = area.value.split("\n").length;
      area.rows = Math.max(2, all);
      colours.replaceChildren(coloured(area.value), "\n"); // a last empty line has its height, too
      lines.replaceChildren(
        ...Array.from({ length: all }, (_, i) => element("span", i + 1 === marked ? { class: "live-marked" } : {}, String(i + 1))),
      );
    }
    function insert(added) {
      // the one way that a browser's own undo knows
      if (!document.execCommand("insertText", false, added)) area.setRangeText(added, area.selectionStart, area.selectionEnd, "end");
    }
    function indent(back) {
      const start = area.value.lastIndexOf("\n", area.selectionStart - 1) + 1;
      const end = area.selectionEnd;
      if (!back && area.selectionStart === area.selectionEnd) return insert(INDENT);
      const before = area.value.slice(start, end);
      const after = before.split("\n").map((line) => (back ? line.replace(/^ {1,4}/, "") : line && INDENT + line)).join("\n");
      if (after === before) return;
      area.setSelectionRange(start, end);
      insert(after);
      if (before.includes("\n")) area.setSelectionRange(start, start + after.length);
    }
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey || event.shiftKey)) {
        event.preventDefault();
        run();
      } else if (event.key === "Enter" && !event.altKey) {
        event.preventDefault();
        const line = area.value.slice(0, area.selectionStart).split("\n").at(-1);
        insert(`\n${line.match(/^ */)[0]}${/:\s*$/.test(line) ? INDENT : ""}`);
      } else if (event.key === "Tab" && !leaving && !event.altKey && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        indent(event.shiftKey);
      }
      leaving = event.key === "Escape" || (leaving && ["Tab", "Shift"].includes(event.key));
    });
    area.addEventListener("blur", () => (leaving = false));
    area.addEventListener("scroll", () => (colours.style.transform = `translateX(${-area.scrollLeft}px)`));
    area.addEventListener("input", () => {
      marked = null;
      fit();
      changed(area.value);
    });
    area.value = text;
    fit();
    return {
      node: element("div", { class: "live-editor" }, element("div", { class: "live-code" }, lines, element("div", { class: "live-text" }, under, area)), how),
      area,
      set(value) {
        area.focus();
        area.select();
        insert(value); // so that it can be undone
      },
      mark(line) {
        marked = line;
        fit();
      },
      // Choose what is to be written over: the statement that raises, or the None; else stand at the end of the code.
      at(words) {
        if (matchMedia("(hover: none)").matches) return; // a telephone would draw its keyboard over the answer
        const place = area.value.indexOf(words);
        area.focus({ preventScroll: true });
        if (place < 0) return;
        const start = area.value.lastIndexOf("\n", place) + 1;
        const [line] = area.value.slice(start).split("\n");
        const [code] = line.split("  # ");
        const none = code.indexOf("None");
        const raises = code.trimStart().startsWith("raise ");
        const from = raises ? code.length - code.trimStart().length : none < 0 ? code.length : none;
        area.setSelectionRange(start + from, start + (raises || none < 0 ? code.length : none + 4));
      },
    };
  }

  // ---------------------------------------------------------------- what is said
  const HOLDS = /^(All \d+ checks hold|The check holds|All \d+ checks that run in the page hold)\.$/;
  const KINDS = { "✓": "right", "✗": "wrong", "…": "waits", "?": "waits" };
  function said(printed) {
    return printed.replace(/\n$/, "").split("\n").map((line) => {
      const kind = KINDS[line[0]];
      return element("div", { class: kind ? `live-line live-${kind}` : "live-line" }, line || " ");
    });
  }
  const shownAsPrinted = (printed) => element("pre", { class: "live-printed", tabindex: "0" }, printed.replace(/\n$/, ""));

  function failed({ type, message, line }, where) {
    if (ELSEWHERE.test(message) || type === "NotInPage") {
      const notebook = element("code", {}, `jupyter lab ${page}.ipynb`);
      const words = message.replace(/: run this in Jupyter.*/, "");
      return element("p", { class: "live-wrong" }, `${where || (line ? `Line ${line}` : "Here")}: ${words}. Run this in Jupyter: `, notebook);
    }
    if (type === "TimeoutError") return element("p", { class: "live-wrong" }, `It was ${message}: does a loop never end?`);
    const at = where || (line ? `Line ${line}` : "Here");
    return element("p", { class: "live-wrong" }, `${at}: ${type}${message ? `: ${message}` : ""}`);
  }

  // ---------------------------------------------------------------- a cell
  let others = Promise.resolve(); // cells run one after another: the clock of one does not count another's time
  // name: under which it is kept; text: as the book has it; parts: what runs before and after it, and a solution; asks:
  // whether its solution is worth points; held: called once all checks hold.
  function cell({ name, text, about, parts, asks = false, held }) {
    let running = null; // what tells one run from the next
    const out = element("div", { class: "live-out", role: "status" });
    const edit = editor(kept(name) ?? text, about, () => go(), (value) => {
      if (!keep(name, value === text ? null : value)) note.textContent = "This browser keeps nothing: copy what you write.";
    });
    const note = element("span", { class: "live-note" });
    const runs = button("Run", () => (running ? halt() : go()));
    runs.classList.add("live-run");
    let passed = !asks; // a graded task's solution opens once it has passed, or when it is asked for twice
    const solution = button("Show a solution", async () => {
      if (!passed) {
        passed = true;
        solution.textContent = "Not passed yet. Show it all the same";
        return;
      }
      if (hideSolution()) return;
      await pageData();
      const code = element("pre", { tabindex: "0" }, coloured((await parts()).solution));
      const shown = element("div", { class: "live-solution highlight", role: "group", "aria-label": "A solution" }, code);
      bar.after(shown);
      solution.textContent = "Hide the solution";
    });
    function hideSolution() {
      solution.textContent = "Show a solution";
      const shown = node.querySelector(".live-solution");
      shown?.remove();
      return shown;
    }
    const again = button("Reset", () => {
      edit.set(text);
      keep(name, null);
      out.replaceChildren();
      hideSolution();
    });
    const bar = element("div", { class: "live-bar" }, runs, again, solution, note);
    const node = element("div", { class: "live-cell" }, edit.node, bar, out);

    function halt() {
      if (running.runs) {
        runtime.stop(); // what waits for another cell leaves that one alone
        prepared = false;
      }
      running = null;
      runs.textContent = "Run";
      out.replaceChildren(element("p", {}, "Stopped."));
    }

    // What is said stays in sight, however long the code is.
    function reveal() {
      const low = Math.min(out.getBoundingClientRect().bottom, bar.getBoundingClientRect().top + innerHeight * 0.7);
      if (low > innerHeight) scrollBy({ top: low - innerHeight + 16 });
    }

    async function go() {
      if (running) return;
      const own = (running = {});
      runs.textContent = "Stop";
      edit.mark(null);
      edit.area.scrollLeft = 0;
      const say = (words) => out.replaceChildren(element("p", { class: "live-waiting" }, words));
      const earlier = others;
      let done;
      others = new Promise((resolve) => (done = resolve));
      say("Waiting for the cell that runs …");
      await earlier;
      try {
        if (running !== own) return;
        await python(say);
        if (running !== own) return;
        own.runs = true;
        say("Running …");
        const { before, after } = await parts();
        const began = performance.now();
        const shown = [];
        const pieces = [
          ["import coach as _c\n_c.fresh(globals())", "Python itself", false],
          [before, "In what this cell needs from above", false],
          [edit.area.value, "", true],
          [after, "In the check", true],
        ];
        for (const [code, where, tell] of pieces) {
          if (!code) continue;
          const answer = await step(code);
          if (running !== own) return; // it was stopped
          const coached = code === after && after.startsWith("coach(");
          if (tell && answer.printed) shown.push(...(coached || /^[✓✗]/.test(answer.printed) ? said(answer.printed) : [shownAsPrinted(answer.printed)]));
          if (answer.cut) shown.push(element("p", {}, "More was printed; the page shows the first 20,000 characters."));
          if (answer.error) {
            shown.push(failed(answer.error, where));
            if (!where && answer.error.line) edit.mark(answer.error.line);
            break;
          }
        }
        if (shown.some((line) => HOLDS.test(line.textContent))) {
          passed = true;
          if (!node.querySelector(".live-solution")) solution.textContent = "Show a solution";
          hold(name);
          held?.();
        }
        if (!shown.length) shown.push(element("p", {}, "It ran, and printed nothing."));
        const seconds = ((performance.now() - began) / 1000).toFixed(1);
        out.replaceChildren(...shown, element("p", { class: "live-torch" }, `Ran in ${seconds} s, on ${runtime.name}.`));
      } catch (problem) {
        out.replaceChildren(element("p", { class: "live-wrong" }, `The page's Python did not start: ${problem.message}. Reload the page, or run the notebook in Jupyter.`));
      } finally {
        done();
        if (running === own) {
          running = null;
          runs.textContent = "Run";
          reveal();
        }
      }
    }
    return { node, go, edit };
  }

  // ---------------------------------------------------------------- the cells of the book, and its exercises
  const opened = new WeakMap();
  const named = (box) => [...box.classList].find((c) => /^tag_(turn|misconception):/.test(c)).slice(4);

  const solutionOf = (set, task) => JSON.parse(window.liveTasks[set]).find((each) => each.name === task)?.solution ?? "";

  async function open(box) {
    const { cells, set } = await pageData();
    if (opened.has(box)) return opened.get(box);
    const input = box.querySelector(":scope > .cell_input");
    const name = named(box);
    const wrong = name.startsWith("misconception");
    const block = input.querySelector("pre").cloneNode(true);
    for (const part of block.querySelectorAll("button")) part.remove();
    const text = cells[name].text ?? block.textContent.replace(/\n$/, "");
    const parts = async () => {
      const own = cells[name];
      if (own.solution) return own;
      await script(`live/tasks-${set}.js`);
      return { ...own, solution: solutionOf(set, name.slice("misconception:".length).split(".")[0]) };
    };
    const about = wrong ? "A wrong version: mend it until the checks hold" : "Your turn: write here";
    const made = cell({ name, text, about, parts, held: () => mark(box) });
    const look = getComputedStyle(input.querySelector("pre"));
    for (const part of ["fontSize", "lineHeight"]) made.node.style.setProperty(`--live-${part.toLowerCase()}`, look[part]);
    input.hidden = true;
    input.after(made.node);
    opened.set(box, made);
    return made;
  }

  // Say of a turn, a wrong version or an exercise that its checks hold.
  function mark(box) {
    const line = box.querySelector(".rank") ?? box.querySelector("p");
    if (box.classList.contains("live-held")) return;
    box.classList.add("live-held");
    line.append(element("span", { class: "live-done" }, " ✓ the checks hold"));
  }

  async function tasks(place) {
    const { tasks: html, starts, set } = await pageData();
    const box = element("div", { class: "live-tasks" });
    box.innerHTML = html; // the book's own, from its own folder
    for (const task of box.querySelectorAll(".live-task")) {
      const name = task.dataset.task;
      const parts = async () => {
        await script(`live/tasks-${set}.js`);
        const before = "import torch\nimport torch.nn.functional as F\nfrom torch.autograd import Function";
        return { before, after: `coach(${name})`, solution: solutionOf(set, name) };
      };
      const title = task.querySelector("p");
      title.setAttribute("role", "heading");
      title.setAttribute("aria-level", "3");
      const held = () => mark(task);
      const made = cell({ name: `task:${name}`, text: starts[name].trimEnd(), about: `Your ${name}: write here`, parts, asks: true, held });
      if (memory().held?.[page]?.includes(`task:${name}`)) mark(task);
      const hints = task.querySelector("details:has(> summary)");
      const last = [...task.querySelectorAll(":scope > details")].find((d) => d.querySelector("summary").textContent.startsWith("Hint"));
      (last ?? hints ?? task.lastElementChild).before(made.node);
    }
    place.replaceWith(box);
    for (const block of box.querySelectorAll("pre")) block.tabIndex = 0; // a long line is scrolled by keyboard, too
    return box;
  }

  const style = element("link", { rel: "stylesheet", href: `${base}_static/live/live.css` });
  document.head.append(style);
  return { open, tasks, mark };
})();
