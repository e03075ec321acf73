"""The first process in the namespaces of a virtual cluster: builds the network, starts ranks.

Started by `commlab.real.cluster.launch.run_tasks` as
``python -m commlab.real.cluster._inside FOLDER``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from commlab.real import _files
from commlab.real.cluster import network
from commlab.real.cluster.description import VirtualCluster
from commlab.real.launch import RankError, run

ANSWER = "answer.json"


def main() -> int:
    """Do the job that lies in the folder and leave the answer there."""
    folder = Path(sys.argv[1])
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    # The ranks' own files lie in this folder, too, so that there is one thing to remove.
    tempfile.tempdir = str(folder)
    job = _files.read_json(folder / _files.JOB)
    cluster = VirtualCluster(**job["cluster"])
    try:
        network.build(cluster, folder)
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(error.cmd)}: {error.stderr.strip()}", file=sys.stderr)
        return 1
    places = [
        str(network.namespace_file(folder, *divmod(rank, cluster.gpus_per_node)))
        for rank in range(cluster.n_ranks)
    ]
    try:
        by_rank = run(
            job["entry"],
            ranks=cluster.n_ranks,
            timeout=job["timeout"],
            places=places,
            meeting_point=str(folder / "cluster_meeting_point"),
            group_timeout=job["timeout"],
            tasks=job["tasks"],
        )
    except RankError as error:
        answer: dict[str, Any] = {
            "failed": str(error),
            "rank": error.rank,
            "details": error.details,
        }
    else:
        answer = {"by_rank": by_rank}
    _files.write_json(folder / ANSWER, answer)
    return 0


def _end_with_parent(folder: Path) -> None:
    """End this process, and so the whole cluster, when whoever started it is gone or says so."""
    os.read(0, 1)
    mounted = [str(file) for file in folder.glob("*.net")]
    subprocess.run(["umount", "--lazy", *mounted], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
