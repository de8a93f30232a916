"""One node: the rules that it should have, those that it has, and the host that packets meet in both."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from types import MappingProxyType
from typing import Final

from kproxy.api import Node
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES, KubeProxyConfiguration
from kproxy.cluster.audit.dump import ChainKey, Dump
from kproxy.cluster.audit.states import States
from kproxy.cluster.evidence.signs import lost_in_words
from kproxy.cluster.evidence.unseen import BASE_CHAIN_JUMPS, suspected
from kproxy.cluster.facts.kubeproxy import metric
from kproxy.cluster.hosts import node_addresses
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.pods import ENDED, Pod
from kproxy.cluster.rendered import is_ours
from kproxy.cluster.rules import HostRules, RuleFile, RuleKind, read_rule_file, recognise
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.cluster.snapshot.info import seconds_of
from kproxy.dataplane import DataplaneError, Host
from kproxy.dataplane.concrete.routing import Query, RouteResult, lookup
from kproxy.dataplane.model.host import SHORT_SYSCTLS
from kproxy.dataplane.model.packet import parse_ip
from kproxy.dataplane.model.pipeline import OWN_TABLES, TABLE_FAMILIES
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.netfilter.hooks import Table
from kproxy.netfilter.nftables.element import NO_ELEMENTS
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.ruleset import Table as NftTable
from kproxy.render import Features, Target
from kproxy.render.iptables.chains import SERVICES
from kproxy.render.nftables.names import TABLE
from kproxy.services.claims import ServiceAddress, doors_of
from kproxy.services.names import LABEL_SERVICE_NAME, family_of
from kproxy.services.serviceport import ServicePort

_TRIGGERED: Final = "endpoints.kubernetes.io/last-change-trigger-time"
_SYNCED: Final = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
_AFFINITY: Final = "affinity-"
"""How sets of kube-proxy's nftables mode begin that remember clients."""


class AuditedCluster:
    """What all nodes of a cluster share.

    Attributes:
        pods: the Pods that have not ended and have an address of their own, by family and node, with their addresses.
        pod_addresses: addresses of Pods.
        networks: the podCIDRs, of the node that has each.
        owners: nodes by their addresses.
        states: the Services as each node sees them.
        triggers: by Service, when its endpoints changed last, as far as the endpoints controller says: RFC 3339.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.nodes = {node.metadata.name: node for node in cluster.manifests.nodes}
        self.states = States(cluster.manifests)
        self.pods: dict[Family, dict[str, list[tuple[str, Pod]]]] = {family: {} for family in Family}
        for pod in cluster.pods.values():
            if not pod.host_network and pod.phase not in ENDED:
                for address in pod.addresses:
                    self.pods[family_of(address)].setdefault(pod.node, []).append((address, pod))
        self.pod_addresses = frozenset(
            address for pod in cluster.pods.values() if pod.phase and not pod.host_network for address in pod.addresses
        )
        self.networks = Networks(cidr for node in cluster.manifests.nodes for cidr in node.pod_cidrs)

        self.owners = {address: name for name, node in self.nodes.items() for address in node_addresses(node)}
        self.triggers: dict[str, str] = {}
        for each in cluster.manifests.endpoint_slices:
            metadata = each.metadata
            service = f"{metadata.namespace}/{metadata.labels.get(LABEL_SERVICE_NAME, '')}"
            time = metadata.annotations.get(_TRIGGERED, "")
            self.triggers[service] = max(time, self.triggers.get(service, ""))

    @cached_property
    def routes_to_pods(self) -> bool:
        """Whether some node has a route of its own to another node's podCIDR: then all must."""
        for name, node in self.nodes.items():
            host = self.cluster.hosts.get(name)
            for route in (host.routes if host is not None else None) or ():
                length = route.network.mask.bit_count()
                target = self.networks.of(format_address(route.network.address, route.family))
                found = target.partition("/")
                if length and found[1] and length >= int(found[2]) and target not in node.pod_cidrs:
                    return True
        return False


class Networks:
    """Networks by the addresses in them."""

    def __init__(self, cidrs: Iterable[str]) -> None:
        self._by_length: dict[tuple[int, int], dict[int, str]] = {}
        for cidr in cidrs:
            network = ipaddress.ip_network(cidr, strict=False)
            shift = network.max_prefixlen - network.prefixlen
            self._by_length.setdefault((network.version, shift), {})[int(network[0]) >> shift] = cidr
        self._known: dict[str, str] = {}

    def of(self, address: str) -> str:
        """The network that an address is in; itself if there is none."""
        found = self._known.get(address)
        if found is None:
            ip = ipaddress.ip_address(address)
            value = int(ip)
            named = (
                names.get(value >> shift)
                for (version, shift), names in self._by_length.items()
                if version == ip.version
            )
            found = self._known[address] = next(filter(None, named), address)
        return found


class AuditedNode:
    """A node of a cluster.

    Attributes:
        shared: what all nodes share.
        config: its kube-proxy's: its own, else the cluster's ConfigMap, else kube-proxy's defaults.
        config_known: whether it is one of the first two. Else nothing can be said of masquerading.
    """

    def __init__(self, cluster: AuditedCluster, host: HostFacts) -> None:
        self.cluster = cluster.cluster
        self.host = host
        self.name = host.name
        self.node: Node | None = cluster.nodes.get(host.name)
        self.shared = cluster
        known = host.proxy_config or self.cluster.proxy_config
        self.config_known = known is not None
        self.config = known or KubeProxyConfiguration()
        self._facts: dict[Family, NodeFacts] = {}
        self._doors: dict[Family, Mapping[ServiceAddress, ServicePort]] = {}
        self._services_in: dict[Family, Mapping[str, Sequence[str]]] = {}
        self._dumps: dict[Family, list[Dump]] | None = None

    @cached_property
    def mode(self) -> str:
        """As configured; if that is not known, as the rules are."""
        if self.config_known:
            return self.config.mode
        return MODE_NFTABLES if self.has_table and not self.variants_with_rules else MODE_IPTABLES

    def services_in(self, family: Family) -> Mapping[str, Sequence[str]]:
        """The ServicePorts that this node sends to each podCIDR, in words."""
        if family not in self._services_in:
            facts, found = self.facts(family), dict[str, dict[str, None]]()
            for port in facts.service_ports:
                for endpoint in facts.selected[port.name].reachable:
                    found.setdefault(self.shared.networks.of(endpoint.ip), {})[str(port.name)] = None
            self._services_in[family] = {network: tuple(names) for network, names in found.items()}
        return self._services_in[family]

    @cached_property
    def synced(self) -> str:
        """When kube-proxy last wrote its rules: RFC 3339, "" if that is not known."""
        time = metric(self.host.metrics or {}, _SYNCED)
        if time:
            return datetime.fromtimestamp(int(time), UTC).isoformat().replace("+00:00", "Z")
        return "" if self.host.health is None else self.host.health.last_updated

    def since(self, port: ServicePort) -> str:
        """Since when rules for a ServicePort that are not up to date are so, as far as it is known."""
        changed = self.shared.triggers.get(f"{port.name.namespace}/{port.name.name}", "")
        if changed:
            return f"the endpoints changed last at {changed}"
        return f"kube-proxy wrote rules last at {self.synced}" if self.synced else ""

    def is_young(self, port: ServicePort) -> bool:
        """Whether a ServicePort's endpoints changed so shortly before the node was read that the objects may be of
        another time: the controllers' times are of whole seconds."""
        changed = seconds_of(self.shared.triggers.get(f"{port.name.namespace}/{port.name.name}", ""))
        info = self.cluster.info
        read = seconds_of(info.nodes[self.name].started) if self.name in info.nodes else None
        return changed is not None and read is not None and read - changed - 1 < info.apart

    # --- rules ---

    def dumps(self, family: Family) -> tuple[Dump, ...]:
        """The dumps of iptables that packets of a family meet, each variant's once. Raises InputError."""
        if self._dumps is None:
            self._dumps = {each: [] for each in Family}
            for label, text in self._texts.items():
                if recognise(text) is RuleKind.IPTABLES:
                    name = label.rpartition("/")[2]
                    other = Family.IPV6 if name.startswith("ip6") else Family.IPV4
                    dump, found = Dump(label, text, other), self._dumps[other]
                    if dump.has_effect and not any(_is_repeated(dump, each) for each in found):
                        found.append(dump)
        return tuple(self._dumps[family])

    def reduced_rules(self, chosen: Callable[[Dump, ChainKey], bool]) -> HostRules:
        """The host's rules, those of some chains of iptables left out. Raises InputError: they cannot be read."""
        return self._rules(lambda dump: dump.reduced(lambda key: chosen(dump, key)))

    def _rules(self, text_of: Callable[[Dump], str]) -> HostRules:
        files = []
        for dump in (*self.dumps(Family.IPV4), *self.dumps(Family.IPV6)):
            try:
                files.append(read_rule_file(text_of(dump), dump.label))
            except InputError:
                files.append(read_rule_file(dump.text, dump.label))  # which names the line
        known = self.host.unseen
        return HostRules([*files, *self._native_files], live=True, more=suspected(known), host=self.name)

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        return self.host.rule_texts()

    @cached_property
    def _native_files(self) -> tuple[RuleFile, ...]:
        texts = self._texts.items()
        files = [read_rule_file(text, label) for label, text in texts if recognise(text) is not RuleKind.IPTABLES]
        return tuple(each for each in files if each.nftables is not None and each.nftables.has_effect)

    @cached_property
    def shared_rules(self) -> HostRules:
        """The host's rules without chains of ServicePorts in iptables mode. Raises InputError."""
        return self._rules(Dump.without_services)

    def native_of_others(self, family: Family, *, with_ours: bool = False) -> NftRuleset:
        """Tables of nftables that packets of a family meet, but iptables' and, if not asked for, kube-proxy's."""
        tables = (self.shared_rules.nftables or NftRuleset()).tables
        mine = [each for each in tables if each.family in TABLE_FAMILIES[family] and each.managed_by is None]
        return NftRuleset(tuple(each for each in mine if with_ours or each.name != TABLE))

    def own_table(self, family: Family) -> NftTable | None:
        """kube-proxy's table of nftables mode, without the clients that its sets remember."""
        native = without_clients(self.shared_rules.nftables or NftRuleset())
        own = OWN_TABLES[family]
        return next((each for each in native.tables if each.name == TABLE and each.family is own and each.chains), None)

    @cached_property
    def has_table(self) -> bool:
        """Whether kube-proxy's table of nftables mode is there."""
        native = (each.nftables for each in self._native_files)
        return any(table.name == TABLE and table.chains for each in native if each is not None for table in each.tables)

    @cached_property
    def variants_with_rules(self) -> tuple[str, ...]:
        """The files with rules of kube-proxy's iptables mode: with a dispatch chain that something jumps to."""
        return tuple(
            dump.label.rpartition(": ")[2] for family in Family for dump in self.dumps(family) if dispatches(dump)
        )

    def has_own_rules(self, family: Family) -> bool:
        """Whether any rules of kube-proxy's mode are there for a family."""
        if self.mode == MODE_NFTABLES:
            return self.own_table(family) is not None
        return any(map(dispatches, self.dumps(family)))

    def lost_jumps(self, family: Family) -> str:
        """Which jumps to kube-proxy's iptables rules a whole dump lacks, as a sentence's part; "" if a variant of
        iptables has its rules and all jumps."""
        found = self.host.host_rules if self.mode == MODE_IPTABLES else None
        if found is None or any(each.what == BASE_CHAIN_JUMPS for each in found.unseen):
            return ""
        sets = [held.ruleset for held in found.given(family) if held.ruleset.chain(Table.NAT.value, SERVICES)]
        return min(("; ".join(filter(None, map(lost_in_words, each.tables))) for each in sets), key=len, default="")

    def forget(self) -> None:
        """Lets go of what is large, once the node is judged."""
        self._facts.clear()
        self._doors.clear()
        self._services_in.clear()
        self._dumps = None
        for name in ("_texts", "_native_files", "shared_rules"):
            self.__dict__.pop(name, None)

    # --- Services ---

    def doors(self, family: Family) -> Mapping[ServiceAddress, ServicePort]:
        """Where Services answer."""
        if family not in self._doors:
            facts = self.facts(family)
            self._doors[family] = {door: port for port in facts.service_ports for door in doors_of(port)}
        return self._doors[family]

    def facts(self, family: Family) -> NodeFacts:
        """The Services as this node's kube-proxy sees them."""
        if family not in self._facts:
            self._facts[family] = NodeFacts.of(
                self.cluster.manifests,
                self.config,
                Target(self.name, self.node),
                family,
                Features(),
                self.host.addresses(family) or None,
                state=self.shared.states.of(family, self.name),
            )
        return self._facts[family]

    @cached_property
    def model(self) -> Host:
        """The host with its links and routes, as a healthy node's sysctls are: what these do wrong is a finding of its
        own, and must not hide what the rules do."""
        host = self.host.model
        plain = Host.simple(None)
        own = host.local_addresses
        if own is None and self.node is not None:
            found = [each for each in map(_parsed, node_addresses(self.node)) if each is not None]
            own = frozenset(found) or None
        localnet = int(self.mode == MODE_IPTABLES and self.config.iptables.localhost_node_ports is not False)
        sysctls = MappingProxyType({**plain.sysctls, SHORT_SYSCTLS["route_localnet"]: localnet})
        return dataclasses.replace(host, local_addresses=own, sysctls=sysctls, recent=plain.recent)

    def route_to(self, address: str) -> RouteResult | None:
        """The route to an address; None if there is none, or if that is not known."""
        family, value = parse_ip(address)
        found = lookup(self.model, Query(family, value))
        return found if isinstance(found, RouteResult) else None

    def device_to(self, address: str) -> str | None:
        """The device that an address is behind; None if that is not known."""
        found = self.route_to(address)
        return None if found is None else found.device


def _parsed(address: str) -> tuple[Family, int] | None:
    try:
        return parse_ip(address)
    except DataplaneError:  # a Node may have names among its addresses
        return None


def _is_repeated(dump: Dump, other: Dump) -> bool:
    """Whether both show the same rules: a node whose iptables is the legacy one may have two files of them."""
    same = dump.is_legacy == other.is_legacy
    return same and dump.chains == other.chains and dump.policies == other.policies


def dispatches(dump: Dump) -> bool:
    """Whether a dump has rules of kube-proxy's iptables mode: a dispatch chain that something jumps to."""
    return dump.declares((Table.NAT.value, SERVICES)) and any(
        key[0] == Table.NAT.value and not is_ours(*key) and any(SERVICES in rule for rule in rules)
        for key, rules in dump.chains.items()
    )


def without_clients(native: NftRuleset) -> NftRuleset:
    """Rules of nftables without the clients that kube-proxy's sets remember."""
    tables = tuple(
        dataclasses.replace(
            table,
            sets=tuple(
                dataclasses.replace(item, elements=NO_ELEMENTS) if item.name.startswith(_AFFINITY) else item
                for item in table.sets
            ),
        )
        if table.name == TABLE
        else table
        for table in native.tables
    )
    return NftRuleset(tables)
