/* What sphinx-book-theme 1.2 leaves out for a screen reader or a keyboard; the browser test (axe) holds it. */
(() => {
  "use strict";
  const each = (selector, change) => document.querySelectorAll(selector).forEach(change);

  // Everything stands in a landmark, the logo too.
  each(".sidebar-primary-item:has(.navbar-brand)", (item) => {
    item.setAttribute("role", "navigation");
    item.setAttribute("aria-label", "Home");
  });

  // "Show code cell source" is the button's name; the theme hides it behind another one.
  each("details.hide > summary[aria-label]", (summary) => summary.removeAttribute("aria-label"));

  // What scrolls sideways can be reached and scrolled by keyboard.
  const reach = () => {
    const boxes = [...document.querySelectorAll(".bd-article :is(pre, div.math, table)")];
    const wide = boxes.map((box) => box.scrollWidth > box.clientWidth); // all are measured before one is changed
    boxes.forEach((box, at) => {
      if (wide[at]) box.setAttribute("tabindex", "0");
      else box.removeAttribute("tabindex");
    });
  };
  addEventListener("load", reach);
  addEventListener("resize", reach);
  document.addEventListener("toggle", reach, true); // a <details> opens

  // The theme takes the focus from a button that is pressed; a keyboard needs it, and a drawer gives it back on closing.
  each(".theme-switch-button, .search-button, .primary-toggle, .secondary-toggle", (button) =>
    button.addEventListener("click", (event) => event.pointerType !== "mouse" && button.focus(), true));

  // On paper a page is light, and its answers are open.
  const root = document.documentElement;
  let restore = () => {};
  addEventListener("beforeprint", () => {
    const { theme } = root.dataset;
    const closed = [...document.querySelectorAll(".bd-article details:not([open], .hide, .toggle-details)")];
    root.dataset.theme = "light";
    for (const answer of closed) answer.open = true;
    restore = () => {
      root.dataset.theme = theme;
      for (const answer of closed) answer.open = false;
    };
  });
  addEventListener("afterprint", () => restore());
})();
