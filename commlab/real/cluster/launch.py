"""Run schedules, or anything else, on the ranks of a virtual cluster, and measure them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from commlab.algorithms import ring_all_reduce
from commlab.cost import price
from commlab.real import _files
from commlab.real.cluster import _inside
from commlab.real.cluster.buffers import ELEMENT_BYTES, right_digests
from commlab.real.cluster.description import VirtualCluster
from commlab.real.cluster.namespaces import run_in_namespaces
from commlab.real.launch import RankError, temporary_folder
from commlab.real.schedules import schedule_to_plain
from commlab.schedule import Schedule, Step

ENTRY = "commlab.real.cluster.workers:work_in_place"
# α is taken from this many rings of one element a message.
ALPHA_REPEATS = 101
WARM_UP = 1
# The pipes and the log of the run have to come to an end before the run itself is ended.
EXTRA_SECONDS = 10.0


class ClusterError(RuntimeError):
    """The network of a cluster could not be built, or its ranks computed something wrong."""


@dataclass(frozen=True)
class Task:
    """A function that every rank of a cluster calls: ``"module:function"`` and arguments."""

    worker: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A schedule to be measured.

    Attributes
    ----------
    name : str
    schedule : Schedule
    nbytes : int
        S, in bytes of int32: a multiple of 4.
    ports : int
        Messages that a rank may send at once, for the price.
    rank_order : tuple of int, optional
        Rank r sits where rank ``rank_order[r]`` would sit; node by node by default.
    """

    name: str
    schedule: Schedule
    nbytes: int
    ports: int = 1
    rank_order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Measured:
    """One schedule on a virtual cluster, by the clock and by the model.

    Attributes
    ----------
    name : str
    seconds : tuple of float
        Of each repeat, as the slowest rank saw it.
    priced : float
        Seconds: `commlab.cost.price` of the same schedule on the cluster's topology.
    """

    name: str
    seconds: tuple[float, ...]
    priced: float

    @property
    def measured(self) -> float:
        """Median seconds."""
        return float(np.median(self.seconds))

    @property
    def ratio(self) -> float:
        """Measured over priced."""
        return self.measured / self.priced


@dataclass(frozen=True)
class ClusterRun:
    """What was measured on a virtual cluster.

    Attributes
    ----------
    cluster : VirtualCluster
    alpha : float
        Seconds per message, measured in the same run: a ring of messages of one element.
    results : tuple of Measured
        In the order of the jobs.
    """

    cluster: VirtualCluster
    alpha: float
    results: tuple[Measured, ...]


def run_on_cluster(
    cluster: VirtualCluster,
    jobs: Sequence[Job],
    *,
    repeats: int = 5,
    seed: int = 0,
    timeout: float = 120.0,
) -> ClusterRun:
    """Execute schedules on a virtual cluster and hold their time against their price.

    Each rank is a process in its own place of the network; it sends and receives what the
    schedule says (`commlab.real.execute`), on random whole numbers, and the result is compared
    with the simulation.

    Parameters
    ----------
    cluster : VirtualCluster
    jobs : sequence of Job
    repeats : int
        How often each schedule is timed.
    seed : int
    timeout : float
        Seconds for all of it.

    Returns
    -------
    ClusterRun

    Raises
    ------
    ClusterUnavailable
        Where no cluster can be made; the message says why.
    ClusterError
        If a result is wrong.
    RankError
        If a rank fails or the time is up. Nothing is left behind in any case.
    """
    placed = [place_ranks(job.schedule, _order(job, cluster)) for job in jobs]
    n_elements = [_elements(job) for job in jobs]
    tasks = [alpha_task(cluster)]
    for schedule, elements in zip(placed, n_elements, strict=True):
        tasks.append(_timing(schedule, elements, repeats, seed))
    answers = run_tasks(cluster, tasks, timeout)
    alpha = alpha_of(answers[0])
    results = []
    for job, schedule, elements, answer in zip(jobs, placed, n_elements, answers[1:], strict=True):
        if [of_rank["digest"] for of_rank in answer] != right_digests(schedule, elements, seed):
            raise ClusterError(f"{job.name}: the ranks' results differ from the simulation.")
        topology = cluster.topology(alpha, ports=job.ports)
        priced = price(schedule, topology, job.nbytes).total
        results.append(Measured(job.name, tuple(_slowest(answer)), priced))
    return ClusterRun(cluster, alpha, tuple(results))


def run_tasks(
    cluster: VirtualCluster, tasks: Sequence[Task], timeout: float, entry: str = ENTRY
) -> list[list[Any]]:
    """Let every rank of a virtual cluster call functions, one after the other.

    Parameters
    ----------
    cluster : VirtualCluster
    tasks : sequence of Task
    timeout : float
        Seconds for all of it.
    entry : str
        Where the ranks find `commlab.real.cluster.workers.work_in_place`: a module that has
        imported it. What that module imports is imported once, and not once in each rank.

    Returns
    -------
    list of list
        For each task, what it returned on each rank: plain data, as of `commlab.real.run`.

    Raises
    ------
    ClusterUnavailable, ClusterError, RankError
        As `run_on_cluster`.
    """
    if not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
        raise ValueError(f"timeout is {timeout!r}: give a number of seconds above 0.")
    with temporary_folder() as folder:
        job = {
            "cluster": asdict(cluster),
            "tasks": [asdict(task) for task in tasks],
            "timeout": timeout,
            "entry": entry,
        }
        _files.write_json(folder / _files.JOB, job)
        status, errors = run_in_namespaces(
            "commlab.real.cluster._inside", folder, timeout + EXTRA_SECONDS
        )
        if status is None:
            raise RankError(f"the cluster did not end within {timeout:g} s: give a longer timeout.")
        if status != 0:
            raise ClusterError(f"the cluster's network was not built: {errors.strip()}")
        answer = _files.read_json(folder / _inside.ANSWER)
    if "failed" in answer:
        raise RankError(answer["failed"], answer["rank"], answer["details"])
    return [list(of_ranks) for of_ranks in zip(*answer["by_rank"], strict=True)]


def alpha_task(cluster: VirtualCluster) -> Task:
    """Return the task from which `alpha_of` takes α: rings of one element a message."""
    return _timing(ring_all_reduce(cluster.n_ranks), cluster.n_ranks, ALPHA_REPEATS, seed=0)


def alpha_of(answer: Sequence[dict[str, Any]]) -> float:
    """Return the seconds per message: the time of a ring over its 2(N-1) steps.

    The fastest of many repeats: other programs on the machine only ever make one slower, and
    one as short as this by several times.
    """
    return min(_slowest(answer)) / (2 * (len(answer) - 1))


def place_ranks(schedule: Schedule, order: Sequence[int]) -> Schedule:
    """Return a schedule in which rank ``order[r]`` does what rank r did.

    On a topology without `rank_order` it is what the given one is with ``rank_order=order``.
    """
    place = np.asarray(order)
    rank_at = np.argsort(place)
    return replace(
        schedule,
        starts=[schedule.starts[rank] for rank in rank_at],
        ends=[schedule.ends[rank] for rank in rank_at],
        steps=[Step(place[s.src], place[s.dst], s.chunk, s.op) for s in schedule.steps],
    )


def _order(job: Job, cluster: VirtualCluster) -> Sequence[int]:
    if job.schedule.n_ranks != cluster.n_ranks:
        raise ValueError(
            f"{job.name}: the schedule has {job.schedule.n_ranks} ranks, the cluster "
            f"{cluster.n_ranks}: build both for the same number."
        )
    order = range(cluster.n_ranks) if job.rank_order is None else job.rank_order
    if sorted(order) != list(range(cluster.n_ranks)):
        raise ValueError(
            f"{job.name}: rank_order must name each of the ranks 0 to {cluster.n_ranks - 1} once."
        )
    return order


def _elements(job: Job) -> int:
    if job.nbytes <= 0 or job.nbytes % ELEMENT_BYTES:
        raise ValueError(
            f"{job.name}: nbytes is {job.nbytes!r}; give a multiple of {ELEMENT_BYTES}, the bytes "
            "of an int32."
        )
    return job.nbytes // ELEMENT_BYTES


def _timing(schedule: Schedule, n_elements: int, repeats: int, seed: int) -> Task:
    arguments = {
        "schedule": schedule_to_plain(schedule),
        "n_elements": n_elements,
        "repeats": repeats,
        "warm_up": WARM_UP,
        "seed": seed,
    }
    return Task("commlab.real.cluster.workers:time_schedule", arguments)


def _slowest(answer: Sequence[dict[str, Any]]) -> list[float]:
    """Seconds of each repeat, as the slowest rank saw them."""
    return np.max([of_rank["seconds"] for of_rank in answer], axis=0).tolist()
