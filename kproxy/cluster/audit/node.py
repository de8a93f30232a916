"""One node: the rules that it has, its Services, and the host that packets meet."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import cache, cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

from kproxy.api import Manifests, Node
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES, KubeProxyConfiguration
from kproxy.api.types.discovery import EndpointSlice
from kproxy.cluster.equivalence.interval_partition import IntervalPartition, interval_of
from kproxy.cluster.evidence.opened import open_rules
from kproxy.cluster.evidence.signs import lost_in_words
from kproxy.cluster.evidence.unseen import BASE_CHAIN_JUMPS, Unseen, suspected
from kproxy.cluster.facts.kubeproxy import metric
from kproxy.cluster.hosts import node_addresses
from kproxy.cluster.node import NodeFacts, is_address
from kproxy.cluster.pods import ENDED, Pod
from kproxy.cluster.rendered import is_ours
from kproxy.cluster.rules import RuleFile
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.cluster.snapshot.info import seconds_of
from kproxy.dataplane import Host, Index
from kproxy.dataplane.compare.observe import index_rules
from kproxy.dataplane.concrete.routing import Query, RouteResult, lookup
from kproxy.dataplane.model.host import SHORT_SYSCTLS
from kproxy.dataplane.model.ipvs import CONNTRACK, Ipvs
from kproxy.dataplane.model.packet import parse_ip
from kproxy.dataplane.model.pipeline import OWN_TABLES, TABLE_FAMILIES, IptablesRules
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Chain, Family, Jump
from kproxy.netfilter.address import format_address, parse_address
from kproxy.netfilter.hooks import Table
from kproxy.netfilter.nftables.element import NO_ELEMENTS
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.ruleset import Table as NftTable
from kproxy.render import Features, Target
from kproxy.render.iptables.chains import SERVICES
from kproxy.render.ipvs.renderer import DEVICE
from kproxy.render.ipvs.rules import NODE_PORT
from kproxy.render.nftables.names import TABLE
from kproxy.services.claims import ServiceAddress, doors_of
from kproxy.services.endpoints import endpoints_of_service, service_key_of
from kproxy.services.names import LABEL_SERVICE_NAME, ServicePortName, family_of
from kproxy.services.serviceport import ServicePort
from kproxy.services.tracker import ServiceState

_TRIGGERED: Final = "endpoints.kubernetes.io/last-change-trigger-time"
_SYNCED: Final = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
_AFFINITY: Final = "affinity-"
"""How sets of kube-proxy's nftables mode begin that remember clients."""


class States:
    """The Services as each node's kube-proxy sees them, for one family: made once for a cluster, and anew only where a
    node has endpoints. Between nodes only `Endpoint.is_local` differs."""

    def __init__(self, manifests: Manifests, family: Family) -> None:
        self._family = family
        self._everywhere = ServiceState.of(family, "", manifests.services, manifests.endpoint_slices)
        self._slices: dict[str, dict[str, EndpointSlice]] = {}
        self._services_on: dict[str | None, set[str]] = {}
        for each in manifests.endpoint_slices:
            service = service_key_of(each, family)
            if service:
                self._slices.setdefault(service, {})[each.metadata.key] = each
                for endpoint in each.endpoints:
                    self._services_on.setdefault(endpoint.node_name, set()).add(service)

    def of(self, node_name: str) -> ServiceState:
        """What `ServiceState.of` makes. It is not to be changed: nodes share its parts."""
        state = ServiceState(self._family, node_name)
        state.service_ports = self._everywhere.service_ports
        state.endpoints = dict(self._everywhere.endpoints)
        for service in self._services_on.get(node_name, ()):
            state.endpoints |= endpoints_of_service(service, self._slices[service], self._family, node_name)
        return state


class AuditedCluster:
    """What all nodes of a cluster share. `pods`: those that have not ended and have an address of their own, by family
    and node; `networks`: the podCIDRs; `owners`: nodes by their addresses; `states`: the Services as each node sees
    them; `triggers`: by Service, when its endpoints changed last, RFC 3339, as far as the endpoints controller says."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.nodes = {node.metadata.name: node for node in cluster.manifests.nodes}
        self.states = {family: States(cluster.manifests, family) for family in Family}
        self.pods: dict[Family, dict[str, list[tuple[str, Pod]]]] = {family: {} for family in Family}
        for pod in cluster.pods.values():
            if not pod.host_network and pod.phase not in ENDED:
                for address in pod.addresses:
                    self.pods[family_of(address)].setdefault(pod.node, []).append((address, pod))
        self.pod_addresses = frozenset(
            address for pod in cluster.pods.values() if pod.phase and not pod.host_network for address in pod.addresses
        )
        self.networks = Networks([cidr for node in cluster.manifests.nodes for cidr in node.pod_cidrs])
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
        for host in (host for name, host in self.cluster.hosts.items() if name in self.nodes):
            for route in host.routes or ():
                target = self.networks.of(format_address(route.network.address, route.family))
                length, its = route.network.mask.bit_count(), int(target.partition("/")[2] or -1)
                if 0 <= its <= length and length and target not in self.nodes[host.name].pod_cidrs:
                    return True
        return False


class Networks:
    """Networks by the addresses in them."""

    def __init__(self, cidrs: Collection[str]) -> None:
        self._cidrs = {
            family: {interval_of(c, family): c for c in cidrs if family_of(c) is family} for family in Family
        }
        self._partitions = {family: IntervalPartition(found) for family, found in self._cidrs.items()}

        self.of: Callable[[str], str] = cache(self._of)
        """The network that an address is in; itself if there is none."""

    def _of(self, address: str) -> str:
        family = family_of(address)
        partition = self._partitions[family]
        places = partition.of(parse_address(address, family))
        return self._cidrs[family][partition.intervals[places[-1]]] if places else address


class Dump(NamedTuple):
    """A file of iptables' rules."""

    label: str
    text: str
    rules: IptablesRules

    @property
    def file(self) -> str:
        """Its path in the snapshot, `nodes/NAME/iptables-save`."""
        return self.label.rpartition(": ")[2]

    @property
    def name(self) -> str:
        """The file's name."""
        return self.label.rpartition("/")[2]

    @property
    def dispatches(self) -> bool:
        """Whether it has rules of kube-proxy's iptables mode: a dispatch chain that something jumps to, and that is not
        IPVS mode's."""
        table = self.rules.ruleset.table(Table.NAT.value)
        own = None if table is None else table.chain(SERVICES)
        if table is None or own is None or _leads_to(own, NODE_PORT):
            return False
        others = (chain for chain in table.chains if not is_ours(table.name, chain.name))
        return any(_leads_to(chain, SERVICES) for chain in others)


def _leads_to(chain: Chain, target: str) -> bool:
    """Whether a rule of the chain jumps to another one."""
    return any(isinstance(rule.target, Jump) and rule.target.chain == target for rule in chain.rules)


class AuditedNode:
    """A node of a cluster. `config`: its kube-proxy's: its own, else the cluster's ConfigMap, else kube-proxy's
    defaults, of which nothing can be said of masquerading (`config_known`)."""

    def __init__(self, cluster: AuditedCluster, host: HostFacts) -> None:
        self.cluster = cluster.cluster
        self.host = host
        self.name = host.name
        self.node: Node | None = cluster.nodes.get(host.name)
        self.shared = cluster
        known = host.proxy_config or self.cluster.proxy_config
        self.config_known = known is not None
        self.config = known or KubeProxyConfiguration()

    @cached_property
    def mode(self) -> str:
        """As configured; if that is not known, as the rules are."""
        if self.config_known:
            return self.config.mode
        if self.dumps_with_rules:
            return MODE_IPTABLES
        if self.has_table:
            return MODE_NFTABLES
        return MODE_IPVS if self.host.ipvs is not None and self.host.ipvs.servers else MODE_IPTABLES

    @cached_property
    def synced(self) -> str:
        """When kube-proxy last wrote its rules: RFC 3339, "" if that is not known."""
        time = metric(self.host.metrics or {}, _SYNCED)
        if time:
            return datetime.fromtimestamp(int(time), UTC).isoformat().replace("+00:00", "Z")
        return "" if self.host.health is None else self.host.health.last_updated

    def since(self, port: ServicePort) -> str:
        """Since when rules for a ServicePort that are not up to date are so, as far as it is known."""
        changed = self.shared.triggers.get(port.name.service, "")
        if changed:
            return f"the endpoints changed last at {changed}"
        return f"kube-proxy wrote rules last at {self.synced}" if self.synced else ""

    def is_young(self, port: ServicePort) -> bool:
        """Whether a ServicePort's endpoints changed so shortly before the node was read that the objects may be of
        another time: the controllers' times are of whole seconds."""
        changed = seconds_of(self.shared.triggers.get(port.name.service, ""))
        info = self.cluster.info
        read = seconds_of(info.nodes[self.name].started) if self.name in info.nodes else None
        return changed is not None and read is not None and read - changed - 1 < info.apart

    # --- rules ---

    @property
    def unseen(self) -> tuple[Unseen, ...]:
        """What was not seen of its rules: in IPVS mode packets go through the virtual servers that were."""
        return self.host.unseen_by_packet(self.families) if self.mode == MODE_IPVS else self.host.unseen

    @property
    def rule_files(self) -> tuple[RuleFile, ...]:
        """The files of its rules. Raises InputError."""
        rules = self.host.host_rules
        return () if rules is None else rules.files

    def dumps(self, family: Family) -> tuple[Dump, ...]:
        """The dumps of iptables that packets of a family meet, each variant's once. Raises InputError."""
        rules = self.host.host_rules
        return tuple(
            Dump(file.label, file.text, given)
            for given in (() if rules is None else rules.given(family))
            for file in self.rule_files
            if file.iptables is not None and file.iptables.ruleset is given.ruleset
        )

    @property
    def native(self) -> NftRuleset:
        """Its rules of nftables. Raises InputError."""
        rules = self.host.host_rules
        return NftRuleset() if rules is None or rules.nftables is None else rules.nftables

    def native_of_others(self, family: Family, *, with_ours: bool = False) -> NftRuleset:
        """Tables of nftables that packets of a family meet, but iptables' and, if not asked for, kube-proxy's."""
        mine = [each for each in self.native.tables if each.family in TABLE_FAMILIES[family] and not each.managed_by]
        return NftRuleset(tuple(each for each in mine if with_ours or each.name != TABLE))

    def own_table(self, family: Family) -> NftTable | None:
        """kube-proxy's table of nftables mode, without the clients that its sets remember."""
        tables = (each for each in self.native.tables if each.name == TABLE and each.family is OWN_TABLES[family])
        return next((without_clients(each) for each in tables if each.chains), None)

    @property
    def has_table(self) -> bool:
        """Whether kube-proxy's table of nftables mode is there."""
        return any(self.own_table(family) for family in Family)

    @property
    def dumps_with_rules(self) -> list[Dump]:
        """The files with rules of kube-proxy's iptables mode."""
        return [dump for family in Family for dump in self.dumps(family) if dump.dispatches]

    def has_own_rules(self, family: Family) -> bool:
        """Whether any rules of kube-proxy's mode are there for a family."""
        if self.mode == MODE_NFTABLES:
            return self.own_table(family) is not None
        if self.mode == MODE_IPVS:
            return self.host.ipvs is not None and any(
                family_of(each.address) is family for each in self.host.ipvs.servers
            )
        return any(dump.dispatches for dump in self.dumps(family))

    def lost_jumps(self, family: Family) -> str:
        """Which jumps to kube-proxy's iptables rules a whole dump lacks, as a sentence's part; "" if a variant of
        iptables has its rules and all jumps."""
        if self.mode != MODE_IPTABLES or any(each.what == BASE_CHAIN_JUMPS for each in self.host.unseen):
            return ""
        sets = [dump.rules.ruleset for dump in self.dumps(family)]
        lost = (each.tables for each in sets if each.chain(Table.NAT.value, SERVICES))
        return min(("; ".join(filter(None, map(lost_in_words, each))) for each in lost), key=len, default="")

    def index(self, family: Family) -> Index:
        """All its rules, open where something was not seen; session affinity remembers nobody. Raises InputError."""
        rules, native = self.host.host_rules, self.native
        given = () if rules is None else rules.iptables(family)
        iptables = open_rules(given, family, suspected(self.unseen), native)
        listed = self.host.ipvs if self.mode == MODE_IPVS else None
        servers = None if listed is None else Ipvs(family, listed.servers)
        return index_rules(SideRules(iptables, NftRuleset(tuple(map(without_clients, native.tables))), servers), family)

    # --- Services ---

    @cached_property
    def facts(self) -> Mapping[Family, NodeFacts]:
        """The Services of each family as this node's kube-proxy sees them."""
        return {
            family: NodeFacts.of(
                self.cluster.manifests,
                self.config,
                Target(self.name, self.node),
                family,
                Features(),
                self._addresses(family) or None,
                state=self.shared.states[family].of(self.name),
            )
            for family in Family
        }

    def _addresses(self, family: Family) -> list[str]:
        """The host's, but those that kube-proxy itself gives it in IPVS mode."""
        given = {own.value for item in self.host.interfaces or () if item.name == DEVICE for own in item.addresses}
        found = self.host.addresses(family)
        return [each for each in found if self.mode != MODE_IPVS or parse_address(each, family) not in given]

    @cached_property
    def families(self) -> list[Family]:
        """The families that its Services have."""
        return [family for family in Family if self.facts[family].service_ports]

    @cached_property
    def doors(self) -> Mapping[ServiceAddress, ServicePortName]:
        """Where Services answer."""
        ports = (port for family in Family for port in self.facts[family].service_ports)
        return {door: port.name for port in ports for door in doors_of(port)}

    @cached_property
    def services_in(self) -> Mapping[str, Mapping[str, None]]:
        """The ServicePorts that this node sends to each podCIDR, in words."""
        found: dict[str, dict[str, None]] = {}
        for facts in self.facts.values():
            for port in facts.service_ports:
                for endpoint in facts.selected[port.name].reachable:
                    found.setdefault(self.shared.networks.of(endpoint.ip), {})[str(port.name)] = None
        return found

    @cached_property
    def model(self) -> Host:
        """The host with its links and routes, as a healthy node's sysctls are: what these do wrong is a finding of its
        own, and must not hide what the rules do."""
        plain, own = Host.simple(None), self.host.model.local_addresses
        if own is None and self.node is not None:
            own = frozenset(parse_ip(each) for each in node_addresses(self.node) if is_address(each)) or None
        localnet = int(self.mode == MODE_IPTABLES and self.config.iptables.localhost_node_ports is not False)
        sysctls = MappingProxyType({**plain.sysctls, SHORT_SYSCTLS["route_localnet"]: localnet, CONNTRACK: 1})
        return dataclasses.replace(self.host.model, local_addresses=own, sysctls=sysctls, recent=plain.recent)

    def route_to(self, address: str) -> RouteResult | None:
        """The route to an address; None if there is none, or if that is not known."""
        found = lookup(self.model, Query(*parse_ip(address)))
        return found if isinstance(found, RouteResult) else None

    def device_to(self, address: str) -> str | None:
        """The device that an address is behind; None if that is not known."""
        found = self.route_to(address)
        return None if found is None else found.device


def without_clients(table: NftTable) -> NftTable:
    """A table; if it is kube-proxy's, without the clients that its sets remember."""
    if table.name != TABLE:
        return table
    sets = (
        dataclasses.replace(item, elements=NO_ELEMENTS) if item.name.startswith(_AFFINITY) else item
        for item in table.sets
    )
    return dataclasses.replace(table, sets=tuple(sets))
