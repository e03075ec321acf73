"""Who broke the rule? Found from what the ranks noted, not from knowing what was started."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from commlab.real import _files
from commlab.real.evidence import (
    DIED,
    FAILED,
    FINISHED,
    LEFT,
    RAISED,
    STOPPED,
    WAITING,
    Evidence,
)

# Operations in which all ranks do the same, usually on one line of the program. In a broadcast
# the root may rightly stand on another line.
_SYMMETRIC = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")


@dataclass(frozen=True)
class Diagnosis:
    """Who is guilty of a hang or of a wrong number, and what to do about it.

    Attributes
    ----------
    guilty : tuple of int
        The ranks, in order; empty if nothing is wrong. Where the ranks are split in two halves,
        all of them: the evidence cannot say which half is right.
    sentence_en, sentence_zh : str
        One sentence each, with the guilty ranks and the cure.
    """

    guilty: tuple[int, ...]
    sentence_en: str
    sentence_zh: str


def diagnose(evidence: Sequence[Evidence]) -> Diagnosis:
    """Compare the ranks' calls one by one, up to the first on which they do not agree.

    Parameters
    ----------
    evidence : sequence of Evidence
        Of every rank of the group.

    Returns
    -------
    Diagnosis
        At the first call that is not the same everywhere, the ranks of the largest party are
        taken to be right and all others to be guilty; a rank that is stopped or dead is guilty
        in any case.
    """
    for number in range(max((len(one.calls) for one in evidence), default=0)):
        callers = [one for one in evidence if len(one.calls) > number]
        for look in (_other_operation, _other_line, _missing):
            found = look(evidence, callers, number)
            if found is not None:
                return found
    return _gone_later(evidence) or _nothing_wrong(evidence)


def _other_operation(
    evidence: Sequence[Evidence], callers: Sequence[Evidence], number: int
) -> Diagnosis | None:
    """Find ranks that made this call with another operation, shape or type."""
    parties = _parties(callers, lambda one: one.calls[number].signature)
    if len(parties) == 1:
        return None
    odd, others = _odd_ones(parties)
    theirs, expected = odd[0].calls[number], others[0].calls[number]
    if theirs.op != expected.op:
        what_en, what_zh = "the ranks call in different orders", "各 rank 的调用顺序不同"
        cure_en, cure_zh = "make all ranks call in the same order", "让所有 rank 按同样的顺序调用"
    else:
        what_en, what_zh = "the tensors do not fit one another", "张量对不上"
        cure_en = "give all ranks the same shape and type, padding the last batch if need be"
        cure_zh = "让所有 rank 的形状和类型相同，必要时补齐最后一批"
    if any(one.calls[number].outcome == LEFT for one in callers):
        what_en += " and even numbers without an error are not to be trusted"
        what_zh += "，没有报错的数也不可信"
    return Diagnosis(
        _guilty(odd, others),
        f"{_names(odd)} entered {theirs} as call {number + 1} ({theirs.where}), "
        f"{_lower(others)} {expected} ({expected.where}): {what_en}, so {cure_en}.",
        f"第 {number + 1} 次调用，{_names_zh(odd)} 是 {theirs}（{theirs.where}），"
        f"{_names_zh(others)} 是 {expected}（{expected.where}）：{what_zh}，请{cure_zh}。",
    )


def _other_line(
    evidence: Sequence[Evidence], callers: Sequence[Evidence], number: int
) -> Diagnosis | None:
    """Find ranks that made this call on another line, if that did harm.

    Operation and shape agree, so the backend has noticed nothing. A collective that gives all
    ranks the same has given this line's result to some and another line's to others.
    """
    parties = _parties(callers, lambda one: one.calls[number].where)
    if len(parties) == 1 or not callers[0].calls[number].op.startswith(_SYMMETRIC):
        return None
    if not (_some_line_gave_different_results(evidence) or _some_call_failed(evidence)):
        return None
    odd, others = _odd_ones(parties)
    theirs, expected = odd[0].calls[number], others[0].calls[number]
    return Diagnosis(
        _guilty(odd, others),
        f"{_names(odd)} made call {number + 1}, {theirs}, at {theirs.where}, {_lower(others)} at "
        f"{expected.where}: two different sums were mixed without any error and the numbers are "
        "wrong, so move the extra call out of its `if` and let all ranks make it.",
        f"第 {number + 1} 次调用 {theirs}，{_names_zh(odd)} 在 {theirs.where}，"
        f"{_names_zh(others)} 在 {expected.where}：两个不同的求和混在了一起，没有报错，数却错了，"
        "请把多出来的调用移出 `if`，让所有 rank 都调用。",
    )


def _missing(
    evidence: Sequence[Evidence], callers: Sequence[Evidence], number: int
) -> Diagnosis | None:
    """Find ranks that did not come to this call."""
    absent = [one for one in evidence if one not in callers]
    if not absent:
        return None
    call = callers[0].calls[number]
    cause = _gone(
        absent, f"before call {number + 1}, {call}", f"第 {number + 1} 次调用 {call} 之前"
    )
    if cause is not None:
        return cause
    why_en, why_zh = _why_absent(absent)
    if len(callers) > len(absent):
        return Diagnosis(
            _ranks(absent),
            f"{_names(absent)} never came to call {number + 1}, {call} ({call.where}), where "
            f"{_lower(callers)} waited, but {why_en}: let every rank make this call.",
            f"{_names_zh(callers)} 在第 {number + 1} 次调用 {call}（{call.where}）里等不到 "
            f"{_names_zh(absent)}，因为{why_zh}：请让每个 rank 都做这次调用。",
        )
    return Diagnosis(
        _guilty(callers, absent),
        f"{_names(callers)} alone made call {number + 1}, {call} ({call.where}), and waited for "
        f"{_lower(absent)}, which {why_en}: move the call out of its `if`, so that all ranks "
        "make it.",
        f"只有 {_names_zh(callers)} 做了第 {number + 1} 次调用 {call}（{call.where}），"
        f"等不到 {_names_zh(absent)}，因为{why_zh}：请把这次调用移出 `if`，让所有 rank 都调用。",
    )


def _gone(ranks: Sequence[Evidence], when_en: str, when_zh: str) -> Diagnosis | None:
    """Find ranks that are stopped or dead, or that raised an error of their own."""
    held = [one for one in ranks if one.state == STOPPED]
    if held:
        return Diagnosis(
            _ranks(held),
            f"{_names(held)} {_was(held)} stopped {when_en}, and the others waited in vain: wake "
            f"{_it(held)} up (`kill -CONT`, or leave the debugger), or end the job.",
            f"{_names_zh(held)} 在{when_zh}被暂停，其他 rank 白等了："
            "请唤醒它（`kill -CONT`，或退出调试器），否则结束这个作业。",
        )
    dead = [one for one in ranks if one.state == DIED]
    if dead:
        return Diagnosis(
            _ranks(dead),
            f"{_names(dead)} died {when_en} ({dead[0].detail}), and the others lost "
            f"{_its(dead)} connection: look for what killed {_it(dead)} (out of memory?) and "
            "start again from the last checkpoint.",
            f"{_names_zh(dead)} 在{when_zh}死了（{dead[0].detail}），其他 rank 只看到连接断开："
            "请查清是什么杀死了它（内存不足？），再从上一个检查点（checkpoint）重新开始。",
        )
    failed = [one for one in ranks if one.state == RAISED and not _last_call_failed(one)]
    if failed:
        return Diagnosis(
            _ranks(failed),
            f"{_names(failed)} raised an error {when_en} ({failed[0].detail}), and the others "
            "only lost their partner: mend that error first.",
            f"{_names_zh(failed)} 在{when_zh}自己抛出了错误（{failed[0].detail}），"
            "其他 rank 只是失去了同伴：请先改正这个错误。",
        )
    return None


def _gone_later(evidence: Sequence[Evidence]) -> Diagnosis | None:
    """Find ranks that were lost inside the last call, or after it, if all made the same calls."""
    number = len(evidence[0].calls) if evidence else 0
    if number == 0:
        return _gone(evidence, "before the first call", "第一次调用之前")
    call = evidence[0].calls[-1]
    inside = [one for one in evidence if one.calls[-1].outcome == WAITING]
    return _gone(
        inside, f"inside call {number}, {call}", f"第 {number} 次调用 {call} 的途中"
    ) or _gone(evidence, f"after call {number}, {call}", f"第 {number} 次调用 {call} 之后")


def _nothing_wrong(evidence: Sequence[Evidence]) -> Diagnosis:
    if _some_call_failed(evidence):
        return Diagnosis(
            (),
            "All ranks made the same calls, but one of them did not end in time: give the group "
            "a longer timeout, or look for a slow rank or network.",
            "所有 rank 的调用都相同，但有一次没能按时完成："
            "请给进程组更长的超时时间，或查找慢的 rank 或网络。",
        )
    return Diagnosis(
        (),
        "All ranks made the same calls, and all calls came to an end: nothing is wrong.",
        "所有 rank 的调用都相同，也都完成了：没有问题。",
    )


def _parties(
    ranks: Sequence[Evidence], key: Callable[[Evidence], Hashable]
) -> list[list[Evidence]]:
    """Group the ranks by a key, the largest party last."""
    parties: dict[Hashable, list[Evidence]] = {}
    for one in ranks:
        parties.setdefault(key(one), []).append(one)
    return sorted(parties.values(), key=len)


def _odd_ones(parties: list[list[Evidence]]) -> tuple[list[Evidence], list[Evidence]]:
    """Return those outside of the largest party, and the largest party."""
    odd = sorted((one for party in parties[:-1] for one in party), key=lambda one: one.rank)
    return odd, parties[-1]


def _guilty(odd: Sequence[Evidence], others: Sequence[Evidence]) -> tuple[int, ...]:
    """Return the smaller party; all ranks where none is smaller."""
    return _ranks(odd) if len(odd) < len(others) else _ranks([*odd, *others])


def _some_line_gave_different_results(evidence: Sequence[Evidence]) -> bool:
    """Whether a symmetric collective gave two ranks different bits on the same line and turn."""
    results: dict[tuple[str, int], int] = {}
    for one in evidence:
        turns: dict[str, int] = {}
        for call in one.calls:
            turns[call.where] = turns.get(call.where, 0) + 1
            if call.outcome != LEFT or not call.op.startswith(("all_reduce", "all_gather")):
                continue
            if results.setdefault((call.where, turns[call.where]), call.result) != call.result:
                return True
    return False


def _some_call_failed(evidence: Sequence[Evidence]) -> bool:
    return any(call.outcome != LEFT for one in evidence for call in one.calls)


def _last_call_failed(one: Evidence) -> bool:
    return bool(one.calls) and one.calls[-1].outcome == FAILED


def _why_absent(absent: Sequence[Evidence]) -> tuple[str, str]:
    """Say what the ranks did instead of coming."""
    it = "它" if len(absent) == 1 else "它们"
    if all(one.state == FINISHED for one in absent):
        return "had finished", f"{it}已经结束了"
    if any(one.state == RAISED for one in absent):
        return "had left with an error", f"{it}已经带着错误退出了"
    places = sorted({one.stands_at for one in absent if one.stands_at})
    at_en = f" at {places[0]}" if places else ""
    at_zh = f"（{places[0]}）" if places else ""
    return f"{_was(absent)} busy elsewhere{at_en}", f"{it}在忙别的{at_zh}"


def _ranks(ranks: Sequence[Evidence]) -> tuple[int, ...]:
    return tuple(sorted(one.rank for one in ranks))


def _lower(ranks: Sequence[Evidence]) -> str:
    return _files.name_ranks(_ranks(ranks))


def _names(ranks: Sequence[Evidence]) -> str:
    return _lower(ranks).capitalize()


def _names_zh(ranks: Sequence[Evidence]) -> str:
    return "rank " + "、".join(str(rank) for rank in _ranks(ranks))


def _was(ranks: Sequence[Evidence]) -> str:
    return "was" if len(ranks) == 1 else "were"


def _it(ranks: Sequence[Evidence]) -> str:
    return "it" if len(ranks) == 1 else "them"


def _its(ranks: Sequence[Evidence]) -> str:
    return "its" if len(ranks) == 1 else "their"
