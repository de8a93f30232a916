"""Translated destinations: what DNAT, REDIRECT and NETMAP may make of a destination, read from the rule alone.

Theory: docs/symbolic.md, "Translated variables".
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kproxy.dataplane.model.conntrack import MAX_CHOICES
from kproxy.netfilter.address import format_address
from kproxy.netfilter.effect import Nat, numbers_text
from kproxy.netfilter.family import Family

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


def simple_destination(nat: Nat) -> Destination | None:
    """Where DNAT to one address and one port sends packets; None for any other translation."""
    if nat.kind != "dnat" or nat.addresses is None or nat.ports is None or nat.base is not None:
        return None
    (first, last), (low, high) = nat.addresses, nat.ports
    return Destination(first, low) if first == last and low == high else None


def address_choices(nat: Nat, family: Family, hook: str) -> list[tuple[int, str]]:
    """The addresses that DNAT or REDIRECT may choose, with a text for one that is unknown; all have the same chance.

    REDIRECT sends packets of the host itself to the loopback address, others to one of the interface.
    """
    if nat.kind == "redirect":
        return [(0x7F000001 if family is Family.IPV4 else 1, "")] if hook == "OUTPUT" else [(UNKNOWN, "REDIRECT")]
    if nat.addresses is None:
        return [(KEEP, "")]
    first, last = nat.addresses
    if first == last:
        return [(first, "")]
    if 0 <= last - first < MAX_CHOICES:
        return [(address, "") for address in range(first, last + 1)]
    return [(UNKNOWN, f"{format_address(first, family)}-{format_address(last, family)}")]


def port_choices(nat: Nat) -> list[tuple[int, str]]:
    """The ports that it may choose for a packet whose port is not in its range."""
    if nat.ports is None:
        return [(UNKNOWN, "port at random")] if nat.at_random and nat.of_source else [(KEEP, "")]
    first, last = nat.ports
    if first == last:
        return [(first, "")]
    text = f"ports {numbers_text(nat.ports)}"
    if nat.base is not None:
        return [(UNKNOWN, f"{text}/{nat.base}")]
    if not nat.at_random:
        return [(first, "")]
    if last - first + 1 > MAX_CHOICES:
        return [(UNKNOWN, text)]
    return [(port, "") for port in range(first, last + 1)]


def destinations_of(nat: Nat, family: Family) -> list[Destination]:
    """All translated destinations that a translation may lead to."""
    if nat.of_source:
        return []
    if nat.kind == "netmap":
        return [Destination(UNKNOWN, KEEP, nat.text())]
    found = []
    for hook in ("OUTPUT", "PREROUTING") if nat.kind == "redirect" else ("",):
        for address, text in address_choices(nat, family, hook):
            for port, about in [*port_choices(nat), (KEEP, "")]:
                found.append(Destination(address, port, " ".join(filter(None, (text, about)))))
                if nat.kind == "redirect" and address == UNKNOWN and port >= 0:
                    found.append(Destination(KEEP, port))  # the interface's address is the packet's own
    return found
