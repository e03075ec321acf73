"""Run a schedule in real processes, from a notebook: arrays go in, arrays come out."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from commlab.ledger import Message, ledger
from commlab.real.launch import run
from commlab.schedule import Schedule, Step, check_structure
from commlab.simulate import check_buffers, counts_for

# What torch adds with but numpy lacks; values travel as float32, which holds them exactly.
WIDENED = {"bfloat16": "float32"}


@dataclass(frozen=True)
class RealResult:
    """What real processes gave.

    Attributes
    ----------
    buffers : list of numpy.ndarray
        One per rank: the chunks of `Schedule.ends`, in that order.
    messages : tuple of Message
        Every message that a rank sent, as the ranks counted them, by step and sender. Those
        of `simulate`'s ledger that carry an element, no more and no less.
    """

    buffers: list[np.ndarray]
    messages: tuple[Message, ...]


def run_schedule(
    schedule: Schedule,
    buffers: Sequence[np.ndarray],
    *,
    n_elements: int | None = None,
    dtype: str | None = None,
    timeout: float = 60.0,
) -> RealResult:
    """Run a schedule in ``schedule.n_ranks`` processes of this machine, over gloo.

    Parameters
    ----------
    schedule, buffers, n_elements
        As for `commlab.simulate`. Arrays of a few MB; they travel to the ranks as text.
    dtype : str, optional
        A type of torch that the ranks convert to before they start, such as "bfloat16", which
        numpy lacks: its results come back as float32, with unchanged values.
    timeout : float
        Seconds for the whole run, importing torch (about 2 s) included.

    Returns
    -------
    RealResult

    Raises
    ------
    ValueError, ScheduleError
        If the schedule or the buffers do not fit; no process is started then.
    RankError
        If a rank fails, for example because torch has no such ``dtype``, or the time is up.

    Examples
    --------
    >>> ring = ring_all_reduce(4)
    >>> real = run_schedule(ring, buffers)
    >>> simulated = simulate(ring, buffers)
    """
    check_structure(schedule)
    buffers = [np.asarray(buffer) for buffer in buffers]
    check_buffers(schedule, buffers)
    counts = counts_for(schedule, [len(buffer) for buffer in buffers], n_elements)
    by_rank = run(
        "commlab.real.schedule_workers:execute_one",
        ranks=schedule.n_ranks,
        timeout=timeout,
        schedule=schedule_to_plain(replace(schedule, counts=counts)),
        buffers=[array_to_plain(buffer) for buffer in buffers],
        dtype=dtype,
    )
    shares = {(m.step, m.src, m.dst): m.share for m in ledger(schedule).messages}
    messages = [
        Message(step, rank, dst, shares[step, rank, dst], elements)
        for rank, answer in enumerate(by_rank)
        for step, dst, elements in answer["sent"]
    ]
    results = [array_from_plain(answer["result"]) for answer in by_rank]
    return RealResult(results, tuple(sorted(messages)))


def differing_from_gloo(
    ranks: int = 8,
    n_elements: int = 4096,
    dtypes: Sequence[str] = ("float32", "bfloat16", "float16"),
    seed: int = 0,
    timeout: float = 60.0,
) -> dict[str, dict[str, int]]:
    """Hold three orders of additions against the bits of gloo's own all_reduce.

    Parameters
    ----------
    ranks, n_elements : int
        Processes, and elements of the random vector of each.
    dtypes : sequence of str
        Floating-point types, by their names in torch.
    seed : int
    timeout : float
        Seconds for the whole run.

    Returns
    -------
    dict
        ``differing[dtype][order]``: in how many elements the bits differ, for the orders
        "rank order" (0 + 1 + 2 + …), "textbook ring" and "gloo's ring". They are schedules,
        run by sends and receives on the same numbers.
    """
    by_rank = run(
        "commlab.real.schedule_workers:compare_orders",
        ranks=ranks,
        timeout=timeout,
        n_elements=n_elements,
        dtypes=list(dtypes),
        seed=seed,
    )
    return by_rank[0]


def schedule_to_plain(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as numbers, strings, lists and dictionaries, which JSON carries."""
    return {
        "collective": schedule.collective,
        "n_ranks": schedule.n_ranks,
        "shares": [str(share) for share in schedule.shares],
        "starts": [list(chunks) for chunks in schedule.starts],
        "ends": [list(chunks) for chunks in schedule.ends],
        "steps": [
            [column.tolist() for column in (step.src, step.dst, step.chunk, step.op)]
            for step in schedule.steps
        ],
        "name": schedule.name,
        "counts": None if schedule.counts is None else list(schedule.counts),
    }


def schedule_from_plain(plain: dict[str, Any]) -> Schedule:
    """Return the schedule that `schedule_to_plain` took apart."""
    shares = [Fraction(share) for share in plain["shares"]]
    steps = [Step(*columns) for columns in plain["steps"]]
    return Schedule(**plain | {"shares": shares, "steps": steps})


def array_to_plain(array: np.ndarray) -> dict[str, str]:
    """Return a 1-D array as text, bit for bit."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {"dtype": array.dtype.name, "base64": data}


def array_from_plain(plain: dict[str, str]) -> np.ndarray:
    """Return the array that `array_to_plain` took apart."""
    data = base64.b64decode(plain["base64"])
    # A copy, since what frombuffer returns cannot be written to.
    return np.frombuffer(data, dtype=plain["dtype"]).copy()
