"""The figures of gradient buckets return what they draw, and draw what commlab computes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import commlab
from commlab import overlap
from commlab.figures import overlap as figures
from commlab.figures import style
from commlab.hardware import ALPHA, NVLINK
from commlab.units import GIB, MIB

BUCKETS = {
    "backward_seconds": 12e-3,
    "nbytes": GIB,
    "n_ranks": 8,
    "alpha": ALPHA,
    "beta": NVLINK,
}
RING = partial(commlab.alpha_beta_ring_allreduce, n_ranks=8, alpha=ALPHA, beta=NVLINK)
EXACT = 1e-12


def drawn(draw, **params):
    """Draw on a fresh figure; return it with the data."""
    fig = Figure(figsize=style.FIGURE_SIZE)
    return fig, draw(fig, **params)


def bars(fig, colour):
    """Top, left end and right end of each bar of a colour, from the top lane down."""
    rows = []
    for collection in fig.axes[0].collections:
        if (
            isinstance(collection, PolyCollection)
            and to_hex(collection.get_facecolor()[0]) == colour
        ):
            boxes = [path.get_extents() for path in collection.get_paths()]
            rows += [(box.y0, box.x0, box.x1) for box in boxes]
    return sorted(rows)


def spans(fig, colour, lane):
    """Start and end of the bars of a colour in one lane, the uppermost being 0."""
    rows = bars(fig, colour)
    heights = sorted({height for height, _, _ in rows})
    return np.array([(start, end) for height, start, end in rows if height == heights[lane]])


def title(fig):
    return fig.axes[0].get_title(loc="left")


@pytest.mark.parametrize("size", [MIB, 8 * MIB, 25 * MIB, 256 * MIB, GIB])
@pytest.mark.parametrize("backward_seconds", [3e-3, 12e-3, 80e-3])
def test_lanes_show_the_timelines(size, backward_seconds):
    params = BUCKETS | {"backward_seconds": backward_seconds}
    fig, data = drawn(figures.buckets_side_by_side, bucket_nbytes=size, **params)
    backward = overlap.uniform_backward(GIB, backward_seconds)
    cuts = {
        "equal": overlap.equal_buckets(GIB, size),
        "DDP": overlap.ddp_buckets(backward.sizes, bucket_cap_nbytes=size),
    }
    assert list(data) == list(cuts)
    for lane, (name, buckets) in enumerate(cuts.items()):
        expected = overlap.timeline(backward, buckets, RING)
        shown = data[name]
        assert shown["n_buckets"] == len(buckets)
        assert shown["start"] == [bucket.start for bucket in expected.buckets]
        assert shown["end"] == [bucket.end for bucket in expected.buckets]
        assert shown["exposed"] == expected.exposed
        assert shown["communication"] == pytest.approx(sum(map(float, map(RING, buckets))))

        computing = spans(fig, style.COMPUTE, lane)
        np.testing.assert_allclose(computing, [[0, backward_seconds]])
        sending = spans(fig, style.COMMUNICATION, lane)
        assert sending[0, 0] == pytest.approx(shown["start"][0])
        assert sending[-1, 1] == pytest.approx(shown["end"][-1])
        lengths = sending[:, 1] - sending[:, 0]
        assert lengths.sum() == pytest.approx(shown["communication"])
        # Buckets that follow each other without a gap are one bar, whatever their number.
        assert (sending[1:, 0] > sending[:-1, 1]).all()
        waiting = spans(fig, style.WAIT, lane)
        np.testing.assert_allclose(waiting, [[backward_seconds, shown["end"][-1]]])


@pytest.mark.parametrize(("size", "count"), [(25 * MIB, 41), (25e6, 43), (GIB, 1)])
def test_equal_buckets_as_in_the_lecture(size, count):
    _, data = drawn(figures.buckets_side_by_side, bucket_nbytes=int(size), **BUCKETS)
    assert data["equal"]["n_buckets"] == count
    total = commlab.bucketed_allreduce_time(GIB, size, 8, ALPHA, NVLINK)
    assert data["equal"]["communication"] == pytest.approx(total, rel=1e-9)


def test_titles_and_labels_state_the_message():
    fig, _ = drawn(figures.buckets_side_by_side, bucket_nbytes=25 * MIB, **BUCKETS)
    assert title(fig) == "b = 25 MiB: 172 µs exposed, by DDP's rule 162 µs"
    texts = [text.get_text() for text in fig.axes[0].texts]
    assert texts == [
        "equal: 41 buckets of 25 MiB; busy 7.05 ms",
        "DDP: 38 buckets up to 28 MiB; busy 6.84 ms",
    ]


def test_measured_timelines_are_drawn_like_computed_ones():
    measured = overlap.OverlapTimeline(
        "measured",
        compute=(overlap.Interval("a", 0.0, 0.004), overlap.Interval("b", 0.004, 0.010)),
        buckets=(
            overlap.BucketInterval(100, 0.002, 0.003, 0.006),
            overlap.BucketInterval(300, 0.010, 0.011, 0.015),
        ),
    )
    hidden = overlap.OverlapTimeline(
        "hidden", measured.compute, (overlap.BucketInterval(100, 0.002, 0.003, 0.006),)
    )
    fig, data = drawn(figures.lanes, timelines={"measured": measured, "all hidden": hidden})
    assert title(fig) == "Exposed: 5 ms, 0 s"
    np.testing.assert_allclose(spans(fig, style.COMMUNICATION, 0), [[0.003, 0.006], [0.011, 0.015]])
    # Nothing is exposed in the second: there is one grey bar only.
    np.testing.assert_allclose([row[1:] for row in bars(fig, style.WAIT)], [[0.010, 0.015]])
    assert data["measured"]["exposed"] == pytest.approx(0.005)
    assert data["all hidden"]["exposed"] == 0
    labels = [label.get_text() for label in fig.axes[0].get_yticklabels()]
    assert labels == ["backward", "network"] * 2


def test_white_lines_keep_layers_and_buckets_countable():
    backward = overlap.uniform_backward(GIB, 12e-3, 256, 32)
    result = overlap.timeline(backward, overlap.equal_buckets(GIB, 100 * MIB), RING)
    fig, _ = drawn(figures.lanes, timelines={"one": result})
    white = [
        segment[0][0]
        for collection in fig.axes[0].collections
        if isinstance(collection, LineCollection) and collection.get_linestyle()[0][1] is None
        for segment in collection.get_segments()
    ]
    layers = [layer.start for layer in result.compute[1:]]
    buckets = [bucket.start for bucket in result.buckets[1:]]
    np.testing.assert_allclose(sorted(white), sorted(layers + buckets))


def test_lanes_of_nothing_are_refused():
    with pytest.raises(ValueError, match="at least one timeline"):
        figures.lanes(Figure(), timelines={})


@pytest.mark.parametrize("backward", [5e-3, 12e-3, 40e-3])
def test_tradeoff_agrees_with_the_timeline(backward):
    params = BUCKETS | {"backward_seconds": backward}
    fig, data = drawn(figures.bucket_size_tradeoff, **params)
    for i in range(0, len(data["bucket_nbytes"]), 97):
        bucket = data["bucket_nbytes"][i]
        n_buckets = round(GIB / bucket)
        each = commlab.alpha_beta_ring_allreduce(bucket, 8, ALPHA, NVLINK)
        start, end = overlap.bucket_timeline(n_buckets, backward, each)
        assert data["first_wait"][i] == pytest.approx(start[0], rel=1e-9)
        assert data["exposed"][i] == pytest.approx(end[-1] - backward, rel=1e-6)
        assert data["communication"][i] == pytest.approx(n_buckets * each, rel=EXACT)
    (dot,) = [line for line in fig.axes[0].lines if line.get_marker() == "o"]
    assert dot.get_xdata()[0] == data["best"]
    assert dot.get_ydata()[0] == data["exposed"].min()
    (curve,) = [
        line for line in fig.axes[0].lines if line.get_label() == "left after the backward pass"
    ]
    sizes, rest = curve.get_xdata(), curve.get_ydata()
    assert set(sizes) <= set(data["bucket_nbytes"])
    assert {sizes[0], sizes[-1]} == {data["bucket_nbytes"][0], GIB}
    assert set(rest) <= set(data["exposed"])


def test_slower_backward_passes_want_smaller_buckets():
    best = []
    for seconds in (3e-3, 8e-3, 20e-3, 80e-3):
        params = BUCKETS | {"backward_seconds": seconds}
        best.append(drawn(figures.bucket_size_tradeoff, **params)[1]["best"])
    assert best == sorted(best, reverse=True)
    assert len(set(best)) == 4
