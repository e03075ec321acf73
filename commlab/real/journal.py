"""What a rank was doing when it hung: written down before it hangs, so that it can be read after.

A rank that is killed or stopped can report nothing any more. So each collective goes through
`Journal.call`, which notes in a file that it is entered, and later that it is left. Two more
witnesses need no change to a program: ``faulthandler`` writes the line on which every thread
stands, and PyTorch's flight recorder keeps the collectives that it was asked for.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist

from commlab.real import _files

# A rank that saw an error stays for a moment: its leaving would be the next rank's error.
HOLD_SECONDS = 1.0
# The two witnesses are asked when this part of the patience is over.
ASK_AFTER = 0.75


class Journal:
    """Notes of one rank's collectives, in the order of its calls.

    Parameters
    ----------
    folder : Path
        Where the notes of all ranks are collected.
    group : ProcessGroup
        The group whose collectives are called.
    """

    def __init__(self, folder: Path, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = dist.get_rank()
        # Each line is one write to the file: it is there even if the next line of Python is not.
        self._file = os.open(folder / _files.journal(self.rank), os.O_WRONLY | os.O_CREAT)
        self._note(event="joined", at=time.monotonic())

    def call(self, collective: Callable, *tensors: torch.Tensor, **options: object) -> None:
        """Call ``collective(*tensors, group=…, **options)`` and note how that went."""
        self._note(
            event="entered",
            op=collective.__name__,
            shape=list(tensors[-1].shape),
            dtype=str(tensors[-1].dtype).removeprefix("torch."),
            where=_line_of(sys._getframe(1)),
        )
        try:
            collective(*tensors, group=self.group, **options)
        except RuntimeError as error:
            self._note(event="failed", error=_essence(str(error)))
            time.sleep(HOLD_SECONDS)
            raise
        self._note(event="left", result=_digest(tensors[0]))

    def _note(self, **event: object) -> None:
        os.write(self._file, (json.dumps(event) + "\n").encode())


@contextlib.contextmanager
def witnesses(folder: Path, journal: Journal, patience: float) -> Iterator[None]:
    """Ask both witnesses shortly before ``patience`` (in seconds) is over, unless we are done."""
    timer = threading.Timer(ASK_AFTER * patience, _ask, (folder, journal))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _ask(folder: Path, journal: Journal) -> None:
    """Ask one witness after the other, in a thread of Python.

    ``faulthandler.dump_traceback_later`` would not wait for this thread's turn: it reads the
    frames of all threads even while one of them runs on, and can then end the rank (signal 11).
    """
    with open(folder / _files.stack(journal.rank), "w") as file:
        faulthandler.dump_traceback(file)
    _save_flight(folder, journal)


def _save_flight(folder: Path, journal: Journal) -> None:
    """Save the flight recorder's entries of the journal's group: number, operation, shapes."""
    trace = json.loads(torch._C._distributed_c10d._dump_fr_trace_json())
    entries = [
        [entry["collective_seq_id"], entry["profiling_name"], entry["input_sizes"]]
        for entry in trace["entries"]
        if entry["process_group"][0] == journal.group.group_name
    ]
    _files.write_json(folder / _files.flight(journal.rank), entries)


def _line_of(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"


def _digest(tensor: torch.Tensor) -> int:
    """Return a number that differs if the bits of two tensors do."""
    return zlib.crc32(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())


def _essence(message: str) -> str:
    """Return what matters in a message of the backend, without file names and ports."""
    differ = re.search(r"differ in the following aspects: *(.*)", message)
    if differ:  # TORCH_DISTRIBUTED_DEBUG=DETAIL
        return "Detected mismatch: " + differ[1].replace("vs ", " vs ")
    message = re.sub(r"^\[[^\]]*\] ", "", message)
    message = re.sub(r" \[[^\]]*\]:\d+", "", message)
    return re.split(r"\. |\.$", message)[0]
