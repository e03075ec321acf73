/* Class mode: one section at a time, large, for a projector. Nothing on the page is moved or
 * copied: what does not belong to the section on show is hidden, so explorers go on working.
 *
 * The address holds the place and the language, #class=the-algorithm&lang=zh: it survives a
 * reload, can be handed on, and works from disk, where pages may not share a storage.
 */
(function () {
  "use strict";
  const KEY = "p";
  const LAST = "last"; // the place that the page after this one asks for on the way back
  const SCREEN = 0.8; // one step through a long section, as a part of the window
  const SHORTEST = 0.3;
  const LINE = 0.15;
  const AT_END_PX = 4;
  const BLOCKS = "figure.explore, .highlight, .table-scroll, p, li, h4, mjx-container[display]";
  const EDITED = "textarea, select, [contenteditable], input:not([type=range], [type=button])";
  const HAS_SPACE_KEY = "button, a, summary";

  const root = document.documentElement;
  let slides = []; // each {heading, parts}: the elements that are shown together
  let current = -1; // -1: class mode is off
  let bar = null;

  /* The title, then every h2 and h3 with what follows it. A heading with no text of its own
   * stands above the first section below it. */
  function collect() {
    const found = [];
    let waiting = [];

    function add(section) {
      const children = Array.from(section.children);
      const below = children.filter((child) => child.matches("section:has(> h2, > h3)"));
      const parts = children.filter((child) => !below.includes(child));
      const bare = parts.every((part) => part.matches("h1, h2, h3, span:empty"));
      waiting.push(...parts);
      if (!(bare && below.length)) {
        found.push({ heading: waiting.find((part) => part.matches("h1, h2, h3")), parts: waiting });
        waiting = [];
      }
      below.forEach(add);
    }

    const page = document.querySelector("article.bd-article > section:has(> h1)");
    if (page) add(page);
    return found;
  }

  function title(slide) {
    const nodes = Array.from(slide.heading.childNodes);
    return nodes.map((node) => (node.className === "headerlink" ? "" : node.textContent)).join("");
  }

  function placeOf(slide) {
    return slide.heading.closest("section").id;
  }

  function askedPlace() {
    return new URLSearchParams(location.hash.slice(1)).get("class");
  }

  function addressed() {
    return decodeURIComponent(location.hash.slice(1));
  }

  function hashFor(place) {
    return "#" + new URLSearchParams({ class: place, lang: root.dataset.lang });
  }

  /* Which slide holds the element with this id; -1 if none does. */
  function slideWith(id) {
    const element = document.getElementById(id);
    const spot = element && element.matches("section") ? element.querySelector("h1, h2, h3") : element;
    return spot ? slides.findIndex((slide) => slide.parts.some((part) => part.contains(spot))) : -1;
  }

  function slideAt(place) {
    return place === LAST ? slides.length - 1 : Math.max(0, slideWith(place));
  }

  /* What the reader looks at: the section of the address while its heading is in the window (at
   * the end of a page it does not reach the top), or else the last one that passed the top. */
  function slideInSight() {
    const top = (slide) => slide.heading.getBoundingClientRect().top;
    const named = slideWith(addressed());
    if (named >= 0 && top(slides[named]) >= 0 && top(slides[named]) < innerHeight) return named;
    return Math.max(0, slides.filter((slide) => top(slide) < innerHeight / 3).length - 1);
  }

  function linked(step) {
    return document.querySelector(`link[rel="${step > 0 ? "next" : "prev"}"]`);
  }

  function show(index, atEnd = false) {
    current = index;
    root.dataset.classMode = "on";
    bar.hidden = false;
    slides.forEach((slide, number) => {
      slide.parts.forEach((part) => part.toggleAttribute("data-class-hidden", number !== index));
    });
    bar.querySelector(".class-place").textContent = `${index + 1} / ${slides.length}`;
    bar.querySelector(".class-title").textContent = title(slides[index]);
    [-1, 1].forEach((step) => {
      const exists = slides[index + step] || linked(step);
      bar.querySelector(`[data-step="${step}"]`).setAttribute("aria-disabled", String(!exists));
    });
    // The history keeps one entry for the whole visit: Back leaves the page as before.
    history.replaceState(null, "", hashFor(placeOf(slides[index])));
    if (!bar.contains(document.activeElement)) focusHeading(slides[index]);
    document.dispatchEvent(new CustomEvent("book-section"));
    window.scrollTo({ top: atEnd ? root.scrollHeight : 0, behavior: "instant" });
  }

  function focusHeading(slide) {
    slide.heading.tabIndex = -1;
    slide.heading.focus({ preventScroll: true });
  }

  function go(step, atEnd = false) {
    if (slides[current + step]) show(current + step, atEnd);
    else if (linked(step)) location.href = linked(step).href.split("#")[0] + hashFor(step > 0 ? "" : LAST);
  }

  /* Through a long section by `part` of the window, from its end to the next section. */
  function advance(part, repeated) {
    const rest = part > 0 ? root.scrollHeight - innerHeight - scrollY : scrollY;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (rest > AT_END_PX) {
      window.scrollBy({ top: part * innerHeight, behavior: calm ? "instant" : "smooth" });
    } else if (!repeated) {
      go(Math.sign(part), part < 0); // a key held down stops at the end of its section
    }
  }

  /* One screen on, as a part of the window: the first figure, table or paragraph that is cut
   * off below comes to the top, so that it is seen whole. */
  function screenOn() {
    const blocks = slides[current].parts.flatMap((part) => [part, ...part.querySelectorAll(BLOCKS)]);
    const boxes = blocks.filter((block) => block.matches(BLOCKS)).map((block) => block.getBoundingClientRect());
    const cut = boxes.find((box) => box.bottom > innerHeight - bar.offsetHeight);
    const part = cut ? cut.top / innerHeight - 0.02 : SCREEN;
    return part < SHORTEST ? SCREEN : part; // a block longer than the window
  }

  function leave() {
    const slide = slides[current];
    current = -1;
    delete root.dataset.classMode;
    bar.hidden = true;
    slides.forEach(({ parts }) => parts.forEach((part) => part.removeAttribute("data-class-hidden")));
    history.replaceState(null, "", "#" + placeOf(slide));
    document.dispatchEvent(new CustomEvent("book-section"));
    slide.heading.scrollIntoView({ block: "start", behavior: "instant" });
    focusHeading(slide);
  }

  /* Keys that the element in focus needs itself. PageUp and PageDown are never among them:
   * a presenter's remote sends these, also after a slider was moved. */
  function keeps(element, key) {
    const sideways = key === "ArrowLeft" || key === "ArrowRight";
    if (element.matches("input[type=range]")) return key.startsWith("Arrow") || key === "Home" || key === "End";
    if (element.matches(HAS_SPACE_KEY)) return key === " ";
    return sideways && element.tabIndex === 0 && element.scrollWidth > element.clientWidth + 1;
  }

  function act(event) {
    switch (event.key) {
      case "ArrowRight":
        return go(1);
      case "ArrowLeft":
        return go(-1);
      case "ArrowDown":
        return advance(LINE, event.repeat);
      case "ArrowUp":
        return advance(-LINE, event.repeat);
      case "PageDown":
        return advance(screenOn(), event.repeat);
      case "PageUp":
        return advance(-SCREEN, event.repeat);
      case " ":
        return advance(event.shiftKey ? -SCREEN : screenOn(), event.repeat);
      case "Home":
        return show(0);
      case "End":
        return show(slides.length - 1);
      case "Escape":
        return leave();
      default:
        return false;
    }
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches(EDITED)) return;
    if (current < 0) {
      if (event.key.toLowerCase() === KEY) show(slideInSight());
    } else if (!keeps(event.target, event.key) && act(event) !== false) {
      event.preventDefault();
    }
  }

  /* The address changed: by hand, or by a link to another section of this page. */
  function followAddress() {
    const place = askedPlace();
    if (place !== null) {
      show(slideAt(place));
    } else if (current >= 0) {
      const id = addressed();
      if (slideWith(id) < 0) return leave();
      show(slideWith(id));
      document.getElementById(id).scrollIntoView({ behavior: "instant" });
    }
  }

  function button(content, label, action) {
    const made = document.createElement("button");
    made.type = "button";
    made.innerHTML = content;
    made.title = label;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", action);
    return made;
  }

  function addBar() {
    bar = document.createElement("nav");
    bar.className = "class-bar";
    bar.setAttribute("aria-label", "Class mode · 课堂模式");
    bar.hidden = true;
    const place = document.createElement("p");
    place.setAttribute("role", "status"); // read out at each change
    place.innerHTML = '<span class="class-place"></span> <span class="class-title"></span>';
    const back = button("‹", "Back (← or PageUp) · 上一节", () => go(-1));
    const on = button("›", "On (→ or PageDown) · 下一节", () => go(1));
    back.dataset.step = -1;
    on.dataset.step = 1;
    bar.append(place, back, on, button("✕", "Leave class mode (Esc) · 退出课堂模式", leave));
    document.body.append(bar);
  }

  function addButton() {
    const screen =
      '<svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true" fill="none" stroke="currentColor"' +
      ' stroke-width="1.6" stroke-linecap="round"><path d="M1.5 3h17M3 3v9.5h14V3M10 12.5v2M10 14.5l-3.5 3M10 14.5l3.5 3"/></svg>';
    const label = `Class mode: one section at a time, large (key ${KEY}) · 课堂模式：一次一节，放大显示（按 ${KEY} 键）`;
    const made = button(screen, label, () => show(slideInSight()));
    made.className = "class-button";
    made.setAttribute("aria-keyshortcuts", KEY);
    document.querySelector(".lang-switch").after(made);
  }

  function start() {
    slides = collect();
    if (!slides.length) {
      delete root.dataset.classMode; // a page without sections, such as the index
      return;
    }
    addBar();
    addButton();
    document.addEventListener("keydown", onKey);
    window.addEventListener("hashchange", followAddress);
    if (askedPlace() !== null) show(slideAt(askedPlace()));
  }

  document.addEventListener("DOMContentLoaded", start);
})();
