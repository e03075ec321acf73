"""What the ranks of test_fast.py do."""

from __future__ import annotations

import hashlib
import weakref

import numpy as np
import torch
import torch.distributed as dist

from commlab.algorithms import REGISTRY
from commlab.real.bench_plan import BACKEND
from commlab.real.calibrate import Calibration, Decision, calibrate
from commlab.real.fast import DTYPES, FastAllReduce
from commlab.simulate import simulate
from commlab.units import KIB

ALPHA, BETA = 100e-6, 1e9
# Above and below what is copied into a store of the plan's own; prime, so chunks are uneven.
LENGTHS = (1, 37, 1009, 20_011)


def inputs(n_ranks: int, n_elements: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """The vectors of all ranks; whole numbers small enough that no sum overflows int8."""
    rng = np.random.default_rng([n_ranks, n_elements])
    if dtype.is_floating_point:
        arrays = rng.standard_normal((n_ranks, n_elements))
    else:
        arrays = rng.integers(-9, 10, (n_ranks, n_elements))
    return [torch.from_numpy(array).to(dtype) for array in arrays]


def always(algorithm: str, n_ranks: int) -> Calibration:
    return Calibration(n_ranks, ALPHA, BETA, (Decision(2**30, algorithm, 0.5),))


def in_place_algorithms() -> list[str]:
    return [
        name
        for (collective, name), entry in REGISTRY.items()
        if collective == "all_reduce"
        and "gpus_per_node" not in entry.options
        # On a flat network of one port only these are candidates.
        and entry.ports(4) == 1
    ]


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def sum_by_every_algorithm() -> list[list]:
    """Compare every algorithm, dtype and length with the simulated schedule, bit for bit.

    Returns [algorithm, dtype, elements, whether bits are equal, fingerprint of the bits].
    """
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    rows = []
    for name in in_place_algorithms():
        all_reduce = FastAllReduce(calibration=always(name, n_ranks), max_plans=100)
        for dtype in DTYPES:
            for n_elements in LENGTHS:
                vectors = inputs(n_ranks, n_elements, dtype)
                schedule = all_reduce.schedule_for(n_elements, dtype)
                expected = simulate(schedule, vectors).buffers[rank]
                own = vectors[rank].clone()
                equal = True
                for _ in range(2):  # the second time by the plan that was kept
                    own.copy_(vectors[rank])
                    assert all_reduce(own) is own
                    equal = equal and bits(own) == bits(expected)
                if not dtype.is_floating_point:
                    equal = equal and torch.equal(own, torch.stack(vectors).sum(0).to(dtype))
                digest = hashlib.sha256(bits(own)).hexdigest()
                rows.append([name, str(dtype), n_elements, equal, digest])
    return rows


def calibrate_and_sum() -> dict:
    """Really calibrate; return what was decided, and whether sums at all sizes are right."""
    calibration = calibrate(sizes=[4, KIB, 16 * KIB, 64 * KIB], blocks=5)
    all_reduce = FastAllReduce(calibration=calibration)
    right = []
    for n_elements in (0, 1, 100, 5_000, 70_000):
        vectors = inputs(dist.get_world_size(), n_elements, torch.int64)
        own = vectors[dist.get_rank()].clone().reshape(1, -1)
        all_reduce(own)
        right.append(torch.equal(own[0], torch.stack(vectors).sum(0)))
    return {
        "decisions": [list(vars(decision).values()) for decision in calibration.decisions],
        "alpha": calibration.alpha,
        "beta": calibration.beta,
        "right": right,
    }


def keep_few_plans() -> list[int]:
    """Use more lengths than plans are kept, again and again; return how many are kept."""
    all_reduce = FastAllReduce(calibration=always("ring", dist.get_world_size()), max_plans=3)
    kept = []
    for n_elements in [10, 20, 10, 30, 40, 10, 50, 20]:
        vector = torch.full((n_elements,), dist.get_rank() + 1)
        assert all_reduce(vector).tolist() == [6] * n_elements
        kept.append(all_reduce.n_plans)
    assert list(all_reduce._plans) == [(length, torch.int64) for length in (10, 50, 20)]
    return kept


def many_vectors_of_each_size(sizes: list[int]) -> list:
    """Ask `many_vectors_of_one_size` for each size."""
    return [many_vectors_of_one_size(n_elements) for n_elements in sizes]


def many_vectors_of_one_size(n_elements: int) -> list:
    """Sum several vectors of one size in turns, and some whose memory changes in between.

    Returns the first and last elements of each sum, and whether vectors given up are freed.
    """
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    all_reduce = FastAllReduce(calibration=always("ring", n_ranks))
    first, second = torch.full((n_elements,), 1), torch.full((n_elements,), 10)
    results = []
    for vector in (first, first, second, first):
        results.append(all_reduce(vector)[[0, -1]].tolist())
    # The object moves to other memory, and a new vector may get the old one.
    first.data = torch.full((n_elements,), 5)
    results.append(all_reduce(first)[[0, -1]].tolist())
    for value in (7, 8):
        results.append(all_reduce(torch.full((n_elements,), value + rank))[[0, -1]].tolist())
    storage = weakref.ref(first.untyped_storage())
    del first, second, vector
    all_reduce(torch.ones(n_elements, dtype=torch.int64))
    return [results, storage() is None]


def two_groups_at_once() -> list[float]:
    """Sum in two groups, with a message of the program's own under way between the same ranks."""
    rank = dist.get_rank()
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    group = halves[rank // 2]
    all_reduce = FastAllReduce(group, calibration=always("recursive_doubling", 2))
    peer = rank ^ 1
    arriving = torch.zeros(3)
    receive = dist.irecv(arriving, peer, group=group)
    total = all_reduce(torch.full((3,), 10.0**rank))
    dist.send(torch.full((3,), float(rank)), peer, group=group)
    receive.wait()
    return [*total.tolist(), *arriving.tolist()]


def by_the_backend() -> dict:
    """Use the backend where it won, and above the largest measured size."""
    decisions = (Decision(64, BACKEND), Decision(256, "ring", 0.4))
    calibration = Calibration(dist.get_world_size(), ALPHA, BETA, decisions)
    all_reduce = FastAllReduce(calibration=calibration)
    calls = []
    own_all_reduce = dist.all_reduce
    dist.all_reduce = lambda tensor, **rest: (
        calls.append(len(tensor)) or own_all_reduce(tensor, **rest)
    )
    sums = [all_reduce(torch.ones(length)).sum().item() for length in (16, 17, 64, 65)]
    return {"calls": calls, "sums": sums}


def complain() -> list[str]:
    """Use the fast path wrongly in every way; return what it says."""
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    apart = [dist.new_group([r]) for r in range(n_ranks)]
    all_reduce = FastAllReduce(calibration=always("ring", n_ranks))
    uneven = Calibration(n_ranks, ALPHA + rank, BETA, ())
    calls = [
        lambda: all_reduce([1.0, 2.0]),
        lambda: all_reduce(torch.ones(4, device="meta")),
        lambda: all_reduce(torch.ones(4, 4).t()[:2]),
        lambda: all_reduce(torch.ones(8)[::2]),
        lambda: all_reduce(torch.ones(4, requires_grad=True)),
        lambda: all_reduce(torch.ones(4, dtype=torch.bool)),
        lambda: all_reduce(torch.ones(4).to_sparse()),
        lambda: FastAllReduce(apart[rank]),
        lambda: FastAllReduce(apart[1 - rank]),
        lambda: FastAllReduce(calibration=always("ring", n_ranks + 1)),
        lambda: FastAllReduce(calibration=uneven),
        lambda: FastAllReduce(calibration=always("ring", n_ranks), max_plans=0),
        lambda: calibrate(sizes=[2]),
        lambda: calibrate(sizes=[]),
    ]
    answers = []
    for call in calls:
        try:
            call()
            answers.append("no complaint")
        except ValueError as error:
            answers.append(str(error))
    # Nothing was sent by the refused calls, so the next one still works.
    assert all_reduce(torch.ones(4)).tolist() == [n_ranks] * 4
    return answers
