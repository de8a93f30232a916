"""What one ServicePort becomes: chains of its own, affinity sets, and elements of the sets and maps that all share.

    service-   chooses one of the endpoints of the whole cluster
    local-     chooses one of the endpoints of this node
    external-  for node ports, load-balancer and external IPs: decides on masquerading and on service- or local-
    firewall-  drops what comes to load-balancer IPs from elsewhere than the source ranges
    endpoint-  with session affinity, one per endpoint: remembers the client in the set affinity-, then DNAT

Without session affinity a choice is one rule with a map of endpoints. The maps service-ips and service-nodeports lead
to the chains, no-endpoint-services and no-endpoint-nodeports refuse what has no endpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kproxy.render.decisions import Decisions, decide, is_node_allowed
from kproxy.render.nftables.base import if_local
from kproxy.render.nftables.names import (
    CLUSTER_IPS,
    FIREWALL_IPS,
    HAIRPIN_CONNECTIONS,
    NO_ENDPOINT_NODEPORTS,
    NO_ENDPOINT_SERVICES,
    REJECT_CHAIN,
    SERVICE_IPS,
    SERVICE_NODEPORTS,
    endpoint_base,
    nft_family,
    port_of,
    service_port_base,
    service_port_comment,
)
from kproxy.render.options import RenderOptions
from kproxy.render.origin import Origin
from kproxy.services.endpoints import Endpoint
from kproxy.services.serviceport import ServicePort
from kproxy.services.topology import SelectedEndpoints

ElementRef = tuple[str, str]
"""A place in a set or map: (name of the set or map, key)."""


class ElementValue(NamedTuple):
    """What an element has besides its key: a verdict, in maps, and a comment; "" for none."""

    value: str = ""
    comment: str = ""


class ServicePortObjects(msgspec.Struct, frozen=True):
    """What one ServicePort becomes.

    Attributes:
        chains: the rules of its own chains by name, in order.
        sets: the definitions of its affinity sets by name.
        elements: of shared sets and maps. Where two of its addresses are the same, the last counts, as in kube-proxy.
    """

    chains: dict[str, tuple[str, ...]]
    sets: dict[str, str]
    elements: dict[ElementRef, ElementValue]


class ServicePortOrigins(msgspec.Struct, frozen=True):
    """The origins of the objects of a ServicePort: of each rule by chain, and of each set and element."""

    rules: dict[str, list[Origin]]
    sets: dict[str, Origin]
    elements: dict[ElementRef, Origin]


class _Writer:
    """Collects objects, and their origins if they are asked for."""

    __slots__ = ("chains", "elements", "ip", "options", "origins", "service_port", "sets")

    def __init__(self, service_port: ServicePort, options: RenderOptions, keep_origins: bool) -> None:
        self.service_port = service_port
        self.options = options
        self.ip = nft_family(options.family)
        self.chains: dict[str, list[str]] = {}
        self.sets: dict[str, str] = {}
        self.elements: dict[ElementRef, ElementValue] = {}
        self.origins = ServicePortOrigins({}, {}, {}) if keep_origins else None

    def rule(self, chain: str, text: str, reason: str, endpoint: Endpoint | None = None) -> None:
        self.chains.setdefault(chain, []).append(text)
        if self.origins is not None:
            self.origins.rules.setdefault(chain, []).append(Origin(reason, self.service_port.name, endpoint))

    def affinity_set(self, name: str, definition: str, endpoint: Endpoint) -> None:
        self.sets[name] = definition
        if self.origins is not None:
            reason = "session affinity: clients of endpoint"
            self.origins.sets[name] = Origin(reason, self.service_port.name, endpoint)

    def element(
        self,
        container: str,
        key: str,
        reason: str,
        value: str = "",
        comment: str = "",
        endpoint: Endpoint | None = None,
    ) -> None:
        ref = (container, key)
        # The same value again changes nothing, not even the comment.
        if ref not in self.elements or self.elements[ref].value != value:
            self.elements[ref] = ElementValue(value, comment)
            if self.origins is not None:
                self.origins.elements[ref] = Origin(reason, self.service_port.name, endpoint)


def render_service_port(
    service_port: ServicePort, selected: SelectedEndpoints, options: RenderOptions
) -> ServicePortObjects:
    """Renders one ServicePort for one node.

    Args:
        selected: its endpoints as `services.topology.select_endpoints` chose them for this node.
    """
    writer = _Writer(service_port, options, keep_origins=False)
    _write(writer, selected)
    chains = {chain: tuple(rules) for chain, rules in writer.chains.items()}
    return ServicePortObjects(chains, writer.sets, writer.elements)


def origins_of_service_port(
    service_port: ServicePort, selected: SelectedEndpoints, options: RenderOptions
) -> ServicePortOrigins:
    """The origins of everything that `render_service_port` gives."""
    writer = _Writer(service_port, options, keep_origins=True)
    _write(writer, selected)
    assert writer.origins is not None
    return writer.origins


def _write(writer: _Writer, selected: SelectedEndpoints) -> None:
    sp = writer.service_port
    base = service_port_base(sp.name)
    decided = decide(sp, selected)
    _write_cluster_ip(writer, decided, base)
    _write_external_ips(writer, decided, base)
    _write_load_balancer_ips(writer, decided, base)
    _write_node_port(writer, decided, base)
    if decided.has_any and sp.externally_accessible:
        _write_external_chain(writer, decided, base)
    if decided.restricts_sources:
        _write_firewall_chain(writer, base)
    if selected.cluster:
        _write_choice(writer, f"service-{base}", selected.cluster)
    if selected.local:
        _write_choice(writer, f"local-{base}", selected.local)
    for endpoint in selected.reachable:
        if sp.session_affinity_seconds:
            _write_endpoint_chain(writer, endpoint)
        if endpoint.is_local:
            key = f"{endpoint.ip} . {endpoint.ip} . {sp.protocol} . {port_of(endpoint)}"
            writer.element(HAIRPIN_CONNECTIONS, key, "hairpin: masquerade endpoint", endpoint=endpoint)


def _write_cluster_ip(writer: _Writer, decided: Decisions, base: str) -> None:
    sp = writer.service_port
    writer.element(CLUSTER_IPS, sp.cluster_ip, "cluster IP")
    if decided.has_internal:
        chain = f"local-{base}" if sp.internal_policy_local else f"service-{base}"
        writer.element(SERVICE_IPS, _service_key(sp, sp.cluster_ip), "cluster IP", f"goto {chain}")
    else:
        _refuse_service(writer, decided, sp.cluster_ip, "cluster IP")


def _write_external_ips(writer: _Writer, decided: Decisions, base: str) -> None:
    sp = writer.service_port
    for ip in sp.external_ips:
        reason = f"external IP {ip}"
        if decided.has_any:
            writer.element(SERVICE_IPS, _service_key(sp, ip), reason, f"goto external-{base}")
        if not decided.has_external:
            _refuse_service(writer, decided, ip, reason)


def _write_load_balancer_ips(writer: _Writer, decided: Decisions, base: str) -> None:
    sp = writer.service_port
    for ip in sp.load_balancer_vips:
        reason, key = f"load-balancer IP {ip}", _service_key(sp, ip)
        if decided.has_any:
            writer.element(SERVICE_IPS, key, reason, f"goto external-{base}")
        if decided.restricts_sources:
            writer.element(FIREWALL_IPS, key, f"{reason}: only some sources", f"goto firewall-{base}")
        if not decided.has_external:
            _refuse_service(writer, decided, ip, reason)


def _write_node_port(writer: _Writer, decided: Decisions, base: str) -> None:
    sp = writer.service_port
    if not sp.node_port:
        return
    reason, key = f"node port {sp.node_port}", f"{sp.protocol} . {sp.node_port}"
    if decided.has_any:
        writer.element(SERVICE_NODEPORTS, key, reason, f"goto external-{base}")
    if not decided.has_external:
        why = f"{reason}: {decided.why_refused}"
        writer.element(NO_ENDPOINT_NODEPORTS, key, why, _refusal(decided), service_port_comment(sp.name))


def _service_key(service_port: ServicePort, ip: str) -> str:
    return f"{ip} . {service_port.protocol} . {service_port.port}"


def _refuse_service(writer: _Writer, decided: Decisions, ip: str, reason: str) -> None:
    sp = writer.service_port
    why = f"{reason}: {decided.why_refused}"
    writer.element(NO_ENDPOINT_SERVICES, _service_key(sp, ip), why, _refusal(decided), service_port_comment(sp.name))


def _refusal(decided: Decisions) -> str:
    return "drop" if decided.has_any else f"goto {REJECT_CHAIN}"


def _write_external_chain(writer: _Writer, decided: Decisions, base: str) -> None:
    sp, options = writer.service_port, writer.options
    chain, mark = f"external-{base}", f"mark set mark or {options.mark}"
    if not sp.external_policy_local:
        # Endpoints may be on other nodes, so the answer must come back through this one.
        writer.rule(chain, f'{mark} comment "masquerade"', "external traffic: masquerade")
        writer.rule(chain, f"goto service-{base}", "external traffic: to endpoints")
        return
    if options.local_traffic.is_implemented:
        from_pods = if_local(options.local_traffic, writer.ip)
        text = f'{from_pods} goto service-{base} comment "short-circuit pod traffic"'
        writer.rule(chain, text, "external traffic from pods: to endpoints")
    local = "fib saddr type local"
    text = f'{local} {mark} comment "masquerade local traffic"'
    writer.rule(chain, text, "external traffic from the node: masquerade")
    text = f'{local} goto service-{base} comment "short-circuit local traffic"'
    writer.rule(chain, text, "external traffic from the node: to endpoints")
    if decided.has_external:
        writer.rule(chain, f"goto local-{base}", "external traffic: to local endpoints")


def _write_firewall_chain(writer: _Writer, base: str) -> None:
    sp = writer.service_port
    sources = list(sp.load_balancer_source_ranges)
    if is_node_allowed(sp, writer.options):
        sources += sp.load_balancer_vips
    text = f"{writer.ip} saddr != {{ {' , '.join(sources)} }} drop"
    writer.rule(f"firewall-{base}", text, "sources that are not allowed")


def _write_choice(writer: _Writer, chain: str, endpoints: Sequence[Endpoint]) -> None:
    """Rules that choose an endpoint: the one the client had, else each with the same chance."""
    sp, ip = writer.service_port, writer.ip
    count = len(endpoints)
    if not sp.session_affinity_seconds:
        choices = " , ".join(f"{i} : {ep.ip} . {port_of(ep)}" for i, ep in enumerate(endpoints))
        text = f"meta l4proto {sp.protocol} dnat {ip} addr . port to numgen random mod {count} map {{ {choices} }}"
        writer.rule(chain, text, "choice of endpoint")
        return
    bases = [endpoint_base(sp.name, endpoint) for endpoint in endpoints]
    for base, endpoint in zip(bases, endpoints, strict=True):
        text = f"{ip} saddr @affinity-{base} goto endpoint-{base}"
        writer.rule(chain, text, "session affinity to endpoint", endpoint)
    choices = " , ".join(f"{i} : goto endpoint-{base}" for i, base in enumerate(bases))
    writer.rule(chain, f"numgen random mod {count} vmap {{ {choices} }}", "choice of endpoint")


def _write_endpoint_chain(writer: _Writer, endpoint: Endpoint) -> None:
    sp, family = writer.service_port, writer.options.family
    base = endpoint_base(sp.name, endpoint)
    chain, affinity = f"endpoint-{base}", f"affinity-{base}"
    seconds = sp.session_affinity_seconds
    definition = f"{{ type ipv{family.version}_addr ; flags dynamic,timeout ; timeout {seconds}s ; }}"
    writer.affinity_set(affinity, definition, endpoint)
    text = f"update @{affinity} {{ {writer.ip} saddr }}"
    writer.rule(chain, text, "session affinity: remember the client of endpoint", endpoint)
    writer.rule(chain, f"meta l4proto {sp.protocol} dnat to {endpoint.address}", "to endpoint", endpoint)
