"""A witness: one packet of a region, with the host and the connection that put it there, and what the concrete
evaluator makes of it.

The symbolic engine says that two rule sets differ; a witness shows it. `Situation` turns values of the variables into a
packet, a host and a connection. What a host cannot be given (the answer of a match that is not interpreted) is put into
the rules: the match is taken out, or the rule.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from kproxy.dataplane.model.conntrack import ORIGINAL, REPLY, Connection, FlowTuple
from kproxy.dataplane.model.host import SHORT_SYSCTLS, Host, Interface, InterfaceAddress, Route
from kproxy.dataplane.model.packet import Packet
from kproxy.dataplane.symbolic.cases import ConntrackCase
from kproxy.dataplane.symbolic.free_variables import AFTER, LOOPED, FreeVariable, Listed
from kproxy.dataplane.symbolic.nat import KEPT, KEPT_DESTINATION
from kproxy.dataplane.symbolic.table import TABLE, Shape
from kproxy.dataplane.symbolic.translated import Destination
from kproxy.dataplane.symbolic.variables import BROADCAST, LOCAL, Variables
from kproxy.netfilter.address import Network

_SYSCTLS: Final = MappingProxyType(
    {SHORT_SYSCTLS[name]: 1 for name in ("ip_forward", "ip6_forward", "route_localnet", "accept_local")}
    | {SHORT_SYSCTLS["rp_filter"]: 0}
)


@dataclass(frozen=True, slots=True)
class Situation:
    """A packet, the host it meets, and its connection. `assumed` are answers of matches, put into the rules;
    `variant` is that of iptables, where it makes a difference."""

    packet: Packet
    host: Host
    connection: Connection
    assumed: tuple[tuple[FreeVariable, bool], ...] = ()
    variant: str | None = None


@dataclass(frozen=True, slots=True)
class Watch:
    """What outcomes are compared by on one side: which bits of the marks, and which lists and sets.

    Attributes:
        lists: names on both sides by the lists' own.
        sets: by table and name, the name on both sides and how many seconds elements stay, None for ever.
    """

    mark: int = 0
    connmark: int = 0
    lists: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    sets: Mapping[tuple[str, str], tuple[str, int | None]] = field(default_factory=lambda: MappingProxyType({}))


class Values:
    """Values of variables by level, read as addresses, ports and marks; what is not there is 0."""

    def __init__(self, variables: Variables, values: Mapping[int, int]) -> None:
        self.variables = variables
        self.values = values

    def get(self, level: int) -> int:
        """One variable."""
        return self.values.get(level, 0)

    def number(self, first: int) -> int:
        """The value of the variable whose first level this is."""
        levels, bits = self.variables.levels_at(first)
        result = 0
        for level in levels:
            result = result << bits | self.get(level)
        return result

    def packet(self, origin: str) -> Packet:
        """The packet, with the fields that its protocol has."""
        variables = self.variables
        protocol = self.get(variables.protocol)
        fields: dict[str, Any] = dict.fromkeys(("sport", "dport"))
        for row in TABLE:
            if row.field and (not row.protocols or protocol in row.protocols):
                number = self.number(variables.levels[row.name][0])
                fields[row.field] = bool(number) if row.shape is Shape.FLAG else number
        arrives = variables.interfaces.names[self.get(variables.in_interface)] if origin == "arriving" else ""
        return Packet(variables.family, in_interface=arrives, in_port="", out_port="", origin=origin, **fields)


def situation_of(
    variables: Variables,
    values: Mapping[int, int],
    origin: str,
    state: ConntrackCase,
    destinations: tuple[Destination, ...],
    watch: Watch,
    sources: tuple[int, ...] = (),
) -> Situation | None:
    """The situation that the values describe, None if there can be none.

    `destinations` are the destinations that may come up, `watch` the lists and sets of this side, `sources` the
    addresses that SNAT may choose.
    """
    read = Values(variables, values)
    packet = read.packet(origin)
    answers = {key: bool(read.get(level)) for key, level in variables.free_variables.items()}
    owner = _owner(answers)
    if owner is None:
        return None
    if origin == "local":
        packet = packet.replace(uid=owner[0], gid=owner[1], socket=owner[2])
    connection = _connection(read, packet, state, answers)
    host = _host(read, packet, origin, state, destinations, answers, watch, sources)
    if host is None:
        return None
    assumed = tuple(
        (key, answer) for key, answer in answers.items() if key.kind in ("opaque", "set", "rate", "physdev", "header")
    )
    answered: dict[str, bool] = {}
    if any(answered.setdefault(key.text, answer) != answer for key, answer in assumed):
        return None  # the same text in two roles: the rules cannot be given both answers
    variants = [("legacy", "nft")[answer] for key, answer in answers.items() if key.kind == "variant"]
    return Situation(packet, host, connection, assumed, variants[0] if variants else None)


def _owner(answers: Mapping[FreeVariable, bool]) -> tuple[int, int, bool] | None:
    """User, group and socket that answer `-m owner` so."""
    ids = {"uid": 0, "gid": 0}
    socket = True
    for name in ids:
        wanted = [
            (key.where, answer)
            for key, answer in answers.items()
            if key.kind == "owner" and isinstance(key.where, tuple) and key.where[0] == name
        ]
        edges = {0} | {edge for (_, first, last, _), _ in wanted for edge in (first, last, last + 1, max(first - 1, 0))}
        fits = [
            number for number in sorted(edges)
            if all((first <= number <= last) == answer for (_, first, last, _), answer in wanted)
        ]  # fmt: skip
        if not fits:
            return None
        ids[name] = fits[0]
    for key, answer in answers.items():
        if key.kind == "owner" and key.where == "socket":
            socket = answer
    return ids["uid"], ids["gid"], socket


def _translated(read: Values) -> tuple[bool, bool]:
    """Whether a known connection translates the destination, and the source, of a packet of its direction."""
    variables = read.variables
    dnat, snat = bool(read.get(variables.dnat)), bool(read.get(variables.snat))
    return (snat, dnat) if read.get(variables.reply) else (dnat, snat)


def _connection(read: Values, packet: Packet, state: ConntrackCase, answers: Mapping[FreeVariable, bool]) -> Connection:
    variables = read.variables
    mark = read.number(variables.connmark)
    if state.fresh or not state.tracked:
        return Connection(state.ctstate, mark=mark)
    dnat, snat, reply = (bool(read.get(level)) for level in (variables.dnat, variables.snat, variables.reply))
    ports = packet.has_ports
    later = FlowTuple(
        read.number(variables.translated_src),
        read.number(variables.translated_sport) if ports else None,
        read.number(variables.translated_dst),
        read.number(variables.translated_dport) if ports else None,
    )
    moved_dst, moved_src = _translated(read)
    after = FlowTuple(
        later.src if moved_src else packet.src,
        later.sport if moved_src else packet.sport,
        later.dst if moved_dst else packet.dst,
        later.dport if moved_dst else packet.dport,
    )
    seen = FlowTuple(packet.src, packet.sport, packet.dst, packet.dport)
    original, answered = (after.reversed(), seen) if reply else (seen, after.reversed())
    status = {
        key.where
        for key, answer in answers.items()
        if key.kind == "conntrack" and answer and isinstance(key.where, str)
    }
    if state.ctstate == "ESTABLISHED":
        status |= {"SEEN_REPLY", "CONFIRMED"}
    asked = any(key.kind == "conntrack" and isinstance(key.where, str) for key in answers)
    return Connection(
        state.ctstate,
        REPLY if reply else ORIGINAL,
        original,
        answered,
        dnat=dnat,
        snat=snat,
        status=frozenset(map(str, status)) if asked else None,
        mark=mark,
    )


def _host(
    read: Values,
    packet: Packet,
    origin: str,
    state: ConntrackCase,
    destinations: tuple[Destination, ...],
    answers: Mapping[FreeVariable, bool],
    watch: Watch,
    sources: tuple[int, ...],
) -> Host | None:
    variables = read.variables
    family = variables.family
    src, dst = packet.src or 0, packet.dst or 0
    moved = state.tracked and not state.fresh
    kinds = [(dst, read.get(variables.dst_kind)), (src, read.get(variables.src_kind))]
    new_destinations: list[int] = []
    new_sources: list[int] = []
    if moved:
        moved_dst, moved_src = _translated(read)
        if moved_dst:
            new_destinations.append(read.number(variables.translated_dst))
        if moved_src and (address := read.number(variables.translated_src)) not in (dst, *new_destinations):
            new_sources.append(address)
    else:
        new_destinations += [destination.address for destination in destinations if destination.address >= 0]
        new_sources += sources if origin == "local" else ()
    # An address that the packet has already is of the kind that is said there.
    kinds += [
        (address, read.get(variables.translated_kind)) for address in new_destinations if address not in (dst, src)
    ]
    kinds += [(address, read.get(variables.translated_src_kind)) for address in new_sources]
    interfaces: dict[str, Interface] = {}
    loops = LOCAL in (read.get(variables.dst_kind), read.get(variables.translated_kind))
    loops = loops or (src in new_destinations and read.get(variables.src_kind) == LOCAL)
    if (
        not moved
        and origin == "local"
        and (loops or KEPT in answers)
        and any(
            level in read.values
            for level in range(variables.translated_src, variables.translated_src + variables.chunks)
        )
    ):
        # What MASQUERADE takes for a packet to this host itself.
        own = src if answers.get(KEPT) else read.number(variables.translated_src)
        if KEPT in answers and answers[KEPT] != (own == src):
            return None
        kinds.append((own, LOCAL))
        interfaces["own"] = Interface("own", (InterfaceAddress(family, own, family.bits),))
    if (
        state.fresh
        and origin == "arriving"
        and (KEPT_DESTINATION in answers or any(item.text.startswith("REDIRECT") for item in destinations))
    ):
        own = dst if answers.get(KEPT_DESTINATION) else read.number(variables.translated_dst)
        if KEPT_DESTINATION in answers and answers[KEPT_DESTINATION] != (own == dst):
            return None
        kinds.append((own, LOCAL))
        name = packet.in_interface or ""
        interfaces[name] = Interface(name, (InterfaceAddress(family, own, family.bits),))
    known: dict[int, int] = {}
    for address, kind in kinds:
        certain = variables.certain_kind(address)
        if known.setdefault(address, kind if certain is None else certain) != kind and certain is None:
            return None
    if known[dst] != read.get(variables.dst_kind) or known[src] != read.get(variables.src_kind):
        return None
    local = {address for address, kind in known.items() if kind == LOCAL}
    devices = variables.interfaces.names
    first, later = devices[read.get(variables.out_interface)], devices[read.get(variables.translated_out)]
    whole = family.full_mask
    routes = [Route(Network(family, dst, whole), first if first != "lo" else None)]
    other = later if origin == "local" and later not in ("", "lo") else first
    other = first if origin == "arriving" else other
    routes.append(Route(Network(family, 0, 0), other if other not in ("", "lo") else None))
    wide = [address for address, kind in known.items() if kind == BROADCAST and variables.certain_kind(address) is None]
    for number, address in enumerate(wide):
        beside = InterfaceAddress(family, address ^ 1, 24, address)
        interfaces[f"wide{number}"] = Interface(f"wide{number}", (beside,))
    rewritten = [read.number(variables.translated_src), *(() if moved else sources)]
    if moved and not _translated(read)[1]:
        rewritten = []
    recent = _recent(packet, answers, destinations, rewritten)
    if recent is None:
        return None
    names = {alias: name for name, alias in watch.lists.items()}
    sockets = frozenset(
        (packet.protocol, key.where or packet.dport or 0)
        for key, answer in answers.items()
        if key.kind == "socket" and answer and isinstance(key.where, int)
    )
    return Host(
        local_addresses=frozenset((family, address) for address in local),
        interfaces={"lo": Interface("lo"), **interfaces} if interfaces else None,
        routes=tuple(routes),
        sysctls=_SYSCTLS,
        recent={names.get(name, name): held for name, held in recent.items()},
        elements=_elements(recent, watch),
        transparent=sockets,
    )


def _recent(
    packet: Packet,
    answers: Mapping[FreeVariable, bool],
    destinations: tuple[Destination, ...],
    rewritten: Sequence[int],
) -> dict[str, dict[int, tuple[int, ...]]] | None:
    """Contents of the lists that give all these answers; None if there are none. `rewritten` are the sources that the
    packet may have when it loops."""
    asked: dict[tuple[str, int], list[tuple[Listed, bool]]] = {}
    for key, answer in answers.items():
        about = key.where
        if not isinstance(about, Listed):
            continue
        addresses = [packet.src or 0]
        if about.moment == LOOPED:
            addresses = list(rewritten)
        if about.side != "source":
            addresses = [packet.dst or 0]
            if about.moment == AFTER:
                addresses = [
                    destination.address if destination.address >= 0 else packet.dst or 0 for destination in destinations
                ]
        for address in addresses:
            asked.setdefault((about.name, address & about.mask), []).append((about, answer))
    result: dict[str, dict[int, tuple[int, ...]]] = {}
    for (name, address), questions in asked.items():
        ages = {0} | {about.seconds + 1 for about, _ in questions if about.seconds is not None}
        counts = {0} | {about.hits for about, _ in questions} | {about.hits - 1 for about, _ in questions}
        found = next(
            (
                (age,) * count
                for count in sorted(counts)
                for age in sorted(ages)
                if all(_held(about, (age,) * count) == answer for about, answer in questions)
            ),
            None,
        )
        if found is None:
            return None
        result.setdefault(name, {})[address] = found
    return result


def _elements(
    recent: Mapping[str, Mapping[int, tuple[int, ...]]], watch: Watch
) -> dict[tuple[str, str], dict[Hashable, Hashable]]:
    """The same contents as elements of sets: those that are not too old."""
    return {
        key: {
            address: True if any(seconds is None or age <= seconds for age in ages) else None
            for address, ages in recent[alias].items()
        }
        for key, (alias, seconds) in watch.sets.items()
        if alias in recent
    }


def _held(about: Listed, ages: tuple[int, ...]) -> bool:
    return sum(about.seconds is None or age <= about.seconds for age in ages) >= about.hits
