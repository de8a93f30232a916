"""Where the model says that a packet is seen, and whether that is where it was.

Frames are looked at on the ports of bridges, not on the bridges themselves: br_netfilter translates between the two, so
that a bridge shows a packet before or after that, depending on the direction. A port is known by its bridge's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from kproxy.cluster.journey.network import Outer
from kproxy.cluster.journey.path import REFUSED, UNREACHABLE, Hop, Journey
from kproxy.dataplane import ACCEPT, REJECT, Packet
from kproxy.lab.capture.dissect import BACK, THERE, ObservedPacket, PacketAtInterface
from kproxy.lab.model.hosts import LabModel, is_node
from kproxy.lab.spec import CLIENT, FABRIC
from kproxy.netfilter.address import format_address
from kproxy.netfilter.effect import ERRORS, RESET

_LOOPBACK: Final = "lo"
_CODES: Final = {**ERRORS, RESET: "rst"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected(PacketAtInterface):
    """A packet that the model says passes an interface."""

    def fits(self, seen: ObservedPacket) -> bool:
        """Whether the observed packet is this one; unknown ports fit any."""
        if self.position != seen.position or self.kind != seen.kind:
            return False
        if (self.src, self.dst) != (seen.src, seen.dst) or not _same_outer(self.outer, seen.outer):
            return False
        ports = ((self.sport, seen.sport), (self.dport, seen.dport))
        return all(mine is None or its is None or mine == its for mine, its in ports)


def _same_outer(one: Outer | None, other: Outer | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.src, one.dst, one.port, one.vni) == (other.src, other.dst, other.port, other.vni)


def expected(model: LabModel, journey: Journey, protocol: str) -> list[Expected]:
    """Every place where the packet and what comes back are seen, in order."""
    kind = "packet"
    found = list(_along(model, journey.there, THERE, kind))
    if journey.back:
        found += _along(model, journey.back, BACK, _back_kind(journey, protocol))
    return found


def _back_kind(journey: Journey, protocol: str) -> str:
    last = journey.there[-1].outcome
    if last.verdict == REJECT:
        return _CODES.get(last.reject, last.reject)
    v4 = journey.there[-1].arrived.family.version == 4
    if journey.end == UNREACHABLE:
        if journey.waits:
            return "icmp 3/1" if v4 else "icmp 1/3"
        return "icmp 3/0" if v4 else "icmp 1/0"
    if journey.end != REFUSED:
        return "packet"
    if protocol == "TCP":
        return "rst"
    if protocol == "SCTP":
        # A host without SCTP does not know the protocol: IPv6 has a parameter problem with the next header.
        return "icmp 3/2" if v4 else "icmp 4/1"
    return "icmp 3/3" if v4 else "icmp 1/4"


def _along(model: LabModel, hops: Sequence[Hop], direction: str, kind: str) -> Iterator[Expected]:
    for hop, following in [*pairwise(hops), (hops[-1], None)]:
        arrived, left = hop.arrived, hop.left
        if arrived.in_interface and arrived.in_interface != _LOOPBACK:
            yield _seen(hop.host, device_name(model, hop.host, arrived.in_interface), False, direction, kind, arrived)
        if hop.outcome.verdict != ACCEPT or hop.outcome.via == "local" or not left.out_interface:
            continue
        out = device_name(model, hop.host, left.out_interface)
        lost = following is None and not hop.held and hop.outer is None
        if hop.outer is not None or (not hop.held and not (lost and _is_empty(model, hop.host, out))):
            yield _seen(hop.host, out, True, direction, kind, left)
        if hop.held:
            continue
        carrier = "eth0" if hop.outer is not None else out
        if hop.outer is not None:
            yield _seen(hop.host, carrier, True, direction, kind, left, hop.outer)
        if following is None and carrier == "eth0" and is_node(hop.host):
            # No host takes it, but it was sent: the fabric floods a frame for a port that is down to all others.
            yield _seen(FABRIC, FABRIC, False, direction, kind, left, hop.outer)
            if not _is_empty(model, FABRIC, FABRIC, hop.host):
                yield _seen(FABRIC, FABRIC, True, direction, kind, left, hop.outer)
        to_node = following is not None and following.host not in (FABRIC, CLIENT)
        if carrier == "eth0" and to_node and is_node(hop.host) and following is not None:
            # From node to node the fabric is a bridge: nothing is routed there, but frames pass.
            for outgoing in (False, True):
                yield _seen(FABRIC, FABRIC, outgoing, direction, kind, left, hop.outer)
            if hop.outer is not None:
                yield _seen(following.host, "eth0", False, direction, kind, left, hop.outer)


def _is_empty(model: LabModel, host: str, device: str, source: str = "") -> bool:
    """Whether a device is a bridge without a port to which it would flood what comes in by the port `source`."""
    links = model.host(host).links or {}
    ports = [link for link in links.values() if link.bridge == device and link.name != source]
    return links[device].is_bridge and not any(port.up and port.carrier for port in ports)


def _seen(
    host: str, device: str, outgoing: bool, direction: str, kind: str, packet: Packet, outer: Outer | None = None
) -> Expected:
    src, dst = ("?" if item is None else format_address(item, packet.family) for item in (packet.src, packet.dst))
    ports = (None, None) if kind.startswith("icmp") else (packet.sport, packet.dport)
    return Expected(
        host=host, device=device, outgoing=outgoing, direction=direction, kind=kind,
        src=src, sport=ports[0], dst=dst, dport=ports[1], outer=outer,
    )  # fmt: skip


def device_name(model: LabModel, host: str, device: str) -> str:
    """A bridge port by its bridge's name."""
    found = model.host(host).host.interface(device)
    return found.bridge or device if found is not None else device


def compared_packets(model: LabModel, found: Iterable[ObservedPacket]) -> list[ObservedPacket]:
    """The packets that are compared: those on loopback and on bridges left out, ports named after their bridges."""
    kept: dict[tuple[object, ...], ObservedPacket] = {}
    for item in found:
        host = model.host(item.host)
        bridges = {each.bridge for each in (host.host.interfaces or {}).values() if each.bridge}
        if item.device == _LOOPBACK or item.device in bridges:
            continue
        if item.direction == THERE and item.kind.startswith("icmp"):
            continue  # what a client says of an answer that it does not want; that it goes astray was said already
        own = host.host.interface(item.device)
        if item.foreign and (own is None or not own.bridge):
            continue  # a bridge flooded it; no bridge port is on its own host's path
        named = replace(item, device=device_name(model, item.host, item.device), foreign=False)
        outer = None if item.outer is None else (item.outer.src, item.outer.dst, item.outer.port, item.outer.vni)
        key = (named.position, named.kind, named.src, named.sport, named.dst, named.dport, outer)
        kept.setdefault(key, named)
    return list(kept.values())


@dataclass(frozen=True, slots=True)
class Compared:
    """A journey beside what was seen: pairs in the order of the model, then what only was seen.

    `differs` says whether anything stands alone.
    """

    journey: Journey
    pairs: tuple[tuple[Expected | None, ObservedPacket | None], ...]

    @property
    def differences(self) -> int:
        return sum(one is None or other is None for one, other in self.pairs)


def compare(model: LabModel, candidates: Sequence[Journey], protocol: str, seen: Sequence[ObservedPacket]) -> Compared:
    """The journey that what was seen fits best, pair by pair."""
    found = [_pair(item, expected(model, item, protocol), seen) for item in candidates]
    return min(found, key=lambda item: (item.differences, -item.journey.probability))


def _pair(journey: Journey, wanted: Sequence[Expected], seen: Sequence[ObservedPacket]) -> Compared:
    left = list(seen)
    pairs: list[tuple[Expected | None, ObservedPacket | None]] = []
    for item in wanted:
        match = next((each for each in left if item.fits(each)), None)
        if match is not None:
            left.remove(match)
        elif journey.end == UNREACHABLE and not journey.waits and item.direction == BACK:
            # A router tells a sender of five packets without a route at once, and then of one a second (ip_error).
            continue
        pairs.append((item, match))
    return Compared(journey, (*pairs, *((None, each) for each in left)))
