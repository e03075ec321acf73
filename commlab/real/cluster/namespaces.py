"""Start a program in network, mount and process namespaces of its own, and end all of it.

Such a program sees none of this machine's interfaces, and its own ones, its mounts and its
processes are known to nobody else. All of them end with the first process of the namespace:
the kernel does that, so nothing can be left behind, however that process ends.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# How long a program may take to end when it is asked to.
GRACE_SECONDS = 3.0
PROBE_SECONDS = 20.0

# Everything that `network` needs, tried in a namespace that vanishes at once.
_PROBE = """
set -e
ip link add probe type bridge
ip link add probe0 type veth peer name probe1
ip link set probe0 master probe
tc qdisc add dev probe1 root tbf rate 10mbit burst 66000 limit 1000000
touch "$1"
unshare --net="$1" true
nsenter --net="$1" true
"""


class ClusterUnavailable(RuntimeError):
    """No virtual cluster can be made on this machine; the message says why."""


def unshare_command() -> list[str]:
    """Return how to start a program in namespaces of its own, followed by the program.

    Raises
    ------
    ClusterUnavailable
        Where that is impossible.
    """
    if sys.platform != "linux":
        raise ClusterUnavailable(_sentence(f"this is {sys.platform}"))
    reasons = []
    # With the rights of root there is no need for a user namespace; without them, Linux gives
    # them inside of one, unless the administrator has forbidden it.
    for user in ([], ["--user", "--map-root-user"]):
        command = [
            *("unshare", *user, "--net", "--mount", "--pid", "--mount-proc"),
            *("--fork", "--kill-child=KILL", "--"),
        ]
        reason = _why_not(command)
        if reason is None:
            return command
        reasons.append(reason)
    raise ClusterUnavailable(_sentence(reasons[-1]))


def run_in_namespaces(module: str, folder: Path, timeout: float) -> tuple[int | None, str]:
    """Run ``python -m module folder`` in namespaces of its own; leave no process behind.

    The module must end at end-of-file on its stdin: so it also ends when this process is killed.

    Returns
    -------
    status : int or None
        The program's exit status; None if it was ended because the time was up.
    errors : str
        What it wrote to stderr.
    """
    command = [*unshare_command(), sys.executable, "-P", "-m", module, str(folder)]
    log = folder / "namespaces.log"
    process = None
    try:
        with open(log, "wb") as stream:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                # The program finds every module that this one finds.
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
                # Ctrl-C reaches this process alone, which then ends the other.
                start_new_session=True,
            )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout)
        return process.returncode, log.read_text(encoding="utf-8", errors="replace")
    finally:
        if process is not None:
            _stop(process)


def _stop(process: subprocess.Popen) -> None:
    """End the program, and with it all that lives in its namespaces."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()  # and the kernel kills its child (--kill-child), and all others with it
        process.wait()


def _why_not(command: list[str]) -> str | None:
    """Try to make what a cluster is made of; return what is missing, or None."""
    with tempfile.TemporaryDirectory(prefix="commlab-") as folder:
        words = [*command, "sh", "-c", _PROBE, "probe", f"{folder}/probe.net"]
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PROBE_SECONDS,
                check=False,
            )
        except FileNotFoundError:
            return "the program unshare is missing (package util-linux)"
        except subprocess.TimeoutExpired:
            return f"making a namespace took more than {PROBE_SECONDS:g} s"
    if done.returncode == 0:
        return None
    if "not found" in done.stderr:
        return f"a program is missing, install iproute2 ({_last_line(done.stderr)})"
    return f"the system refused: {_last_line(done.stderr)}"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def _sentence(reason: str) -> str:
    return (
        "a virtual cluster needs Linux with network namespaces, as root or in a user namespace, "
        f"and here {reason}. All else in the book works without it; stored_cluster_measurement() "
        "has what was measured elsewhere."
    )
