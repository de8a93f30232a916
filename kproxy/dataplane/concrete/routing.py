"""Routing as the packet path needs it: is the address local, which device leads to it, which source is chosen.

The order is the kernel's: the local table, then the policy's rules, then the main table; in a table the longest prefix,
then the lowest metric, then the first. Without rules of the policy, IPv4's local and main table are one: there the
longest prefix wins, of equal ones the local table's. Where the host is only partly known, the answer is `UNKNOWN`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from kproxy.dataplane.model.host import (
    LOOPBACK_NETWORKS,
    MULTICAST_NETWORKS,
    Host,
    InterfaceAddress,
    Route,
    RoutingRule,
)
from kproxy.dataplane.model.packet import LOOPBACK, Packet
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32

ROUTED: Final = "where the packet is routed is not known"
"""Why a packet's way is open where several routes may be its."""


class Unknown(Enum):
    """The type of `UNKNOWN`: what is given of the host does not tell."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


class RouteResult(NamedTuple):
    """Where a route leads. `kind` as in `Route`; `device`, `gateway` and `source` None: unknown (or no gateway)."""

    kind: str
    device: str | None = None
    gateway: int | None = None
    source: int | None = None


class Query(NamedTuple):
    """What a route is looked up for. `in_interface` is "" for a packet of this host's own. None is: not known."""

    family: Family
    destination: int
    source: int | None = None
    mark: int = 0
    mark_known: int = UINT32
    in_interface: str | None = ""
    protocol: int | None = None
    sport: int | None = None
    dport: int | None = None
    tos: int | None = None

    @classmethod
    def of(cls, packet: Packet, in_interface: str | None) -> Query:
        """For a packet towards its destination, which must be known."""
        assert packet.dst is not None
        return cls(
            packet.family, packet.dst, packet.src, packet.mark, packet.mark_known, in_interface, packet.protocol,
            packet.sport, packet.dport, packet.tos,
        )  # fmt: skip


def address_type(host: Host, family: Family, address: int, device: str | None = None) -> str | Unknown:
    """LOCAL, BROADCAST, MULTICAST or UNICAST, from the local table alone (inet_addr_type in the kernel), or from the
    one that local and main table are.

    With `device` only addresses of that interface are local or broadcast.
    """
    if family is Family.IPV4:
        if address in (0, UINT32):
            return "BROADCAST"
        if MULTICAST_NETWORKS[family].contains(address):
            return "MULTICAST"
    if LOOPBACK_NETWORKS[family].contains(address):
        if device is None and _routed_away(host, family, address):
            return "UNICAST"
        return "LOCAL" if device in (None, LOOPBACK) else "UNICAST"
    return _own_type(host, family, address, device)


def _routed_away(host: Host, family: Family, address: int) -> bool:
    """Whether a route of the main table is longer than the local one to 127.0.0.0/8, and counts (observed: with any
    rule of the policy it does not). The host's own addresses have local routes of full length."""
    if family is not Family.IPV4 or host.rules or (family, address) in (host.local_addresses or ()):
        return False
    shared = LOOPBACK_NETWORKS[family].mask
    return any(
        route.table == "main" and route.family is family and route.network.mask > shared
        and route.network.contains(address)
        for route in host.routes or ()
    )  # fmt: skip


def _own_type(host: Host, family: Family, address: int, device: str | None) -> str | Unknown:
    if host.interfaces is None:
        local = host.is_local(family, address)
        if local is None:
            return UNKNOWN
        if local:
            return "LOCAL" if device is None else UNKNOWN
        return "UNICAST"
    held = [own for item in host.interfaces.values() if device in (None, item.name) for own in item.addresses]
    if any(own.family is family and own.value == address for own in held):
        return "LOCAL"
    if device is None and host.is_local(family, address):
        return "LOCAL"
    return "BROADCAST" if family is Family.IPV4 and any(is_broadcast(own, address) for own in held) else "UNICAST"


def is_broadcast(own: InterfaceAddress, address: int) -> bool:
    """Whether the address is the broadcast address of an interface address's network."""
    if own.family is not Family.IPV4 or own.prefix >= 31:
        return False
    network = own.network
    last = network.address | (network.mask ^ own.family.full_mask)
    return address in (last, own.broadcast)


REFUSING: Final = {
    "blackhole": "a route of kind blackhole", "unreachable": "a route of kind unreachable",
    "prohibit": "a route of kind prohibit", "none": "no route to the destination",
}  # fmt: skip
"""Why a packet is dropped that is routed so."""


NO_ROUTE: Final = RouteResult("none")
OPEN: Final = (RouteResult("local", LOOPBACK), RouteResult("unicast"))
"""What a look-up may find of which nothing is known."""


def lookup(host: Host, query: Query) -> RouteResult | Unknown | None:
    """The route to an address; None if there is no route."""
    found = possible_routes(host, query)
    return UNKNOWN if len(found) > 1 else None if found[0] == NO_ROUTE else found[0]


def possible_routes(host: Host, query: Query) -> tuple[RouteResult, ...]:
    """The route to an address, or `NO_ROUTE`. Several where it is open which it is: whether the address is the host's
    own, or which rules of the policy apply."""
    family, destination = query.family, query.destination
    kind = address_type(host, family, destination)
    anycast = kind == "UNICAST" and host.is_anycast(family, destination)
    if kind is UNKNOWN or anycast is None:
        return (*OPEN, NO_ROUTE) if host.rules or host.routes is not None else OPEN
    if anycast:
        return (RouteResult("local", LOOPBACK),)
    if kind == "LOCAL":
        return (RouteResult("local", LOOPBACK, None, destination),)
    if kind == "BROADCAST":
        return (RouteResult("broadcast", None),)
    if kind == "MULTICAST" or MULTICAST_NETWORKS[family].contains(destination):
        return (RouteResult("multicast", None),)
    if host.routes is None:
        return (*OPEN, NO_ROUTE) if host.rules else (RouteResult("unicast"),)
    rules = sorted(host.rules, key=lambda item: item.priority)
    found: dict[RouteResult, None] = {}
    pending, seen = [0], {0}
    while pending:
        at = pending.pop()
        if at == len(rules):
            found[_table_lookup(host, "main", query) or NO_ROUTE] = None
            continue
        rule, following = rules[at], at + 1
        fits = _rule_fits(rule, query)
        after = [] if fits else [following]
        if fits is not False:
            if rule.action == "goto":
                target = rule.target or 0
                later = (place for place in range(following, len(rules)) if rules[place].priority >= target)
                after.append(next(later, len(rules)))
            elif rule.action == "nop":
                after.append(following)
            elif rule.action != "lookup":
                found[RouteResult(rule.action)] = None
            elif not rule.table:  # of an action that is not modelled
                found |= dict.fromkeys((*OPEN, NO_ROUTE))
                after.append(following)
            elif (route := _table_lookup(host, rule.table, query, rule.suppress_prefix)) is not None:
                found[route] = None
            else:
                after.append(following)
        fresh = {*after} - seen
        pending += fresh
        seen |= fresh
    return tuple(found)


def _rule_fits(rule: RoutingRule, query: Query) -> bool | None:
    """Whether a rule applies (fib_rule_match); None if that is open."""
    if rule.family not in (None, query.family):
        return False
    fits = _selectors_fit(rule, query)
    return fits if fits is None or not rule.negated else not fits


def _selectors_fit(rule: RoutingRule, query: Query) -> bool | None:
    answers: list[bool | None] = []
    if rule.other:
        forwarded = query.in_interface not in (None, "")
        answers.append(False if rule.only_own and forwarded else None)
    for wanted, value in ((rule.protocol, query.protocol), (rule.tos, query.tos)):
        if wanted is not None:
            answers.append(None if value is None else wanted == value)
    for ports, port in ((rule.source_ports, query.sport), (rule.destination_ports, query.dport)):
        if ports is not None:
            answers.append(None if port is None else ports.contains(port))
    if rule.mark is not None:
        differs = (query.mark ^ rule.mark.value) & rule.mark.mask & query.mark_known
        answers.append(False if differs else True if not rule.mark.mask & ~query.mark_known else None)
    for network, address in ((rule.source, query.source), (rule.destination, query.destination)):
        if network is not None:
            answers.append(
                False if network.family is not query.family else None if address is None else network.contains(address)
            )
    if rule.in_interface is not None:
        answers.append(None if query.in_interface is None else rule.in_interface == (query.in_interface or LOOPBACK))
    if False in answers:
        return False
    return None if None in answers else True


def _table_lookup(host: Host, table: str, query: Query, suppress: int | None = None) -> RouteResult | None:
    """The route of one table; None if it has none that counts. Of a multipath route, what all hops have in common."""
    best: list[Route] = []
    family, destination = query.family, query.destination
    for route in host.routes or ():
        network = route.network
        if (destination ^ network.address) & network.mask or route.table != table or network.family is not family:
            continue
        rank = (-network.mask, route.metric)
        if not best or rank < (-best[0].network.mask, best[0].metric):
            best = [route]
        elif rank == (-best[0].network.mask, best[0].metric) and route.kind == best[0].kind:
            best.append(route)
    if not best or best[0].kind == "throw":
        return None
    if suppress is not None and best[0].network.mask.bit_count() <= suppress:
        return None
    devices, gateways, sources = ({getattr(each, name) for each in best} for name in ("device", "gateway", "source"))
    return RouteResult(
        best[0].kind,
        devices.pop() if len(devices) == 1 else None,
        gateways.pop() if len(gateways) == 1 else None,
        sources.pop() if len(sources) == 1 else None,
    )


def source_for(host: Host, family: Family, route: RouteResult, destination: int) -> int | None:
    """The source address that the kernel gives a packet of its own; None if that is not known."""
    if route.source is not None:
        return route.source
    if route.kind == "local":
        return destination if host.is_local(family, destination) else None
    return device_address(host, family, route.device, destination if route.gateway is None else route.gateway)


def device_address(host: Host, family: Family, device: str | None, towards: int | None) -> int | None:
    """The address of a device that the kernel chooses towards a neighbour; None if not known.

    IPv4 (inet_select_addr): the first address whose network holds the neighbour, else the first; of a device without
    addresses, the first of another device. IPv6 compares longest
    prefixes and more; only an address that has no rival on its device counts as known.
    """
    item = host.interface(device)
    if item is None:
        return _only_address(host, family) if host.interfaces is None else None
    own = [address for address in item.addresses if address.family is family]
    if family is Family.IPV4:
        near = [address for address in own if towards is not None and address.network.contains(towards)]
        chosen = (near or own)[:1]
        return chosen[0].value if chosen else first_address(host, family)
    wide = [address for address in own if not is_link_local(address.value)]
    if towards is not None and is_link_local(towards) and not wide:
        wide = own
    return wide[0].value if len(wide) == 1 else None


def first_address(host: Host, family: Family) -> int | None:
    """The first address of any interface but the loopback, whose addresses have host scope."""
    for item in (host.interfaces or {}).values():
        for address in item.addresses:
            if address.family is family and not item.is_loopback:
                return address.value
    return None


def is_link_local(address: int) -> bool:
    """Whether an IPv6 address is in fe80::/10."""
    return address >> 118 == 0xFE80 >> 6


def _only_address(host: Host, family: Family) -> int | None:
    if host.local_addresses is None:
        return None
    own = {address for held, address in host.local_addresses - host.served if held is family}
    own = {address for address in own if not LOOPBACK_NETWORKS[family].contains(address)}
    return own.pop() if len(own) == 1 else None
