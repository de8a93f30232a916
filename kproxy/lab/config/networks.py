"""The ranges that a lab's file gives to pods and Services: which are possible, and that none is in another."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

from kproxy.api.fielderror import FieldError, invalid
from kproxy.lab.spec import FIXED_RANGES, HOST_BITS, MAX_NODES, LabSpec

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

POD_SUBNET: Final = "networking.podSubnet"
SERVICE_SUBNET: Final = "networking.serviceSubnet"
_PREFIXES: Final = {
    POD_SUBNET: {family: (8, bits - MAX_NODES.bit_length()) for family, bits in HOST_BITS.items()},
    SERVICE_SUBNET: {4: (8, 28), 6: (64, 124)},
}
"""The largest range, and the smallest: a part for each of the most nodes, and some addresses for Services."""


def read_subnets(
    path: str, text: str | None, families: Sequence[int] | None
) -> tuple[tuple[str, ...], list[FieldError]]:
    """The ranges of a field, one a family, with a comma between; and what is wrong.

    Args:
        families: those that the lab has; None if the command line has decided that, which may be fewer.
    """
    found: dict[int, str] = {}
    errors: list[FieldError] = []
    for part in text.split(",") if text is not None else ():
        try:
            network = ipaddress.ip_network(part.strip())
        except ValueError:
            errors.append(invalid(path, part.strip(), "must be a range such as 10.244.0.0/16 or fd00:10:244::/48"))
            continue
        low, high = _PREFIXES[path][network.version]
        if not low <= network.prefixlen <= high:
            errors.append(invalid(path, part.strip(), f"must have a prefix length from {low} to {high}"))
        elif network.version in found:
            errors.append(invalid(path, text, f"has two ranges of IPv{network.version}"))
        elif families is not None and network.version not in families:
            errors.append(invalid(path, part.strip(), f"is IPv{network.version}, which networking.ipFamily leaves out"))
        else:
            found[network.version] = str(network)
    return tuple(found.values()), errors


def overlaps(spec: LabSpec) -> Iterator[FieldError]:
    """The ranges of a lab that are in one another."""
    for family in spec.families:
        ranges: list[tuple[str, Network]] = [
            (path, network)
            for path, cidrs in ((POD_SUBNET, spec.pod_cidrs), (SERVICE_SUBNET, spec.service_cidrs))
            for network in map(ipaddress.ip_network, cidrs)
            if network.version == family
        ]
        ranges += [("", network) for network in FIXED_RANGES[family]]
        for (path, one), (other_path, other) in combinations(ranges, 2):
            if path and one.version == other.version and one.overlaps(other):
                what = other_path or "a range of every lab"
                yield invalid(path, str(one), f"overlaps {other}, {what}")
