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
  const reach = () =>
    each(".bd-article :is(pre, div.math, table)", (box) => {
      if (box.scrollWidth > box.clientWidth) box.setAttribute("tabindex", "0");
      else box.removeAttribute("tabindex");
    });
  addEventListener("load", reach);
  addEventListener("resize", reach);
  document.addEventListener("toggle", reach, true); // a <details> opens
})();
