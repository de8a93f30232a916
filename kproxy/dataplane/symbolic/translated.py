"""Translated destinations: what DNAT, REDIRECT and NETMAP may make of a destination, read from the target alone.

Theory: docs/symbolic.md, "Translated variables".
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kproxy.dataplane.model.conntrack import MAX_CHOICES
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.targets import DnatTarget, NatRange, NetmapTarget, RedirectTarget, Target

KEEP: Final = -1
"""The packet's own address or port."""
UNKNOWN: Final = -2
"""An address or port that rules do not name."""


class Destination(NamedTuple):
    """A translated destination: address and port, each a number, `KEEP`, or `UNKNOWN` with a text for what is known."""

    address: int
    port: int
    text: str = ""


UNCHANGED: Final = Destination(KEEP, KEEP)


def is_simple(target: DnatTarget) -> bool:
    """Whether a target sends packets to one address and one port."""
    wanted = target.to_destination
    return (
        wanted.addresses is not None
        and wanted.addresses[0] == wanted.addresses[1]
        and wanted.ports is not None
        and wanted.ports.first == wanted.ports.last
    )


def simple_destination(target: DnatTarget) -> Destination:
    """Where such a target sends packets."""
    wanted = target.to_destination
    assert wanted.addresses is not None, target
    assert wanted.ports is not None, target
    return Destination(wanted.addresses[0], wanted.ports.first)


def redirect_range(target: RedirectTarget, family: Family, hook: str) -> NatRange:
    """REDIRECT as a range: for packets of the host itself, the loopback address."""
    loopback = 0x7F000001 if family is Family.IPV4 else 1
    return NatRange(family, (loopback, loopback) if hook == "OUTPUT" else None, target.to_ports)


def address_choices(wanted: NatRange, redirected: bool = False) -> list[tuple[int, str]]:
    """The addresses that a target may choose, with a text for one that is unknown; all have the same chance."""
    if wanted.addresses is None:
        return [(UNKNOWN, "REDIRECT")] if redirected else [(KEEP, "")]
    first, last = wanted.addresses
    if first == last:
        return [(first, "")]
    if 0 <= last - first < MAX_CHOICES:
        return [(address, "") for address in range(first, last + 1)]
    return [(UNKNOWN, f"{format_address(first, wanted.family)}-{format_address(last, wanted.family)}")]


def port_choices(wanted: NatRange, random: bool) -> list[tuple[int, str]]:
    """The ports that a target may choose for a packet whose port is not in its range."""
    ports = wanted.ports
    if ports is None:
        return [(UNKNOWN, "port at random")] if random else [(KEEP, "")]
    if ports.first == ports.last:
        return [(ports.first, "")]
    if wanted.base_port is not None:
        return [(UNKNOWN, f"ports {ports.text('-')}/{wanted.base_port}")]
    if not random:
        return [(ports.first, "")]
    if ports.last - ports.first + 1 > MAX_CHOICES:
        return [(UNKNOWN, f"ports {ports.text('-')}")]
    return [(port, "") for port in range(ports.first, ports.last + 1)]


def destinations_of(target: Target | None, family: Family) -> list[Destination]:
    """All translated destinations that a target may lead to."""
    found = []
    if isinstance(target, NetmapTarget):
        return [Destination(UNKNOWN, KEEP, target.to_save()[3:])]
    ranges: list[tuple[NatRange, bool, bool]] = []
    if isinstance(target, DnatTarget):
        ranges.append((target.to_destination, target.random, False))
    if isinstance(target, RedirectTarget):
        ranges += [(redirect_range(target, family, hook), target.random, True) for hook in ("OUTPUT", "PREROUTING")]
    for wanted, random, redirected in ranges:
        for address, text in address_choices(wanted, redirected):
            for port, about in [*port_choices(wanted, random), (KEEP, "")]:
                found.append(Destination(address, port, " ".join(filter(None, (text, about)))))
                if redirected and address == UNKNOWN and port >= 0:  # the interface's address is the packet's own
                    found.append(Destination(KEEP, port))
    return found
