"""Any step of any schedule as a picture: who holds how much, and what has just moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from commlab.figures import style
from commlab.schedule import REDUCE, Schedule, held_contributions
from commlab.simulate import simulate

MAX_RANKS = 16
# More chunks than this are drawn in groups of neighbours; more cells than that carry no text.
_MAX_COLUMNS = 16
_MAX_CELLS_WITH_TEXT = 72
_MAX_VALUES_IN_CELL = 2
# A vector that is not cut has the whole row.
_MAX_VALUES_IN_ROW = 6


@dataclass(frozen=True)
class StepView:
    """A schedule made ready for drawing.

    Attributes
    ----------
    held : numpy.ndarray of int, shape (n_steps + 1, n_ranks, n_columns)
        Contributions that a rank holds of a column's chunks, after each step.
    wanted : numpy.ndarray of int, shape (n_columns,)
        Contributions that the column's chunks have in all.
    texts : list of list of list of str
        What each cell says, indexed like `held`; empty strings where there is no room.
    columns : list of str
        Names of the columns.
    moves : list of list of tuple of int
        For each step the (src, dst, column, op) of its transfers, without doubles.
    facts : list of str
        For each state one sentence on the step that led to it.
    message_shares : list of list of float
        For each step the size of each message as a part of S.
    """

    held: np.ndarray
    wanted: np.ndarray
    texts: list[list[list[str]]]
    columns: list[str]
    moves: list[list[tuple[int, int, int, int]]]
    facts: list[str]
    message_shares: list[list[float]]


def step_view(schedule: Schedule, buffers: Sequence[np.ndarray] | None = None) -> StepView:
    """Follow a schedule and note what each state looks like.

    Parameters
    ----------
    schedule : Schedule
        Of at most 16 ranks and at least one step.
    buffers : sequence of array, optional
        Starting values by rank; the cells then show values instead of contributions.

    Raises
    ------
    ValueError
        If the schedule is too large to draw, or has no steps.
    """
    if schedule.n_ranks > MAX_RANKS:
        raise ValueError(
            f"a schedule of {schedule.n_ranks} ranks is too large to draw step by step: "
            f"build it for at most {MAX_RANKS} ranks."
        )
    if not schedule.steps:
        raise ValueError("this schedule has no steps, so there is nothing to step through.")
    group = _chunks_per_column(schedule.n_chunks, schedule.n_ranks)
    first_chunks = np.arange(0, schedule.n_chunks, group)
    by_chunk = np.stack([state.sum(axis=2) for state in held_contributions(schedule)])
    starts = np.zeros(schedule.n_chunks, dtype=int)
    for chunks in schedule.starts:
        np.add.at(starts, list(chunks), 1)
    held = np.add.reduceat(by_chunk, first_chunks, axis=2)
    wanted = np.add.reduceat(starts, first_chunks)
    if buffers is None or group > 1:
        texts = _counts(held, wanted)
    else:
        texts = _values(schedule, buffers)
    if held[0].size > _MAX_CELLS_WITH_TEXT:
        texts = [[[""] * held.shape[2]] * held.shape[1]] * held.shape[0]
    moves = [
        sorted({(row.src, row.dst, row.chunk // group, row.op) for row in step.transfers})
        for step in schedule.steps
    ]
    shares = [
        [
            Fraction(units, schedule.unit_denominator)
            for units in schedule.messages(s).units.tolist()
        ]
        for s in range(len(schedule.steps))
    ]
    facts = ["Start: what each rank brings"]
    facts += [_fact(s, moves, shares) for s in range(len(schedule.steps))]
    return StepView(
        held=held,
        wanted=wanted,
        texts=texts,
        columns=_journeys(schedule) if group == 1 else _group_names(schedule.n_chunks, group),
        moves=moves,
        facts=facts,
        message_shares=[[float(share) for share in step] for step in shares],
    )


def view_size(view: StepView) -> tuple[float, float]:
    """A figure size, in inches, that gives each cell room."""
    _, n_ranks, n_columns = view.held.shape
    width = min(7.0, max(style.FIGURE_SIZE[0], 1.2 + 0.62 * n_columns))
    return width, 1.2 + max(0.28, 0.5 - 0.015 * n_ranks) * n_ranks


def draw_step(fig: Figure, view: StepView, step: int) -> dict[str, Any]:
    """Draw the state after a step, with the transfers that led to it.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
    view : StepView
        From `step_view`.
    step : int
        0 for the start, s for the state after step s.

    Returns
    -------
    dict
        ``held`` (ranks x columns), ``moves`` and ``message_shares`` of the step.
    """
    width, height = fig.get_size_inches()
    ax = style.single_axes(
        fig, left=0.72 / width, right=1 - 0.15 / width, bottom=0.6 / height, top=1 - 0.6 / height
    )
    ax.set_xlabel("shade: share of all contributions that the rank holds", color=style.INK)
    ax.xaxis.label.set_fontsize(style.FONT_SIZE - 1.5)
    draw_state(ax, view, step)
    style.title(ax, f"Step {step} of {len(view.moves)}\n{view.facts[step]}")
    return {
        "step": step,
        "held": view.held[step],
        "wanted": view.wanted,
        "moves": view.moves[step - 1] if step else [],
        "message_shares": view.message_shares[step - 1] if step else [],
    }


def draw_state(ax: Axes, view: StepView, step: int, with_moves: bool = True) -> None:
    """Draw the cells after a step, with the arrows of its transfers or not, into a plot area."""
    _, n_ranks, n_columns = view.held.shape
    ax.grid(False)
    ax.set(xlim=(-0.5, n_columns - 0.5), ylim=(n_ranks - 0.5, -0.5))
    ax.set_xticks(range(n_columns), view.columns)
    ax.set_yticks(range(n_ranks), [f"rank {rank}" for rank in range(n_ranks)])
    ax.tick_params(length=0)
    if n_columns > 8:
        ax.tick_params(axis="x", labelsize=style.FONT_SIZE - 2.5)
    for spine in ax.spines.values():
        spine.set_visible(False)
    moves = view.moves[step - 1] if step and with_moves else []
    _draw_cells(ax, view.held[step] / view.wanted, moves)
    _write_cells(ax, view.texts[step], n_columns)
    _draw_moves(ax, moves)


def _draw_cells(ax: Axes, share: np.ndarray, moves: list[tuple[int, int, int, int]]) -> None:
    written = {(dst, column): op for _, dst, column, op in moves}
    corners = np.array([(-0.46, -0.42), (0.46, -0.42), (0.46, 0.42), (-0.46, 0.42)])
    squares, faces, edges, widths = [], [], [], []
    for rank, column in np.ndindex(share.shape):
        squares.append(corners + (column, rank))
        # A complete cell stands out from one that lacks a single contribution.
        held = share[rank, column]
        opacity = 0.5 if held >= 1 else 0.32 * held
        faces.append((*_rgb(style.COMPUTE), opacity))
        op = written.get((rank, column))
        edges.append(style.GRID if op is None else _move_colour(op))
        widths.append(1.0 if op is None else 2.2)
    ax.add_collection(
        PolyCollection(squares, facecolors=faces, edgecolors=edges, linewidths=widths)
    )


def _write_cells(ax: Axes, texts: list[list[str]], n_columns: int) -> None:
    size = style.FONT_SIZE - (0 if n_columns <= 6 else 1.5)
    for rank, row in enumerate(texts):
        for column, text in enumerate(row):
            if text:
                ax.text(
                    column - 0.06, rank, text, ha="center", va="center", color=style.INK,
                    fontsize=size,
                )  # fmt: skip


def _draw_moves(ax: Axes, moves: list[tuple[int, int, int, int]]) -> None:
    """One arrow for each transfer, side by side where a column has several."""
    if not moves:
        return
    seen: dict[int, int] = {}
    in_column = [column for _, _, column, _ in moves]
    starts, lengths, colours = [], [], []
    for src, dst, column, op in moves:
        position = seen.get(column, 0)
        seen[column] = position + 1
        offset = 0.38 - 0.36 * position / max(3, in_column.count(column))
        starts.append((column + offset, src + 0.15 * np.sign(dst - src)))
        lengths.append(dst - src - 0.4 * np.sign(dst - src))
        colours.append(_move_colour(op))
    x, y = np.array(starts).T
    ax.quiver(
        x, y, np.zeros(len(moves)), lengths, color=colours, angles="xy", scale_units="xy",
        scale=1, units="dots", width=0.02 * ax.figure.dpi, headwidth=4.5, headlength=5,
        headaxislength=4.5, minlength=0,
    )  # fmt: skip


def _move_colour(op: int) -> str:
    return style.COMMUNICATION if op == REDUCE else style.ALTERNATIVE


def _rgb(colour: str) -> tuple[float, float, float]:
    return tuple(int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))


def _chunks_per_column(n_chunks: int, n_ranks: int) -> int:
    """One chunk, or one column per rank, or the smallest group that leaves few columns."""
    if n_chunks > _MAX_COLUMNS and n_chunks % n_ranks == 0:
        return n_chunks // n_ranks
    for group in range(1, n_chunks + 1):
        if n_chunks % group == 0 and n_chunks // group <= _MAX_COLUMNS:
            return group
    raise AssertionError("unreachable: all chunks in one group is one column")


def _group_names(n_chunks: int, group: int) -> list[str]:
    n_columns = n_chunks // group
    word = "chunks " if n_columns <= 4 else ""
    return [f"{word}{c * group}–{(c + 1) * group - 1}" for c in range(n_columns)]


def _journeys(schedule: Schedule) -> list[str]:
    """Name chunks: by where they go, if each goes from one rank to one other, else by number."""
    senders = _holders(schedule.starts, schedule.n_chunks)
    receivers = _holders(schedule.ends, schedule.n_chunks)
    if all(len(ranks) == 1 for ranks in senders + receivers):
        return [f"{src[0]}→{dst[0]}" for src, dst in zip(senders, receivers, strict=True)]
    word = "chunk " if schedule.n_chunks <= 8 else ""
    return [f"{word}{chunk}" for chunk in range(schedule.n_chunks)]


def _holders(lists: Sequence[Sequence[int]], n_chunks: int) -> list[list[int]]:
    """The ranks that list each chunk."""
    holders: list[list[int]] = [[] for _ in range(n_chunks)]
    for rank, chunks in enumerate(lists):
        for chunk in chunks:
            holders[chunk].append(rank)
    return holders


def _counts(held: np.ndarray, wanted: np.ndarray) -> list[list[list[str]]]:
    """Contributions such as 3/4; nothing where a chunk has one contributor: shading says it."""
    return [
        [
            [f"{n}/{of}" if of > 1 and n else "" for n, of in zip(row, wanted, strict=True)]
            for row in state
        ]
        for state in held
    ]


def _values(schedule: Schedule, buffers: Sequence[np.ndarray]) -> list[list[list[str]]]:
    trace = simulate(schedule, buffers, trace=True).trace
    most = _MAX_VALUES_IN_ROW if schedule.n_chunks == 1 else _MAX_VALUES_IN_CELL
    return [
        [
            [_value_text(rank.get(chunk), most) for chunk in range(schedule.n_chunks)]
            for rank in state
        ]
        for state in trace
    ]  # fmt: skip


def _value_text(values: np.ndarray | None, most: int) -> str:
    if values is None or len(values) == 0:
        return ""
    shown = list(dict.fromkeys(f"{value:g}" for value in values.tolist()))
    if len(shown) > most:
        return f"{shown[0]} …"
    return " ".join(shown)


def _fact(
    step: int, moves: list[list[tuple[int, int, int, int]]], shares: list[list[Fraction]]
) -> str:
    if not shares[step]:
        return "no message"
    sizes = sorted(set(shares[step]))
    count = len(shares[step])
    noun = "message" if count == 1 else "messages"
    size = f"of {_part_of_s(sizes[-1])}" if len(sizes) == 1 else f"up to {_part_of_s(sizes[-1])}"
    ops = {op for _, _, _, op in moves[step]}
    verb = {True: "added", False: "copied"}[REDUCE in ops]
    if len(ops) == 2:
        verb = "added or copied"
    return f"{count} {noun} {size}, {verb} on arrival"


def _part_of_s(share: Fraction) -> str:
    top = "S" if share.numerator == 1 else f"{share.numerator}S"
    return top if share.denominator == 1 else f"{top}/{share.denominator}"
