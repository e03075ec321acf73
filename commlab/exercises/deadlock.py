"""Judge of the deadlock puzzle: runs the reader's function on real processes.

Only `judge_worker` starts any. What a run has left is judged by `judge_run`.
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Sequence
from typing import Any

from commlab.exercises.verdicts import Verdict, Words, in_code, is_blank, refuse, right, unanswered
from commlab.real.deadlock import run_to_its_end
from commlab.real.diagnosis import diagnose
from commlab.real.evidence import (
    FAILED,
    FINISHED,
    LEFT,
    RAISED,
    WAITING,
    Evidence,
    read_evidence,
)
from commlab.real.launch import temporary_folder
from commlab.tables import markdown_table

N_RANKS = 4
LOSSES = [2.0, 4.0, 6.0, 12.0]
GRADIENTS = [[10.0 * rank + k for k in range(1, 5)] for rank in range(N_RANKS)]
MEAN_LOSS = sum(LOSSES) / N_RANKS
MEAN_GRADIENT = [sum(column) / N_RANKS for column in zip(*GRADIENTS, strict=True)]
# Timeout of a collective, in seconds; PyTorch's default is 30 minutes.
PATIENCE = 4.0
WORKER = "commlab.real.exercises_workers:run_source"


def log_and_average(dist: Any, loss: Any, gradient: Any) -> float | None:
    """Log the mean loss on rank 0, and average the gradient."""
    mean_loss = None
    if dist.get_rank() == 0:
        dist.all_reduce(loss)
        mean_loss = loss.item() / dist.get_world_size()
    dist.all_reduce(gradient)
    gradient /= dist.get_world_size()
    return mean_loss


def judge_worker(answer: object) -> Verdict:
    """Judge ``log_and_average(dist, loss, gradient)``, given as a function or as its text."""
    name, source = read_source(answer)
    # The ranks' notes are read before the folder goes; nothing is left on the disk.
    with temporary_folder() as folder:
        arguments = {
            "source": source,
            "name": name,
            "losses": LOSSES,
            "gradients": GRADIENTS,
            "patience": PATIENCE,
            "folder": str(folder),
        }
        failure = run_to_its_end(folder, WORKER, N_RANKS, PATIENCE, arguments)
        saw = read_evidence(folder, N_RANKS)
    if failure is not None and not any(one.calls or one.state == RAISED for one in saw):
        raise refuse(
            "not_started",
            f"The ranks could not be started: {in_code(failure)}",
            f"没能启动各 rank：{in_code(failure)}",
        )
    return judge_run(saw, str(failure or ""))


def read_source(answer: object) -> tuple[str, str]:
    """Return name and text of the reader's function, or refuse it before anything is started."""
    if is_blank(answer):
        raise unanswered()
    try:
        text = answer if isinstance(answer, str) else inspect.getsource(answer)  # type: ignore[arg-type]
        source = textwrap.dedent(text)
        tree = ast.parse(source)
    except SyntaxError as error:
        raise refuse(
            "syntax",
            f"Your text is no Python: {in_code(error)}.",
            f"你给的文字不是合法的 Python：{in_code(error)}。",
        ) from error
    except (OSError, TypeError) as error:
        raise refuse(
            "type",
            "Give the function of the cell above, or its text as a string; "
            f"you gave a {in_code(type(answer).__name__)}.",
            "请给上面单元格里的函数，或者它的源代码（字符串）；"
            f"你给的是 {in_code(type(answer).__name__)}。",
        ) from error
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if not functions or len(functions[-1].args.args) != 3:
        raise refuse(
            "signature",
            "There must be a function of three arguments: `dist, loss, gradient`.",
            "要有一个接受三个参数的函数：`dist, loss, gradient`。",
        )
    broken = ast.parse(textwrap.dedent(inspect.getsource(log_and_average))).body[0]
    if _body(functions[-1]) == _body(broken):
        raise unanswered(
            "This is still the broken function: change it so that every rank makes the same calls.",
            "函数还是原来那个有错的：请改到每个 rank 的调用都相同。",
        )
    return functions[-1].name, source


def _body(function: ast.stmt) -> str:
    """Return what a function does: without docstring, comments, name and annotations."""
    assert isinstance(function, ast.FunctionDef)
    lines = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return "\n".join(ast.unparse(line) for line in lines)


def judge_run(saw: Sequence[Evidence], failure: str = "") -> Verdict:
    """Judge what the ranks did: first whether all made the same calls, then the numbers.

    Parameters
    ----------
    saw : sequence of Evidence
        Of every rank.
    failure : str
        How the run failed: which rank raised what, on which line.
    """
    evidence = calls_table(saw)
    for one in saw:
        if one.state == RAISED and not any(call.outcome != LEFT for call in one.calls):
            told = in_code(failure or one.detail)
            raise refuse(
                "raised",
                f"Your function raised an error: {told}.",
                f"你的函数抛出了错误：{told}。",
                evidence,
            )
    mixed = _mixed_up(saw)
    if mixed is not None:
        raise refuse("rule_broken", mixed.en, mixed.zh, evidence)
    found = diagnose(saw)
    if found.guilty or any(one.state != FINISHED for one in saw):
        raise refuse("rule_broken", found.sentence_en, found.sentence_zh, evidence)
    _check_loss(saw[0].value["returned"], evidence)
    for one in saw:
        if not _near(one.value["gradient"], MEAN_GRADIENT):
            raise refuse(
                "gradient",
                f"All ranks make the same calls, but the gradient of rank {one.rank} is "
                f"{in_code(one.value['gradient'])} and not the mean {in_code(MEAN_GRADIENT)}.",
                f"各 rank 的调用都相同，但 rank {one.rank} 的梯度是 "
                f"{in_code(one.value['gradient'])}，不是平均值 {in_code(MEAN_GRADIENT)}。",
                evidence,
            )
    return right(
        f"{N_RANKS} processes made the same calls, and rank 0 logged the mean loss {MEAN_LOSS:g}.",
        f"{N_RANKS} 个进程的调用都相同，rank 0 记下了平均损失 {MEAN_LOSS:g}。",
        evidence,
    )


def _mixed_up(saw: Sequence[Evidence]) -> Words | None:
    """Say where one rank's loss met another's gradient: nobody has to change a shape for that."""
    for number, calls in enumerate(zip(*(one.calls for one in saw), strict=False), start=1):
        mine = calls[0]
        for rank, other in enumerate(calls):
            if other.op == mine.op and other.signature != mine.signature:
                return Words(
                    f"As call {number}, rank 0 makes {mine} ({mine.where}) and rank {rank} "
                    f"{other} ({other.where}): loss and gradient meet. Let all ranks make the "
                    "same calls in the same order.",
                    f"第 {number} 次调用，rank 0 是 {mine}（{mine.where}），rank {rank} 是 {other}"
                    f"（{other.where}）：损失和梯度撞在了一起。请让所有 rank 按同样的顺序做同样的"
                    "调用。",
                )
    return None


def _check_loss(returned: object, evidence: str) -> None:
    if isinstance(returned, (int, float)) and math.isclose(returned, MEAN_LOSS, rel_tol=1e-6):
        return
    raise refuse(
        "loss",
        f"Nothing hangs any more, but rank 0 returns {in_code(returned)} and not the mean loss of "
        f"all ranks, {MEAN_LOSS:g}.",
        f"不再挂起了，但 rank 0 返回的是 {in_code(returned)}，而不是所有 rank 的平均损失 "
        f"{MEAN_LOSS:g}。",
        evidence,
    )


def _near(values: Sequence[float], others: Sequence[float]) -> bool:
    return len(values) == len(others) and all(
        math.isclose(value, other, rel_tol=1e-6)
        for value, other in zip(values, others, strict=True)
    )


def calls_table(saw: Sequence[Evidence]) -> str:
    """Return every rank's calls in order, with the line that made them and how they went."""
    marks = {LEFT: "✓", FAILED: "✗ failed · 失败", WAITING: "… waiting · 在等"}
    rows = []
    for one in saw:
        calls = [
            f"{call}, {call.where.partition(', ')[2]} {marks[call.outcome]}" for call in one.calls
        ]
        rows.append((one.rank, " → ".join(calls) or "–"))
    return markdown_table(("rank", "calls · 调用"), rows, align="ll")
