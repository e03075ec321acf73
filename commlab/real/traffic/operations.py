"""The collectives that a program calls, written down as PyTorch dispatches them.

The logical count: which operations, of how many bytes, and what a rank has to send for them at
least. It needs no help of the system and runs everywhere, but it believes the backend: what
gloo really does inside a reduce-scatter, only the sockets show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from commlab.cost import least_share
from commlab.real.traffic.results import Operation
from commlab.real.traffic.sockets import bytes_sent


class OperationLog(TorchDispatchMode):
    """Write down all collectives of a ``with`` block, and count what the sockets send.

    Attributes
    ----------
    phase : str
        Noted with each operation; see `begin`.
    operations : list of Operation
    sent : dict
        Bytes that this process's sockets had sent when each phase began.

    Raises
    ------
    NotImplementedError
        At a collective that the log does not know: a count must not leave one out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase = ""
        self.operations: list[Operation] = []
        self.sent: dict[str, int | None] = {}

    def begin(self, phase: str) -> None:
        """Say that another part of the step begins, once it is this rank's turn."""
        self.phase = phase
        self.sent[phase] = bytes_sent()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Note a collective, then let it run."""
        kwargs = kwargs or {}
        if func.namespace in NAMESPACES and func._schema.name not in SENDS_NOTHING:
            names = [argument.name for argument in func._schema.arguments]
            values = dict(zip(names, args, strict=False)) | dict(kwargs)
            self.operations.append(_describe(self.phase, func._schema.name, values))
        return func(*args, **kwargs)


def _describe(phase: str, name: str, values: dict[str, Any]) -> Operation:
    if name not in KNOWN:
        raise NotImplementedError(f"the log of collectives cannot count {name} yet.")
    kind, sizes = KNOWN[name]
    return Operation(phase, kind, *sizes(kind, values))


def _reduced_or_gathered(kind: str, values: dict[str, Any]) -> tuple[int, int]:
    """Return S and the bytes sent of a collective whose ranks all send the same."""
    n_ranks = dist.ProcessGroup.unbox(values["process_group"]).size()
    if "tensors" in values:
        nbytes = sum(tensor.nbytes for tensor in values["tensors"])
    else:
        # The whole array is the output of an all-gather and the input of a reduce-scatter.
        nbytes = max(values["input_tensor"].nbytes, values["output_tensor"].nbytes)
    return nbytes, _least(kind, nbytes, n_ranks)


def _functional_all_reduce(kind: str, values: dict[str, Any]) -> tuple[int, int]:
    # These name their group instead of handing it over.
    group = dist.distributed_c10d._resolve_process_group(values["group_name"])
    nbytes = values["input"].nbytes
    return nbytes, _least(kind, nbytes, group.size())


def _all_to_all(kind: str, values: dict[str, Any]) -> tuple[int, int]:
    group, rows = dist.ProcessGroup.unbox(values["process_group"]), values["input"]
    splits = values["input_split_sizes"]
    nbytes = rows.nbytes
    if not splits:
        return nbytes, _least(kind, nbytes, group.size())
    kept = splits[group.rank()] * rows[:1].nbytes
    return nbytes, nbytes - kept


def _message(kind: str, values: dict[str, Any]) -> tuple[int, int]:
    nbytes = sum(tensor.nbytes for tensor in values["tensors"])
    return nbytes, nbytes if kind == "send" else 0


def _least(kind: str, nbytes: int, n_ranks: int) -> int:
    return round(least_share(kind, n_ranks) * nbytes)


# What a program asks for comes as c10d; tensor parallelism uses the functional form, which
# returns a new tensor and is followed by a wait.
NAMESPACES = ("c10d", "_c10d_functional")
SENDS_NOTHING = ("_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd")
KNOWN: dict[str, tuple[str, Callable[[str, dict[str, Any]], tuple[int, int]]]] = {
    "c10d::allreduce_": ("all_reduce", _reduced_or_gathered),
    "c10d::_allgather_base_": ("all_gather", _reduced_or_gathered),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", _reduced_or_gathered),
    "c10d::alltoall_base_": ("all_to_all", _all_to_all),
    "c10d::send": ("send", _message),
    "c10d::recv_": ("receive", _message),
    "_c10d_functional::all_reduce": ("all_reduce", _functional_all_reduce),
}


def count_step(step: Callable[[OperationLog], object]) -> dict[str, Any]:
    """Run one step and count what this rank sends in it. All ranks call it together.

    Parameters
    ----------
    step : callable
        Called once, with the log; it names the parts of the step by `OperationLog.begin`.
        Run it once before: frameworks prepare themselves in their first step.

    Returns
    -------
    dict
        ``sent``: for each phase the bytes through this process's sockets, or None where the
        system does not tell; gloo's own few bytes per message are in it, and in the last
        phase those of a barrier. ``operations``: a list of `Operation`.
    """
    dist.barrier()
    with OperationLog() as log:
        step(log)
    dist.barrier()
    counts = [*log.sent.values(), bytes_sent()]
    # Nobody may leave, and close its connections, before all have read their counts.
    dist.barrier()
    return {"sent": _by_phase(list(log.sent), counts), "operations": log.operations}


def _by_phase(phases: Sequence[str], counts: Sequence[int | None]) -> dict[str, int] | None:
    """Return the bytes of each phase from the counts at its beginning and its end."""
    known = [count for count in counts if count is not None]
    # Some sandboxes fill in zeros, although a barrier alone sends something.
    if len(known) < len(counts) or known[0] == known[-1]:
        return None
    differences = [after - before for before, after in pairwise(known)]
    return dict(zip(phases, differences, strict=True))
