"""The rules that kube-proxy programs for two states of a cluster, compared for every packet, node by node.

A change of a few Services is compared on their rules alone: kube-proxy's rules of other Services are the same on both
sides, and no packet meets rules of two Services. Where all rules may differ, as with another mode, and there are many
Services, those that stand for all are compared (`cluster.equivalence.services`, which says why that is enough, with
rules of other programs, too). Nodes whose rules read alike, or differ only in the nodes' own addresses, are compared
once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from kproxy.api import Manifests
from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.equivalence.services import FEW, EquivalentServices, Parts, Representatives, service_of
from kproxy.cluster.evidence.manifests import Lacking
from kproxy.cluster.evidence.opened import opened_side
from kproxy.cluster.evidence.unseen import Unseen, suspected
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.rendered import rules_of
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.dataplane import Host
from kproxy.dataplane.compare.compare import Comparison, compare
from kproxy.dataplane.compare.difference import Place
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.explorer.compare.findings import Compared, services_at
from kproxy.explorer.compare.present_rules import EXAMINED, host_of
from kproxy.explorer.model.model import Model, Work
from kproxy.netfilter import Family
from kproxy.netfilter.address import Network, format_address
from kproxy.render import Rendered
from kproxy.services.names import family_of

EXAMINED_OF_CHOSEN: Final = 2 * EXAMINED
"""Differences of one node that are put into words where Services have twins, of which nothing is said twice."""


class NodeByNode:
    """Compares the nodes of two clusters: those whose rules read alike once, and of many Services those that stand for
    all (`cluster.equivalence.services`)."""

    def __init__(self, one: Model, other: Model, count: int, work: Work) -> None:
        """`count`: how many nodes are compared."""
        self._models = (one, other)
        self._changed = _Changed.between(one.manifests, other.manifests)
        self._parts = tuple(Parts(model.manifests) for model in self._models)
        self._some = [each.of(self._changed.services) for each in self._parts]
        self._count = count
        self._work = work
        self._shapes: dict[Family, EquivalentServices] = {}
        self._seen: dict[tuple[object, ...], tuple[Comparison, str]] = {}

    def compared(self, name: str, family: Family) -> Compared:
        """One node. Raises Refusal: the time is over."""
        self._work.check()
        whole = name in self._changed.nodes or _configurations_differ(*self._models, name)
        if not whole and not self._changed.services:
            return Compared(Comparison(True))
        host = host_of(self._models[0], name, self._count)
        chosen = self._chosen(name, family, host) if whole else None
        some: Sequence[Manifests | None] = [None if whole else each for each in self._some]
        if chosen is not None:
            some = [each.of(chosen.services) for each in self._parts]
        of = None if whole and chosen is None else self._changed.services if chosen is None else chosen.services
        one, other = (_Side.of(model, name, family, each, of) for model, each in zip(self._models, some, strict=True))
        gaps = tuple(dict.fromkeys((*one.unseen, *other.unseen)))
        if one.key == other.key and not gaps:
            return Compared(Comparison(True))
        key: tuple[object, ...] = (family, one.key, other.key) if chosen is None else (family, chosen.key)
        if host is not None:
            key = (*key, name)
        if key not in self._seen:
            examine = EXAMINED if chosen is None else EXAMINED_OF_CHOSEN
            found = compare(
                one.rules(), other.rules(), family=family, host=host, progress=self._work.check, examine=examine
            )
            self._seen[key] = found if chosen is None else self._once(found, chosen), name
        found, first = self._seen[key]
        return Compared(found, gaps, {} if chosen is None else chosen.stands_for, first)

    def _once(self, found: Comparison, chosen: Representatives) -> Comparison:
        """Without what says of Services' twins what is said of them."""
        differences = []
        for item in found.differences:
            left = [place for place in item.places if not self._is_of_twins(place, chosen)]
            if left:
                differences.append(dataclasses.replace(item, places=tuple(left)))
        return dataclasses.replace(found, differences=tuple(differences))

    def _is_of_twins(self, place: Place, chosen: Representatives) -> bool:
        services = {name for model in self._models for name in services_at(model, place)}
        return bool(services) and all(name.removeprefix("svc/") in chosen.twins for name in services)

    def _chosen(self, name: str, family: Family, host: Host | None) -> Representatives | None:
        """The Services that stand for all on a node; None if all count."""
        if max(len(model.manifests.services) for model in self._models) <= FEW:
            return None
        hosts = [model.cluster.hosts[name] for model in self._models]
        foreign = [model.rendering.foreign(each, family) for model, each in zip(self._models, hosts, strict=True)]
        named = [None if each is None else each.named for each in foreign]
        if any(each is not None and found is None for each, found in zip(foreign, named, strict=True)):
            return None
        options = []
        for model, node, parts in zip(self._models, hosts, self._parts, strict=True):
            facts = model.rendering.facts_of(parts.of(()), node, family)
            options.append(facts.nftables if model.rendering.mode_of(node) == MODE_NFTABLES else facts.iptables)
        if family not in self._shapes:
            sides = [model.manifests for model in self._models]
            self._shapes[family] = EquivalentServices(sides if self._changed.services else sides[:1], family)
            self._work.check()
        shapes = self._shapes[family]
        addresses, networks = _of_host(host, family)
        of_sides = [[each] for each in options] if self._changed.services else [options]
        pods = self._pod_networks(name, family)
        found = shapes.on(name, of_sides, addresses, networks, [each for each in named if each is not None], pods)
        own = [*addresses, *(text for each in options for text in (each.node_ip, *each.interface_addresses))]
        texts = tuple("" if each is None else _without_own(each.text, [*own, *map(str, pods)]) for each in foreign)
        return dataclasses.replace(found, key=(found.key, texts))

    def _pod_networks(self, name: str, family: Family) -> list[Network]:
        """Of the node's own pods, if they are the same on both sides."""
        nodes = [
            next((each for each in model.manifests.nodes if each.metadata.name == name), None) for model in self._models
        ]
        texts = [() if node is None else node.pod_cidrs for node in nodes]
        if texts[0] != texts[1]:
            return []
        return [Network.parse(text, family) for text in texts[0] if family_of(text) is family]


def _without_own(text: str, own: Iterable[str]) -> str:
    """Rules with a node's own addresses and networks numbered, so that they read as another node's do."""
    numbers = {each: f"<{place}>" for place, each in enumerate(dict.fromkeys(filter(None, own)))}
    if not numbers:
        return text
    either = "|".join(map(re.escape, sorted(numbers, key=len, reverse=True)))
    return re.sub(rf"(?<![\w.:])(?:{either})(?![\w.:])", lambda found: numbers[found[0]], text)


def _of_host(host: Host | None, family: Family) -> tuple[list[str], list[Network]]:
    """A host's addresses, and the networks of its interfaces."""
    if host is None:
        return [], []
    own = sorted(address for kind, address in host.local_addresses or () if kind is family)
    interfaces = (host.interfaces or {}).values()
    found = [address.network for each in interfaces for address in each.addresses if address.family is family]
    return [format_address(each, family) for each in own], found


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
            service_of(each),
            (each.address_type, each.endpoints, each.ports, dict(each.metadata.labels)),
        )
        for each in manifests.endpoint_slices
    }


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
    facts: NodeFacts
    lacking: Lacking

    @classmethod
    def of(
        cls, model: Model, name: str, family: Family, some: Manifests | None, services: Collection[str] | None
    ) -> _Side:
        """`services`: the Services that count, and `some` the objects of them; None for all."""
        host, rendering = model.cluster.hosts[name], model.rendering
        facts = rendering.facts(host, family) if some is None else rendering.facts_of(some, host, family)
        lacking = rendering.lacking if services is None else rendering.lacking.of_services(services)
        return cls(model, host, family, facts, lacking)

    @cached_property
    def unseen(self) -> tuple[Unseen, ...]:
        """What was not seen of the objects that decide these rules."""
        found = self.model.rendering.unseen(self.host, self.lacking)
        return tuple(each for each in suspected(found) if each.is_met_by(self.family))

    @cached_property
    def rendered(self) -> Rendered:
        return self.model.rendering.rendered_of(self.facts, self.host)

    @cached_property
    def key(self) -> object:
        """Equal for sides with equal rules."""
        foreign = self.model.rendering.foreign(self.host, self.family)
        return self.rendered.restore_text, "" if foreign is None else foreign.text

    def rules(self) -> SideRules:
        own = rules_of(self.rendered)
        rendering = self.model.rendering
        found = opened_side(rendering.with_foreign(own, self.host, self.family), self.family, self.unseen)
        return rendering.with_open(found, self.family, self.lacking)
