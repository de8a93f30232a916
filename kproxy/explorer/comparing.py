"""Two states of a cluster compared for every packet, node by node: what-if, drift, diff and migrate.

A change of a few Services is compared on their rules alone: kube-proxy's rules of other Services are the same on both
sides, and no packet meets rules of two Services. Nodes whose rules read alike are compared once.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgspec

from kproxy.api import Manifests
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES
from kproxy.api.types.core import Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.cluster.journey.known import OUTSIDE
from kproxy.cluster.migrate import ForeignRules, analyse, build_report
from kproxy.cluster.migrate import Report as MigrateReport
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.dataplane import Host
from kproxy.dataplane.compare.compare import Comparison, Difference, compare
from kproxy.dataplane.compare.record import difference_record
from kproxy.dataplane.model.packet import LOCAL
from kproxy.dataplane.symbolic.side import SideRules
from kproxy.explorer.edits import Edit, EditWords
from kproxy.explorer.errors import bad_input, cannot
from kproxy.explorer.maps import draw_map
from kproxy.explorer.model import Model, Work, family_named
from kproxy.explorer.rendering import own_rules, render, with_foreign
from kproxy.explorer.views import MapView
from kproxy.family import join_host_port
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.render import RenderedTable, RenderedTarget
from kproxy.services.names import LABEL_SERVICE_NAME
from kproxy.services.tracker import ServiceState

EXAMINED: Final = 30
"""Differences of one node that are put into words."""
MAX_FINDINGS: Final = 200
MAX_SINGLE: Final = 8
"""Nodes that are compared each with its own addresses."""


class WhatIf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Edits of a copy. `node`: whose chances its map shows; `compare`: whether to say what changes for packets."""

    edits: tuple[Edit, ...]
    node: str = ""
    compare: bool = True


class Side(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One side: the source as it is, or a copy of it."""

    edits: tuple[Edit, ...] = ()


class Compare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`kind` is diff, drift or migrate; what else counts follows from it."""

    kind: str
    a: Side = Side()
    b: Side = Side()
    family: str | None = None
    node: str = ""
    nodes: tuple[str, ...] = ()
    to: str = MODE_NFTABLES


class AskHint(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """A question that shows a difference on the map."""

    sender: str
    to: str
    protocol: str


class Finding(msgspec.Struct, frozen=True, rename={"sources": "from"}):
    """One difference, with the nodes where it is. `witness` is as in `kproxy diff -o json`."""

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


class Open(msgspec.Struct, frozen=True):
    """Something that the model cannot decide."""

    where: str
    reason: str
    node: str


class Findings(msgspec.Struct, frozen=True):
    """What two states differ in."""

    alike: bool
    findings: tuple[Finding, ...]
    undecided: tuple[Open, ...]
    notes: tuple[str, ...]


class WhatIfAnswer(msgspec.Struct, frozen=True):
    """A copy: its edits in words, what changes for packets, and its map."""

    revision: int
    edits: tuple[EditWords, ...]
    alike: bool
    findings: tuple[Finding, ...]
    undecided: tuple[Open, ...]
    notes: tuple[str, ...]
    touched: tuple[str, ...]
    map: MapView


class DiffAnswer(msgspec.Struct, frozen=True):
    kind: str
    a: str
    b: str
    alike: bool
    findings: tuple[Finding, ...]
    undecided: tuple[Open, ...]
    notes: tuple[str, ...]
    remarks: tuple[str, ...] = ()


class MigrateAnswer(msgspec.Struct, frozen=True):
    """`report` is what `kproxy migrate -o json` prints."""

    kind: str
    report: MigrateReport


def what_if(model: Model, copy: Model, asked: WhatIf, work: Work) -> WhatIfAnswer:
    """What changes for packets in a copy.

    Raises:
        Refusal: it takes too long.
    """
    assert copy.edited is not None
    words = tuple(copy.edited.words)
    found = compare_models(model, copy, work) if asked.compare else Findings(True, (), (), ())
    touched = dict.fromkeys(each for item in words for each in item.touches)
    touched |= dict.fromkeys(each for item in found.findings for each in item.services)
    with copy.lock:
        drawn = draw_map(copy, asked.node if asked.node.removeprefix("node/") in copy.nodes else "", work)
    notes = [*found.notes]
    notes += [f"packets to and from node {name}, and its pods, are lost" for name in sorted(copy.edited.gone)]
    if not model.known.rendered:
        notes.append("the copy has the rules that its objects ask for; what the nodes' rules lack today is drift")
    return WhatIfAnswer(
        model.revision, words, found.alike, found.findings, found.undecided, tuple(notes), tuple(touched), drawn
    )


def compare_sides(one: Model, other: Model, asked: Compare, work: Work) -> DiffAnswer | MigrateAnswer:
    """diff, drift or migrate.

    Raises:
        Refusal: something in the question is wrong, or it takes too long.
    """
    if asked.kind == "migrate":
        return MigrateAnswer("migrate", _migrate(one, asked, work))
    if asked.kind == "drift":
        found = _drift(one, asked, work)
        labels = ("the rules that the objects ask for", "the rules that are there")
    elif asked.kind == "diff":
        found = compare_models(one, other, work, node=asked.node, family=asked.family)
        labels = (_label(one, asked.a), _label(other, asked.b))
    else:
        raise bad_input("kind: diff, drift or migrate expected", "kind")
    return DiffAnswer(asked.kind, *labels, found.alike, found.findings, found.undecided, found.notes)


def _label(model: Model, side: Side) -> str:
    return f"{model.known.label}, edited" if side.edits else model.known.label


# --- two models ---


def compare_models(one: Model, other: Model, work: Work, *, node: str = "", family: str | None = None) -> Findings:
    """What two clusters' rules do differently, on the nodes that both have. Raises Refusal."""
    names = [one.node(node).name] if node else [name for name in other.nodes if name in one.nodes]
    families = (family_named(family, ()),) if family else tuple(dict.fromkeys((*one.families, *other.families)))
    changed = _Changed.between(one.manifests, other.manifests)
    report = _Report(one)
    seen: dict[tuple[object, ...], Comparison] = {}
    for name in names:
        for each in families:
            work.check()
            whole = changed.nodes.get(name, False) or _modes_differ(one, other, name)
            services = None if whole else changed.services
            if services is not None and not services:
                continue
            sides = [_Side.of(model, name, each, services) for model in (one, other)]
            key: tuple[object, ...] = (each, sides[0].key, sides[1].key)
            if sides[0].key == sides[1].key:
                continue
            host = _host(one, name, len(names))
            if host is not None:
                key = (*key, name)
            if key not in seen:
                seen[key] = compare(
                    sides[0].rules(), sides[1].rules(), family=each, host=host, progress=work.check, examine=EXAMINED
                )
            report.add(name, each, seen[key])
    gone = sorted(set(one.nodes) - set(names)) if not node else []
    notes = [f"not on both sides: node {name}" for name in gone if other.edited is None]
    return report.findings(notes)


def _host(model: Model, name: str, count: int) -> Host | None:
    """The node, if its addresses are known, so that only packets count that it can meet. Of many nodes None: then nodes
    with the same rules are compared once, for any host."""
    if count > MAX_SINGLE:
        return None
    with model.lock:
        host = model.network.host(name).host
    return None if host.local_addresses is None else host


@dataclass(frozen=True)
class _Changed:
    """Which Services, and which Nodes, are others on the two sides."""

    services: frozenset[str]
    nodes: Mapping[str, bool]

    @classmethod
    def between(cls, one: Manifests, other: Manifests) -> _Changed:
        services = {key for key, _ in _differing(_services(one), _services(other))}
        slices = {service for _, service in _differing(_slices(one), _slices(other))}
        nodes = {key for key, _ in _differing(_nodes(one), _nodes(other))}
        return cls(frozenset(services | slices), dict.fromkeys(nodes, True))


def _differing(
    one: Mapping[str, tuple[object, str]], other: Mapping[str, tuple[object, str]]
) -> Iterator[tuple[str, str]]:
    for key in {**one, **other}:
        mine, its = one.get(key), other.get(key)
        if mine != its:
            for each in (mine, its):
                if each is not None:
                    yield key, each[1]


def _services(manifests: Manifests) -> dict[str, tuple[object, str]]:
    return {
        each.metadata.key: ((each.spec, each.ingress, dict(each.metadata.labels)), "") for each in manifests.services
    }


def _slices(manifests: Manifests) -> dict[str, tuple[object, str]]:
    return {
        each.metadata.key: (
            (each.address_type, each.endpoints, each.ports, dict(each.metadata.labels)),
            _service_of(each),
        )
        for each in manifests.endpoint_slices
    }


def _service_of(item: EndpointSlice) -> str:
    return f"{item.metadata.namespace}/{item.metadata.labels.get(LABEL_SERVICE_NAME, '')}"


def _nodes(manifests: Manifests) -> dict[str, tuple[object, str]]:
    return {
        each.metadata.name: ((each.addresses, each.pod_cidrs, dict(each.metadata.labels)), "")
        for each in manifests.nodes
    }


def _modes_differ(one: Model, other: Model, name: str) -> bool:
    modes = [model.rendering.config_of(model.cluster.hosts[name]) for model in (one, other)]
    return modes[0] != modes[1]


@dataclass
class _Side:
    """A node's rules for some Services, or for all."""

    model: Model
    host: HostFacts
    family: Family
    state: ServiceState

    @classmethod
    def of(cls, model: Model, name: str, family: Family, services: Iterable[str] | None) -> _Side:
        host, manifests = model.cluster.hosts[name], model.manifests
        if services is None:
            return cls(model, host, family, model.rendering.facts(host, family).state)
        wanted = frozenset(services)
        kept: list[Service] = [each for each in manifests.services if each.metadata.key in wanted]
        slices = [each for each in manifests.endpoint_slices if _service_of(each) in wanted]
        return cls(model, host, family, ServiceState.of(family, name, kept, slices))

    @cached_property
    def rendered(self) -> RenderedTarget | RenderedTable:
        rendering = self.model.rendering
        return render(self.state, rendering.options(self.host, self.family), rendering.mode_of(self.host))

    @cached_property
    def key(self) -> object:
        """Equal for sides with equal rules."""
        return self.rendered.restore_text, "" if self.host.host_rules is None else self.host.name

    def rules(self) -> SideRules:
        own, _ = own_rules(self.rendered, self.family)
        mode = MODE_NFTABLES if isinstance(self.rendered, RenderedTable) else MODE_IPTABLES
        return with_foreign(own, self.host, self.family, mode)


# --- drift and migrate ---


def _drift(model: Model, asked: Compare, work: Work) -> Findings:
    """The rules that objects ask for, against those that are there."""
    if model.known.rendered:
        raise cannot("the rules are made from the objects here: drift needs a snapshot with rules, or a lab")
    names = [model.node(asked.node).name] if asked.node else list(model.nodes)
    families = (family_named(asked.family, ()),) if asked.family else model.families
    report = _Report(model)
    notes = []
    for name in names:
        host = model.cluster.hosts[name]
        if host.proxy_config is None and model.cluster.proxy_config is None:
            notes.append(f"{name}: kube-proxy's configuration is not known: its defaults count, which masquerade less")
        for family in families:
            work.check()
            if host.rules(family) is None:
                notes.append(f"{name}: its {family.value} rules are not known")
                continue
            expected, _ = model.rendering.rules(host, family)
            there = host.host_rules
            actual = SideRules() if there is None else SideRules(there.iptables(family), there.nftables or NftRuleset())
            alone = _host(model, name, len(names))
            found = compare(expected, actual, family=family, host=alone, progress=work.check, examine=EXAMINED)
            report.add(name, family, found)
    return report.findings(notes)


def _migrate(model: Model, asked: Compare, work: Work) -> MigrateReport:
    if asked.to not in (MODE_IPTABLES, MODE_NFTABLES):
        raise bad_input(f"to: {MODE_IPTABLES} or {MODE_NFTABLES} expected", "to")
    names = [model.node(name, "nodes").name for name in asked.nodes] or list(model.nodes)
    families = (family_named(asked.family, ()),) if asked.family else tuple(Family)
    to_nftables = asked.to == MODE_NFTABLES
    analyses = []
    for name in names:
        host = model.cluster.hosts[name]
        for family in families:
            work.check()
            there = host.host_rules
            foreign = None if there is None else ForeignRules.of(there, family)
            facts = model.rendering.facts(host, family)
            analyses.append(analyse(facts, to_nftables=to_nftables, foreign=foreign))
    return build_report(analyses, to_nftables=to_nftables)


# --- findings ---


class _Report:
    """Differences of several nodes: those that read alike are one."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._owners = model.owners
        self._found: dict[tuple[object, ...], tuple[Difference, str, dict[str, None], dict[str, None]]] = {}
        self._undecided: list[Open] = []
        self._alike = True
        self._more = 0

    def add(self, node: str, family: Family, found: Comparison) -> None:
        self._alike = self._alike and found.alike
        self._more += found.unexamined
        for item in found.differences:
            key = (item.destinations, item.sources, item.conditions, item.one, item.other)
            _, _, nodes, families = self._found.setdefault(key, (item, node, {}, {}))
            nodes[node] = None
            families[family.value] = None
        self._undecided += [Open(item.where, item.reason, node) for item in found.undecided]

    def findings(self, notes: Sequence[str]) -> Findings:
        # What happens under few conditions is what most packets meet.
        shown = sorted(self._found.values(), key=lambda each: len(each[0].conditions))[:MAX_FINDINGS]
        more = [f"{self._more} more destinations differ"] if self._more else []
        left = len(self._found) - len(shown)
        more += [f"{left} more findings are not listed"] if left else []
        return Findings(
            self._alike,
            tuple(self._finding(*each) for each in shown),
            tuple(self._undecided[:MAX_FINDINGS]),
            (*notes, *more),
        )

    def _finding(self, item: Difference, node: str, nodes: Mapping[str, None], families: Mapping[str, None]) -> Finding:
        return Finding(
            nodes=tuple(nodes),
            families=tuple(families),
            services=self._services(item),
            statement=item.statement("before", "after"),
            destinations=item.destinations,
            sources=item.sources,
            conditions=item.conditions,
            before=item.one,
            after=item.other,
            witness=difference_record(item)["witness"],
            ask=self._ask(item, node),
        )

    def _services(self, item: Difference) -> tuple[str, ...]:
        """Those that answer at the address that the witness asks."""
        packet = item.witness.packet
        if packet.dst is None:
            return ()
        address = format_address(packet.dst, packet.family)
        found = []
        for service in self._model.manifests.services:
            spec = service.spec
            own = {*spec.cluster_ips, *spec.external_ips, *(each.ip for each in service.ingress)}
            for port in spec.ports:
                if protocol_name(packet.protocol) != port.protocol.lower():
                    continue
                if (address in own and port.port == packet.dport) or (
                    port.node_port and port.node_port == packet.dport and address not in own
                ):
                    found.append(f"svc/{service.metadata.key}")
        return tuple(dict.fromkeys(found))

    def _ask(self, item: Difference, node: str) -> AskHint | None:
        """A client that sends such a packet: the pod that has the source address, else one of the node, or whoever is
        outside."""
        packet = item.witness.packet
        if packet.dst is None or packet.dport is None:
            return None
        source = "" if packet.src is None else format_address(packet.src, packet.family)
        owner = self._owners.target(source)[0] if source else ""
        if packet.origin == LOCAL or ipaddress.ip_address(format_address(packet.dst, packet.family)).is_loopback:
            sender = f"node/{node}"
        elif owner.startswith(("pod/", "node/")):
            sender = owner
        else:
            pods = self._model.cluster.pods.values()
            near = [pod for pod in pods if pod.node == node and not pod.host_network and pod.addresses]
            sender = f"pod/{near[0].name}" if near else f"node/{node}"
        receiver = packet.destination
        address = format_address(packet.dst, packet.family)
        own = next((each for each, name in self._owners.nodes.items() if name == node), "")
        elsewhere = (
            self._owners.target(address)[0].startswith(OUTSIDE) and not ipaddress.ip_address(address).is_loopback
        )
        if own and elsewhere and self._is_node_port(packet.dport):
            receiver = join_host_port(own, packet.dport)
        return AskHint(sender, receiver, protocol_name(packet.protocol))

    def _is_node_port(self, port: int) -> bool:
        return any(port == each.node_port for item in self._model.manifests.services for each in item.spec.ports)
