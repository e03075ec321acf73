"""An all-reduce that runs a schedule where that was measured to be faster than the backend."""

from __future__ import annotations

import zlib
from collections import OrderedDict

import torch
import torch.distributed as dist

from commlab.checks import check_n_ranks
from commlab.real.calibrate import Calibration, PreparedSchedule, calibrate, check_group
from commlab.schedule import Schedule

MAX_PLANS = 32
# What both paths can add; gloo refuses the others.
DTYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int8,
)


class FastAllReduce:
    """Sum a tensor over the ranks of a group, in place, by whatever was measured to be fastest.

    Parameters
    ----------
    group : ProcessGroup, optional
        By default all processes. Every rank of it makes the object, and then the same calls.
    calibration : Calibration, optional
        One that `calibrate` returned for as many ranks, the same on every rank. By default it
        is measured now, which takes seconds to tens of seconds.
    max_plans : int
        How many plans, with their scratch memory, are kept: one for each number of elements
        and dtype, those not used for longest given up first.

    Raises
    ------
    ValueError
        If the group is not one of several CPU processes over gloo that this process is in, or
        the calibration is for another number of ranks or differs between them.

    Notes
    -----
    A result has the bits of its schedule, and other sizes may be added in another order: as
    with any library that picks its algorithm by size. A calibration that is kept and passed
    in again makes two runs equal bit for bit; a new race may have another winner.

    Examples
    --------
    >>> all_reduce = FastAllReduce()
    >>> all_reduce(gradient)
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        calibration: Calibration | None = None,
        max_plans: int = MAX_PLANS,
    ) -> None:
        self.max_plans = check_n_ranks(max_plans, "max_plans")
        n_ranks = check_group(group)
        self.group = group
        self.calibration = calibrate(group) if calibration is None else calibration
        _check_agreement(self.calibration, group)
        if self.calibration.n_ranks != n_ranks:
            raise ValueError(
                f"the calibration is for {self.calibration.n_ranks} ranks, but the group has "
                f"{n_ranks}: calibrate this group."
            )
        self._plans: OrderedDict[tuple[int, torch.dtype], PreparedSchedule | None] = OrderedDict()

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Replace ``tensor`` by the sum over the ranks, and return it.

        Parameters
        ----------
        tensor : torch.Tensor
            On the CPU, contiguous, of any shape; number of elements and dtype are the same on
            all ranks.

        Raises
        ------
        ValueError
            If it is none of that; nothing was sent then.
        RuntimeError
            From the group, if a peer is gone or its timeout is over.
        """
        _check_tensor(tensor)
        prepared = self._prepared_for(tensor)
        if prepared is None:
            dist.all_reduce(tensor, group=self.group)
        else:
            prepared.run(tensor if tensor.ndim == 1 else tensor.view(-1))
        return tensor

    @property
    def n_plans(self) -> int:
        """How many plans are kept now."""
        return len(self._plans)

    def schedule_for(self, n_elements: int, dtype: torch.dtype) -> Schedule | None:
        """Return the schedule that such a tensor is summed by; None for the backend's own."""
        if n_elements == 0:
            return None
        return self.calibration.schedule_for(n_elements * dtype.itemsize)

    def _prepared_for(self, tensor: torch.Tensor) -> PreparedSchedule | None:
        key = (tensor.numel(), tensor.dtype)
        if key not in self._plans:
            schedule = self.schedule_for(*key)
            if schedule is None:
                self._plans[key] = None
            else:
                self._plans[key] = PreparedSchedule(schedule, tensor, self.group)
            if len(self._plans) > self.max_plans:
                self._plans.popitem(last=False)
        self._plans.move_to_end(key)
        return self._plans[key]


def _check_agreement(calibration: Calibration, group: dist.ProcessGroup | None) -> None:
    """Refuse, on all ranks, calibrations that differ: ranks would run different schedules."""
    fingerprint = zlib.crc32(repr(calibration).encode())
    least_and_most = torch.tensor([fingerprint, -fingerprint])
    dist.all_reduce(least_and_most, op=dist.ReduceOp.MIN, group=group)
    least, most = least_and_most[0].item(), -least_and_most[1].item()
    if least != most:
        raise ValueError(
            "the ranks were given different calibrations: give all of them the same one, or "
            "none, and the group is measured anew."
        )


def _check_tensor(tensor: torch.Tensor) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(
            f"what is to be summed is a {type(tensor).__name__}: make it a tensor first, for "
            "example with torch.as_tensor(...)."
        )
    if tensor.device.type != "cpu":
        raise ValueError(
            f"the tensor is on {tensor.device}: the fast path sums tensors on the CPU, so move "
            "it there or call torch.distributed.all_reduce."
        )
    if tensor.dtype not in DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise ValueError(f"the tensor has dtype {tensor.dtype}: convert it to one of {names}.")
    if tensor.layout != torch.strided:
        raise ValueError("the tensor is sparse: pass tensor.to_dense().")
    if not tensor.is_contiguous():
        raise ValueError(
            "the tensor is not contiguous, and is summed in place: pass tensor.contiguous() and "
            "copy the result back."
        )
    if tensor.requires_grad:
        raise ValueError("the tensor requires a gradient: pass tensor.detach().")
