"""Two nodes on one machine: two network namespaces, joined by a pair of virtual interfaces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from commlab.real.doctor.system import find_unshare
from tools.lints.pages import ROOT

# The name of the first node, which knows itself as 127.0.1.1, as many a Linux does.
HEAD = "head"
HEAD_ADDRESS = "10.77.0.1"
# Namespaces of networks, mounts, host names and processes: all of it vanishes with the first
# process in them, and that one with the test. The host name resolves to nothing, on purpose.
MAKE_NODES = f"""
set -eu
mount -t proc proc /proc
hostname nowhere-7
unshare --net sleep 600 & export NODE_1=/proc/$!/ns/net
while [ "$(readlink $NODE_1)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add left type veth peer name right netns $!
ip addr add {HEAD_ADDRESS}/24 dev left; ip link set left up; ip link set lo up
nsenter --net=$NODE_1 sh -c \\
    "ip addr add 10.77.0.2/24 dev right; ip link set right up; ip link set lo up"
echo "127.0.1.1 {HEAD}" > hosts0
echo "{HEAD_ADDRESS} {HEAD}" > hosts1
mount --bind hosts0 /etc/hosts
"""
ENTER_NODE_1 = """
exec nsenter --net=$NODE_1 unshare --mount \\
    sh -c 'mount --bind hosts1 /etc/hosts && exec "$@"' sh "$@"
"""
# Slurm's two programs, as far as the book's script uses them: each node runs the command, and
# the status is 0 if it is 0 on both.
STAND_INS = {
    "scontrol": 'echo "$HEAD"; echo another-node',
    "srun": """
(export SLURM_NODEID=1; exec on-node-1 "$@") > node1.log 2>&1 & other=$!
status=0
SLURM_NODEID=0 "$@" || status=$?
wait $other || status=$?
exit $status
""",
}


def run_on_two_nodes(
    folder: Path, script: str, timeout: float = 120.0, **environment: str
) -> subprocess.CompletedProcess:
    """Run a bash script on the first node; ``srun COMMAND`` runs a command on both.

    Where this system lets nobody make a namespace, both nodes are this machine.
    """
    unshare, _ = find_unshare()
    programs = folder / "programs"
    programs.mkdir()
    enter = ENTER_NODE_1 if unshare else 'exec "$@"'
    for name, text in {**STAND_INS, "on-node-1": enter}.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    job = {
        "PATH": path,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "HEAD": HEAD if unshare else "127.0.0.1",
        "SLURM_JOB_ID": "4242",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "RANKS_PER_NODE": "2",
    }
    command = ["bash", "-c", script]
    if unshare:
        vanishing = [*unshare, "--pid", "--fork", "--kill-child"]
        command = [*vanishing, "bash", "-c", MAKE_NODES + script]
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | job | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
