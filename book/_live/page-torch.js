/* The place for a torch of your own. As it comes, this file does nothing, and the cells of the book run on the page's small
 * torch (`_static/live/python.js`). Who hosts the book may put another in its place, such as torch built for Pyodide: a
 * script that sets
 *
 *   window.pageTorch = {
 *     name: "torch 2.13 for Pyodide",          // shown below each result
 *     start(),                                 // a promise; called once, when a reader first runs a cell
 *     put(path, text),                         // a file that Python can import or open, as "coach.py" or "tasks.json" in /
 *     run(code, milliseconds),                 // a promise of {printed, cut, error: {type, message, line} or null, fresh}
 *     stop(),                                  // ends what runs
 *   };
 *
 * `run` runs code at the top level of one namespace, which stays from call to call; `fresh` says that it is gone, as after
 * a stop. `line` counts from 1 in the code that was run.
 */
