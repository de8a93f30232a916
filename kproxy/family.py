"""The two IP families: what every rule set, packet, ServicePort and node address has one of; and how an address is
written with a port."""

from __future__ import annotations

import enum
from typing import Final


class IPFamily(enum.Enum):
    """IPv4 or IPv6, valued as the Kubernetes API writes it. `IPFamily(4)` and `IPFamily(6)` are found, too."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"

    @classmethod
    def _missing_(cls, value: object) -> IPFamily | None:
        return {4: cls.IPV4, 6: cls.IPV6}.get(value) if isinstance(value, int) else None

    @property
    def version(self) -> int:
        """4 or 6."""
        return 6 if self is IPFamily.IPV6 else 4

    @property
    def is_ipv6(self) -> bool:
        return self is IPFamily.IPV6

    @property
    def bits(self) -> int:
        """Bits of an address: 32 or 128."""
        return 32 if self is IPFamily.IPV4 else 128

    @property
    def full_mask(self) -> int:
        """The mask that compares a whole address."""
        return _FULL_V4 if self is IPFamily.IPV4 else _FULL_V6


_FULL_V4: Final = (1 << 32) - 1
_FULL_V6: Final = (1 << 128) - 1


def join_host_port(host: str, port: object) -> str:
    """`HOST:PORT`, or `[HOST]:PORT` for an IPv6 address, as Go's net.JoinHostPort writes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(endpoint: str) -> str:
    """The host of `HOST:PORT` or `[HOST]:PORT`."""
    return endpoint.rpartition(":")[0].strip("[]")
