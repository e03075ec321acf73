"""Figures and sliders on the built pages."""

from __future__ import annotations

import statistics

import pytest

from commlab.explore.static import unpack
from tests.notebook_explorers import NOTEBOOKS, explorers_of

# Everything about one slider, from the page itself.
SLIDERS = """figure => [...figure.querySelectorAll('input[type=range]')].map(input => {
  const box = input.getBoundingClientRect();
  return {id: input.id, stops: +input.max + 1, start: +input.defaultValue,
          texts: JSON.parse(input.dataset.texts), x: box.x, y: box.y, w: box.width, h: box.height};
})"""
PICTURE = "figure => (figure.querySelector('.explore-figure').shadowRoot ?? figure).innerHTML"
# A picture may be large: the page itself compares it with the one of the last call.
STATE = """figure => {
  const picture = (figure.querySelector('.explore-figure').shadowRoot ?? figure).innerHTML;
  const isNew = picture !== figure.pictureBefore;
  figure.pictureBefore = picture;
  return {
    isNew,
    values: [...figure.querySelectorAll('input[type=range]')].map(input => +input.value),
    spoken: [...figure.querySelectorAll('input[type=range]')].map(i => i.ariaValueText),
    readouts: [...figure.querySelectorAll('.explore-readout')].map(span => span.textContent),
  };
}"""
SET_VALUES = """(figure, values) => {
  const inputs = [...figure.querySelectorAll('input[type=range]')];
  inputs.forEach((input, i) => { input.value = values[i]; });
  inputs[0].dispatchEvent(new Event('input', {bubbles: true}));
}"""
# Walks through every state; returns the times of the swaps and the number of pictures.
ALL_STATES = """figure => {
  const inputs = [...figure.querySelectorAll('input[type=range]')];
  const root = figure.querySelector('.explore-figure').shadowRoot;
  const sizes = inputs.map(input => +input.max + 1);
  const count = sizes.reduce((a, b) => a * b, 1);
  const times = [], pictures = new Set(), wrong = [];
  for (let index = 0; index < count; index++) {
    let rest = index;
    for (let i = sizes.length - 1; i >= 0; i--) {
      inputs[i].value = rest % sizes[i];
      rest = Math.floor(rest / sizes[i]);
    }
    inputs[0].dispatchEvent(new Event('input', {bubbles: true}));
    times.push(+figure.dataset.swapMs);
    const svg = root.querySelector('svg');
    if (+figure.dataset.frame !== index || !svg || root.querySelector('parsererror'))
      wrong.push(index);
    pictures.add(root.innerHTML);
  }
  return {count, times, pictures: pictures.size, wrong};
}"""
THUMB_PX = 16
FRAMES_OF_THE_BOOK = 3000
# The background under the middle of each text: the shapes below it, blended on the card.
CONTRASTS = """figure => {
  const parse = text => {
    const m = text.match(/[\\d.]+/g).map(Number);
    return text.startsWith('color(srgb')
      ? [m[0] * 255, m[1] * 255, m[2] * 255, m[3] ?? 1] : [m[0], m[1], m[2], m[3] ?? 1];
  };
  const blend = (under, over, alpha) => under.map((u, i) => u * (1 - alpha) + over[i] * alpha);
  const light = rgb => {
    const [r, g, b] = rgb.map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const box = figure.querySelector('.explore-figure');
  const root = box.shadowRoot ?? document;
  figure.scrollIntoView({block: 'center'});
  const card = parse(getComputedStyle(figure).backgroundColor);
  return [...(box.shadowRoot ?? box).querySelectorAll('svg text')].map(text => {
    const rect = text.getBoundingClientRect();
    const stack = root.elementsFromPoint(rect.x + rect.width / 2, rect.y + rect.height / 2)
      .filter(element => element instanceof SVGElement && element !== text
              && !element.closest('text') && element.tagName !== 'svg'
              && text.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_PRECEDING);
    let under = card.slice(0, 3);
    for (const shape of stack.reverse()) {
      const style = getComputedStyle(shape);
      if (style.fill === 'none') continue;
      const fill = parse(style.fill);
      under = blend(under, fill, fill[3] * style.fillOpacity * style.opacity);
    }
    const style = getComputedStyle(text), ink = parse(style.fill);
    const over = blend(under, ink, ink[3] * style.fillOpacity * style.opacity);
    const [a, b] = [light(under), light(over)].sort((x, y) => y - x);
    return [text.textContent, (a + 0.05) / (b + 0.05)];
  });
}"""


def figures_with_sliders(page):
    return page.query_selector_all("figure.explore:has(input[type=range])")


def test_every_stop_by_keyboard(desk):
    page = desk.page
    for figure in figures_with_sliders(page):
        for knob, slider in enumerate(figure.evaluate(SLIDERS)):
            page.focus(f"#{slider['id']}")
            page.keyboard.press("Home")
            walk(page, figure, knob, slider, lambda stop: page.keyboard.press("ArrowRight"))
            move_to(page, figure, knob, slider["start"])


def test_every_stop_by_mouse(desk):
    page = desk.page
    for figure in figures_with_sliders(page):
        figure.scroll_into_view_if_needed()
        for knob, slider in enumerate(figure.evaluate(SLIDERS)):
            y = slider["y"] + slider["h"] / 2
            span = slider["w"] - THUMB_PX

            def click(stop, slider=slider, span=span, y=y):
                part = stop / (slider["stops"] - 1)
                page.mouse.click(slider["x"] + THUMB_PX / 2 + span * part, y)

            click(0)
            walk(page, figure, knob, slider, click)
            move_to(page, figure, knob, slider["start"])


def walk(page, figure, knob, slider, go_to):
    """Visit all stops from the first on; each must show its text and a new picture."""
    assert figure.evaluate(STATE)["values"][knob] == 0
    for stop in range(1, slider["stops"]):
        go_to(stop)
        now = figure.evaluate(STATE)
        where = f"{slider['id']} at {slider['texts'][stop]}"
        assert now["values"][knob] == stop, where
        assert now["isNew"], where
        assert now["readouts"][knob] == now["spoken"][knob] == slider["texts"][stop], where


def move_to(page, figure, knob, stop):
    values = figure.evaluate(STATE)["values"]
    values[knob] = stop
    figure.evaluate(SET_VALUES, values)


def test_every_state_has_its_picture(desk, page_name, record_property):
    times = []
    for figure in figures_with_sliders(desk.page):
        start = figure.evaluate(STATE)["values"]
        result = figure.evaluate(ALL_STATES)
        figure.evaluate(SET_VALUES, start)
        assert result["wrong"] == []
        assert result["pictures"] > result["count"] / 2
        times += result["times"]
    if times:
        record_property("median_swap_ms", statistics.median(times))
        print(f"{page_name}: {len(times)} states, median swap {statistics.median(times):.2f} ms")


def test_tick_labels_are_readable(desk):
    page = desk.page
    pale = {}
    for theme in ("dark", "light"):
        page.emulate_media(color_scheme=theme)
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        for figure in page.query_selector_all("figure.explore"):
            for text, contrast in figure.evaluate(CONTRASTS):
                if contrast < 4.5:
                    pale[f"{theme}: {text}"] = round(contrast, 2)
    assert pale == {}


def test_figures_are_described_in_the_shown_language(desk):
    page = desk.page
    for mode, attributes in (("zh", ["altZh"]), ("en", ["altEn"]), ("both", ["altZh", "altEn"])):
        page.click(f'.lang-switch button[data-mode="{mode}"]')
        for box in page.query_selector_all(".explore-figure"):
            name = box.get_attribute("aria-label")
            alts = {key: box.evaluate(f"box => box.dataset.{key}") for key in ("altZh", "altEn")}
            for key, alt in alts.items():
                assert (alt in name) == (key in attributes)


# A few states against Python: the page shows what draw(fig, **params) gives today.
@pytest.mark.parametrize("name", ["03_ring_all_reduce", "04_alpha_beta_model"])
def test_states_equal_a_fresh_render(open_book, name):
    (path,) = (path for path in NOTEBOOKS if path.stem == name)
    page = open_book().go(f"notebooks/{name}.html")
    figures = page.query_selector_all("figure.explore")
    explorers = explorers_of(path)
    assert len(figures) == len(explorers)
    for figure, explorer in zip(figures, explorers, strict=True):
        states = explorer.states()
        for state in {states[0], explorer.start, states[-1]}:
            if explorer.knobs:
                figure.evaluate(SET_VALUES, list(state))
            same = figure.evaluate(
                """(figure, fresh) => {
                  const box = figure.querySelector('.explore-figure');
                  const template = document.createElement('template');
                  template.innerHTML = fresh;
                  return template.innerHTML === (box.shadowRoot ?? box).innerHTML;
                }""",
                explorer.frame(state).svg,
            )
            assert same, f"{explorer.title[0]} at {explorer.params(state)}"


def test_play_walks_to_the_end_and_stops(open_book, html):
    visit = open_book("en")
    name = next(
        path.relative_to(html).as_posix()
        for path in sorted((html / "notebooks").glob("*.html"))
        if "explore-play" in path.read_text()
    )
    visit.page.clock.install()
    page = visit.go(name)
    figure = page.query_selector("figure.explore:has(.explore-play)")
    button = figure.query_selector(".explore-play")
    assert "Play" in button.inner_text()
    button.click()
    assert "Pause" in button.inner_text()
    last = figure.evaluate(SLIDERS)[0]["stops"] - 1
    page.clock.run_for(1300 * (last + 1))
    assert figure.evaluate(STATE)["values"] == [last]
    assert "Play" in button.inner_text()
    button.click()
    assert figure.evaluate(STATE)["values"] == [0]
    page.clock.run_for(1300)
    figure.query_selector("input").press("ArrowRight")
    stopped = figure.evaluate(STATE)["values"]
    page.clock.run_for(5000)
    assert figure.evaluate(STATE)["values"] == stopped


def test_without_decompression_the_start_state_stays_and_says_so(open_book):
    visit = open_book("zh")
    visit.page.add_init_script("delete window.DecompressionStream")
    page = visit.go("notebooks/03_ring_all_reduce.html")
    figure = figures_with_sliders(page)[0]
    assert figure.query_selector(".explore-fallback").is_visible()
    assert "<svg" in figure.evaluate(PICTURE)
    assert visit.errors == []


def test_embedded_frames_unpack_to_svg(html):
    text = (html / "notebooks" / "03_ring_all_reduce.html").read_text()
    marker = '<script type="application/gzip+base64">'
    packed = [part.split("</script>")[0] for part in text.split(marker)[1:]]
    assert packed
    for frames in map(unpack, packed):
        assert all(
            frame.startswith("<svg") and frame.rstrip().endswith("</svg>") for frame in frames
        )
