"""The dispatch and combine of a mixture of experts, counted. Workers of `commlab.real.run`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from commlab.real.traffic.operations import OperationLog, count_step

DTYPE = torch.bfloat16


def expert_step(rows_to_rank: Sequence[Sequence[int]], hidden: int) -> dict[str, Any]:
    """Send tokens to the ranks of their experts and back, and count the bytes.

    Parameters
    ----------
    rows_to_rank : sequence of sequences of int, shape (n_ranks, n_ranks)
        How many tokens rank i has for the expert of rank j.
    hidden : int
        Numbers in a token.

    Returns
    -------
    dict
        As `count_step`; and ``came_back``: whether each token, which its expert multiplied by
        its rank + 1, came back to its place.
    """
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    sent_rows = list(rows_to_rank[rank])
    received_rows = [rows[rank] for rows in rows_to_rank]
    generator = torch.Generator().manual_seed(rank)
    # Sorted by expert, as a router leaves them.
    tokens = torch.randn(sum(sent_rows), hidden, generator=generator).to(DTYPE)
    came_back = torch.empty_like(tokens)

    def step(log: OperationLog) -> None:
        log.begin("dispatch")
        at_expert = torch.empty(sum(received_rows), hidden, dtype=DTYPE)
        dist.all_to_all_single(at_expert, tokens, received_rows, sent_rows)
        at_expert *= rank + 1
        log.begin("combine")
        dist.all_to_all_single(came_back, at_expert, sent_rows, received_rows)

    counted = count_step(step)
    expert_of_token = torch.repeat_interleave(torch.arange(n_ranks), torch.tensor(sent_rows))
    expected = tokens * (expert_of_token + 1)[:, None]
    return counted | {"came_back": bool(torch.equal(came_back, expected))}
