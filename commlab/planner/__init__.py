"""From a model and a cluster to a placement one can defend.

The science is that of :mod:`commlab.budget`; here all placements are tried, links come from
measured runs where there are some, and the answer says how far it may be off and why the
others lose.
"""

from __future__ import annotations

from commlab.planner.answer import Answer, NoPlacementError, as_data, make_answer, text_lines
from commlab.planner.calibration import CalibratedCluster, MeasuredRun, calibrate, read_calibration
from commlab.planner.presets import CLUSTERS, MODELS, find_cluster, find_model
from commlab.planner.search import (
    Outcome,
    Placement,
    Ranking,
    Request,
    best_of_placement,
    placements,
    rank_placements,
)

__all__ = [
    "CLUSTERS",
    "MODELS",
    "Answer",
    "CalibratedCluster",
    "MeasuredRun",
    "NoPlacementError",
    "Outcome",
    "Placement",
    "Ranking",
    "Request",
    "as_data",
    "best_of_placement",
    "calibrate",
    "find_cluster",
    "find_model",
    "make_answer",
    "placements",
    "rank_placements",
    "read_calibration",
    "text_lines",
]
