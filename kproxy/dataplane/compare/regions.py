"""Where two outcome functions differ: sites, which are services or addresses, and what is left of the functions there.

Functions that differ are walked side by side down to the variables that select a service. Pairs of what is left below
are collected with all destinations that lead to them, so that the walk is linear however the destinations are spread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from kproxy.dataplane.compare.describe import address_set, intervals_of, range_texts
from kproxy.dataplane.compare.difference import Place
from kproxy.dataplane.symbolic.build import Setup
from kproxy.dataplane.symbolic.cases import ConntrackCase
from kproxy.dataplane.symbolic.mtbdd import Diagrams
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.quantify import exists
from kproxy.dataplane.symbolic.variables import CHUNK, Variables
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import Family, protocol_name

LOOPBACK: Final = {Family.IPV4: (0x7F000000, 0x7FFFFFFF), Family.IPV6: (1, 1)}
"""The first and the last of the addresses that every host has."""


class Site(NamedTuple):
    """Destinations: conditions on the address (and what a connection makes of it), and on protocol and port."""

    address: Node
    service: Node

    def place(self, setup: Setup) -> Place:
        """What is told of them."""
        variables, diagrams = setup.variables, setup.variables.diagrams
        inside = exists(diagrams, self.address, variables.levels["translated_dst"])
        service = exists(diagrams, self.service, variables.levels["translated_dport"])
        services, left_out = _services(variables, service), _services(variables, diagrams.negate(service))
        possible = TRUE
        if variables.family is Family.IPV4:  # what lies above and below is no host's address
            possible = variables.between(variables.dst, 0x01000000, 0xDFFFFFFF)
        if diagrams.both(inside, possible) == FALSE:
            possible = TRUE
        where = address_set(variables, variables.dst, inside, possible)
        text = _text(where, services, left_out)
        addresses = intervals_of(variables, variables.dst, inside)
        first, last = addresses[0][0], addresses[-1][1]
        ports, protocol = services[0] if len(services) == 1 else ("", "")
        return Place(
            text,
            format_address(first, variables.family) if first == last else "",
            int(ports) if ports.isdigit() else 0,
            protocol if ports else "",
            first >= LOOPBACK[variables.family][0] and last <= LOOPBACK[variables.family][1],
            f"{text} of this host" if first == last else _text(where, services, left_out, " of this host"),
        )


_Service = tuple[str, str]
"""Ports and protocol, as texts; ports empty for any."""


def _text(address: str, services: list[_Service], left_out: list[_Service], own: str = "") -> str:
    """`10.96.0.10:53/udp`. `own` follows where any address is meant."""
    if " more" in address or address.count(",") > 2:
        address = f"any other address{own}"
    elif address.startswith("anywhere"):
        address = f"any address{own}" + address.removeprefix("anywhere")
    if not services:
        return address
    if len(left_out) < len(services):
        return f"{address} except {_listed(left_out)}"
    single = len(services) == 1 and bool(services[0][0])
    if single and not any(sign in address for sign in " /-,"):
        host = f"[{address}]" if ":" in address else address
        return f"{host}:{services[0][0]}/{services[0][1]}"
    return f"{_listed(services)} of {address}" if single else f"{address} ({_listed(services)})"


def _listed(parts: list[_Service]) -> str:
    shown = [f"port {ports}/{protocol}" if ports else protocol for ports, protocol in parts[:4]]
    return ", ".join(shown) + (", ..." if len(parts) > 4 else "")


def _services(variables: Variables, condition: Node) -> list[_Service]:
    """The services of a condition; none if every packet is meant."""
    parts = []
    start = 0
    bounds, children = variables.diagrams.parts(condition, variables.protocol)
    for end, child in zip(bounds, children, strict=True) if condition != TRUE else ():
        if child != FALSE:
            name = protocol_name(start) if end == start + 1 else f"protocols {start}-{end - 1}"
            ports = [] if child == TRUE else intervals_of(variables, variables.dport, child)
            parts.append((",".join(range_texts(ports[:8])), "any protocol" if len(bounds) == 1 else name))
        start = end
    return parts


@dataclass(frozen=True)
class Region:
    """What is left of two functions at a site, for one origin and state."""

    site: Site
    origin: str
    state: ConntrackCase
    one: Node
    other: Node


def differing_regions(setup: Setup, origin: str, state: ConntrackCase, one: Node, other: Node) -> Iterator[Region]:
    """All regions where two functions differ."""
    variables, diagrams = setup.variables, setup.variables.diagrams
    addresses = _collect(diagrams, one, other, range(variables.dst, variables.protocol), set())
    seen: set[tuple[Node, Node]] = set()
    # Addresses with rules of their own share most services with all others: those come first, and what is shared
    # is met only once.
    order = sorted(addresses.items(), key=lambda item: -_width(diagrams, item[1]))
    for (first, second), address in order:
        services = _collect(diagrams, first, second, range(variables.protocol, variables.destination), seen)
        for (below, beside), service in services.items():
            yield Region(Site(address, service), origin, state, below, beside)


def _width(diagrams: Diagrams, condition: Node) -> int:
    return len(diagrams.children[condition]) if condition > TRUE else 1 << CHUNK


def _collect(
    diagrams: Diagrams, one: Node, other: Node, levels: range, seen: set[tuple[Node, Node]]
) -> dict[tuple[Node, Node], Node]:
    """The pairs of nodes below some levels in which two functions differ, with the condition that leads there.

    Pairs in `seen` are left out; those that are met are added to it.
    """
    memory: dict[tuple[Node, Node], dict[tuple[Node, Node], Node]] = {}

    def collect(first: Node, second: Node) -> dict[tuple[Node, Node], Node]:
        if first == second:
            return {}
        level = min(diagrams.level[first], diagrams.level[second])
        found = memory.get((first, second))
        if found is None and (first, second) in seen:
            return {}
        seen.add((first, second))
        if level >= levels.stop:
            memory[first, second] = {(first, second): TRUE}
            return memory[first, second]
        if found is None:
            pieces: dict[tuple[Node, Node], list[tuple[int, int, Node]]] = {}
            for start, stop, child, beside in diagrams.joint(first, second, level):
                if child != beside:
                    for pair, condition in collect(child, beside).items():
                        pieces.setdefault(pair, []).append((start, stop, condition))
            found = {pair: diagrams.pieces(level, intervals, FALSE) for pair, intervals in pieces.items()}
            memory[first, second] = found
        return found

    return collect(one, other)
