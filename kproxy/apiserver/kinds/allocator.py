"""Cluster IPs, node ports and health-check node ports: what only one Service can have.

Both follow kube-apiserver: the lower part of a range is left to Services that ask for a value, the rest is handed out
at random first (KEP-3070, KEP-3668). They are rebuilt from the Services at start-up and never stored.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Sequence
from typing import Final

NODE_PORTS: Final = range(30000, 32768)
_TRIES: Final = 64


class AllocationError(Exception):
    """A value cannot be had; the text is the API server's."""


class Addresses:
    """The cluster IPs of one family in one CIDR."""

    def __init__(self, cidr: str, rng: random.Random) -> None:
        self.network = ipaddress.ip_network(cidr)
        self._first = int(self.network.network_address)
        # The network address is never used; neither is the broadcast address of an IPv4 range.
        self._reserved = {0, self.network.num_addresses - 1} if self.network.version == 4 else {0}
        self._used: set[int] = set(self._reserved)
        self._rng = rng
        self._size = min(self.network.num_addresses, 1 << 20)
        self._lower = min(max(16, self._size // 16), 256)

    @property
    def family(self) -> str:
        return f"IPv{self.network.version}"

    @property
    def first(self) -> str:
        """The address that the `kubernetes` Service gets."""
        return str(self.network.network_address + 1)

    @property
    def dry(self) -> str:
        """What a dry run shows in place of an address: nothing is taken."""
        return str(self.network.network_address)

    def take(self, text: str, dry_run: bool = False) -> None:
        """Takes a given address.

        Raises:
            AllocationError: it is taken, or outside the range.
        """
        address = ipaddress.ip_address(text)
        if address.version != self.network.version or address not in self.network:
            raise AllocationError(
                f"failed to allocate IP {text}: the provided network does not match the current range"
            )
        offset = int(address) - self._first
        if offset in self._used:
            raise AllocationError(f"failed to allocate IP {text}: provided IP is already allocated")
        if not dry_run:
            self._used.add(offset)

    def take_any(self) -> str:
        """Takes some free address.

        Raises:
            AllocationError: the range is full.
        """
        offset = _any(range(self._lower, self._size), range(1, self._lower), self._used, self._rng)
        if offset is None:
            raise AllocationError("failed to allocate a serviceIP: range is full")
        self._used.add(offset)
        return str(self.network.network_address + offset)

    def give_back(self, text: str) -> None:
        """Frees an address; one that is not of this range is ignored."""
        try:
            offset = int(ipaddress.ip_address(text)) - self._first
        except ValueError:
            return
        if offset not in self._reserved:
            self._used.discard(offset)


class Ports:
    """Node ports, health-check node ports among them."""

    def __init__(self, ports: range, rng: random.Random) -> None:
        self._range = ports
        self._used: set[int] = set()
        self._rng = rng
        self._lower = min(max(16, len(ports) // 32), 128)

    def take(self, port: int, dry_run: bool = False) -> None:
        """Takes a given port.

        Raises:
            AllocationError: it is taken, or outside the range.
        """
        if port not in self._range:
            valid = f"{self._range.start}-{self._range.stop - 1}"
            raise AllocationError(f"provided port is not in the valid range. The range of valid ports is {valid}")
        if port in self._used:
            raise AllocationError("provided port is already allocated")
        if not dry_run:
            self._used.add(port)

    def take_any(self) -> int:
        """Takes some free port.

        Raises:
            AllocationError: all are taken.
        """
        port = _any(self._range[self._lower :], self._range[: self._lower], self._used, self._rng)
        if port is None:
            raise AllocationError("range is full")
        self._used.add(port)
        return port

    def give_back(self, port: int) -> None:
        """Frees a port."""
        self._used.discard(port)


def _any(upper: Sequence[int], lower: Sequence[int], used: set[int], rng: random.Random) -> int | None:
    """Some value that is not used: a few tries at random, then the first free one."""
    for _ in range(_TRIES):
        value = upper[rng.randrange(len(upper))] if upper else lower[0]
        if value not in used:
            return value
    return next((value for values in (upper, lower) for value in values if value not in used), None)


class Allocators:
    """All allocators of one server. `cidrs`: the service ranges, the primary family first."""

    def __init__(self, cidrs: Sequence[str], rng: random.Random) -> None:
        ranges = [Addresses(cidr, rng) for cidr in cidrs]
        self.addresses: dict[str, Addresses] = {each.family: each for each in ranges}
        self.primary = ranges[0].family
        self.ports = Ports(NODE_PORTS, rng)

    @property
    def families(self) -> list[str]:
        """The families that Services can have, the default first."""
        return list(self.addresses)
