"""What nccl-tests calls its tests, and how it turns a time into algbw and busbw."""

from __future__ import annotations

from commlab.checks import check_n_ranks

# Names of nccl-tests without _perf, by the factor in their busbw (its doc/PERFORMANCE.md).
TWICE_THE_SHARE = ("all_reduce",)
SHARE_OF_OTHERS = (
    "all_gather",
    "reduce_scatter",
    "alltoall",
    "alltoallv",
    "gather",
    "scatter",
    "hypercube",
)
ONE_COPY = ("broadcast", "reduce", "sendrecv")
OPS = TWICE_THE_SHARE + SHARE_OF_OTHERS + ONE_COPY

# In-place, sendrecv and alltoall overwrite what they still have to send: nobody runs them so.
NO_IN_PLACE = ("alltoall", "alltoallv", "sendrecv")

_COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
}


def op_named(name: str) -> str | None:
    """Return the test that a name means (``all_to_all``, ``AllReduce``, ``alltoall_perf``)."""
    letters = name.lower().removesuffix("_perf").replace("_", "").replace("-", "").replace(" ", "")
    for op in OPS:
        if letters == op.replace("_", ""):
            return op
    return None


def collective_of(op: str) -> str | None:
    """Return this book's name of the collective that a test runs; None if the book has none."""
    return _COLLECTIVES.get(op)


def bus_factor(op: str, n_ranks: int) -> float:
    """Return what S/T is multiplied by to give busbw, as in nccl-tests' PERFORMANCE.md.

    2(N−1)/N for all_reduce; 1 for broadcast, reduce and sendrecv; (N−1)/N for the others.

    Parameters
    ----------
    op : str
        A test of nccl-tests, or one of this book's collectives.
    n_ranks : int

    Raises
    ------
    ValueError
        If there is no such test.
    """
    n_ranks = check_n_ranks(n_ranks)
    test = op_named(op)
    if test is None:
        raise ValueError(f"there is no collective {op!r}: one of {', '.join(OPS)}.")
    if test in TWICE_THE_SHARE:
        return 2 * (n_ranks - 1) / n_ranks
    if test in SHARE_OF_OTHERS:
        return (n_ranks - 1) / n_ranks
    return 1.0
