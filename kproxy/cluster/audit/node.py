"""One node: the rules that it should have, those that it has, and the host that packets meet in both."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from types import MappingProxyType
from typing import Final

import msgspec

from kproxy.api import Node
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES, KubeProxyConfiguration
from kproxy.cluster.hosts import node_addresses
from kproxy.cluster.migrate.facts import NodeFacts
from kproxy.cluster.migrate.foreign import is_ours
from kproxy.cluster.migrate.steps import iptables_rules, nftables_rules
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.dataplane import DataplaneError, Host
from kproxy.dataplane.concrete.routing import Query, RouteResult, lookup
from kproxy.dataplane.model.host import SHORT_SYSCTLS
from kproxy.dataplane.model.packet import parse_ip
from kproxy.dataplane.symbolic.side import SideRules
from kproxy.netfilter import Family, Ruleset
from kproxy.netfilter.address import format_address
from kproxy.netfilter.hooks import Table
from kproxy.netfilter.nftables.element import NO_ELEMENTS
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.render import Target, render_options
from kproxy.render.iptables.chains import SERVICES
from kproxy.render.nftables.names import TABLE
from kproxy.services.tracker import ServiceState

_AFFINITY: Final = "affinity-"
"""How sets of kube-proxy's nftables mode begin that remember clients."""


class AuditedNode:
    """A node of a cluster.

    Attributes:
        config: its kube-proxy's: its own, else the cluster's ConfigMap, else kube-proxy's defaults.
        config_known: whether it is one of the first two. Else nothing can be said of masquerading.
    """

    def __init__(self, cluster: Cluster, host: HostFacts) -> None:
        nodes = {node.metadata.name: node for node in cluster.manifests.nodes}
        self.cluster = cluster
        self.host = host
        self.name = host.name
        self.node: Node | None = nodes.get(host.name)
        known = host.proxy_config or cluster.proxy_config
        self.config_known = known is not None
        self.config = known or KubeProxyConfiguration()
        self._facts: dict[Family, NodeFacts] = {}

    @cached_property
    def mode(self) -> str:
        """As configured; if that is not known, as the rules are."""
        if self.config_known:
            return self.config.mode
        return MODE_NFTABLES if self.has_table and not self.variants_with_rules else MODE_IPTABLES

    @cached_property
    def has_table(self) -> bool:
        """Whether kube-proxy's table of nftables mode is there."""
        rules = self.host.host_rules
        native = None if rules is None else rules.nftables
        return native is not None and any(table.name == TABLE and table.chains for table in native.tables)

    @cached_property
    def variants_with_rules(self) -> tuple[str, ...]:
        """The files with rules of kube-proxy's iptables mode: with a dispatch chain that something jumps to."""
        rules = self.host.host_rules
        return tuple(
            each.label.rpartition(": ")[2]
            for each in (rules.files if rules is not None else ())
            if each.iptables is not None and _dispatches(each.iptables.ruleset)
        )

    def facts(self, family: Family) -> NodeFacts:
        """The Services as this node's kube-proxy sees them."""
        if family not in self._facts:
            manifests = self.cluster.manifests
            state = ServiceState.of(family, self.name, manifests.services, manifests.endpoint_slices)
            addresses = self.addresses(family) or None
            first, second = (
                render_options(
                    msgspec.structs.replace(self.config, mode=mode), family, self.name, self.node,
                    addresses=addresses,
                    service_cidrs=manifests.service_cidrs if mode == MODE_NFTABLES else (),
                )
                for mode in (MODE_IPTABLES, MODE_NFTABLES)
            )  # fmt: skip
            self._facts[family] = NodeFacts(Target(self.name, self.node), family, state, first, second)
        return self._facts[family]

    def addresses(self, family: Family) -> tuple[str, ...]:
        """The addresses of its interfaces, loopback's left out; empty if they are not known."""
        return tuple(
            format_address(own.value, family)
            for item in self.host.interfaces or ()
            for own in item.addresses
            if own.family is family and not item.is_loopback
        )

    def expected(self, family: Family) -> SideRules:
        """The rules that kube-proxy should have written."""
        facts = self.facts(family)
        return nftables_rules(facts) if self.mode == MODE_NFTABLES else iptables_rules(facts)

    def actual(self, family: Family) -> SideRules | None:
        """The rules that are there, without the clients that kube-proxy's sets remember; None if they are not known.

        Raises:
            InputError: they cannot be read.
        """
        if self.host.rules(family) is None:
            return None
        rules = self.host.host_rules
        if rules is None:
            return SideRules((), NftRuleset())
        native = rules.nftables or NftRuleset()
        return SideRules(rules.iptables(family), _without_clients(native))

    def has_own_rules(self, family: Family) -> bool:
        """Whether any rules of kube-proxy's mode are there for a family."""
        rules = self.host.host_rules
        if rules is None:
            return False
        if self.mode == MODE_NFTABLES:
            wanted = "ip6" if family is Family.IPV6 else "ip"
            native = rules.nftables
            return native is not None and any(
                table.name == TABLE and table.family.value == wanted and table.chains for table in native.tables
            )
        return any(_dispatches(item.ruleset) for item in rules.iptables(family))

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


def _dispatches(ruleset: Ruleset) -> bool:
    chain = ruleset.chain(Table.NAT, SERVICES)
    return chain is not None and any(
        table.name == Table.NAT and not is_ours(table.name, other.name) and SERVICES in rule.to_save(other.name)
        for table, other, _, rule in ruleset.rules()
    )


def _without_clients(native: NftRuleset) -> NftRuleset:
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
