"""Bytes that this process has sent through its TCP connections, as the kernel counts them.

Linux keeps a count for each connection and shows it to whoever owns the socket: no privilege,
no packet capture, and other programs on the same interface do not count. What is counted is
payload: gloo's own few bytes per message are in it, the headers of TCP and IP are not.

Source: ``struct tcp_info`` in Linux' ``include/uapi/linux/tcp.h``.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

OPEN_FILES = Path("/proc/self/fd")
# Where the fields begin, in bytes: handed over but still waiting for room at the receiver
# (32 bits); sent, that which was sent twice included; sent once more (64 bits).
WAITING, SENT, SENT_AGAIN = 144, 200, 208
TCP_INFO_BYTES = 216


def bytes_sent() -> int | None:
    """Count the bytes that this process has handed to its open TCP connections.

    Returns
    -------
    int or None
        Bytes since the connections were opened, each once, on their way or arrived. None
        where the system does not tell: outside of Linux, and on kernels before 4.19.

    Notes
    -----
    A connection that has been closed takes its count with it: read the count while all peers
    are still there.
    """
    if not OPEN_FILES.is_dir() or not hasattr(socket, "TCP_INFO"):
        return None
    total = 0
    for connection in _tcp_sockets():
        with connection:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        if len(info) < TCP_INFO_BYTES:
            return None
        (waiting,) = struct.unpack_from("=I", info, WAITING)
        (sent,) = struct.unpack_from("=Q", info, SENT)
        (again,) = struct.unpack_from("=Q", info, SENT_AGAIN)
        total += sent - again + waiting
    return total


def _tcp_sockets() -> Iterator[socket.socket]:
    """Yield a copy of every TCP socket that this process has open."""
    for name in os.listdir(OPEN_FILES):
        number = int(name)
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            copy = socket.socket(fileno=os.dup(number))
        except OSError:  # The folder itself was open while it was listed.
            continue
        if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
            yield copy
        else:
            copy.close()
