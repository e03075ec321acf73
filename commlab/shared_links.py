"""Links that many pairs of ranks share: wires of a physical ring, uplinks of switches.

A topology may have one such set of links besides its ranks and network interfaces. The
messages of a step that go over one link share its bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from commlab.checks import check_beta, check_n_ranks, only_one


class SharedLinks(Protocol):
    """What a topology asks of its shared links."""

    @property
    def n_ranks(self) -> int:
        """The number of ranks that they join."""

    @property
    def beta(self) -> float:
        """Bytes per second of each link, one direction."""

    @property
    def n_links(self) -> int:
        """The number of links; each direction counts as one."""

    def routes(self, src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Say which links carry which messages.

        Parameters
        ----------
        src, dst : numpy.ndarray of int, shape (messages,)

        Returns
        -------
        message, link : numpy.ndarray of int, shape (crossings,)
            One entry for every message and link that it goes over.
        """


@dataclass(frozen=True)
class RingWires:
    """Wires from every rank to its two neighbours, one for each direction.

    A message to a rank further on goes over all wires on the shorter way (to the right where
    both are equally long). Link r leads from rank r to r + 1, link N + r from rank r + 1 to r.

    Parameters
    ----------
    n_ranks : int
    beta : float
        Bytes per second of one wire.
    """

    n_ranks: int
    beta: float

    def __post_init__(self) -> None:
        check_n_ranks(self.n_ranks)
        only_one(check_beta(self.beta), "beta")

    @property
    def n_links(self) -> int:
        """Two per rank."""
        return 2 * self.n_ranks

    def routes(self, src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `SharedLinks.routes`."""
        rightward = (dst - src) % self.n_ranks
        leftward = self.n_ranks - rightward
        goes_right = rightward <= leftward
        hops = np.where(goes_right, rightward, leftward)
        message = np.repeat(np.arange(src.size), hops)
        # 0, 1, ..., hops - 1 for each message in turn.
        hop = np.arange(message.size) - np.repeat(np.cumsum(hops) - hops, hops)
        right_wire = (src[message] + hop) % self.n_ranks
        left_wire = self.n_ranks + (src[message] - 1 - hop) % self.n_ranks
        return message, np.where(goes_right[message], right_wire, left_wire)


@dataclass(frozen=True)
class Uplinks:
    """Leaf switches that each reach the others through one uplink, out and in.

    With an uplink narrower than what hangs below it the network is oversubscribed.

    Parameters
    ----------
    switch_of : numpy.ndarray of int, shape (n_ranks,)
        The leaf switch of each rank, numbered from 0.
    beta : float
        Bytes per second of one uplink, one direction.
    """

    switch_of: np.ndarray = field(repr=False)
    beta: float

    def __post_init__(self) -> None:
        switches = np.asarray(self.switch_of)
        if switches.ndim != 1 or switches.dtype.kind not in "iu" or (switches < 0).any():
            raise ValueError(
                "switch_of must give one whole number, zero or more, for every rank; "
                f"got {self.switch_of!r}."
            )
        object.__setattr__(self, "switch_of", switches)
        only_one(check_beta(self.beta), "beta")

    @property
    def n_ranks(self) -> int:
        """The number of ranks."""
        return self.switch_of.size

    @property
    def n_links(self) -> int:
        """Two per switch: one way out, one way in."""
        return 2 * (int(self.switch_of.max()) + 1)

    def routes(self, src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `SharedLinks.routes`."""
        out_of, into = self.switch_of[src], self.switch_of[dst]
        leaving = np.flatnonzero(out_of != into)
        message = np.concatenate([leaving, leaving])
        link = np.concatenate([out_of[leaving], self.n_links // 2 + into[leaving]])
        return message, link
