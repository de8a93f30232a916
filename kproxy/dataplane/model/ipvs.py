"""IPVS as packets meet it: which virtual server takes a packet, and with which chance it goes to which real server.

What stands at which hook is `netfilter.hooks.IPVS_REQUESTS` and `IPVS_REPLIES`; what IPVS does with a packet is
net/netfilter/ipvs/ip_vs_core.c and ip_vs_xmit.c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from kproxy.dataplane.model.packet import Packet
from kproxy.netfilter.address import parse_address
from kproxy.netfilter.family import PROTOCOL_NUMBERS, Family
from kproxy.netfilter.ipvs.read import Entry
from kproxy.netfilter.ipvs.server import MASQUERADE, UNTOLD, RealServer, VirtualServer

CONNTRACK: Final = "net.ipv4.vs.conntrack"
"""The sysctl by which IPVS keeps conntrack's entries up to date, for both families. kube-proxy switches it on."""

_EQUAL: Final = "rr"
_WEIGHTED: Final = "wrr"


class Destination(NamedTuple):
    """A real server as an engine needs it. `chance` None: the scheduler decides by what is not known."""

    address: int
    port: int
    chance: Fraction | None
    real: RealServer


@dataclass(frozen=True, slots=True)
class Service:
    """A virtual server with its real servers."""

    server: VirtualServer
    real: tuple[RealServer, ...]

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """Where the first packet of a connection goes of which nothing is known, with the chances.

        `rr` gives each server of weight above 0 the same, `wrr` by weight. Others look at hashes whose order is not
        known, or at connections: where more than one server is left, the chances are open. No server: the packet is
        refused (ip_vs_leave).
        """
        taken = [each for each in self.real if each.weight]
        if any(each.weight == UNTOLD for each in taken):
            return tuple(self._destination(each, None) for each in taken)
        weights = {_EQUAL: [1] * len(taken), _WEIGHTED: [each.weight for each in taken]}.get(self.server.scheduler)
        if weights is None:
            return tuple(self._destination(each, Fraction(1) if len(taken) == 1 else None) for each in taken)
        shares = (Fraction(weight, sum(weights)) for weight in weights)
        return tuple(map(self._destination, taken, shares))

    @property
    def may_refuse(self) -> bool:
        """Whether there may be no real server for a new connection."""
        return all(each.weight in (0, UNTOLD) for each in self.real)

    @property
    def all_destinations(self) -> tuple[Destination, ...]:
        """Where a connection may go that began earlier: those without weight, too."""
        return tuple(self._destination(each, Fraction(1) if len(self.real) == 1 else None) for each in self.real)

    @property
    def is_masqueraded(self) -> bool:
        """Whether all real servers are reached by rewriting the destination, kube-proxy's only way. Those of which the
        text does not tell are taken to be."""
        return all(each.forwarding in (MASQUERADE, "") for each in self.real)

    def _destination(self, real: RealServer, chance: Fraction | None) -> Destination:
        family = Family.IPV6 if ":" in real.address else Family.IPV4
        return Destination(parse_address(real.address, family), real.port or self.server.port, chance, real)


Key = tuple[int, int, int]
"""A protocol's number, an address and a port."""


class Ipvs:
    """The virtual servers of one family of a host.

    Attributes:
        family: of them.
        services: by protocol, address and port; a port of 0 takes what no other one does.
    """

    def __init__(
        self,
        family: Family,
        servers: Mapping[VirtualServer, Sequence[RealServer]],
        connections: Iterable[Entry] = (),
    ) -> None:
        self.family = family
        self._real: dict[tuple[int | None, ...], tuple[int, int]] = {
            (PROTOCOL_NUMBERS[each.protocol], *self._end(each.client), *self._end(each.virtual)): self._end(each.real)
            for each in connections
            if (":" in each.virtual[0]) is (family is Family.IPV6)
        }
        self.services: dict[Key, Service] = {
            (PROTOCOL_NUMBERS[each.protocol], parse_address(each.address, family), each.port): Service(
                each, tuple(real)
            )
            for each, real in servers.items()
            if (":" in each.address) is (family is Family.IPV6)
        }

    def find(self, protocol: int, address: int, port: int | None) -> Service | None:
        """The virtual server that takes packets to an address and port (ip_vs_service_find)."""
        found = None if port is None else self.services.get((protocol, address, port))
        return found or self.services.get((protocol, address, 0))

    def known(self, packet: Packet, *, template: bool = False) -> Destination | None:
        """The real server of the connection that a packet is of, or of the template that its client has, which is
        without effect if that server has no weight (expire_quiescent_template, which kube-proxy sets)."""
        port = 0 if template else packet.sport
        real = self._real.get((packet.protocol, packet.src, port, packet.dst, packet.dport))
        service = None if real is None else self.find(packet.protocol, packet.dst or 0, packet.dport)
        if service is None:
            return None
        found = (each for each in service.all_destinations if each[:2] == real and (each.real.weight or not template))
        return next((each._replace(chance=Fraction(1)) for each in found), None)

    def _end(self, end: tuple[str, int]) -> tuple[int, int]:
        return parse_address(end[0], self.family), end[1]

    @property
    def key(self) -> frozenset[object]:
        """Equal for servers that treat every packet alike."""
        return frozenset(
            (key, each.server.scheduler, each.may_refuse, tuple(to[:3] for to in each.destinations))
            for key, each in self.services.items()
        )

    @property
    def protocols(self) -> Iterable[int]:
        """Those that have virtual servers."""
        return {protocol for protocol, _, _ in self.services}
