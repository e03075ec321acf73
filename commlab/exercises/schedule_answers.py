"""Judge of schedules that a reader builds: meaning first, then ports, steps, bytes and price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from commlab.cost import price
from commlab.exercises.code_answers import call
from commlab.exercises.verdicts import Refused, Verdict, Words, in_code, refuse, right
from commlab.hardware import ALPHA, NVLINK
from commlab.ledger import ledger
from commlab.schedule import Schedule, ScheduleError, verify
from commlab.topology import Topology, flat_topology
from commlab.units import format_bytes, format_seconds

ALL_REDUCE, BROADCAST = "all_reduce", "broadcast"


@dataclass(frozen=True)
class PriceLimit:
    """The most that a schedule may cost.

    Attributes
    ----------
    topology : callable
        N to the topology.
    nbytes : float
        S in bytes.
    seconds : callable
        N to the limit in seconds.
    told : Words
        Where the limit comes from.
    """

    topology: Callable[[int], Topology]
    nbytes: float
    seconds: Callable[[int], float]
    told: Words


@dataclass(frozen=True)
class ScheduleJudge:
    """Judge of ``build(n_ranks) -> Schedule``.

    Attributes
    ----------
    collective : str
        ``ALL_REDUCE`` or ``BROADCAST`` (from rank 0).
    sizes : sequence of int
        The N that are tried.
    meaning : Words
        What a right answer has shown.
    n_chunks : int, optional
        The chunks that the vector must be cut into, where that is part of the task.
    steps, moved : callable, optional
        N to the most steps, and to the most of S that one rank may send (or receive).
    limit : PriceLimit, optional
    """

    collective: str
    sizes: Sequence[int]
    meaning: Words
    n_chunks: int | None = None
    steps: Callable[[int], int] | None = None
    moved: Callable[[int], Fraction] | None = None
    limit: PriceLimit | None = None

    def __call__(self, answer: object) -> Verdict:
        """Return that it is right, or raise `Refused`."""
        for n_ranks in self.sizes:
            schedule = self._built(answer, n_ranks)
            for check in (
                self._meaning,
                self._ports,
                self._chunks,
                self._steps,
                self._bytes,
                self._price,
            ):
                check(schedule, n_ranks)
        return right(self.meaning.en, self.meaning.zh)

    def _built(self, answer: object, n_ranks: int) -> Schedule:
        schedule = call(answer, n_ranks)
        if not isinstance(schedule, Schedule):
            raise refuse(
                "type",
                "Your function must return a Schedule; it returned a "
                f"{in_code(type(schedule).__name__)}.",
                f"你的函数应返回一个 Schedule；它返回了 {in_code(type(schedule).__name__)}。",
            )
        if schedule.n_ranks != n_ranks:
            raise refuse(
                "n_ranks",
                f"Asked for {n_ranks} ranks, your function returned a schedule for "
                f"{schedule.n_ranks}: use its argument.",
                f"要的是 {n_ranks} 个 rank，你的函数返回了 {schedule.n_ranks} 个 rank 的调度表："
                "请使用它的参数。",
            )
        return schedule

    def _meaning(self, schedule: Schedule, n_ranks: int) -> None:
        check_promise(schedule, self.collective)
        try:
            verify(schedule)
        except ScheduleError as error:
            raise _at_place("meaning", error, n_ranks) from error

    def _ports(self, schedule: Schedule, n_ranks: int) -> None:
        try:
            flat_topology(n_ranks, ALPHA, NVLINK).check(schedule)
        except ScheduleError as error:
            raise _at_place("ports", error, n_ranks) from error

    def _chunks(self, schedule: Schedule, n_ranks: int) -> None:
        if self.n_chunks is None or schedule.n_chunks == self.n_chunks:
            return
        raise refuse(
            "chunks",
            f"With {n_ranks} ranks your schedule is right but cuts the vector into "
            f"{schedule.n_chunks} chunks; the task asks for {self.n_chunks}.",
            f"{n_ranks} 个 rank 时，你的调度表结果正确，但把向量切成了 {schedule.n_chunks} 块；"
            f"题目要的是 {self.n_chunks} 块。",
        )

    def _steps(self, schedule: Schedule, n_ranks: int) -> None:
        if self.steps is None or len(schedule.steps) <= self.steps(n_ranks):
            return
        raise refuse(
            "steps",
            f"With {n_ranks} ranks your schedule is right but takes {len(schedule.steps)} steps; "
            f"{self.steps(n_ranks)} are allowed.",
            f"{n_ranks} 个 rank 时，你的调度表结果正确，但用了 {len(schedule.steps)} 步；"
            f"最多 {self.steps(n_ranks)} 步。",
        )

    def _bytes(self, schedule: Schedule, n_ranks: int) -> None:
        if self.moved is None:
            return
        most = self.moved(n_ranks)
        book = ledger(schedule)
        for amounts, verb_en, verb_zh in (
            (book.sent, "sends", "发出"),
            (book.received, "receives", "收到"),
        ):
            rank = max(range(n_ranks), key=amounts.__getitem__)
            if amounts[rank] > most:
                raise refuse(
                    "bytes",
                    f"With {n_ranks} ranks your schedule is right but rank {rank} {verb_en} "
                    f"{amounts[rank]} S; {most} S is allowed.",
                    f"{n_ranks} 个 rank 时，你的调度表结果正确，但 rank {rank} {verb_zh} "
                    f"{amounts[rank]} S；最多 {most} S。",
                )

    def _price(self, schedule: Schedule, n_ranks: int) -> None:
        if self.limit is None:
            return
        seconds = price(schedule, self.limit.topology(n_ranks), self.limit.nbytes).total
        most = self.limit.seconds(n_ranks)
        if seconds <= most:
            return
        size = format_bytes(self.limit.nbytes)
        raise refuse(
            "slow",
            f"With {n_ranks} ranks your schedule is right but needs {format_seconds(seconds)} for "
            f"{size}; {format_seconds(most)} is allowed, {self.limit.told.en}.",
            f"{n_ranks} 个 rank 时，你的调度表结果正确，但传 {size} 要 "
            f"{format_seconds(seconds)}；最多 {format_seconds(most)}，{self.limit.told.zh}。",
        )


def check_promise(schedule: Schedule, collective: str) -> None:
    """Refuse a schedule that promises something else than the collective.

    `verify` proves what `starts` and `ends` promise; with other promises it proves nothing.
    """
    everything = schedule.starts[0]
    whole = sorted(everything) == list(range(schedule.n_chunks))
    if not whole or sum(schedule.shares) != 1:
        raise refuse(
            "promise",
            "Rank 0 must start with every chunk, and the shares of the chunks must add up to 1.",
            "rank 0 一开始必须有全部的块，各块的 `shares` 加起来必须是 1。",
        )
    for rank in range(schedule.n_ranks):
        starts = everything if collective == ALL_REDUCE or rank == 0 else ()
        for name, wanted in (("starts", starts), ("ends", everything)):
            promised = getattr(schedule, name)[rank]
            if promised != wanted:
                raise refuse(
                    "promise",
                    f"In this collective {in_code(f'{name}[{rank}]')} must be "
                    f"{in_code(list(wanted))}; yours is {in_code(list(promised))}.",
                    f"在这种集合通信里，{in_code(f'{name}[{rank}]')} 应是 "
                    f"{in_code(list(wanted))}；你的是 {in_code(list(promised))}。",
                )


# What the sentence of a ScheduleError holds, and what that means.
_IN_CHINESE = (
    ("already holds", "这个 rank 已经有的贡献又加了一次"),
    ("overwrites", "这一块被覆盖，已经加进去的贡献丢了"),
    ("never filled", "收到或加上的这一块，发送方手里还没有内容"),
    ("without the contributions", "最后这一块还缺别的 rank 的贡献"),
    ("does not exist", "没有这个 rank、块或操作"),
    ("sends to itself", "有 rank 发给了自己"),
    ("two rows write", "一步里有两行写进了同一个 rank 的同一块"),
    ("messages at once", "一个 rank 在一步里收或发了不止一条消息"),
)


def _at_place(reason: str, error: ScheduleError, n_ranks: int) -> Refused:
    """Return the refusal of a schedule, with the place where it goes wrong."""
    named = (("第 {} 步", error.step), ("rank {}", error.rank), ("第 {} 块", error.chunk))
    place = "，".join(word.format(value) for word, value in named if value is not None)
    what_zh = next((told for held, told in _IN_CHINESE if held in str(error)), "不合规则")
    return refuse(
        reason,
        f"With {n_ranks} ranks: {error}",
        f"{n_ranks} 个 rank 时，{place or '调度表'}：{what_zh}（{in_code(error)}）。",
    )
