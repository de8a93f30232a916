"""Differences of several nodes as findings: those that read alike are one, with the Services and a question that shows
it on the map.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kproxy.cluster.evidence.unseen import Unseen
from kproxy.cluster.facts.proxyrules import is_of_configuration
from kproxy.cluster.journey.known import OUTSIDE
from kproxy.dataplane.compare.compare import Comparison
from kproxy.dataplane.compare.difference import ALL, Cause, Difference, Extent, Place, by_cause, within
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.packet import LOCAL, parse_endpoint, parse_ip
from kproxy.explorer.model.model import Model, Work
from kproxy.family import join_host_port
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name
from kproxy.words import counted, listed

MAX_FINDINGS: Final = 200
MAX_SERVICES: Final = 100
"""So many Services of a finding are listed."""

StandsFor = Mapping[str, Sequence[str]]
"""For each Service that was compared, `namespace/name`, those that are treated as it is."""

ALL_PACKETS: Final = "all packets"
TIME_OVER: Final = "not compared: the time for it was over"


class AskHint(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """A question that shows a difference on the map."""

    sender: str
    to: str
    protocol: str


class AnswerChange(msgspec.Struct, frozen=True, rename={"sources": "from", "source_only": "sourceOnly"}):
    """One difference, with the nodes where it is. `witness` is as in `kproxy diff -o json`; `asks` are the questions
    that show it on the two sides, `ask` the first of them. Of Services that are at none of the `destinations` the same
    holds with their own addresses, node ports and endpoints; `more` are not listed. Findings of one `cause` stand
    together; the numbers of its rules are the first node's. `ends` is what becomes of the witness on each side, if
    that is certain: `dropped`, `rejected`, `sent`; else "". `sourceOnly`: only the source differs. `assumed`: it
    may be none, since it hangs on kube-proxy's configuration, which is known from rules alone. Where modes differ
    `reason`, `title`, `advice`, `effort`, `do`, `config` and the witness are those of `kproxy migrate -o json`.
    `remedy`: what to do about the cause of a difference of drift or diff."""

    nodes: tuple[str, ...]
    families: tuple[str, ...]
    services: tuple[str, ...]
    statement: str
    destinations: tuple[str, ...]
    sources: str
    conditions: str
    before: str
    after: str
    witness: object
    ask: AskHint | None
    asks: tuple[AskHint | None, AskHint | None]
    cause: Cause | None
    more: int = 0
    ends: tuple[str, str] = ("", "")
    source_only: bool = False
    assumed: bool = False
    reason: str = ""
    title: str = ""
    advice: tuple[str, ...] = ()
    effort: str = ""
    do: str = ""
    config: str = ""
    remedy: str = ""


class Open(msgspec.Struct, frozen=True):
    """Something that the model cannot decide."""

    where: str
    reason: str
    node: str


class Findings(msgspec.Struct, frozen=True):
    """What two states differ in."""

    alike: bool
    findings: tuple[AnswerChange, ...]
    undecided: tuple[Open, ...]
    notes: tuple[str, ...]
    services: tuple[str, ...] = ()
    """All that findings are about, also those that they do not list."""
    unlisted: tuple[str, ...] = ()
    """What more differs than findings say, in words."""


@dataclass(frozen=True)
class Compared:
    """What the two sides of a node's rules do differently.

    Attributes:
        gaps: what was not seen, and may make the sides differ.
        stands_for: for each Service that was compared those that are treated alike, if not all were.
        first: the node that was compared for this one and for others that differ in nothing but their own addresses.
    """

    found: Comparison
    gaps: Sequence[Unseen] = ()
    stands_for: StandsFor = field(default_factory=dict)
    first: str = ""


@dataclass(frozen=True)
class Sent:
    """A packet that shows a difference, as far as a question can say it.

    Attributes:
        local: the node sends it itself. to_host: the destination is an address of the node that it meets.
        extent: what of it may be another for the same difference.
        receivers: addresses where it arrives on a side.
    """

    source: str
    destination: str
    port: int
    protocol: str
    local: bool
    to_host: bool = False
    extent: Extent = field(default_factory=Extent)
    receivers: frozenset[str] = frozenset()

    @classmethod
    def of(cls, item: Difference) -> Sent | None:
        """A difference's witness; None if it has no destination, or no port."""
        packet, host = item.witness.packet, item.witness.host
        if packet.dst is None or packet.dport is None:
            return None
        source = "" if packet.src is None else format_address(packet.src, packet.family)
        destination = format_address(packet.dst, packet.family)
        to_host = bool(host.is_local(packet.family, packet.dst))
        local, protocol = packet.origin == LOCAL, protocol_name(packet.protocol)
        outcomes = (outcome.packet for trace in item.traces for outcome in trace.outcomes)
        receivers = frozenset(format_address(each.dst, each.family) for each in outcomes if each.dst is not None)
        return cls(source, destination, packet.dport, protocol, local, to_host, item.extent, receivers)

    @classmethod
    def said(cls, source: str, destination: str, protocol: str, origin: str) -> Sent | None:
        """The same of a witness in words; `?` is open. Of its addresses it is not known which others would do, so it is
        asked from the very client that is shown."""
        try:
            to = parse_endpoint(destination)
        except DataplaneError:
            return None
        if to.port is None:
            return None
        sender = "" if source.startswith("?") else format_address(parse_endpoint(source).address, to.family)
        start = parse_ip(sender)[1] if sender else 0
        extent = Extent(((start, start),) if sender else ALL, ((to.address, to.address),))
        return cls(sender, format_address(to.address, to.family), to.port, protocol, origin == LOCAL, extent=extent)

    def may_come_from(self, address: str) -> bool:
        """Whether it is of the family, and packets from there show the same."""
        family, value = parse_ip(address)
        return family is self.family and within(self.extent.sources, value)

    def may_go_to(self, address: str) -> bool:
        """Whether packets to an address of the node show the same."""
        return self.to_host and self.goes_alike_to(address)

    def goes_alike_to(self, address: str) -> bool:
        """Whether packets to an address show the same."""
        family, value = parse_ip(address)
        return family is self.family and within(self.extent.destinations, value)

    @property
    def family(self) -> Family:
        """Of its addresses."""
        return parse_ip(self.destination)[0]

    @property
    def to_loopback(self) -> bool:
        return ipaddress.ip_address(self.destination).is_loopback


class Gathered:
    """Differences of several nodes: those that read alike are one."""

    def __init__(
        self,
        one: Model,
        other: Model,
        *,
        by_configuration: bool = False,
        remedy: Callable[[Cause | None], str] = lambda _cause: "",
    ) -> None:
        """
        Args:
            by_configuration: one side alone has the rules that kube-proxy's configuration asks for.
            remedy: what to do about a cause.
        """
        self._remedy = remedy
        self._by_configuration = by_configuration
        self._models = (one, other)
        self._found: dict[tuple[object, ...], _Group] = {}
        self._undecided: list[Open] = []
        self._left_out: dict[str, None] = {}
        self._alike = True
        self._more: dict[str, int] = {}
        self._compared_for: dict[str, dict[str, None]] = {}
        self._stand = self._stood_for = 0
        self._services: dict[str, None] = {}

    def add(self, work: Work, nodes: tuple[str, str], family: Family, compare: Callable[[], Compared | None]) -> bool:
        """Takes what two rule sets of a node differ in, if the time for it suffices; False if those of a side are not
        known.

        Args:
            nodes: what it is called on each side.
            compare: compares them; None if one is not known.
        """
        made = work.within(lambda: (compare(),))
        if made is None:
            self._alike = False
            self._left_out[nodes[0]] = None
            return True
        (compared,) = made
        if compared is not None:
            self._take(nodes, family, compared)
        return compared is not None

    def _take(self, nodes: tuple[str, str], family: Family, compared: Compared) -> None:
        found, gaps, stands_for, first = compared.found, compared.gaps, compared.stands_for, compared.first
        self._alike = self._alike and found.alike and not gaps
        name = nodes[0] if self._models[0].known.cluster is not None else nodes[1]
        if first in ("", name):
            self._more[name] = self._more.get(name, 0) + found.unexamined
        elif found.differences:
            self._compared_for.setdefault(first, {})[name] = None
        if len(stands_for) > self._stand:
            self._stand, self._stood_for = len(stands_for), sum(map(len, set(stands_for.values())))
        for item in found.differences:
            cause = None if item.cause is None else item.cause.anywhere
            key = (item.destinations, item.sources, item.conditions, item.one, item.other, cause)
            group = self._found.setdefault(key, _Group(item, nodes))
            group.nodes[name] = None
            group.families[family.value] = None
            group.alike.append(stands_for)
        self._undecided += [Open(gap.what, gap.why, name) for gap in gaps]
        self._undecided += [Open(item.where, item.reason, name) for item in found.undecided]

    def findings(self, notes: Sequence[str]) -> Findings:
        usual_first = sorted(self._found.values(), key=lambda each: each.item.rank)
        shown = _of_each(by_cause(usual_first, lambda each: each.item.cause), MAX_FINDINGS)
        unlisted = [_not_listed(self._more)] if any(self._more.values()) else []
        left_out = (Open(ALL_PACKETS, TIME_OVER, name) for name in self._left_out)
        left = len(self._found) - len(shown)
        unlisted += [f"{counted(left, 'more finding')} not listed here: {MAX_FINDINGS} are at most"] if left else []
        more = [_alike_services(self._stand, self._stood_for)] if self._stand < self._stood_for else []
        more += [_alike_nodes(first, list(others)) for first, others in self._compared_for.items()]
        return Findings(
            self._alike,
            tuple(map(self._finding, shown)),
            tuple(dict.fromkeys((*left_out, *self._undecided)))[:MAX_FINDINGS],
            (*notes, *more),
            tuple(self._services),
            unlisted=tuple(unlisted),
        )

    def _finding(self, group: _Group) -> AnswerChange:
        item = group.item
        sent = Sent.of(item)
        asks: tuple[AskHint | None, AskHint | None] = (None, None)
        services: dict[str, None] = {}
        if sent is not None:
            one, other = (question(model, node, sent) for model, node in zip(self._models, group.shown_on, strict=True))
            asks = (one, other)
            services = dict.fromkeys(name for model in self._models for name in services_at(model, sent))
        if any(group.alike):
            services |= dict.fromkeys(
                name for model in self._models for place in item.places for name in services_at(model, place)
            )
            stand = dict.fromkeys(name for alike in group.alike for name in alike)
            services |= dict.fromkeys(f"svc/{name}" for name in stand if self._is_about(name, sent))
            services |= dict.fromkeys(
                f"svc/{name}" for alike in group.alike for each in list(services) for name in alike.get(each[4:], ())
            )
        self._services |= services
        return AnswerChange(
            nodes=tuple(group.nodes),
            families=tuple(group.families),
            services=tuple(services)[:MAX_SERVICES],
            statement=item.statement("before", "after"),
            destinations=item.destinations,
            sources=item.sources,
            conditions=item.conditions,
            before=item.one,
            after=item.other,
            witness=item.record["witness"],
            ask=asks[0],
            asks=asks,
            cause=item.cause,
            more=max(0, len(services) - MAX_SERVICES),
            ends=item.ends,
            source_only=item.source_only,
            assumed=self._is_assumed(group),
            remedy=self._remedy(item.cause),
        )

    def _is_assumed(self, group: _Group) -> bool:
        cause = group.item.cause
        if not self._by_configuration or not (
            group.item.source_only if cause is None else is_of_configuration(cause.text, cause.set)
        ):
            return False
        cluster = self._models[0].known.cluster
        return cluster is not None and all(map(cluster.is_inferred, group.nodes))

    def _is_about(self, service: str, sent: Sent | None) -> bool:
        """Whether a Service answers at one of the addresses to which packets show the same."""
        if sent is None:
            return False
        return any(
            service in model.doors.at(address, sent.port, sent.protocol)
            for model in self._models
            for address in model.doors.of(service)
            if sent.goes_alike_to(address)
        )


def _of_each(groups: Sequence[Sequence[_Group]], most: int) -> list[_Group]:
    """The first ones of each group, so many together, in the order of the groups."""
    places = sorted((rank, place) for place, group in enumerate(groups) for rank in range(len(group)))[:most]
    return [groups[place][rank] for place, rank in sorted((place, rank) for rank, place in places)]


def _not_listed(unexamined: Mapping[str, int]) -> str:
    """That not all destinations were put into words, which takes its time, and on which nodes."""
    nodes = listed([name for name, number in unexamined.items() if number], 3)
    differ = counted(sum(unexamined.values()), "more destination")
    return (
        f"{differ} on {nodes} not listed here: only the first of each node are put into words (kproxy diff --all: all)"
    )


def _alike_services(stand: int, all_of_them: int) -> str:
    return (
        f"{stand} Services stand for all {all_of_them}, which differ from one of them only in names, addresses and "
        "node ports: a finding names the addresses of those, and lists all that it holds for"
    )


def _alike_nodes(first: str, others: list[str]) -> str:
    differ = f"they differ only in their own addresses, of which findings name {first}'s"
    return f"{first} stands for {listed(others, 3)} too: {differ}"


@dataclass
class _Group:
    """Differences that read alike: the first one, what its node is called on each side, and where they are; and on each
    node the Services that are treated alike."""

    item: Difference
    shown_on: tuple[str, str]
    nodes: dict[str, None] = field(default_factory=dict)
    families: dict[str, None] = field(default_factory=dict)
    alike: list[StandsFor] = field(default_factory=list)


def services_at(model: Model, at: Place | Sent) -> tuple[str, ...]:
    """The Services that answer at a destination; none if it is no single port."""
    if model.known.cluster is None or not at.port:
        return ()
    address = at.address if isinstance(at, Place) else at.destination
    return tuple(f"svc/{name}" for name in model.doors.at(address, at.port, at.protocol))


def question(model: Model, node: str, sent: Sent) -> AskHint:
    """A client that sends such a packet: the pod that has the source address, else one of the node, or the node, if
    that shows the difference, too; else whoever is outside. So it is with a node port's address."""
    receiver = join_host_port(sent.destination, sent.port)
    if model.known.cluster is None:
        sender = f"node/{node}" if sent.local or not sent.source else f"{OUTSIDE}{sent.source}"
        return AskHint(sender, receiver, sent.protocol)
    owners = model.owners
    own = next((each for each, name in owners.nodes.items() if name == node and sent.may_go_to(each)), "")
    elsewhere = owners.target(sent.destination)[0].startswith(OUTSIDE) and not sent.to_loopback
    if own and elsewhere and model.doors.is_node_port(sent.port, sent.protocol):
        receiver = join_host_port(own, sent.port)
    return AskHint(_sender(model, node, sent), receiver, sent.protocol)


def _is_of_pods(model: Model, node: str, address: str) -> bool:
    """Whether an address is an endpoint's, or of a network of Pods: then nobody outside the cluster has it."""
    if not address or model.owners.target(address)[1]:
        return bool(address)
    found = ipaddress.ip_address(address)
    host = model.cluster.hosts.get(node)
    config = None if host is None else model.cluster.config_of(host)
    of_cluster = (config.cluster_cidr if config is not None else "").split(",")
    of_nodes = (cidr for each in model.cluster.manifests.nodes for cidr in each.pod_cidrs)
    cidrs = (cidr.strip() for cidr in (*of_cluster, *of_nodes) if cidr.strip())
    return any(found in ipaddress.ip_network(cidr, strict=False) for cidr in cidrs)


def _sender(model: Model, node: str, sent: Sent) -> str:
    if sent.local or sent.to_loopback:
        return f"node/{node}"
    owner = model.owners.target(sent.source)[0] if sent.source else ""
    if owner.startswith(("pod/", "node/")):
        return owner
    clients = (
        pod
        for pod in model.cluster.pods.values()
        if pod.node == node and not pod.host_network and any(map(sent.may_come_from, pod.addresses))
    )
    # One that is no endpoint itself shows it best: what is sent back to its sender is a case of its own.
    client = min(clients, key=lambda each: not sent.receivers.isdisjoint(each.addresses), default=None)
    if client is not None:
        return f"pod/{client.name}"
    if _is_of_pods(model, node, sent.source):
        return sent.source  # of a pods' network, where no Pod is known to have it
    own = (each for each, name in model.owners.nodes.items() if name == node)
    if not sent.source or (LOCAL in sent.extent.origins and any(map(sent.may_come_from, own))):
        return f"node/{node}"
    return f"{OUTSIDE}{sent.source}"
