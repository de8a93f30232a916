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

from kproxy.dataplane.model.conntrack import ORIGINAL, REPLY, Connection, FlowTuple, tuple_of
from kproxy.dataplane.model.host import SHORT_SYSCTLS, Host, Interface, InterfaceAddress, Route
from kproxy.dataplane.model.ipset import IpSet
from kproxy.dataplane.model.packet import Packet
from kproxy.dataplane.symbolic.cases import ConntrackCase
from kproxy.dataplane.symbolic.free_variables import AFTER, LOOPED, FreeVariable, Listed
from kproxy.dataplane.symbolic.nat import KEPT, KEPT_DESTINATION
from kproxy.dataplane.symbolic.table import TABLE, Shape
from kproxy.dataplane.symbolic.translated import Destination
from kproxy.dataplane.symbolic.variables import BROADCAST, LOCAL, Variables
from kproxy.netfilter.address import Network
from kproxy.netfilter.field import PORT_PROTOCOLS

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
        new_source: whether chains behind the translation of sources may ask for the new one.
        own: addresses that this side's host has for virtual servers. members: the ipsets that are known.
    """

    mark: int = 0
    connmark: int = 0
    lists: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    sets: Mapping[tuple[str, str], tuple[str, int | None]] = field(default_factory=lambda: MappingProxyType({}))
    new_source: bool = False
    own: frozenset[int] = frozenset()
    members: Mapping[str, IpSet] = field(default_factory=dict)


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

    @property
    def destination(self) -> tuple[int, int]:
        """The packet's destination: address and port, the port 0 if its protocol has none."""
        variables = self.variables
        port = self.number(variables.dport) if self.get(variables.protocol) in PORT_PROTOCOLS else 0
        return self.number(variables.dst), port

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
    told = _Told(read, packet, state, answers, destinations, watch, sources)
    host = told.host()
    if host is None:
        return None
    assumed = tuple(
        (key, answer)
        for key, answer in answers.items()
        if key.kind in ("opaque", "set", "rate", "header")
        or (key.kind == "physdev" and (answer or "! " in key.text))  # a situation's packet comes by no bridge port
    )
    answered: dict[str, bool] = {}
    if any(answered.setdefault(key.text, answer) != answer for key, answer in assumed):
        return None  # the same text in two roles: the rules cannot be given both answers
    variants = [("legacy", "nft")[answer] for key, answer in answers.items() if key.kind == "variant"]
    return Situation(packet, host, told.connection(), assumed, variants[0] if variants else None)


def _owner(answers: Mapping[FreeVariable, bool]) -> tuple[int, int, bool] | None:
    """User, group and socket that answer `-m owner` so."""
    asked: list[tuple[Any, bool]] = [(key.where, answer) for key, answer in answers.items() if key.kind == "owner"]
    ids = []
    for name in ("uid", "gid"):
        wanted = [(where[1:3], answer) for where, answer in asked if where[0] == name]
        edges = {0, *(edge for (first, last), _ in wanted for edge in (first, last, last + 1, max(first - 1, 0)))}
        fits = (each for each in sorted(edges) if all((one <= each <= two) == answer for (one, two), answer in wanted))
        ids.append(next(fits, None))
    user, group = ids
    socket = next((answer for where, answer in asked if where == "socket"), True)
    return None if user is None or group is None else (user, group, socket)


@dataclass(frozen=True)
class _Told:
    """What the values say; `destinations`, `watch` and `sources` as for `situation_of`, `answers` those of the free
    variables."""

    read: Values
    packet: Packet
    state: ConntrackCase
    answers: Mapping[FreeVariable, bool]
    destinations: tuple[Destination, ...]
    watch: Watch
    sources: tuple[int, ...]

    @property
    def translated(self) -> tuple[bool, bool]:
        """Whether a known connection translates the destination, and the source, of a packet of its direction."""
        variables, get = self.read.variables, self.read.get
        dnat, snat = bool(get(variables.dnat)), bool(get(variables.snat))
        return (snat, dnat) if get(variables.reply) else (dnat, snat)

    def connection(self) -> Connection:
        """The packet's connection, as conntrack has it."""
        read, packet, state, variables = self.read, self.packet, self.state, self.read.variables
        mark = read.number(variables.connmark)
        if not state.known:
            return Connection(state.ctstate, mark=mark)
        moved_dst, moved_src = self.translated
        now = tuple_of(packet)
        later = FlowTuple(
            read.number(variables.translated_src),
            read.number(variables.translated_sport) if packet.has_ports else None,
            read.number(variables.translated_dst),
            read.number(variables.translated_dport) if packet.has_ports else None,
        )
        source, destination = later if moved_src else now, later if moved_dst else now
        turned = FlowTuple(source.src, source.sport, destination.dst, destination.dport).reversed()
        reply = bool(read.get(variables.reply))
        asked = {key.where: answer for key, answer in self.answers.items() if key.kind == "conntrack"}
        status = {where: answer for where, answer in asked.items() if isinstance(where, str)}
        held = {where for where, answer in status.items() if answer}
        if state.ctstate == "ESTABLISHED":
            held |= {"SEEN_REPLY", "CONFIRMED"}
        return Connection(
            state.ctstate,
            REPLY if reply else ORIGINAL,
            *((turned, now) if reply else (now, turned)),
            dnat=bool(read.get(variables.dnat)),
            snat=bool(read.get(variables.snat)),
            status=frozenset(held) if status else None,
            mark=mark,
        )

    def host(self) -> Host | None:
        """The host that the packet meets; None if there can be none."""
        read, packet, state, answers, variables = self.read, self.packet, self.state, self.answers, self.read.variables
        family, origin = variables.family, packet.origin
        src, dst = packet.src or 0, packet.dst or 0
        moved = state.known
        kinds = [(dst, read.get(variables.dst_kind)), (src, read.get(variables.src_kind))]
        moved_dst, moved_src = self.translated if moved else (False, False)
        new_destinations = [read.number(variables.translated_dst)] * moved_dst
        new_sources = [read.number(variables.translated_src)] * moved_src
        if moved:
            new_sources = [address for address in new_sources if address not in (dst, *new_destinations)]
        else:
            new_destinations = [each.address for each in self.destinations if each.address >= 0]
            new_sources = list(self.sources) if origin == "local" else []
        # An address that the packet has already is of the kind that is said there.
        kinds += [
            (address, read.get(variables.translated_kind)) for address in new_destinations if address not in (dst, src)
        ]
        kinds += [(address, read.get(variables.translated_src_kind)) for address in new_sources]
        chosen = []  # addresses of the host's own: their interface, whether it is the packet's own, that, and any
        loops = LOCAL in (read.get(variables.dst_kind), read.get(variables.translated_kind))
        loops = loops or (src in new_destinations and read.get(variables.src_kind) == LOCAL) or dst in self.watch.own
        asked = self.watch.new_source or (origin == "local" and (loops or KEPT in answers))
        if not moved and asked and any(level in read.values for level in variables.levels["translated_src"]):
            # What MASQUERADE takes, on each device that the packet may leave by; for lo it is another one's.
            levels = (variables.out_interface, variables.translated_out) if self.watch.new_source else ()
            leaving = {variables.interfaces.names[read.get(level)] for level in levels} - {"", "lo"} or {"own"}
            chosen += [(name, KEPT, src, variables.translated_src) for name in sorted(leaving)]
        redirected = any(item.text.startswith("REDIRECT") for item in self.destinations)
        if state.fresh and origin == "arriving" and (redirected or KEPT_DESTINATION in answers):
            chosen.append((packet.in_interface or "", KEPT_DESTINATION, dst, variables.translated_dst))
        interfaces: dict[str, Interface] = {}
        for name, kept, present, other in chosen:
            own = present if answers.get(kept) else read.number(other)
            if kept in answers and answers[kept] != (own == present):
                return None
            kinds.append((own, LOCAL))
            device = Interface(name, (InterfaceAddress(family, own, family.bits),))
            if interfaces.setdefault(name, device) != device:
                return None
        known: dict[int, int] = {}
        for address, kind in kinds:
            certain = variables.certain_kind(address)
            if known.setdefault(address, kind if certain is None else certain) != kind and certain is None:
                return None
        if known[dst] != read.get(variables.dst_kind) or known[src] != read.get(variables.src_kind):
            return None
        wide = (address for address, kind in known.items() if kind == BROADCAST)
        for number, address in enumerate(each for each in wide if variables.certain_kind(each) is None):
            beside = InterfaceAddress(family, address ^ 1, 24, address)
            interfaces[f"wide{number}"] = Interface(f"wide{number}", (beside,))
        rewritten = [read.number(variables.translated_src), *(() if moved else self.sources)]
        recent = self.recent([] if moved and not moved_src else rewritten)
        if recent is None:
            return None
        names = {alias: name for name, alias in self.watch.lists.items()}
        host = Host(
            local_addresses=frozenset((family, address) for address, kind in known.items() if kind == LOCAL),
            sets=self.watch.members,
            interfaces={"lo": Interface("lo"), **interfaces} if interfaces else None,
            routes=self.routes(),
            sysctls=_SYSCTLS,
            recent={names.get(name, name): held for name, held in recent.items()},
            elements=_elements(recent, self.watch),
            transparent=frozenset(
                (packet.protocol, key.where or packet.dport or 0)
                for key, answer in answers.items()
                if key.kind == "socket" and answer and isinstance(key.where, int)
            ),
        )
        return host.serving((family, address) for address in self.watch.own) if self.watch.own else host

    def routes(self) -> tuple[Route, Route]:
        """The routes to the packet's destination, and to all others."""
        read, variables, family = self.read, self.read.variables, self.packet.family
        devices = variables.interfaces.names
        first, later = devices[read.get(variables.out_interface)], devices[read.get(variables.translated_out)]
        other = later if self.packet.origin == "local" and later not in ("", "lo") else first
        return (
            Route(Network(family, self.packet.dst or 0, family.full_mask), first if first != "lo" else None),
            Route(Network(family, 0, 0), other if other not in ("", "lo") else None),
        )

    def recent(self, rewritten: Sequence[int]) -> dict[str, dict[int, tuple[int, ...]]] | None:
        """Contents of the lists that give all these answers; None if there are none. `rewritten` are the sources that
        the packet may have when it loops."""
        packet = self.packet
        asked: dict[tuple[str, int], list[tuple[Listed, bool]]] = {}
        for key, answer in self.answers.items():
            about = key.where
            if not isinstance(about, Listed):
                continue
            addresses = [packet.src or 0]
            if about.moment == LOOPED:
                addresses = list(rewritten)
            if about.side != "source":
                addresses = [packet.dst or 0]
                if about.moment == AFTER:
                    addresses = [item.address if item.address >= 0 else packet.dst or 0 for item in self.destinations]
            for address in addresses:
                asked.setdefault((about.name, address & about.mask), []).append((about, answer))
        result: dict[str, dict[int, tuple[int, ...]]] = {}
        for (name, address), questions in asked.items():
            ages = {0} | {about.seconds + 1 for about, _ in questions if about.seconds is not None}
            counts = {0} | {about.hits for about, _ in questions} | {about.hits - 1 for about, _ in questions}
            contents = ((age,) * count for count in sorted(counts) for age in sorted(ages))
            fits = (each for each in contents if all(_held(about, each) == answer for about, answer in questions))
            found = next(fits, None)
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
