"""The rules that kube-proxy would program on the nodes of a cluster, as hosts of it: for manifests, for live clusters
of which only objects can be read, and for copies in which something was changed.

What other programs have written on a node, and its links and routes, stay as they are known.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final

import msgspec

from kproxy.api import Manifests
from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES, KubeProxyConfiguration
from kproxy.cluster.allocate import Network, allocate_addresses
from kproxy.cluster.evidence.manifests import Lacking, open_services, with_endpoints
from kproxy.cluster.evidence.opened import open_rules
from kproxy.cluster.evidence.signs import ipvs_of_mode
from kproxy.cluster.evidence.unseen import NOTHING, Unseen
from kproxy.cluster.migrate.foreign import ForeignRules
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.rendered import index_of, rules_of
from kproxy.cluster.rules import HostRules
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.files import Files
from kproxy.cluster.snapshot.host import HostFacts, Missing
from kproxy.cluster.snapshot.info import Failure
from kproxy.cluster.snapshot.layout import RULES, host_file
from kproxy.dataplane import Index
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.explorer.answer_cache import MAX_KEPT, AnswerCache
from kproxy.netfilter import Family
from kproxy.netfilter.iptables.save import collector_paused
from kproxy.render import Features, Rendered, Target, render_state
from kproxy.render.explain import objects_of
from kproxy.render.ipvs.node import RenderedIpvs
from kproxy.render.origin import RenderedObject, RenderedRule


@dataclass(frozen=True)
class ObjectChoices:
    """How kube-proxy's rules are made of objects.

    Attributes:
        mode: goes before what configurations say.
        features: what the nodes can do.
        allocate: where Services without cluster IPs get theirs.
        endpoints: how many a Service gets that has a selector and no EndpointSlice.
        complete: the objects are all that the cluster has; else what Services lack of it is open.
        favoured: the Service that gets what several claim (`RenderOptions`).
    """

    mode: str | None = None
    features: Features = field(default_factory=Features)
    allocate: tuple[Network, ...] = ()
    endpoints: int = 0
    complete: bool = True
    favoured: str = ""


AS_THEY_ARE: Final = ObjectChoices()


class Rendering:
    """kube-proxy on every node of a cluster.

    Thread-safe: what is rendered is kept, a node and family once.
    """

    def __init__(
        self,
        manifests: Manifests,
        config_of: Callable[[HostFacts], KubeProxyConfiguration | None],
        how: ObjectChoices = AS_THEY_ARE,
    ) -> None:
        """`config_of`: what a node's kube-proxy runs with; None for kube-proxy's defaults."""
        self.manifests = manifests
        self.how = how
        self._config_of = config_of
        self._nodes = {node.metadata.name: node for node in manifests.nodes}
        self._facts: AnswerCache[NodeFacts] = AnswerCache()
        self._foreign: AnswerCache[ForeignRules] = AnswerCache()
        self._explained: AnswerCache[Explained] = AnswerCache(MAX_KEPT)
        self._shared: AnswerCache[Index] = AnswerCache()

    @cached_property
    def lacking(self) -> Lacking:
        """What Services lack, if the objects are not `complete`."""
        return Lacking.of(self.manifests, complete=self.how.complete, assumed=NOTHING)

    def config_of(self, host: HostFacts) -> KubeProxyConfiguration:
        """What the node's kube-proxy runs with."""
        found = self._config_of(host) or KubeProxyConfiguration()
        return found if self.how.mode is None else msgspec.structs.replace(found, mode=self.how.mode)

    def mode_of(self, host: HostFacts) -> str:
        return self.config_of(host).mode

    def facts(self, host: HostFacts, family: Family) -> NodeFacts:
        """The Services as the node's kube-proxy sees them."""
        return self._facts.get((host.name, family), lambda: self.facts_of(self.manifests, host, family))

    def facts_of(self, manifests: Manifests, host: HostFacts, family: Family) -> NodeFacts:
        """The same of some of the Services."""
        target, addresses = Target(host.name, self._nodes.get(host.name)), host.addresses(family) or None
        config, lacking = self.config_of(host), self.unseen(host, self.lacking)
        return NodeFacts.of(manifests, config, target, family, self.how.features, addresses, lacking=lacking)

    def foreign(self, host: HostFacts, family: Family) -> ForeignRules | None:
        """The rules of other programs on the node, None if they are not known. Raises InputError."""
        there = host.host_rules
        if there is None:
            return None
        return self._foreign.get((host.name, family), lambda: ForeignRules.of(there, family))

    def with_foreign(self, own: SideRules, host: HostFacts, family: Family) -> SideRules:
        """kube-proxy's rules and, as far as they are known, those of other programs on the node. Raises InputError."""
        foreign = self.foreign(host, family)
        if foreign is None:
            return own
        return foreign.with_nftables(own) if self.mode_of(host) == MODE_NFTABLES else foreign.with_iptables(own)

    def rendered(self, host: HostFacts, family: Family) -> Rendered:
        """The node's rules, with what they come from."""
        return self.rendered_of(self.facts(host, family), host)

    def rendered_of(self, facts: NodeFacts, host: HostFacts) -> Rendered:
        """The rules of the Services that the facts have."""
        mode = self.mode_of(host)
        options = facts.nftables if mode == MODE_NFTABLES else facts.iptables
        return render_state(facts.state, msgspec.structs.replace(options, favoured=self.how.favoured), mode)

    def explained(self, host: HostFacts, family: Family) -> Explained:
        """The node's rules by Service; of the nodes that were asked for last they are kept."""
        with collector_paused():
            return self._explained.get((host.name, family), lambda: Explained.of(self.rendered(host, family)))

    def index(self, host: HostFacts, family: Family) -> Index:
        """All rules of the node, for the model. Nodes with the same rules, and no others known, share them."""
        with collector_paused():
            rendered = self.rendered(host, family)
            if host.host_rules is not None or isinstance(rendered, RenderedIpvs):  # its rules do not tell its servers
                return self._index(rendered, host, family)
            key = hashlib.blake2b(rendered.restore_text.encode()).digest()
            return self._shared.get(key, lambda: self._index(rendered, host, family))

    def _index(self, rendered: Rendered, host: HostFacts, family: Family) -> Index:
        found = self.with_foreign(rules_of(rendered), host, family)
        opened = open_rules(found.iptables, family, ipvs_of_mode(host.name, self.mode_of(host)), found.nftables)
        return index_of(rendered, self.with_open(replace(found, iptables=opened), family, self.lacking), family)

    def rules(self, host: HostFacts, family: Family) -> SideRules:
        """All rules of the node: kube-proxy's, and those of others that are known."""
        with collector_paused():
            found = self.with_foreign(rules_of(self.rendered(host, family)), host, family)
            return self.with_open(found, family, self.lacking)

    def unseen(self, host: HostFacts, lacking: Lacking) -> tuple[Unseen, ...]:
        """What was not seen of the objects that decide a node's rules."""
        return (*lacking.unseen(host.name), *ipvs_of_mode(host.name, self.mode_of(host)))

    def with_open(self, rules: SideRules, family: Family, lacking: Lacking) -> SideRules:
        """Rules with rules that leave open what Services lack."""
        return replace(rules, iptables=open_services(rules.iptables, family, self.manifests, lacking))


@dataclass(frozen=True)
class Explained:
    """A node's rules, and with what they come from, those of each Service, `namespace/name`."""

    rendered: Rendered
    by_service: Mapping[str, Sequence[RenderedRule | RenderedObject]]

    @classmethod
    def of(cls, rendered: Rendered) -> Explained:
        found: dict[str, list[RenderedRule | RenderedObject]] = {}
        for each in objects_of(rendered):
            if each.origin.service_port is not None:
                found.setdefault(each.origin.service_port.service, []).append(each)
        return cls(rendered, found)


class RenderedHost(HostFacts):
    """A node whose rules are rendered; all else is as its files tell."""

    def __init__(
        self,
        files: Files,
        name: str,
        failures: Sequence[Failure],
        rendering: Rendering,
        original: HostFacts | None = None,
    ) -> None:
        """`original`: the host of which this is a copy, with the same files of rules, which are read once then."""
        super().__init__(files, name, failures)
        self._rendering = rendering
        self._original = original
        self._lock = threading.Lock()

    def rules(self, family: Family) -> Index:
        with self._lock:
            if family not in self._indexes:
                self._indexes[family] = self._rendering.index(self, family)
            return self._indexes[family]

    @cached_property
    def host_rules(self) -> HostRules | None:
        """As of any host."""
        return super().host_rules if self._original is None else self._original.host_rules

    @cached_property
    def missing(self) -> tuple[Missing, ...]:
        """As of any host, but for rules."""
        rules = {host_file(self.name, name) for name in RULES}
        return tuple(each for each in super().missing if each.what not in rules)

    @property
    def is_empty(self) -> bool:
        return False


class RenderedCluster(Cluster):
    """A cluster whose nodes have the rules that its objects ask for.

    Attributes:
        rendering: kube-proxy on each node.
    """

    def __init__(
        self,
        files: Files,
        config: KubeProxyConfiguration | None,
        how: ObjectChoices = AS_THEY_ARE,
        *,
        originals: Mapping[str, HostFacts] = MappingProxyType({}),
        tell: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """
        Args:
            config: instead of kube-proxy's ConfigMap.
            originals: the hosts of a cluster of which this is a copy, with the same files of hosts.

        Raises:
            InputError: see `Cluster`.
        """
        super().__init__(files, tell=tell)
        if how.allocate:
            self.manifests = allocate_addresses(self.manifests, how.allocate)
        if how.endpoints:
            first = next(iter(self._named_nodes()), "node-1")
            self.manifests = with_endpoints(self.manifests, how.endpoints, first, tell)
        if config is not None:
            self.proxy_config = config
        self.rendering = Rendering(self.manifests, self.config_of, how)
        names = dict.fromkeys([*self.hosts, *self._named_nodes()])
        hosts: dict[str, HostFacts] = {}
        for name in sorted(names):
            known = self.hosts.get(name)
            if known is not None and not known.has_node:
                hosts[name] = known
            else:
                hosts[name] = RenderedHost(files, name, (), self.rendering, originals.get(name))
        self.hosts = MappingProxyType(hosts)

    def _named_nodes(self) -> list[str]:
        """The nodes that Pods and endpoints name, of which there need be no object."""
        slices = self.manifests.endpoint_slices
        endpoints = [each.node_name for item in slices for each in item.endpoints if each.node_name]
        return [*(pod.node for pod in self.pods.values() if pod.node), *endpoints]


def remade(cluster: Cluster, files: Files, label: str, how: ObjectChoices) -> RenderedCluster:
    """A copy of a cluster with other objects, or whose rules are made in another way; rules of other programs stay.

    Raises:
        InputError: see `Cluster`.
    """
    made = RenderedCluster(files, cluster.proxy_config, how, originals=cluster.hosts)
    made.label, made.inferred = label, cluster.inferred
    return made
