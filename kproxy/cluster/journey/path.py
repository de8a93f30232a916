"""The whole way of a connection's first packet over all hosts, and of what comes back.

On every host the data-plane model says what its rules do; between hosts `wire` says where the packet goes. Where rules
choose by chance there are several journeys, whose probabilities add up to 1. Connection tracking is carried along: each
host's entry of the forward path is what the reply finds there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from kproxy.cluster.journey.network import POD, Arrival, Network, NetworkHost, Outer
from kproxy.cluster.journey.wire import next_host
from kproxy.dataplane import ACCEPT, DROP, INDETERMINATE, REJECT, Connection, Outcome, Packet, make_packet, trace
from kproxy.dataplane.concrete.reply import is_answered, reply_to
from kproxy.dataplane.model.conntrack import INVALID, FlowTuple, tuple_of
from kproxy.dataplane.model.packet import ACK, ARRIVING, ICMP, ICMPV6, LOCAL, SCTP, SYN
from kproxy.dataplane.query.report import undecided
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.netfilter.field import UINT32
from kproxy.words import listed

_MAX_HOPS: Final = 12
"""Hosts that a packet may visit; more is a loop, which ends when its TTL is used up."""

_MOST_ENDS: Final = 8

ANSWERED: Final = "answered"
REFUSED: Final = "refused"
LOST: Final = "lost"
UNREACHABLE: Final = "unreachable"
OPEN: Final = "open"
NOT_LISTENING: Final = "no process listens there"


@dataclass(frozen=True, slots=True)
class Hop:
    """A packet's stay on one host.

    Attributes:
        arrived: as it came, or was made here.
        outcome: what the host did to it.
        outer: what it leaves in, if by a tunnel.
        held: it was to leave and did not: its next hop does not answer, or the interface has no carrier.
    """

    host: str
    arrived: Packet
    outcome: Outcome
    outer: Outer | None = None
    held: bool = False

    @property
    def left(self) -> Packet:
        """The packet as it left the host."""
        return self.outcome.packet


@dataclass(frozen=True, slots=True)
class Journey:
    """One way that things can go.

    Attributes:
        end: answered, refused (by a RST or an ICMP error), lost (nothing comes back), unreachable (a host on the way
            says that it has no route, or after three seconds that the next one does not answer), or open (it depends
            on something that is not known).
        at: the host where the packet ended.
        reason: why, if it was not answered.
        there, back: the hops of the packet, and of what came back.
    """

    probability: Fraction
    end: str
    at: str
    reason: str
    there: tuple[Hop, ...]
    back: tuple[Hop, ...] = ()

    @property
    def pod(self) -> str:
        """The pod that answers, `NAMESPACE/NAME`; "" if none does."""
        return self.at.removeprefix(POD) if self.end == ANSWERED and self.at.startswith(POD) else ""

    @property
    def why(self) -> str:
        """`reason`, with the host where the packet ended if that is not said; "" if it was answered."""
        said = not self.reason or "/" in self.at or self.at in self.reason.split()
        return self.reason if said else f"{self.reason} on {self.at}"

    @property
    def waits(self) -> bool:
        """Whether the sender learns it only when a host has asked for its neighbour in vain (`NEIGHBOUR_SECONDS`)."""
        return self.end == UNREACHABLE and self.there[-1].held

    @property
    def source(self) -> str:
        """The source address that the last host saw."""
        packet = self.there[-1].left
        return "?" if packet.src is None else format_address(packet.src, packet.family)

    @property
    def target(self) -> str:
        """Address and port that the packet had at last."""
        return self.there[-1].left.destination


def one_of(found: Sequence[Sequence[Journey]], why: str) -> Sequence[Journey]:
    """The journeys of a connection of which it is not known which of some lists holds: one that is open, and ends where
    they part, unless all lists are alike. `why` says what it depends on."""
    if len({frozenset((*_end(each), each.source, each.probability) for each in ways) for ways in found}) == 1:
        return found[0]
    ways = [each for some in found for each in some]
    alike, there = ways, ways[0].there
    for place, hop in enumerate(there):
        met = len(alike)
        alike = [each for each in alike if len(each.there) > place and _comes_as(each.there[place], hop)]
        if len(alike) < met:  # the wire leads to one host or to another
            there = there[:place]
            break
        outcomes = [each.there[place].outcome for each in alike]
        if len({(each.verdict, each.packet) for each in outcomes}) > 1:
            last = Hop(hop.host, hop.arrived, dataclasses.replace(undecided(outcomes, why), packet=hop.arrived))
            there = (*there[:place], last)
            break
    ends = [
        f"{end} by {at} at {target}" if end == ANSWERED else f"{end} at {at}" for end, at, target in map(_end, ways)
    ]
    reason = f"{why}; possible: {listed(list(dict.fromkeys(ends)), _MOST_ENDS)}"
    return [Journey(Fraction(1), OPEN, there[-1].host, reason, there)]


def _end(way: Journey) -> tuple[str, str, str]:
    return way.end, way.at, way.target


def _comes_as(one: Hop, other: Hop) -> bool:
    return (one.host, one.arrived) == (other.host, other.arrived)


@dataclass
class _Path:
    """A walk on its way; copied where it forks."""

    probability: Fraction
    hops: tuple[Hop, ...] = ()
    entries: Mapping[str, tuple[Connection, ...]] = field(default_factory=dict)
    answered: bool = False
    """Whether what walks is the answer."""
    is_error: bool = False
    """Whether that is an ICMP error, or a RST that a rule sends."""
    assumed: Mapping[str, bool] = field(default_factory=dict)
    """How what is open is decided, as in `trace`."""
    chosen: bool = False
    """Whether a load balancer, or a router with several ways, has chosen where it goes."""

    def with_hop(self, hop: Hop, probability: Fraction) -> _Path:
        entries = dict(self.entries)
        connection = hop.outcome.connection
        if connection is not None and not self.is_error:
            entries[hop.host] = (*entries.get(hop.host, ()), connection)
        return dataclasses.replace(
            self, probability=self.probability * probability, hops=(*self.hops, hop), entries=entries
        )


def journeys(
    network: Network,
    client: str,
    destination: str,
    protocol: str,
    *,
    source_port: int | None = None,
    source: str | None = None,
    assumed: Mapping[str, bool] | None = None,
) -> list[Journey]:
    """Everything that can become of a connection from `client` to `destination` (`IP:PORT`), the likeliest first.

    Args:
        source_port: the client's port; None leaves it open.
        source: the client's address; None lets routing choose.
        assumed: decides what is open, on all hosts, as in `trace`.

    Raises:
        DataplaneError, LinuxError, LabError: see `trace`, `Network.host`.
    """
    packet = make_packet(source, destination, protocol, origin=LOCAL, socket=True)
    if packet.has_ports:
        packet = packet.replace(sport=source_port)
    found = [
        journey
        for path, outcome in _go(network, _Path(Fraction(1), assumed=assumed or {}), client, packet, Connection())
        for journey in _come_back(network, path, outcome)
    ]
    return sorted(found, key=lambda item: (-item.probability, item.end, item.at))


@dataclass(frozen=True, slots=True)
class _End:
    """How a journey ended, and why."""

    kind: str
    reason: str = ""


def _go(
    network: Network, path: _Path, name: str, packet: Packet, connection: Connection
) -> Iterator[tuple[_Path, _End]]:
    """Walks a packet from a host on; the ends of all ways."""
    if len(path.hops) >= _MAX_HOPS:
        yield path, _End(LOST, "it goes in circles")
        return
    host = network.host(name)
    for outcome in _outcomes(host, packet, connection, path.assumed):
        if outcome.verdict == ACCEPT and outcome.via != "local":
            yield from _onward(network, path, host, packet, outcome)
        else:
            yield path.with_hop(Hop(name, packet, outcome), outcome.probability or Fraction(1)), _end_on(outcome)


def _end_on(outcome: Outcome) -> _End:
    """How a packet ends that does not go on to another host."""
    if outcome.verdict == INDETERMINATE:
        return _End(OPEN, "; ".join(outcome.reasons))
    if outcome.verdict == DROP:
        why = outcome.reason or " in ".join(filter(None, ("dropped by a rule", outcome.hook)))
        return _End(UNREACHABLE if "no route" in outcome.reason else LOST, why)
    return _End(REFUSED if outcome.verdict == REJECT else ANSWERED)


def _outcomes(
    host: NetworkHost, packet: Packet, connection: Connection, assumed: Mapping[str, bool]
) -> tuple[Outcome, ...]:
    """What a host may do to a packet. Where its rules are not known: anything, which the reasons say."""
    found = trace(host.indexes[packet.family], host.host, packet, connection, assumed=assumed).outcomes
    why = host.unknown.get(packet.family)
    if why is None:
        return found
    return (dataclasses.replace(found[0], verdict=INDETERMINATE, probability=Fraction(1), reasons=(why,), hints=()),)


def _onward(
    network: Network, path: _Path, host: NetworkHost, packet: Packet, outcome: Outcome
) -> Iterator[tuple[_Path, _End]]:
    arrival = next_host(network, host, outcome.packet)
    hop = Hop(host.name, packet, outcome, arrival.outer, arrival.held)
    further = path.with_hop(hop, outcome.probability)
    if arrival.choices:
        if path.chosen:  # each of them would send it back, or to the next one that does
            yield further, _End(LOST, f"no rule of {host.name} translates {outcome.packet.destination}: it goes back")
            return
        share = further.probability / len(arrival.choices)
        further = dataclasses.replace(further, probability=share, chosen=True)
    for each in arrival.choices or (arrival,):
        if each.host:
            entry = _entry(further, each, outcome.packet)
            yield from _go(network, further, each.host, arrive(outcome.packet, each), entry)
        else:
            kind = OPEN if each.unknown else UNREACHABLE if each.refused else LOST
            yield further, _End(kind, each.reason)


_LEFT_BEHIND: Final = dict.fromkeys(("in_port", "out_interface", "out_port", "uid", "gid", "socket", "bridged"))


def arrive(packet: Packet, arrival: Arrival) -> Packet:
    """A packet as it comes to the next host: what marked it on the last one is gone."""
    return packet.replace(in_interface=arrival.device, origin=ARRIVING, mark=0, mark_known=UINT32, **_LEFT_BEHIND)


def _entry(path: _Path, arrival: Arrival, packet: Packet) -> Connection:
    """What connection tracking of the next host knows of a packet: an entry of this journey whose reply it is."""
    if path.is_error:
        return _related(path, arrival.host)
    seen = tuple_of(packet)
    # A connection's first packet that comes to a host again, from a node that masqueraded it, say, has another tuple
    # there: it would be the first one's reply only if a source port that is left open were just the one.
    for entry in reversed(path.entries.get(arrival.host, ())):
        if entry.reply is not None and (_fits(entry.reply, seen) if path.answered else entry.reply == seen):
            return entry.turned()
    if packet.tcp_flags == SYN | ACK or (packet.protocol == SCTP and path.answered):
        # The middle of a connection that this host has not seen begin (tcp_new, sctp_new).
        return Connection(INVALID)
    return Connection()


def _fits(one: FlowTuple, other: FlowTuple) -> bool:
    """Whether two tuples may be the same; what is open fits everything."""
    return all(mine is None or its is None or mine == its for mine, its in zip(one, other, strict=True))


# --- what comes back ---


def _come_back(network: Network, path: _Path, end: _End) -> Iterator[Journey]:
    last, begin = path.hops[-1], len(path.hops)
    if end.kind == ANSWERED and not _listens(network, last):
        own_sctp = last.left.protocol == SCTP and last.host == path.hops[0].host
        end = _End(LOST if own_sctp and not network.refuses_sctp() else REFUSED, NOT_LISTENING)
    reason = end.reason or (f"rejected with {last.outcome.reject}" if last.outcome.verdict == REJECT else "")
    if end.kind == UNREACHABLE and last.arrived.origin != LOCAL:
        # A router without a route says so (ICMP network unreachable, no route); so does one whose neighbour does not
        # answer (host unreachable, address unreachable), of the packet as it would have gone on.
        held = last.outcome.verdict == ACCEPT
        packet, connection = _unreachable(last.left if held else last.arrived, held), Connection("RELATED")
    elif end.kind in (ANSWERED, REFUSED) and is_answered(last.outcome):
        packet, connection = reply_to(network.host(last.host).host, last.outcome)
    else:
        yield Journey(path.probability, end.kind, last.host, reason, path.hops)
        return
    is_error = connection.state == "RELATED"  # goes back the way the packet came
    if is_error:
        connection = _related(path, last.host)
    way = dataclasses.replace(path, answered=True, is_error=is_error)
    for further, after in _go(network, way, last.host, packet, connection):
        back = further.hops[begin:]
        if after.kind == ANSWERED and not is_error and not _is_reply(back[-1], path.hops[0]):
            after = _End(LOST, "it comes from another address than was asked")
        if after.kind == ANSWERED:
            yield Journey(further.probability, end.kind, last.host, reason, path.hops, back)
        else:
            why = f"the {'error' if is_error else 'answer'}: {after.reason or 'it goes astray'}"
            kind = OPEN if after.kind == OPEN else LOST
            yield Journey(further.probability, kind, back[-1].host, why, path.hops, back)


def _is_reply(last: Hop, first: Hop) -> bool:
    """Whether what arrived is what the client waits for: from where it asked, to where it asked from."""
    # The source of the client's own packet may be chosen only by routing, so the entry of the client's host tells.
    asked = first.outcome.connection.original if first.outcome.connection is not None else tuple_of(first.left)
    return last.host == first.host and asked is not None and _fits(asked.reversed(), tuple_of(last.left))


def _unreachable(packet: Packet, held: bool) -> Packet:
    """What a router sends to the sender of a packet that it cannot route, or that it held for a neighbour in vain."""
    v4 = packet.family is Family.IPV4
    kind, protocol, code = (3, ICMP, 1) if v4 else (1, ICMPV6, 3)
    return Packet(
        packet.family, None, packet.src, protocol, icmp_type=kind, icmp_code=code if held else 0, origin=LOCAL,
        in_interface="", socket=False,
    )  # fmt: skip


def _related(path: _Path, name: str) -> Connection:
    """The entry of a host on the way, as an ICMP error or a RST that a rule sends finds it."""
    known = path.entries.get(name)
    return known[-1].turned("RELATED") if known else Connection("RELATED")


def _listens(network: Network, hop: Hop) -> bool:
    """Whether something answers where the packet was delivered."""
    packet = hop.left
    protocol = {6: "TCP", 17: "UDP", 132: "SCTP"}.get(packet.protocol, "")
    return not protocol or packet.dport is None or network.listens(hop.host, protocol, packet.dport)
