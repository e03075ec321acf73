"""Knobs, explorers in their three modes, the render cache, steppers and shown source."""

import functools
import gzip
import json
import math
import os
import re
import shutil
import subprocess
import sys
import types
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.figure import Figure

from commlab import COPY, REDUCE, Schedule, Step
from commlab.algorithms import REGISTRY
from commlab.explore import (
    DrawError,
    Explorer,
    Knob,
    cache,
    displayed,
    explore,
    figure,
    live,
    show_source,
    stepper,
)
from commlab.explore.live import LIVE_DPI, live_widget
from commlab.explore.render import Frame, plain_data, render_png, render_svg
from commlab.explore.static import PAYLOAD_LIMIT, pack, static_html, unpack
from commlab.figures import style
from commlab.figures.steps import draw_step, step_view
from tests.notebook_explorers import NOTEBOOKS, explorers_of

TEXTS = {"title": ("Time", "时间"), "alt": ("A line", "一条线")}
SIZE = (5.6, 3.5)


def draw_line(fig, n, slope=1.0):
    ax = style.single_axes(fig)
    x = np.linspace(0, 10, 20)
    y = slope * n * x
    ax.plot(x, y, color=style.COMMUNICATION)
    ax.set(xlim=(0, 10), ylim=(0, 500))
    style.title(ax, f"At n = {n} it ends at {y[-1]:.4f} s")
    return {"y": y, "end": y[-1]}


def line_explorer(draw=draw_line, **knobs):
    knobs = knobs or {"n": Knob(range(1, 8), 3, ("ranks N", "卡数 N"), "{} ranks".format)}
    return explore(draw, **TEXTS, **knobs)


@pytest.fixture
def shown(monkeypatch):
    """Show an explorer in a mode; returns the bundles that reached the front end."""

    def show(explorer, mode):
        monkeypatch.setenv("COMMLAB_EXPLORE", mode)
        bundles = []

        def publish(data, metadata=None, **_):
            bundles.append((data, metadata))

        shell = InteractiveShell.instance()
        monkeypatch.setattr(shell.display_pub, "publish", publish)
        explorer._ipython_display_()
        return bundles

    return show


@pytest.fixture
def settled(tmp_path, monkeypatch):
    """A fresh render cache, and files of the package that do not change meanwhile."""
    monkeypatch.setenv("COMMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_DIGEST", "digest")
    monkeypatch.setattr(cache, "_package_digest", lambda: "digest")
    return tmp_path / "cache"


# Knobs


def test_a_knob_starts_in_the_middle_or_where_it_is_told():
    assert Knob([1, 2, 3], label=("n", "数")).index == 1
    assert Knob([1, 2, 3], 3, ("n", "数")).index == 2
    assert Knob(["ring", "tree"], "ring", ("how", "算法")).texts == ["ring", "tree"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": [1]}, "at least two values"),
        ({"values": [1, 2], "value": 5}, "cannot start at 5"),
        ({"values": [1.01, 1.02], "format": "{:.0f}".format}, "shows two stops as '1'"),
        ({"values": [1, 2], "label": "n"}, "must be a pair"),
        ({"values": [1, 2], "label": ("n", "")}, "must be a pair"),
        ({"values": 5}, "needs a list of stops, got 5"),
        ({"values": [1, 2], "format": "{:d}"}, "must be a function"),
        ({"values": [1, 2], "format": int}, "must return a text, got 1"),
    ],
)
def test_a_wrong_knob_is_refused(arguments, message):
    arguments = {"label": ("n", "数"), **arguments}
    with pytest.raises((TypeError, ValueError), match=message):
        Knob(**arguments)


def test_stops_without_a_format_read_as_they_are_written():
    stops = [True, 1234567, 10**6 + 1, 0.5, 2e9, "ring"]
    texts = ["True", "1234567", "1000001", "0.5", "2e+09", "ring"]
    assert Knob(stops, label=("n", "数")).texts == texts


# Explorers: what is refused


def test_too_many_states_are_refused():
    knobs = {name: Knob(range(21), label=("n", "数")) for name in ("n", "slope")}
    with pytest.raises(ValueError, match="441 states, more than 400"):
        line_explorer(**knobs)


def test_too_many_knobs_are_refused():
    knobs = {name: Knob([1, 2], label=("n", "数")) for name in "abcd"}
    with pytest.raises(ValueError, match="4 knobs"):
        line_explorer(**knobs)


def test_as_many_states_as_allowed_are_allowed():
    knobs = {name: Knob(range(20), label=("n", "数")) for name in ("n", "slope")}
    assert len(line_explorer(**knobs).states()) == 400


def test_a_name_is_fixed_or_a_knob():
    with pytest.raises(ValueError, match="both a knob and a fixed value for n"):
        line_explorer(functools.partial(draw_line, n=3))
    knobs = {"n": Knob([1, 2], label=("n", "数"))}
    with pytest.raises(ValueError, match="both a knob and a fixed value for n"):
        Explorer(draw_line, **TEXTS, knobs=knobs, fixed={"n": 3})


def test_only_a_knob_plays():
    with pytest.raises(ValueError, match="no knob that could play"):
        Explorer(draw_line, **TEXTS, fixed={"n": 3}, play=True)


def test_a_plain_value_is_not_a_knob():
    with pytest.raises(TypeError, match=r"functools\.partial"):
        explore(draw_line, **TEXTS, n=4)


def test_both_languages_are_needed():
    with pytest.raises(TypeError, match="title must be a pair"):
        figure(draw_line, title="Time", alt=("a", "甲"), n=1)


def raising(fig, n):
    if n == 6:
        raise ZeroDivisionError("no ranks left")
    return draw_line(fig, n)


@pytest.mark.parametrize(
    ("mode", "stops"), [("static", range(1, 8)), ("check", range(7)), ("check", range(6, 13))]
)
def test_a_draw_that_raises_is_an_error_at_any_stop(shown, mode, stops):
    explorer = line_explorer(raising, n=Knob(stops, label=("N", "卡数")))
    with pytest.raises(
        DrawError, match=r'"Time" cannot draw n=6: ZeroDivisionError: no ranks left'
    ):
        shown(explorer, mode)


def test_a_dead_slider_is_an_error():
    def deaf(fig, n):
        return draw_line(fig, min(n, 5)) | {"n": n}

    with pytest.raises(DrawError, match="same picture at n=5 ranks and n=6 ranks"):
        line_explorer(deaf).frames()


def test_a_slider_must_move_the_picture_that_a_reader_starts_with():
    def deaf_if_steep(fig, slope, n):
        return draw_line(fig, n if slope < 2 else 3, slope)

    knobs = {
        "slope": Knob([1, 2], 2, ("slope", "斜率")),
        "n": Knob([1, 2, 3], label=("n", "数")),
    }
    with pytest.raises(DrawError, match="same picture at n=1 and n=2"):
        line_explorer(deaf_if_steep, **knobs).frames()


def test_a_draw_that_is_not_repeatable_is_an_error():
    rng = np.random.default_rng(0)

    def unseeded(fig, n):
        return draw_line(fig, n + rng.random())

    def growing(fig, n, seen):
        seen.append(n)
        return draw_line(fig, n) | {"seen": len(seen)}

    for draw in (unseeded, functools.partial(growing, seen=[])):
        with pytest.raises(DrawError, match="another picture the second time"):
            line_explorer(draw).frames()


def test_data_that_ignore_a_knob_are_an_error():
    def mute(fig, n):
        draw_line(fig, n)
        return {"y": [1, 2, 3]}

    with pytest.raises(DrawError, match="same data at both ends of n"):
        line_explorer(mute).frames()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "must return a dict"),
        ({}, "empty dict"),
        ({"y": [1.0, math.nan]}, "'y' holds nan"),
        ({"y": {"z": np.array([np.inf])}}, "'y.z' holds inf"),
        ({"y": object()}, "'y' holds a object"),
        ({"y": {1: 2, "1": 3}}, "two keys .* read the same in 1, '1'"),
    ],
)
def test_data_that_are_no_data_are_an_error(data, message):
    with pytest.raises(DrawError, match=message):
        line_explorer(lambda fig, n: data).frame((0,))


def test_data_become_plain_values():
    data = {"a": np.float32(1.5), "b": (np.int64(2), Fraction(1, 4)), "c": np.eye(2), "d": "x"}
    plain = plain_data(data)
    assert plain == {"a": 1.5, "b": [2, 0.25], "c": [[1.0, 0.0], [0.0, 1.0]], "d": "x"}
    assert json.loads(json.dumps(plain)) == plain
    assert plain_data({"y": np.longdouble(1.5), "z": np.ones(1, np.longdouble)}) == {
        "y": 1.5,
        "z": [1.0],
    }
    with pytest.raises(ValueError, match="'y' holds nan"):
        plain_data({"y": np.longdouble("nan")})


def test_an_unknown_mode_is_refused(shown):
    with pytest.raises(ValueError, match="COMMLAB_EXPLORE='statc' is unknown"):
        shown(line_explorer(), "statc")


def test_an_empty_mode_is_the_live_one(shown):
    ((data, _),) = shown(line_explorer(), "")
    assert "application/vnd.jupyter.widget-view+json" in data


# Pictures


def test_svg_follows_the_page_s_colours_and_keeps_its_numbers():
    frame = render_svg(draw_line, {"n": 3, "slope": 1.23456}, SIZE, "salt")
    assert "var(--fig-communication, #d55e00)" in frame.svg
    assert "var(--fig-ink-text, #1f2328)" in frame.svg
    # Coordinates are shortened, what the reader reads is not.
    assert "At n = 3 it ends at 37.0368 s</text>" in frame.svg
    assert frame.message == "At n = 3 it ends at 37.0368 s"
    assert "<style" not in frame.svg
    bare = re.sub(r"var\(--fig-[a-z-]+, #[0-9a-f]{6}\)", "", frame.svg)
    assert re.findall(r"#[0-9a-f]{6}\b", bare) == [], "a colour that dark mode cannot change"


def test_svg_is_the_same_every_time_and_apart_from_another_explorer():
    first = render_svg(draw_line, {"n": 3}, SIZE, "one")
    assert first == render_svg(draw_line, {"n": 3}, SIZE, "one")
    other = render_svg(draw_line, {"n": 3}, SIZE, "two")
    ids = [set(re.findall(r' id="([^"]+)"', frame.svg)) for frame in (first, other)]
    clips = [{name for name in names if name.startswith("p")} for names in ids]
    assert clips[0]
    assert clips[0].isdisjoint(clips[1])


def test_explorers_that_share_a_title_are_kept_apart():
    explorers = (
        line_explorer(),
        line_explorer(raising),
        explore(
            draw_line,
            title=TEXTS["title"],
            alt=("Another", "另一条"),
            n=Knob([1, 2], label=("n", "数")),
        ),
    )
    assert len({explorer.salt for explorer in explorers}) == 3


def test_png_bytes_are_the_same_every_time():
    first, data = render_png(draw_line, {"n": 3}, SIZE, 100)
    assert first == render_png(draw_line, {"n": 3}, SIZE, 100)[0]
    assert b"Software" not in first
    assert data["end"] == 30


def test_packed_frames_come_back():
    texts = ["a\nb\nc", "a\nx\ny\nc", "a\nb\nc", "c", "a\nb", "环\nb\nc"]
    assert unpack(pack(texts)) == texts
    assert unpack(pack(["one"])) == ["one"]


# Static


def test_static_html_has_all_that_a_reader_needs(shown):
    ((data, _),) = shown(line_explorer(), "static")
    html = data["text/html"]
    assert len(html.encode()) <= PAYLOAD_LIMIT
    assert '<span lang="zh">卡数 N</span> <span lang="en">ranks N</span>' in html
    assert 'aria-valuetext="3 ranks"' in html
    assert 'data-alt-zh="一条线" data-alt-en="A line"' in html
    packed = re.search(r'gzip\+base64">([^<]*)<', html)[1]
    frames = line_explorer().frames()
    assert unpack(packed) == [frame.svg for frame in frames]
    # It starts at the third of seven stops, and the label belongs to the slider.
    assert 'max="6" step="1" value="2"' in html
    assert f">{frames[2].svg}</div>" in html
    field = re.search(r'<input type="range" id="([^"]+)"', html)[1]
    assert f'<label for="{field}">' in html


def test_text_from_the_author_cannot_break_the_page():
    def quoting(fig, **params):
        style.title(style.single_axes(fig), f'"{params}" <b>')
        return params

    explorer = explore(
        quoting,
        title=('<b>"A" & B</b>', "甲<乙"),
        alt=('say "x"', "说<x>"),
        **{'n"><n>': Knob([1, 2], label=("<n>", "数"), format='"{}" <B>'.format)},
    )
    html = static_html(explorer, explorer.frames(), "id")
    assert "<b>" not in html
    assert "<n>" not in html
    assert 'aria-valuetext="&quot;2&quot; &lt;B&gt;"' in html
    assert "&quot;2&quot; &lt;B&gt;</span>" in html
    assert 'data-alt-en="say &quot;x&quot;"' in html
    assert 'data-message="&quot;{' in html
    assert html.count('"id-n&quot;&gt;&lt;n&gt;"') == 2


def test_a_heavy_explorer_is_refused():
    def noise(fig, n):
        y = np.random.default_rng(n).normal(size=6000)
        fig.add_axes((0, 0, 1, 1)).plot(y, rasterized=False)
        return {"n": n}

    explorer = explore(noise, **TEXTS, n=Knob(range(9), label=("n", "数")))
    with pytest.raises(ValueError, match="more than 200 kB"):
        static_html(explorer, explorer.frames(), "id")


def test_two_explorers_on_a_page_have_ids_of_their_own(shown):
    pages = [shown(line_explorer(), "static")[0][0]["text/html"] for _ in range(2)]
    ids = [re.search(r'<input type="range" id="([^"]+)"', page)[1] for page in pages]
    assert ids[0] != ids[1]


def test_displayed_explorers_are_listed(shown):
    explorer = line_explorer()
    shown(explorer, "check")
    assert displayed[-1] is explorer


# Check


def test_check_shows_the_picture_and_its_key_numbers(shown):
    ((data, metadata),) = shown(line_explorer(), "check")
    assert data["text/plain"].splitlines() == [
        'Explorer "Time": 7 states; n=3 ranks',
        "y = list of 20, 0 to 30",
        "end = 30",
    ]
    assert data["image/png"]
    assert metadata["image/png"]["alt"] == "A line · 一条线"


def test_check_notices_a_changed_number(shown):
    changed = functools.partial(draw_line, slope=1.0001)
    before, after = (
        shown(line_explorer(draw), "check")[0][0]["text/plain"] for draw in (draw_line, changed)
    )
    assert before != after


# Live


def test_a_live_explorer_redraws_one_image(shown):
    explorer = line_explorer()
    shown(explorer, "live")
    widget = live_widget(explorer)
    heading, slider, image, problem = widget.children
    assert "A line · 一条线" in heading.value
    assert slider.index == 2
    before = image.value
    assert before == render_png(draw_line, {"n": 3}, SIZE, LIVE_DPI)[0]
    slider.index = 6
    assert image.value != before
    assert image.value == render_png(draw_line, {"n": 7}, SIZE, LIVE_DPI)[0]
    assert problem.layout.display == "none"
    assert "ranks N" in slider.description
    assert "卡数 N" in slider.description


def test_a_live_draw_that_raises_says_so_and_recovers():
    widget = live_widget(line_explorer(raising, n=Knob(range(1, 8), 3, ("N", "卡数"))))
    _, slider, image, problem = widget.children
    with pytest.raises(DrawError):
        slider.index = 5
    assert "cannot draw n=6: ZeroDivisionError: no ranks left" in problem.value
    assert (image.layout.display, problem.layout.display) == ("none", "")
    slider.index = 4
    assert (image.layout.display, problem.layout.display) == ("", "none")


def test_a_live_start_that_raises_leaves_the_sliders(monkeypatch):
    def never(fig, n):
        raise ValueError(f"<b>{n}</b>")

    boxes = []
    monkeypatch.setattr(live, "display", boxes.append)
    with pytest.raises(DrawError, match='"Time" cannot draw n=3 ranks: ValueError: <b>3</b>'):
        live_widget(line_explorer(never))
    _, slider, image, problem = boxes[0].children
    assert slider.index == 2
    assert "cannot draw n=3 ranks: ValueError: &lt;b&gt;3&lt;/b&gt;" in problem.value
    assert (image.layout.display, problem.layout.display) == ("none", "")


def test_any_object_can_be_a_stop(shown):
    def draw_any(fig, n):
        fig.text(0.5, 0.5, repr(n))
        return {"n": repr(n)}

    stops = [np.zeros(2), math.nan, None, 1, 1.0]
    explorer = line_explorer(draw_any, n=Knob(stops, label=("n", "数"), format=repr))
    assert len(explorer.frames()) == 5
    assert "n=None" in shown(explorer, "check")[0][0]["text/plain"]
    _, slider, image, _ = live_widget(explorer).children
    pictures = set()
    for slider.index in range(5):
        pictures.add(image.value)
    assert len(pictures) == 5


def test_sixty_moves_leave_no_open_figure():
    import matplotlib.pyplot as plt

    slider = live_widget(line_explorer()).children[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for move in range(60):
            slider.index = move % 7
    assert plt.get_fignums() == []


def test_play_moves_the_slider():
    widget = live_widget(ring_stepper())
    slider, play = widget.children[1:3]
    play.value = 4
    assert slider.index == 4
    slider.index = 2
    assert play.value == 2


# The render cache


def test_frames_are_drawn_once(settled, monkeypatch):
    explorer = ring_stepper()
    first = explorer.frames()
    assert [path.suffix for path in settled.iterdir()] == [".gz"]
    monkeypatch.setattr(Explorer, "frame", lambda *_: pytest.fail("drawn again"))
    assert ring_stepper().frames() == first


def test_a_damaged_cache_is_ignored(settled):
    first = ring_stepper().frames()
    (stored,) = settled.iterdir()
    whole = stored.read_bytes()
    frame = json.loads(gzip.decompress(whole))[0]
    damaged = [b"", b"no gzip", whole[:100], whole[:40] + bytes(40) + whole[80:]]
    contents = [[], {}, 5, [frame], [frame | {"svg": None}] * 7, [frame | {"data": []}] * 7]
    damaged += [gzip.compress(json.dumps(content).encode()) for content in contents]
    for content in damaged:
        stored.write_bytes(content)
        assert ring_stepper().frames() == first
        assert stored.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_ignored(settled, monkeypatch):
    ring_stepper().frames()
    (stored,) = settled.iterdir()
    stored.unlink()
    # Nothing can be moved onto a folder, and nothing be put into a file.
    stored.mkdir()
    (stored / "x").touch()
    ring_stepper().frames()
    assert list(settled.iterdir()) == [stored]
    monkeypatch.setenv("COMMLAB_CACHE", str(stored / "x"))
    ring_stepper().frames()
    monkeypatch.setenv("COMMLAB_CACHE", str(stored / "x" / "below"))
    ring_stepper().frames()


@pytest.mark.parametrize(
    ("edit", "n_stored"), [("none", 1), ("before explore", 0), ("after explore", 0)]
)
def test_code_edited_after_its_import_stores_nothing(tmp_path, edit, n_stored):
    """Pictures of the code that is in memory must not be kept under the digest of another."""
    package = tmp_path / "commlab"
    shutil.copytree(Path(cache.__file__).parents[1], package)
    for path in package.rglob("*"):
        os.utime(path, (1e9, 1e9))
    program = """
import pathlib, sys
import commlab
def edit(place):
    if place == sys.argv[1]:
        path = pathlib.Path("commlab/algorithms/ring.py")
        path.write_text(path.read_text() + "\\n")
edit("before explore")
from commlab.explore import stepper
edit("after explore")
schedule = commlab.algorithms.ring_all_reduce(3)
stepper(schedule, title=("a", "甲"), alt=("a", "甲")).frames()
"""
    folder = tmp_path / "cache"
    env = os.environ | {"COMMLAB_CACHE": str(folder), "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program, edit], cwd=tmp_path, env=env, check=True)
    assert len(list(folder.glob("*"))) == n_stored


def test_the_key_depends_on_everything_that_is_drawn(settled, monkeypatch):
    view = step_view(REGISTRY["all_reduce", "ring"].build(4))
    other = step_view(REGISTRY["all_reduce", "ring"].build(3))
    base = {
        "draw": draw_step, "fixed": {"view": view}, "knobs": {"step": [0, 1]},
        "figsize": SIZE, "salt": "s",
    }  # fmt: skip
    keys = {cache.frames_key(**base)}
    for change in (
        {"draw": step_view},
        {"draw": functools.partial(draw_step, extra=1)},
        {"fixed": {"view": other}},
        {"knobs": {"step": [0, 2]}},
        {"figsize": (5.6, 3.6)},
        {"salt": "t"},
    ):
        keys.add(cache.frames_key(**(base | change)))
    assert len(keys) == 7
    for owner, name in ((cache, "_DIGEST"), (cache.np, "__version__"), (cache.mpl, "__version__")):
        with monkeypatch.context() as changed:
            changed.setattr(owner, name, "other")
            keys.add(cache.frames_key(**base))
    assert len(keys) == 10
    assert None not in keys


def test_the_key_tells_values_apart_that_look_alike(settled):
    def same_name(module):
        function = types.FunctionType(draw_line.__code__, {})
        function.__qualname__, function.__module__ = "draw", module
        return function

    arrays = (np.zeros(4), np.zeros((2, 2)), np.zeros(4, np.int64))
    keys = {cache.frames_key(draw_step, {"x": x}, {}, SIZE, "s") for x in arrays}
    keys |= {cache.frames_key(same_name(f"commlab.{m}"), {}, {}, SIZE, "s") for m in "ab"}
    assert len(keys - {None}) == 5


def test_what_has_no_identity_is_not_cached(settled):
    for draw in (lambda fig: {}, draw_line, functools.partial(draw_line, n=1)):
        assert cache.frames_key(draw, {}, {}, SIZE, "s") is None
    assert cache.frames_key(draw_step, {"x": object()}, {}, SIZE, "s") is None


def test_frames_survive_the_disk_exactly(settled):
    frames = [Frame("<svg/>", "题", {"x": 0.1 + 0.2, "y": [1, None, "z"]})]
    cache.store("key", frames)
    assert cache.load("key", 1) == frames
    assert cache.load("other", 1) is None


# Steppers


def ring_stepper(**options):
    return stepper(REGISTRY["all_reduce", "ring"].build(4), **TEXTS, **options)


def test_a_stepper_has_every_step_and_plays():
    explorer = ring_stepper()
    assert explorer.play
    assert explorer.knobs["step"].texts == [
        "0 / 6",
        "1 / 6",
        "2 / 6",
        "3 / 6",
        "4 / 6",
        "5 / 6",
        "6 / 6",
    ]
    frames = explorer.frames()
    assert frames[0].data["moves"] == []
    assert frames[3].message == "Step 3 of 6 4 messages of S/4, added on arrival"
    assert np.all(np.array(frames[-1].data["held"]) == 4)


def test_cells_show_values_when_there_are_buffers():
    buffers = [np.full(8, 10**rank) for rank in range(4)]
    view = step_view(REGISTRY["all_reduce", "ring"].build(4), buffers)
    assert view.texts[0][2] == ["100"] * 4
    assert view.texts[-1] == [["1111"] * 4] * 4


@pytest.mark.parametrize("key", sorted(REGISTRY))
@pytest.mark.parametrize("n_ranks", [2, 8, 16])
def test_every_algorithm_can_be_stepped_through(key, n_ranks):
    if not REGISTRY[key].supports(n_ranks):
        assert n_ranks == 2  # two ranks make no nodes of two GPUs
        return
    schedule = REGISTRY[key].build(n_ranks)
    view = step_view(schedule)
    for step in {0, len(schedule.steps) // 2, len(schedule.steps)}:
        data = plain_data(draw_step(Figure(figsize=(7, 5)), view, step))
        assert np.shape(data["held"]) == (n_ranks, len(view.columns))
    assert len(view.columns) <= 16


def test_an_unequal_step_states_its_largest_message():
    step = Step([0, 0], [1, 2], [0, 1], [COPY, COPY])
    schedule = Schedule(
        "scatter", 3, [Fraction(1, 4), Fraction(3, 4)], [[0, 1], [], []], [[], [0], [1]], [step]
    )
    assert step_view(schedule).facts[1] == "2 messages up to 3S/4, copied on arrival"
    one = Schedule("reduce", 2, [Fraction(1)], [[0], [0]], [[0], []], [Step([1], [0], [0], REDUCE)])
    assert step_view(one).facts[1] == "1 message of S, added on arrival"


def test_a_step_without_messages_is_drawn():
    idle = Schedule("idle", 2, [Fraction(1)], [[0], [0]], [[0], [0]], [Step([], [], [], [])])
    frames = stepper(idle, **TEXTS).frames()
    assert frames[1].message == "Step 1 of 1 no message"


def test_schedules_that_cannot_be_drawn_are_refused():
    with pytest.raises(ValueError, match="at most 16"):
        step_view(REGISTRY["all_reduce", "ring"].build(17))
    with pytest.raises(ValueError, match="no steps"):
        step_view(REGISTRY["all_reduce", "ring"].build(1))


# Shown source


def test_source_is_shown_with_its_place_and_a_short_docstring():
    text = show_source(step_view)._repr_markdown_()
    assert text.startswith("```python\n# commlab/figures/steps.py\ndef step_view(")
    assert '"""Follow a schedule and note what each state looks like."""' in text
    assert "Parameters" not in text
    compile(text.removeprefix("```python\n").removesuffix("\n```"), "shown", "exec")


def test_source_of_a_class_keeps_its_methods():
    text = show_source(Knob)._repr_markdown_()
    assert "def __len__" in text
    assert "Raises" not in text


@pytest.mark.parametrize("wrong", [(), (3,), ("ring",)])
def test_only_functions_have_source(wrong):
    with pytest.raises(TypeError, match="show_source"):
        show_source(*wrong)


# The book's own explorers


# §6 and "measure your own cluster" launch real processes, which the book build and nbval do
# already; their explorers are drawn and checked by the book build in the same way.
# Knobs with fewer than seven stops because there are no more values, with their number.
ALL_THERE_ARE = {
    ("Memory of one GPU", "shape"): 4,  # the models of the book
    ("Tensor parallelism: how many GPUs", "gpus_per_node"): 6,  # 32 heads tell no more apart
    ("Llama-3 70B on 64 GPUs: who sits in the node", "order"): 6,  # orders of three axes
}
QUICK_NOTEBOOKS = [path for path in NOTEBOOKS if not path.stem.startswith(("06", "measure"))]


@pytest.mark.parametrize("path", QUICK_NOTEBOOKS, ids=lambda path: path.stem)
def test_explorers_of_the_book(path):
    """Every state of every explorer draws; knobs and payloads keep to the book's limits."""
    explorers = explorers_of(path)
    # The exercises ask; they show nothing that could be moved.
    assert path.stem == "exercises" or any(explorer.knobs for explorer in explorers)
    for explorer in explorers:
        for name, knob in explorer.knobs.items():
            fewest = ALL_THERE_ARE.get((explorer.title[0], name), 2 if explorer.play else 7)
            assert len(knob) >= fewest, f"{explorer.title[0]}: {name}"
        assert len(static_html(explorer, explorer.frames(), "id").encode()) <= PAYLOAD_LIMIT


def test_importing_explore_loads_neither_torch_nor_pyplot():
    code = (
        "import sys, commlab.explore; "
        "print([name for name in ('torch', 'matplotlib.pyplot') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
