"""Two states of a cluster compared for every packet, node by node: what-if, drift, diff and migrate.

A change of a few Services is compared on their rules alone: kube-proxy's rules of other Services are the same on both
sides, and no packet meets rules of two Services. Nodes whose rules read alike are compared once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgspec

from kproxy.api import Manifests
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES
from kproxy.api.types.core import Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.cluster.migrate import ForeignRules, analyse, build_report
from kproxy.cluster.migrate import Report as MigrateReport
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.dataplane import Host
from kproxy.dataplane.compare.compare import Comparison, compare
from kproxy.dataplane.symbolic.side import SideRules
from kproxy.explorer.edits import Edit, EditWords
from kproxy.explorer.errors import bad_input, cannot
from kproxy.explorer.findings import Finding, Findings, Gathered, Open
from kproxy.explorer.maps import draw_map
from kproxy.explorer.model import Model, Work, family_named
from kproxy.explorer.rendering import own_rules, render, with_foreign
from kproxy.explorer.views import MapView
from kproxy.netfilter import Family
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.render import RenderedTable, RenderedTarget
from kproxy.services.names import LABEL_SERVICE_NAME
from kproxy.services.tracker import ServiceState

EXAMINED: Final = 30
"""Differences of one node that are put into words."""
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
    report = Gathered(one)
    seen: dict[tuple[object, ...], Comparison] = {}
    for name in names:
        for each in families:
            work.check()
            whole = name in changed.nodes or _configurations_differ(one, other, name)
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
    nodes: frozenset[str]

    @classmethod
    def between(cls, one: Manifests, other: Manifests) -> _Changed:
        slices = [_slices(each) for each in (one, other)]
        # A slice may be another Service's on the other side: both are others then.
        moved = {side[key][0] for key in _differing(*slices) for side in slices if key in side}
        services = _differing(_services(one), _services(other))
        return cls(frozenset(services | moved), frozenset(_differing(_nodes(one), _nodes(other))))


def _differing(one: Mapping[str, object], other: Mapping[str, object]) -> set[str]:
    """The keys with values that are not the same on both sides."""
    return {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


def _services(manifests: Manifests) -> dict[str, object]:
    return {each.metadata.key: (each.spec, each.ingress, dict(each.metadata.labels)) for each in manifests.services}


def _slices(manifests: Manifests) -> dict[str, tuple[str, object]]:
    """The Service of each EndpointSlice, and what else decides rules."""
    return {
        each.metadata.key: (
            _service_of(each),
            (each.address_type, each.endpoints, each.ports, dict(each.metadata.labels)),
        )
        for each in manifests.endpoint_slices
    }


def _service_of(item: EndpointSlice) -> str:
    return f"{item.metadata.namespace}/{item.metadata.labels.get(LABEL_SERVICE_NAME, '')}"


def _nodes(manifests: Manifests) -> dict[str, object]:
    return {
        each.metadata.name: (each.addresses, each.pod_cidrs, dict(each.metadata.labels)) for each in manifests.nodes
    }


def _configurations_differ(one: Model, other: Model, name: str) -> bool:
    first, second = (model.rendering.config_of(model.cluster.hosts[name]) for model in (one, other))
    return first != second


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
    report = Gathered(model)
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
