/* What must be settled before anything is painted; the build writes this into each page's head. */
(function () {
  "use strict";
  const root = document.documentElement;
  // The theme leaves "auto" standing until its script runs: a dark screen would flash white.
  if (root.dataset.theme === "auto") {
    root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }
  // A page opened in class mode (class.js) starts large and without its sidebars.
  if (new URLSearchParams(location.hash.slice(1)).has("class")) root.dataset.classMode = "on";
})();
