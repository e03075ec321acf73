"""Which network interfaces this machine has, and which of them leads to a given address."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys

# Linux's request for the IPv4 address of an interface, and where it stands in the answer.
_SIOCGIFADDR = 0x8915
_ADDRESS = slice(20, 24)


def interface_names() -> list[str]:
    """All interfaces, up or not; empty where the system does not list them."""
    try:
        return [name for _, name in socket.if_nameindex()]
    except OSError:
        return []


def interface_address(name: str) -> str | None:
    """Return the IPv4 address of an interface; None if it has none or this is not Linux."""
    if sys.platform != "linux":
        return None
    import fcntl

    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        return socket.inet_ntoa(answer[_ADDRESS])
    return None


def local_address_towards(address: str) -> str | None:
    """Return the address from which this machine would send to ``address``; None if it cannot.

    Nothing is sent: connecting a UDP socket only makes the system choose a route.
    """
    with contextlib.suppress(OSError):
        family, kind, _, _, target = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return probe.getsockname()[0]
    return None


def is_loopback(address: str) -> bool:
    """Whether an address leads back to this machine on every machine."""
    return address.startswith("127.") or address == "::1"


def interface_towards(address: str) -> str | None:
    """Return the name of the interface that leads to ``address``; None if it cannot be told."""
    own = local_address_towards(address)
    if own is None:
        return None
    for name in interface_names():
        if interface_address(name) == own:
            return name
    # 127.0.1.1 and the like are served by the loopback interface, whose address is another.
    if is_loopback(own):
        return next((n for n in interface_names() if n.rstrip("0123456789") == "lo"), None)
    return None
