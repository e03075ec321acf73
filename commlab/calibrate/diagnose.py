"""What a measured run tells in words, each with the numbers and lines it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from commlab.calibrate.diagnose_cluster import (
    above_line_rate,
    below_one_nic,
    gpus_per_node,
    one_nic,
    one_rank_per_node,
    two_nodes,
)
from commlab.calibrate.diagnose_shape import (
    average_busbw,
    bandwidth_falls,
    cliff,
    in_place_differs,
    time_falls,
)
from commlab.calibrate.fit import Fit
from commlab.calibrate.records import Remark
from commlab.units import KIB, format_seconds

RULES = (
    above_line_rate,
    bandwidth_falls,
    cliff,
    time_falls,
    in_place_differs,
    one_nic,
    below_one_nic,
    two_nodes,
    one_rank_per_node,
    average_busbw,
)
# What is true of healthy runs as well, from the reader, the fit and the rules: how to read them.
NOTES = frozenset(
    {
        "above_line_rate",
        "alpha_not_determined",
        "alpha_of_large_messages",
        "average_busbw",
        "beta_not_determined",
        "cold_first_row",
        "cpu_time",
        "elided_ranks",
        "in_place_ignored",
        "in_place_only",
        "lost_hash",
        "n_ranks_inferred",
        "old_algbw",
        "one_rank_per_node",
        "op_inferred",
        "overridden",
        "recovered_row",
        "regimes",
        "repeated_sizes",
        "several_runs",
        "two_nodes",
        "two_points",
        "zero_size",
    }
)

# α is compared where it is that of small messages.
SMALL = 64 * KIB
# α falls with more ranks, if it is below this share …
FALLS = 0.8
# … and grows too fast, if by more than this times what a ring's would, which is linear in N − 1.
TOO_FAST = 1.5


def diagnose(fit: Fit) -> tuple[Remark, ...]:
    """Return what one run tells, most alarming first."""
    remarks = (rule(fit) for rule in RULES)
    return tuple(remark for remark in remarks if remark is not None)


def compare(fits: Sequence[Fit]) -> list[tuple[Fit, Remark]]:
    """Return what runs tell only together, each with the run that it is about."""
    told: list[tuple[Fit, Remark]] = []
    for one, other in combinations(fits, 2):
        if one.run.op != other.run.op or one.run.hardware != other.run.hardware:
            continue
        smaller, larger = sorted((one, other), key=lambda fit: fit.run.n_ranks)
        remark = _alpha_against_ranks(smaller, larger)
        if remark is not None:
            told.append((larger, remark))
    return told


def copies(fits: Sequence[Fit]) -> list[tuple[Fit, Remark]]:
    """Return the runs of one log that repeat an earlier one-node run of it."""
    told: list[tuple[Fit, Remark]] = []
    seen: dict[tuple[object, ...], Fit] = {}
    for fit in fits:
        sizes = tuple(row.nbytes for row in fit.rows)
        key = (fit.run.op, fit.run.n_ranks, fit.run.n_nodes, sizes)
        first = seen.setdefault(key, fit)
        if first is not fit and fit.run.n_nodes in (None, 1):
            told.append(
                (
                    fit,
                    Remark(
                        "copies",
                        f"The same {fit.run.op} on {fit.run.n_ranks} ranks stands in this log "
                        f"from line {first.rows[0].line} on. If one job on several nodes was "
                        "started, these are copies of a one-node run: build nccl-tests with MPI=1.",
                        fit.rows[0].line,
                    ),
                )
            )
    return told


def _alpha_against_ranks(smaller: Fit, larger: Fit) -> Remark | None:
    n_small, n_large = smaller.run.n_ranks, larger.run.n_ranks
    if n_small == n_large or smaller.alpha is None or larger.alpha is None:
        return None
    if max(fit.model.pieces[0].first for fit in (smaller, larger)) > SMALL:
        return None
    few, many = smaller.alpha.value, larger.alpha.value
    fact = f"α is {format_seconds(few)} on {n_small} ranks and {format_seconds(many)} on {n_large}"
    if many < FALLS * few:
        return Remark(
            "alpha_against_ranks",
            f"{fact}: more ranks cannot be quicker, so the smaller run was disturbed, or it ran "
            "with other settings.",
        )
    same_nodes = gpus_per_node(smaller) == gpus_per_node(larger)
    same_kind = (smaller.run.n_nodes == 1) == (larger.run.n_nodes == 1)
    expected = (n_large - 1) / (n_small - 1)
    if same_kind and same_nodes and many > TOO_FAST * expected * few:
        return Remark(
            "alpha_against_ranks",
            f"{fact}: {many / few:.1f} times, where a ring's would grow {expected:.1f} times and a "
            "tree's less. Look for a slow node, or for a fallback to another transport.",
        )
    return None
