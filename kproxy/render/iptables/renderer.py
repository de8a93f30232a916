"""The renderer: keeps every ServicePort's chains as last rendered, and plans what to write when something changed.

Rendering is a function of the state: whatever sequence of changes led there, the chains are the same bytes. Order comes
from sorting ServicePorts by namespace, name, port and protocol, and endpoints by address.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from kproxy.render.iptables.base import BASE_CHAINS, render_base_rules
from kproxy.render.iptables.chains import FIREWALL, NAT, SERVICE_PORT_CHAIN_PREFIXES
from kproxy.render.iptables.plan import Plan, deletion_order
from kproxy.render.iptables.serviceport import (
    DISPATCH,
    NAT_SERVICES,
    ChainRef,
    ServicePortRules,
    origins_of_service_port,
    render_service_port,
)
from kproxy.render.options import RenderOptions
from kproxy.render.origin import Origin
from kproxy.services.names import ServicePortName
from kproxy.services.serviceport import ServicePort
from kproxy.services.topology import SelectedEndpoints, select_endpoints
from kproxy.services.tracker import ServiceState

LARGE_CLUSTER_ENDPOINTS = 1000
"""Above this many endpoints kube-proxy drops the comments of endpoint rules, which are most of the text."""


class Renderer:
    """The chains of one family on one node.

    Invariants:
        `_names` holds the keys of `_rules`, sorted.
        `_dispatch` holds, for each dispatch chain, the text of each of `_names` in it.
        `_chains` holds the text of the last plan of every chain that is not a ServicePort's own.
    """

    def __init__(self, options: RenderOptions) -> None:
        self._options = options
        self._base = render_base_rules(options)
        self._large_cluster = False
        self._endpoint_count = 0
        self._names: list[ServicePortName] = []
        self._rules: dict[ServicePortName, ServicePortRules] = {}
        self._dispatch: list[list[str]] = [[] for _ in DISPATCH]
        self._chains: dict[ChainRef, str] = {}

    @property
    def options(self) -> RenderOptions:
        return self._options

    @property
    def large_cluster(self) -> bool:
        """Whether the last plan left out comments because there are more than 1000 endpoints."""
        return self._large_cluster

    def chains(self) -> dict[ChainRef, str]:
        """Every chain of the last plan with its rule lines, in the order in which a full restore declares them."""
        chains = dict(self._chains)
        for name in self._names:
            for chain, text in self._rules[name].chains.items():
                chains[(NAT, chain)] = text
        return chains

    def chains_of(self, name: ServicePortName) -> Mapping[str, str]:
        """The ServicePort's own nat chains of the last plan; empty if it has none."""
        rules = self._rules.get(name)
        return rules.chains if rules is not None else {}

    def plan_full(self, state: ServiceState, existing_nat_chains: Iterable[str] = ()) -> Plan:
        """Renders everything anew; the plan writes every chain.

        Args:
            existing_nat_chains: names of chains in the kernel's nat table; the plan deletes those of ServicePorts that
                it does not write.
        """
        previous = self._chains
        self._large_cluster = self._is_large(state)
        favoured = self._options.favoured
        self._names = sorted(state.service_ports, key=lambda name: (name.service != favoured, name))
        self._rules = {name: self._render(state, name) for name in self._names}
        self._endpoint_count = sum(rules.endpoint_count for rules in self._rules.values())
        self._dispatch = [[self._rules[name].dispatch[i] for name in self._names] for i in range(len(DISPATCH))]
        self._chains = self._shared_chains()
        rendered = {chain for rules in self._rules.values() for chain in rules.chains}
        stale = (
            chain
            for chain in existing_nat_chains
            if chain.startswith(SERVICE_PORT_CHAIN_PREFIXES) and chain not in rendered
        )
        return self._whole(deletion_order(stale), previous)

    def last_plan(self) -> Plan:
        """All chains as they were last planned, as one full plan."""
        return self._whole((), self._chains)

    def _whole(self, deletions: tuple[str, ...], previous: Mapping[ChainRef, str]) -> Plan:
        own = {name: rules.chains for name, rules in self._rules.items() if rules.chains}
        return Plan(True, dict(self._chains), own, deletions, previous)

    def plan_partial(self, state: ServiceState, touched: Iterable[ServicePortName]) -> Plan:
        """Renders the touched ServicePorts anew; the plan names only chains whose rules changed since the last plan.

        When the cluster grows past 1000 endpoints or shrinks below, every ServicePort counts as touched. Without a plan
        before this one, the plan is a full one.
        """
        if not self._chains:
            return self.plan_full(state)
        touched = set(touched)
        self._endpoint_count += sum(
            (len(state.endpoints.get(name, ())) if name in state.service_ports else 0)
            - (self._rules[name].endpoint_count if name in self._rules else 0)
            for name in touched
        )
        large_cluster = self._endpoint_count > LARGE_CLUSTER_ENDPOINTS
        if large_cluster != self._large_cluster:
            self._large_cluster = large_cluster
            touched |= self._rules.keys()
        changed: dict[ServicePortName, Mapping[str, str]] = {}
        deletions: list[str] = []
        dirty: set[ChainRef] = set()
        for name in sorted(touched):
            old = self._rules.get(name, _NOTHING)
            new = self._render(state, name) if name in state.service_ports else _NOTHING
            self._remember(name, new if name in state.service_ports else None)
            differing = {chain: text for chain, text in new.chains.items() if old.chains.get(chain) != text}
            if differing:
                changed[name] = differing
            deletions.extend(chain for chain in old.chains if chain not in new.chains)
            dirty.update(DISPATCH[i] for i in range(len(DISPATCH)) if old.dispatch[i] != new.dispatch[i])
        base = {ref: self._dispatch_text(ref) for ref in DISPATCH if ref in dirty}
        previous = {ref: self._chains[ref] for ref in base}
        self._chains.update(base)
        return Plan(False, base, changed, deletion_order(deletions), previous)

    def replan(self, state: ServiceState, options: RenderOptions) -> Plan:
        """Takes new options, of a changed Node say; the plan names only chains whose rules changed."""
        before = self.chains()
        self._options = options
        self._base = render_base_rules(options)
        full = self.plan_full(state, [chain for table, chain in before if table == NAT])
        base = {ref: text for ref, text in full.base.items() if before.get(ref) != text}
        # KUBE-FIREWALL is shared with the kubelet: it is emptied, never deleted.
        base.update({ref: "" for ref in before if ref[1] == FIREWALL and ref not in full.base})
        changed = {
            name: differing
            for name, chains in full.service_ports.items()
            if (differing := {chain: text for chain, text in chains.items() if before.get((NAT, chain)) != text})
        }
        previous = {ref: before[ref] for ref in base if ref in before}
        return Plan(False, base, changed, full.deletions, previous)

    def origins(self, state: ServiceState) -> dict[ChainRef, list[Origin]]:
        """The provenance of every rule of the last plan: for each chain, one origin per rule in the same order.

        Args:
            state: the state the last plan was made from.
        """
        origins = {ref: list(found) for ref, found in self._base.origins.items()}
        last = origins.pop(NAT_SERVICES)
        for name in self._names:
            for ref, found in origins_of_service_port(*self._selected(state, name), self._options).items():
                origins.setdefault(ref, []).extend(found)
        origins.setdefault(NAT_SERVICES, []).extend(last)
        return origins

    def _is_large(self, state: ServiceState) -> bool:
        count = sum(len(state.endpoints.get(name, ())) for name in state.service_ports)
        return count > LARGE_CLUSTER_ENDPOINTS

    def _render(self, state: ServiceState, name: ServicePortName) -> ServicePortRules:
        return render_service_port(
            *self._selected(state, name),
            self._options,
            large_cluster=self._large_cluster,
            endpoint_count=len(state.endpoints.get(name, ())),
        )

    def _selected(self, state: ServiceState, name: ServicePortName) -> tuple[ServicePort, SelectedEndpoints]:
        service_port, endpoints = state.service_ports[name], state.endpoints.get(name, ())
        return service_port, select_endpoints(service_port, endpoints, self._options.node_name, self._options.zone)

    def _remember(self, name: ServicePortName, rules: ServicePortRules | None) -> None:
        index = bisect_left(self._names, name)
        known = index < len(self._names) and self._names[index] == name
        if rules is not None:
            self._rules[name] = rules
            if not known:
                self._names.insert(index, name)
            for texts, text in zip(self._dispatch, rules.dispatch, strict=True):
                if known:
                    texts[index] = text
                else:
                    texts.insert(index, text)
        elif known:
            del self._rules[name]
            del self._names[index]
            for texts in self._dispatch:
                del texts[index]

    def _shared_chains(self) -> dict[ChainRef, str]:
        """The text of the base and dispatch chains, in kube-proxy's order of declaration."""
        chains: dict[ChainRef, str] = {}
        for table, names in BASE_CHAINS.items():
            for chain in names:
                ref = (table, chain)
                chains[ref] = self._dispatch_text(ref) if ref in DISPATCH else self._base.chains[ref]
            chains.update({ref: text for ref, text in self._base.chains.items() if ref[0] == table})
        return chains

    def _dispatch_text(self, ref: ChainRef) -> str:
        text = "".join(self._dispatch[DISPATCH.index(ref)])
        return text + self._base.node_ports_jump if ref == NAT_SERVICES else text


_NOTHING = ServicePortRules({}, ("",) * len(DISPATCH), 0)
