"""Pictures that follow sliders: in a notebook with a kernel, and on the built page.

Examples
--------
>>> from commlab.explore import Knob, explore
>>> explore(draw, title=("Time against size", "时间随大小的变化"), alt=(..., ...),
...         n_ranks=Knob([2, 4, 8], label=("ranks N", "卡数 N")))  # doctest: +SKIP
"""

from commlab.explore.explorer import DrawError, Explorer, displayed, explore, figure
from commlab.explore.knob import Knob
from commlab.explore.source import show_source
from commlab.explore.stepper import stepper

__all__ = [
    "DrawError",
    "Explorer",
    "Knob",
    "displayed",
    "explore",
    "figure",
    "show_source",
    "stepper",
]
