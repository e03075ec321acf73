/* Sliders without a server: swaps the frames that the book build drew and packed
 * (commlab/explore/static.py). It knows nothing of what they show. */
(function () {
  "use strict";
  const PLAY_INTERVAL_MS = 1200;

  /* Undo static.pack: gzip in base64, lines numbered once, a frame as its difference. */
  async function unpack(base64) {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const { lines, base, frames } = JSON.parse(await new Response(stream).text());
    return (index) => {
      const [head, tail, middle] = frames[index];
      const numbers = base.slice(0, head).concat(middle, base.slice(base.length - tail));
      return numbers.map((number) => lines[number]).join("\n");
    };
  }

  function wire(explorer) {
    const box = explorer.querySelector(".explore-figure");
    const inputs = Array.from(explorer.querySelectorAll("input[type=range]"));
    const picture = box.querySelector("svg");
    const { width, height } = picture.viewBox.baseVal;
    explorer.style.setProperty("--figure-ratio", width / height); // class.css fits it to the window
    let message = picture.dataset.message;

    function describe() {
      const mode = document.documentElement.dataset.lang;
      const alt = [box.dataset.altZh, box.dataset.altEn];
      const shown = mode === "zh" ? alt[0] : mode === "en" ? alt[1] : alt.join(" · ");
      box.setAttribute("aria-label", message ? shown + " — " + message : shown);
    }
    describe();
    document.addEventListener("book-lang", describe);
    if (!inputs.length) return;

    // A shadow root keeps the ids of one figure apart from those of the next, and a swap
    // from restyling the page.
    const root = box.attachShadow({ mode: "open" });
    root.append(...box.childNodes);
    const texts = inputs.map((input) => JSON.parse(input.dataset.texts));
    const data = explorer.querySelector("script");
    let frame = null;

    function show() {
      const started = performance.now();
      let index = 0;
      inputs.forEach((input, knob) => {
        const stop = Number(input.value);
        const text = texts[knob][stop];
        index = index * texts[knob].length + stop;
        input.setAttribute("aria-valuetext", text);
        input.nextElementSibling.textContent = text;
      });
      if (!frame) return; // the frames are still being unpacked: `ready` calls again
      root.innerHTML = frame(index);
      message = root.firstElementChild.dataset.message;
      describe();
      explorer.dataset.frame = index;
      explorer.dataset.swapMs = (performance.now() - started).toFixed(2);
    }

    inputs.forEach((input) => input.addEventListener("input", show));
    unpack(data.textContent).then(
      (unpacked) => {
        frame = unpacked;
        data.remove();
        const start = inputs.every((input) => input.value === input.defaultValue);
        if (!start) show();
        explorer.dataset.ready = "true";
      },
      () => {
        // An old browser without DecompressionStream: the start state stays, and says so.
        explorer.querySelector(".explore-fallback").hidden = false;
        explorer.dataset.ready = "failed";
      }
    );

    const play = explorer.querySelector(".explore-play");
    if (play) wirePlay(play, inputs[0]);
  }

  function wirePlay(button, input) {
    let timer = null;

    function set(playing) {
      clearInterval(timer);
      timer = playing ? setInterval(advance, PLAY_INTERVAL_MS) : null;
      button.querySelector(".when-paused").hidden = playing;
      button.querySelector(".when-playing").hidden = !playing;
    }
    function move(stop) {
      input.value = stop;
      input.dispatchEvent(new Event("input", { bubbles: true }));
    }
    function advance() {
      if (Number(input.value) < Number(input.max)) move(Number(input.value) + 1);
      if (Number(input.value) >= Number(input.max)) set(false);
    }
    button.addEventListener("click", () => {
      const start = timer === null;
      if (start && Number(input.value) >= Number(input.max)) move(0);
      set(start);
    });
    // A reader who takes the slider in hand has stopped watching.
    input.addEventListener("pointerdown", () => set(false));
    input.addEventListener("keydown", () => set(false));
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("figure.explore").forEach(wire);
  });
})();
