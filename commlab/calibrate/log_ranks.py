"""Who took part in a run: ranks, nodes and hardware, from the list of devices."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from commlab.calibrate.log_lines import Device
from commlab.calibrate.log_parts import Block
from commlab.calibrate.records import Remark

_MOST_RANKS = 10_000_000


@dataclass
class Participants:
    """What the list of devices says; None for what it does not."""

    n_ranks: int | None = None
    n_nodes: int | None = None
    hardware: str | None = None
    nodes_inferred: bool = False
    at_least: bool = False
    ranks_per_node: int | None = None
    remarks: list[Remark] = field(default_factory=list)

    def nodes_of(self, n_ranks: int) -> int | None:
        """Return the nodes of a run with this many ranks, where the list is not complete."""
        if self.ranks_per_node and n_ranks % self.ranks_per_node == 0:
            return n_ranks // self.ranks_per_node
        return None


def participants(block: Block) -> Participants:
    """Read the list of devices of a run: complete, elided, cut off, or split into groups."""
    # Where a header stands twice, the first run did not get as far as a table.
    devices = block.device_lists[-1] if block.device_lists else []
    if not devices:
        return Participants()
    found = Participants()
    devices = _one_group(devices, found)
    names = Counter(device.name for device in devices if device.name)
    found.hardware = " + ".join(name for name, _ in names.most_common(3)) or None
    if len(names) > 1:
        counted = ", ".join(f"{count} × {name}" for name, count in names.most_common(3))
        found.remarks.append(
            Remark("mixed_hardware", f"The ranks run on different devices: {counted}.")
        )
    _count_ranks(block, devices, found)
    return found


def _one_group(devices: list[Device], found: Participants) -> list[Device]:
    """Keep the group of the first rank: with NCCL_TESTS_SPLIT, its times are printed."""
    groups = {device.group for device in devices}
    if len(groups) == 1:
        return devices
    first = min(devices, key=lambda device: device.rank).group
    kept = [device for device in devices if device.group == first]
    found.n_ranks = len(kept)
    found.remarks.append(
        Remark(
            "split_groups",
            f"The {len(devices)} ranks work in {len(groups)} groups at the same time "
            f"(NCCL_TESTS_SPLIT): the rows are those of one group of {len(kept)}.",
        )
    )
    return kept


def _count_ranks(block: Block, devices: list[Device], found: Participants) -> None:
    ranks = {device.rank for device in devices}
    split = found.n_ranks is not None
    last = max(ranks)
    n_listed = len(ranks)
    n_ranks = found.n_ranks or last + 1
    per_process = max(1, (block.header.n_threads or 1) * (block.header.n_gpus or 1))
    if not split:
        # Every process has as many; nccl-tests cuts its list at 2048 letters.
        n_ranks = -(-n_ranks // per_process) * per_process
    if n_ranks > _MOST_RANKS:
        return
    found.n_ranks = n_ranks
    hosts = {device.host for device in devices if device.host}
    found.ranks_per_node = _ranks_per_node(devices)
    if not block.elided_devices and n_listed == n_ranks:
        found.n_nodes = len(hosts) or None
        return
    # A list that ends in dots may have hidden the last ranks.
    found.at_least = n_listed == last + 1 == n_ranks
    processes = {(device.host, device.pid) for device in devices if device.pid is not None}
    if len(processes) * per_process == n_ranks:
        found.n_nodes = len(hosts) or None
    else:
        found.n_nodes = found.nodes_of(n_ranks) or (len(hosts) or None)
        found.nodes_inferred = found.n_nodes is not None
    text = f"The list shows {n_listed} ranks, up to number {last}"
    if found.at_least:
        text += ", and hides others: there are as many as the rates tell."
    else:
        text += f": {n_ranks} ranks are assumed"
        text += f", on {found.n_nodes} nodes like those listed." if found.n_nodes else "."
    found.remarks.append(Remark("elided_ranks", text))


def _ranks_per_node(devices: list[Device]) -> int | None:
    """Count the ranks of a node: of one that is listed whole, or as its device numbers tell."""
    ranks = {device.rank for device in devices}
    of_host: dict[str, list[int]] = defaultdict(list)
    for device in devices:
        if device.host:
            of_host[device.host].append(device.rank)
    whole = [
        len(own)
        for own in of_host.values()
        if (min(own) == 0 or min(own) - 1 in ranks) and max(own) + 1 in ranks
    ]
    if whole:
        return max(whole)
    if not of_host:
        return None
    highest = max(device.gpu or 0 for device in devices)
    return max(highest + 1, *(len(own) for own in of_host.values()))
