"""Time a move of every slider of the book in a kernel, and weigh its frames on the page.

    python -m benchmarks.sliders

A move is what a kernel does when a reader drags a knob by one stop: draw, encode, assign.
Timings are measured here and nowhere asserted.
"""

from __future__ import annotations

import itertools
import statistics
import time

import ipywidgets

from commlab.explore import Explorer
from commlab.explore.live import live_widget
from commlab.explore.static import static_html
from tests.notebook_explorers import NOTEBOOKS, explorers_of

MOVES = 60


def seconds_per_move(explorer: Explorer) -> list[float]:
    """Drag each knob to and fro, `MOVES` moves in all, and time each."""
    sliders = [
        child
        for child in live_widget(explorer).children
        if isinstance(child, ipywidgets.SelectionSlider)
    ]
    stops = [
        (slider, index)
        for slider in sliders
        for index in [*range(len(slider.options)), *reversed(range(len(slider.options)))]
    ]
    times = []
    for slider, index in itertools.islice(itertools.cycle(stops), 4 * MOVES):
        if slider.index == index:
            continue
        start = time.perf_counter()
        slider.index = index
        times.append(time.perf_counter() - start)
        if len(times) == MOVES:
            break
    return times


def main() -> None:
    """Print a line for each explorer that has knobs."""
    medians = []
    print(f"{'live ms':>8} {'slowest':>8} {'page kB':>8} {'states':>7}")
    for path in NOTEBOOKS:
        for explorer in explorers_of(path):
            if not explorer.knobs:
                continue
            times = [1000 * seconds for seconds in seconds_per_move(explorer)]
            medians.append(statistics.median(times))
            weight = len(static_html(explorer, explorer.frames(), "benchmark").encode()) / 1000
            print(
                f"{medians[-1]:8.0f} {max(times):8.0f} {weight:8.0f} {len(explorer.states()):7d}"
                f"  {path.stem[:2]} {explorer.title[0]}",
                flush=True,
            )
    print(f"median over {len(medians)} explorers: {statistics.median(medians):.0f} ms a move")


if __name__ == "__main__":
    main()
