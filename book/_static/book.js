/* What the theme leaves open: wide content scrolls inside itself, also by keyboard, and the
 * search page works without a server. */
(function () {
  "use strict";
  const WIDE = ".table-scroll, .highlight pre, pre, mjx-container[display='true'], div.math, .output";

  function wrapTables() {
    document.querySelectorAll("article table").forEach((table) => {
      if (table.closest(".table-scroll")) return;
      const box = document.createElement("div");
      box.className = "table-scroll";
      table.replaceWith(box);
      box.append(table);
    });
  }

  /* Something that scrolls must be reachable by keyboard; something that does not scroll
   * must not be a stop on the way. */
  function markScrollers() {
    document.querySelectorAll(WIDE).forEach((element) => {
      const scrolls =
        element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible";
      if (scrolls) element.tabIndex = 0;
      else element.removeAttribute("tabindex");
    });
  }

  // Opened from disk, a page may not fetch another one for its summary.
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }

  document.addEventListener("DOMContentLoaded", wrapTables);
  window.addEventListener("load", () => {
    markScrollers();
    if (window.MathJax && MathJax.startup && MathJax.startup.promise) MathJax.startup.promise.then(markScrollers);
  });
  window.addEventListener("resize", markScrollers);
  document.addEventListener("book-lang", markScrollers);
  document.addEventListener("book-section", markScrollers);
  document.addEventListener("toggle", markScrollers, true); // a <details> opened
})();
