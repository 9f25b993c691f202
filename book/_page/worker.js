/* The worker in which a reader's Python runs. It is a classic script: what stands before it in its blob is MicroPython,
   and everything that it needs comes with the first message, so that it works from a file and asks for nothing. */
"use strict";
(() => {
  const PAGE = 65536;
  const MEMORY = 96 * 2 ** 20; // bytes, of the whole runtime
  const HEAP = 16 * 2 ** 20; // bytes to begin with; Python's heap grows within MEMORY
  const OUTPUT = 20000; // characters of one cell
  const grow = WebAssembly.Memory.prototype.grow;
  WebAssembly.Memory.prototype.grow = function (pages) {
    if (this.buffer.byteLength + pages * PAGE > MEMORY) throw new RangeError("the page's memory is full");
    return grow.call(this, pages);
  };
  console.error = () => {}; // Emscripten complains there of the memory that it did not get, Python's MemoryError is enough
  let printed = "", cut = false, python, cell;
  const decoder = new TextDecoder();

  function print(bytes) {
    const text = decoder.decode(bytes, { stream: true });
    if (printed.length + text.length > OUTPUT) cut = true;
    if (printed.length < OUTPUT) printed = (printed + text).slice(0, OUTPUT);
  }

  function put(path, text) {
    path.split("/").slice(0, -1).reduce((above, name) => {
      const folder = `${above}/${name}`;
      if (!python.FS.analyzePath(folder).exists) python.FS.mkdir(folder);
      return folder;
    }, "");
    python.FS.writeFile(`/${path}`, text);
  }

  async function start({ wasm, files }) {
    const answer = () => Promise.resolve(new Response(wasm, { headers: { "Content-Type": "application/wasm" } }));
    self.fetch = answer; // the runtime's own way to its bytes, and the only one
    python = await (await self.micropython)({ heapsize: HEAP, url: "micropython.wasm", stdout: print, linebuffer: false });
    for (const name of ["fetch", "XMLHttpRequest", "WebSocket", "EventSource", "importScripts", "indexedDB", "caches", "Worker"]) {
      Object.defineProperty(self, name, { value: undefined, configurable: false });
    }
    for (const [path, text] of Object.entries(files)) put(path, text);
    python.runPython("import sys\nsys.path.append('/')\nimport cell");
    cell = python.pyimport("cell");
  }

  self.onmessage = async ({ data }) => {
    const began = performance.now();
    const ended = () => performance.now() - began;
    try {
      if (data.kind === "start") {
        await start(data);
        self.postMessage({ kind: "ready", ms: ended() });
        return;
      }
      if (data.kind === "put") {
        put(data.path, data.text);
        return;
      }
      printed = "";
      cut = false;
      const error = JSON.parse(cell.run(data.code));
      self.postMessage({ kind: "answer", id: data.id, printed, cut, error, ms: ended() });
    } catch (problem) {
      self.postMessage({ kind: "broken", id: data.id, printed, cut, message: String(problem), ms: ended() });
    }
  };
})();
