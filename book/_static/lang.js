/* Language switch: 中文, English or both, remembered from page to page.
 *
 * A first visit follows the browser: the first of its languages that the book has; a browser
 * with neither Chinese nor English gets both. The build writes this script into the head of
 * each page, so that the choice is made before anything is painted.
 */
(function () {
  "use strict";
  const KEY = "commlab-language";
  const MODES = [
    ["zh", "中文"],
    ["en", "English"],
    ["both", "双语"],
  ];
  const root = document.documentElement;

  function saved() {
    try {
      return localStorage.getItem(KEY);
    } catch (error) {
      return null; // a browser that refuses storage still switches, it only forgets
    }
  }

  /* Class mode (class.js) carries its language in the address. */
  function asked() {
    const address = new URLSearchParams(location.hash.slice(1));
    return address.has("class") ? address.get("lang") : null;
  }

  function preferred() {
    const tags = navigator.languages && navigator.languages.length ? navigator.languages : [navigator.language || ""];
    const known = tags.map((tag) => tag.slice(0, 2).toLowerCase()).find((tag) => tag === "zh" || tag === "en");
    return known || "both";
  }

  function show(mode) {
    root.dataset.lang = mode;
    // Headings hold both languages, English first: with both shown the page counts as English.
    root.lang = mode === "zh" ? "zh-CN" : "en";
    document.querySelectorAll(".lang-switch button").forEach((button) => {
      button.setAttribute("aria-pressed", String(button.dataset.mode === mode));
    });
    document.dispatchEvent(new CustomEvent("book-lang", { detail: mode }));
  }

  function choose(mode) {
    try {
      localStorage.setItem(KEY, mode);
    } catch (error) {
      // see saved()
    }
    // Whatever the reader looks at stays where it is, although text above it appears or goes.
    const anchor = inSight();
    const before = anchor ? anchor.getBoundingClientRect().top : 0;
    show(mode);
    if (anchor) window.scrollBy(0, anchor.getBoundingClientRect().top - before);
  }

  function inSight() {
    const stays = document.querySelectorAll("article h1, article h2, article h3, article .cell");
    return Array.from(stays).find((element) => element.getBoundingClientRect().bottom > 80);
  }

  function addSwitch() {
    const host = document.querySelector(".article-header-buttons, .header-article-items__end") || document.body;
    const group = document.createElement("div");
    group.className = "lang-switch";
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", "Language / 语言");
    MODES.forEach(([mode, text]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.mode = mode;
      button.textContent = text;
      button.addEventListener("click", () => choose(mode));
      group.append(button);
    });
    host.prepend(group);
    show(root.dataset.lang);
  }

  const first = [asked(), saved()].find((choice) => MODES.some(([mode]) => mode === choice));
  show(first || preferred());
  document.addEventListener("DOMContentLoaded", addSwitch);
})();
