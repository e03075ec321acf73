"""A cluster whose links are those of measured runs, with the interval that the fit leaves.

What is read is the output of ``commlab fit --json`` (or its ``--out`` file).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from commlab.budget import Cluster
from commlab.calibrate.fit_parameters import MESSAGES
from commlab.checks import check_n_ranks
from commlab.planner.presets import read_json
from commlab.units import format_rate, format_seconds

# Gathers come first: their busbw is what crosses the links, while an all-reduce's may be more
# than the links carry, where switches reduce.
_PREFERENCE = ("all_gather", "reduce_scatter", "all_reduce")


@dataclass(frozen=True)
class Interval:
    """A value and how far it may be off on either side."""

    low: float
    value: float
    high: float

    def divided(self, count: float) -> Interval:
        """Return the interval of the value divided by a number."""
        return Interval(self.low / count, self.value / count, self.high / count)

    def widened(self, error: float) -> Interval:
        """Return the interval with both ends moved outwards by a relative error."""
        return Interval(self.low / (1 + error), self.value, self.high * (1 + error))


@dataclass(frozen=True)
class MeasuredRun:
    """What a calibration says of one run.

    ``alpha`` is seconds per message of a ring, None where the run could not tell; ``beta``
    is bus bandwidth in bytes/s; ``error`` the held-out median relative error of the fit;
    ``hardware`` what the log calls the GPUs. It and ``n_nodes`` are None where the log does not
    say.
    """

    op: str
    n_ranks: int
    n_nodes: int | None
    alpha: Interval | None
    beta: Interval
    error: float
    hardware: str | None = None

    @property
    def gpus_per_node(self) -> int:
        """Ranks on each node, if the nodes are known."""
        return self.n_ranks // (self.n_nodes or 1)

    def __str__(self) -> str:
        of = "" if self.hardware is None else f" of {self.hardware}"
        nodes = "" if self.n_nodes is None else f", {self.n_nodes} node(s)"
        return f"{self.op} on {self.n_ranks} ranks{of}{nodes}"


@dataclass(frozen=True)
class CalibratedCluster:
    """A cluster with measured links, and the same at both ends of what the fit allows.

    Parameters
    ----------
    cluster, slow, fast : Cluster
        The links at their fitted values; at the slow and at the fast end of their intervals,
        which hold the parameters' confidence interval and the fit's held-out error.
    remarks : tuple of str
        Where each link came from, and what could not be had.
    """

    cluster: Cluster
    slow: Cluster
    fast: Cluster
    remarks: tuple[str, ...]


def read_calibration(path: Path) -> list[MeasuredRun]:
    """Read the runs of a file that ``commlab fit --json`` has written.

    Runs whose sizes did not determine β are left out: they say nothing of a link.

    Raises
    ------
    ValueError
        If the file cannot be read, is no calibration, or holds a refusal.
    """
    document = read_json(path)
    if isinstance(document, dict) and isinstance(document.get("error"), dict):
        raise ValueError(
            f"{path} holds a refusal, not a calibration: {document['error'].get('message')}"
        )
    if not isinstance(document, dict) or not isinstance(document.get("runs"), list):
        raise ValueError(
            f'{path} is no calibration: it needs a list "runs", as `commlab fit --json` prints.'
        )
    runs = []
    for number, run in enumerate(document["runs"], start=1):
        try:
            if run["beta_Bps"] is not None:
                runs.append(_read_run(run))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"{path}: run {number} is not as `commlab fit --json` prints it ({error}): make "
                "the file again."
            ) from error
    return runs


def _read_run(run: dict[str, Any]) -> MeasuredRun:
    n_ranks = check_n_ranks(run["n_ranks"], "n_ranks")
    if n_ranks < 2:
        raise ValueError("one rank sends nothing")
    alpha = _interval(run["alpha_s"], run["alpha_ci"])
    if alpha is not None:
        # Without a count nobody knows what one message takes.
        messages = _messages(run, n_ranks)
        alpha = alpha.divided(messages) if messages is not None else None
    held_out = run["heldout_median_rel_err"]
    error = _interval(run["median_rel_err"] if held_out is None else held_out, None)
    beta = _interval(run["beta_Bps"], run["beta_ci"])
    if beta is None or beta.low <= 0:
        raise ValueError("beta_Bps is no rate")
    n_nodes = None if run["n_nodes"] is None else check_n_ranks(run["n_nodes"], "n_nodes")
    if n_nodes is not None and n_nodes > n_ranks:
        raise ValueError(f"{n_ranks} ranks cannot be on {n_nodes} nodes")
    hardware = run.get("hardware")
    return MeasuredRun(
        op=str(run["op"]),
        n_ranks=n_ranks,
        n_nodes=n_nodes,
        alpha=alpha,
        beta=beta,
        error=0.0 if error is None else error.value,
        hardware=None if hardware is None else str(hardware),
    )


def _messages(run: dict[str, Any], n_ranks: int) -> int | None:
    """Return the messages of a call: as the fit says, or as those of a ring are counted."""
    if "messages" in run:
        said = run["messages"]
        return None if said is None else check_n_ranks(said, "messages")
    _, count = MESSAGES.get(run["op"], (None, None))
    return None if count is None else count(n_ranks)


def _interval(value: float | None, ends: Sequence[float] | None) -> Interval | None:
    if value is None:
        return None
    low, high = ends if ends is not None else (value, value)
    for number in (low, value, high):
        usable = isinstance(number, numbers.Real) and not isinstance(number, bool)
        if not usable or not math.isfinite(number) or number < 0:
            raise ValueError(f"{number!r} is no measured value")
    return Interval(min(low, value), float(value), max(high, value))


def calibrate(cluster: Cluster, runs: Sequence[MeasuredRun]) -> CalibratedCluster:
    """Give a cluster the links that were measured.

    Parameters
    ----------
    cluster : Cluster
        Gives what no log can tell: node size, memory, peak FLOP/s, MFU; and the line rate of a
        link that no run measured.
    runs : sequence of MeasuredRun

    Returns
    -------
    CalibratedCluster

    Raises
    ------
    ValueError
        If no run is a ring collective (all_gather, reduce_scatter, all_reduce) of two or more
        ranks on a known number of nodes.

    Notes
    -----
    A run inside one node measures ``beta_intra``: its busbw is what each GPU sends and
    receives. A run over nodes measures what leaves a *node*: a ring passes each node boundary
    once, and NCCL spreads it over the node's network interfaces, so that one interface
    carries busbw divided by the interfaces that the run's GPUs use. If the links inside the
    nodes are the narrower place, that is a lower bound. An all_reduce above line rate was
    reduced in the switches; other collectives are not, so that the line rate is taken.
    """
    rings = [run for run in runs if run.op in _PREFERENCE and run.n_ranks > 1]
    usable = [run for run in rings if run.n_nodes is not None]
    remarks = [
        f"not used, because its log does not say on how many nodes it ran: {run} (give "
        "commlab fit --nodes)"
        for run in rings
        if run.n_nodes is None
    ]
    if not usable:
        if rings:
            raise ValueError(f"the calibration has no run to use: {remarks[0]}.")
        raise ValueError(
            "the calibration has no run of all_gather, reduce_scatter or all_reduce that tells "
            "beta: measure one of them up to 1 GiB or more, on one node and on several."
        )
    usable.sort(key=lambda run: (_PREFERENCE.index(run.op), -run.n_ranks))
    inside = next((run for run in usable if run.n_nodes == 1), None)
    across = next((run for run in usable if run.n_nodes != 1), None)
    links = {
        "beta_intra": _inside(cluster, inside, remarks),
        "beta_inter": _across(cluster, across, inside, remarks),
        "alpha": _alpha(cluster, [run for run in (across, inside) if run], remarks),
    }
    known = {name: link for name, link in links.items() if link is not None}
    named = replace(cluster, name=f"{cluster.name}, links as measured")
    return CalibratedCluster(
        _with_links(named, {name: link.value for name, link in known.items()}),
        # A slow link has a large alpha and a small beta.
        _with_links(named, {n: k.high if n == "alpha" else k.low for n, k in known.items()}),
        _with_links(named, {n: k.low if n == "alpha" else k.high for n, k in known.items()}),
        tuple(remarks),
    )


def _inside(cluster: Cluster, run: MeasuredRun | None, remarks: list[str]) -> Interval | None:
    """Say what a run on one node tells of the link of a GPU."""
    line = cluster.beta_intra
    if run is None:
        remarks.append(f"inside a node: line rate {format_rate(line)}, no run")
        return None
    remarks.append(f"inside a node: {format_rate(run.beta.value)}, from {run}")
    if run.beta.value <= line:
        return run.beta.widened(run.error)
    if run.op != "all_reduce":
        remarks.append(
            f"that is above the line rate of {format_rate(line)}: it may be another cluster "
            "(--cluster)"
        )
        return run.beta.widened(run.error)
    remarks.append(
        f"that is above the line rate of {format_rate(line)}, which is taken instead: either the "
        "switches reduce, and gathers are slower (measure all_gather), or it is another cluster "
        "(--cluster)"
    )
    return Interval(min(run.beta.low, line), line, line)


def _across(
    cluster: Cluster, run: MeasuredRun | None, inside: MeasuredRun | None, remarks: list[str]
) -> Interval | None:
    """Say what a run over nodes tells of one network interface."""
    if run is None:
        remarks.append(f"between nodes: line rate {format_rate(cluster.beta_inter)}, no run")
        return None
    interfaces = min(run.gpus_per_node, cluster.n_rails)
    per_interface = run.beta.divided(interfaces)
    remarks.append(
        f"between nodes: {format_rate(per_interface.value)} per interface "
        f"({format_rate(run.beta.value)} over {interfaces}), from {run}"
    )
    inner = inside.beta.value if inside else cluster.beta_intra
    if run.gpus_per_node > 1 and run.beta.value > 0.9 * inner:
        remarks.append("the links inside the nodes limit that run: a lower bound")
    if run.n_nodes == 2 and run.gpus_per_node > 1:
        remarks.append("two nodes flatter: measure on four or more")
    return per_interface.widened(run.error)


def _alpha(cluster: Cluster, runs: Sequence[MeasuredRun], remarks: list[str]) -> Interval | None:
    """Take the first run that tells what one message costs."""
    for run in runs:
        if run.alpha is None:
            continue
        remarks.append(
            f"alpha: {format_seconds(run.alpha.value)} per message of a ring, from {run}"
        )
        if run.op == "all_reduce":
            remarks.append(
                "small all-reduces often go by a tree, of fewer messages that take longer each: "
                "all_gather tells the alpha of a ring"
            )
        return run.alpha.widened(run.error)
    remarks.append(f"alpha: {format_seconds(cluster.alpha)}, assumed; no run could tell")
    return None


def _with_links(cluster: Cluster, links: dict[str, float]) -> Cluster:
    return replace(
        cluster,
        alpha=links.get("alpha", cluster.alpha),
        beta_intra=links.get("beta_intra", cluster.beta_intra),
        beta_inter=links.get("beta_inter", cluster.beta_inter),
    )
