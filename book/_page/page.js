/* The page's Python, as window.pagePython. Nothing starts before the first call of run or start. `put(path, text)` adds a file. `run(code)` gives a
   promise of {printed, cut, error, ms}: what the code printed, whether that was too long and was cut, the error that ended it
   as {type, message, line} or null, and the milliseconds. Names stay from one call to the next, until `stop()`, or until
   code is ended because it ran too long: then the runtime is new, and `fresh` is true. */
"use strict";
window.pagePython = (() => {
  const LIMIT = 5000; // milliseconds of one cell
  const { runtime, worker, wasm, files } = PAGE_DATA;
  let running = null; // {worker, ready, waiting}
  let count = 0;

  function bytes(text) {
    const raw = atob(text);
    return Uint8Array.from(raw, (letter) => letter.charCodeAt(0)).buffer;
  }

  function start() {
    if (running) return running.ready;
    const address = URL.createObjectURL(new Blob([runtime, worker], { type: "text/javascript" }));
    const own = { worker: new Worker(address), waiting: new Map() };
    running = own;
    own.ready = new Promise((resolve, reject) => {
      own.worker.onmessage = ({ data }) => {
        if (data.kind === "ready") {
          URL.revokeObjectURL(address);
          resolve(data.ms);
        } else if (data.id === undefined) {
          reject(new Error(data.message));
        } else {
          const done = own.waiting.get(data.id);
          own.waiting.delete(data.id);
          if (data.kind === "broken") {
            if (running === own) stop();
            done({ ...data, fresh: true, error: { type: "MemoryError", message: `the page's Python broke: ${data.message}`, line: null } });
          } else done({ ...data, fresh: false });
        }
      };
      own.worker.onerror = (event) => reject(new Error(event.message));
    });
    const binary = bytes(wasm);
    own.worker.postMessage({ kind: "start", wasm: binary, files }, [binary]);
    return own.ready;
  }

  function stop() {
    if (!running) return;
    const { worker: ended, waiting } = running;
    running = null;
    ended.terminate();
    const error = { type: "Stopped", message: "it was stopped", line: null };
    for (const done of waiting.values()) done({ printed: "", cut: false, error, ms: 0, fresh: true }); // now, not at their limit
  }

  async function run(code, limit = LIMIT) {
    await start();
    const own = running;
    const id = (count += 1);
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        own.waiting.delete(id);
        if (running === own) stop();
        const error = { type: "TimeoutError", message: `stopped after ${limit / 1000} seconds`, line: null };
        resolve({ printed: "", cut: false, error, ms: limit, fresh: true });
      }, limit);
      own.waiting.set(id, (answer) => {
        clearTimeout(timer);
        const { printed, cut, error, ms, fresh } = answer;
        resolve({ printed, cut, error, ms, fresh });
      });
      own.worker.postMessage({ kind: "run", id, code });
    });
  }

  // A file that Python finds from now on, in this runtime and in those after it.
  function put(path, text) {
    files[path] = text;
    if (running) running.worker.postMessage({ kind: "put", path, text });
  }

  return { name: "the page's own small torch", start, run, put, stop };
})();
