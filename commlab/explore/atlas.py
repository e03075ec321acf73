"""An entry of the atlas: the facts of one algorithm, then its steps."""

from __future__ import annotations

from IPython.display import display

from commlab.atlas import algorithm_facts
from commlab.explore.explorer import Explorer
from commlab.explore.stepper import stepper


def entry(
    collective: str, name: str, n_ranks: int, *, alpha: float, beta: float, **options: int
) -> Explorer:
    """Show the facts of an algorithm and return its stepper, which a cell ends with.

    Parameters
    ----------
    collective, name : str
        A key of the registry.
    n_ranks : int
        N of the table and of the stepper; at most 16.
    alpha, beta : float
        Of the flat network that prices are for: seconds per message, and bytes per second in
        one direction.
    **options
        What the schedule is built with, for example ``pipeline_chunks=2``.

    Raises
    ------
    ValueError
        If the algorithm does not exist, does not support N or takes no such option.
    """
    facts = algorithm_facts(collective, name, n_ranks, alpha, beta, **options)
    display(facts.table())
    what = f"{collective}, {name}"
    return stepper(
        facts.schedule,
        title=(f"{what}: {n_ranks} ranks, step by step", f"{what}：{n_ranks} 个 rank，逐步看"),
        alt=(
            f"The chunks that each of {n_ranks} ranks holds after each step of {what}; arrows "
            "are the transfers of the step.",
            f"{what} 的每一步之后，{n_ranks} 个 rank 各自手里的块；箭头是这一步的传输。",
        ),
    )
