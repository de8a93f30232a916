"""The chains and rules of one ServicePort.

kube-proxy gives a ServicePort with endpoints these chains in the nat table, all named by its hash:

    KUBE-EXT  where traffic to external addresses arrives: short-circuits for pods and the node, masquerading
    KUBE-FW   before KUBE-EXT for load-balancer IPs with source ranges: lets allowed sources pass
    KUBE-SVC  chooses one of the endpoints of the whole cluster
    KUBE-SVL  chooses one of the endpoints of this node
    KUBE-SEP  one per endpoint: marks hairpin traffic for masquerading, then DNAT

and rules that lead to them in the dispatch chains, which all ServicePorts share. A ServicePort without usable
endpoints has only filter rules that REJECT; one whose policy is Local without local endpoints has filter rules that
DROP.

The text is what kube-proxy v1.36 hands to iptables-restore, argument by argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kproxy.render.decisions import Decisions, decide, is_node_allowed
from kproxy.render.iptables.chains import (
    EXTERNAL_SERVICES,
    FILTER,
    MARK_MASQ,
    NAT,
    NODEPORTS,
    PROXY_FIREWALL,
    SERVICES,
    endpoint_chain_name,
    service_port_hash,
)
from kproxy.render.options import RenderOptions
from kproxy.render.origin import Origin
from kproxy.services.endpoints import Endpoint
from kproxy.services.serviceport import ServicePort
from kproxy.services.topology import SelectedEndpoints

ChainRef = tuple[str, str]
"""A chain: (table, name)."""

NAT_SERVICES: Final[ChainRef] = (NAT, SERVICES)
NAT_NODEPORTS: Final[ChainRef] = (NAT, NODEPORTS)
FILTER_SERVICES: Final[ChainRef] = (FILTER, SERVICES)
FILTER_EXTERNAL: Final[ChainRef] = (FILTER, EXTERNAL_SERVICES)
FILTER_NODEPORTS: Final[ChainRef] = (FILTER, NODEPORTS)
FILTER_FIREWALL: Final[ChainRef] = (FILTER, PROXY_FIREWALL)

DISPATCH: Final = (NAT_SERVICES, NAT_NODEPORTS, FILTER_SERVICES, FILTER_EXTERNAL, FILTER_NODEPORTS, FILTER_FIREWALL)
"""The chains to which every ServicePort adds rules of its own."""

# "0.5000000000": kube-proxy prints ten digits of 1/n.
_PROBABILITY: Final = tuple(f"{1 / n:.10f}" if n else "" for n in range(1001))


def probability(n: int) -> str:
    """The probability 1/n as kube-proxy prints it."""
    return _PROBABILITY[n] if n < len(_PROBABILITY) else f"{1 / n:.10f}"


class ServicePortRules(msgspec.Struct, frozen=True):
    """What one ServicePort becomes. Rule text is lines of restore input, each ended by a newline.

    Attributes:
        chains: the rules of its own nat chains by name, in kube-proxy's order.
        dispatch: its rules in each dispatch chain, in the order of `DISPATCH`.
        endpoint_count: how many endpoints of any kind it has; kube-proxy measures the cluster by their sum.
    """

    chains: dict[str, str]
    dispatch: tuple[str, ...]
    endpoint_count: int


class _Writer:
    """Collects rule lines by chain, and their origins if they are asked for."""

    __slots__ = ("lines", "origins", "service_port")

    def __init__(self, service_port: ServicePort, keep_origins: bool) -> None:
        self.service_port = service_port
        self.lines: dict[ChainRef, list[str]] = {}
        self.origins: dict[ChainRef, list[Origin]] | None = {} if keep_origins else None

    def rule(self, ref: ChainRef, arguments: str, reason: str, endpoint: Endpoint | None = None) -> None:
        self.lines.setdefault(ref, []).append(f"-A {ref[1]} {arguments}\n")
        if self.origins is not None:
            self.origins.setdefault(ref, []).append(Origin(reason, self.service_port.name, endpoint))


def render_service_port(
    service_port: ServicePort,
    selected: SelectedEndpoints,
    options: RenderOptions,
    *,
    large_cluster: bool = False,
    endpoint_count: int = 0,
) -> ServicePortRules:
    """Renders one ServicePort for one node.

    Args:
        selected: its endpoints as `services.topology.select_endpoints` chose them for this node.
        large_cluster: leave out the comments that kube-proxy leaves out above 1000 endpoints.
        endpoint_count: how many endpoints it has, used or not.
    """
    writer = _Writer(service_port, keep_origins=False)
    _write(writer, selected, options, large_cluster)
    own = {chain: "".join(lines) for (table, chain), lines in writer.lines.items() if (table, chain) not in DISPATCH}
    dispatch = tuple("".join(writer.lines.get(ref, ())) for ref in DISPATCH)
    return ServicePortRules(own, dispatch, endpoint_count)


def origins_of_service_port(
    service_port: ServicePort, selected: SelectedEndpoints, options: RenderOptions
) -> dict[ChainRef, list[Origin]]:
    """The origin of each rule that `render_service_port` writes, chain by chain in the same order."""
    writer = _Writer(service_port, keep_origins=True)
    _write(writer, selected, options, large_cluster=False)
    assert writer.origins is not None
    return writer.origins


class _ChainNames(msgspec.Struct, frozen=True):
    """Where the traffic of a ServicePort goes, as chains of the nat table."""

    cluster: ChainRef
    local: ChainRef
    external: ChainRef
    firewall: ChainRef


def _write(writer: _Writer, selected: SelectedEndpoints, options: RenderOptions, large_cluster: bool) -> None:
    service_port = writer.service_port
    name_hash = service_port_hash(service_port.name)
    names = _ChainNames(
        cluster=(NAT, f"KUBE-SVC-{name_hash}"),
        local=(NAT, f"KUBE-SVL-{name_hash}"),
        external=(NAT, f"KUBE-EXT-{name_hash}"),
        firewall=(NAT, f"KUBE-FW-{name_hash}"),
    )
    decided = decide(service_port, selected)
    uses_firewall = decided.has_any and decided.restricts_sources
    _write_dispatch(writer, decided, options, names, uses_firewall)
    if not decided.has_any:
        return
    # The order in which chains are first mentioned here is the order in which they are declared.
    if service_port.externally_accessible:
        _write_external_chain(writer, selected, options, names)
    if uses_firewall:
        _write_firewall_chain(writer, options, names)
    if decided.has_internal:
        _write_masquerade_rule(writer, options, names)
    endpoint_chains = {ep.address: endpoint_chain_name(service_port.name, ep.address) for ep in selected.reachable}
    if service_port.uses_cluster_endpoints:
        _write_choice(writer, names.cluster, selected.cluster, endpoint_chains, large_cluster)
    if service_port.uses_local_endpoints:
        _write_choice(writer, names.local, selected.local, endpoint_chains, large_cluster)
    for endpoint in selected.reachable:
        _write_endpoint_chain(writer, endpoint, endpoint_chains[endpoint.address], large_cluster)


def _write_dispatch(
    writer: _Writer, decided: Decisions, options: RenderOptions, names: _ChainNames, uses_firewall: bool
) -> None:
    """Rules that send the ServicePort's addresses to its chains, or refuse them for want of endpoints."""
    sp = writer.service_port
    protocol = f"-m {sp.protocol} -p {sp.protocol}"
    why = decided.why_refused
    refusal = f'-m comment --comment "{sp.name} has {why}"'
    target = "DROP" if decided.has_any else "REJECT"

    destination = f"{protocol} -d {sp.cluster_ip} --dport {sp.port}"
    if decided.has_internal:
        chain = names.local if sp.internal_policy_local else names.cluster
        comment = f'-m comment --comment "{sp.name} cluster IP"'
        writer.rule(NAT_SERVICES, f"{comment} {destination} -j {chain[1]}", "cluster IP")
    else:
        writer.rule(FILTER_SERVICES, f"{refusal} {destination} -j {target}", f"cluster IP: {why}")
    for ip in sp.external_ips:
        destination = f"{protocol} -d {ip} --dport {sp.port}"
        if decided.has_any:
            comment = f'-m comment --comment "{sp.name} external IP"'
            writer.rule(NAT_SERVICES, f"{comment} {destination} -j {names.external[1]}", f"external IP {ip}")
        if not decided.has_external:
            writer.rule(FILTER_EXTERNAL, f"{refusal} {destination} -j {target}", f"external IP {ip}: {why}")
    for ip in sp.load_balancer_vips:
        destination = f"{protocol} -d {ip} --dport {sp.port}"
        reason = f"load-balancer IP {ip}"
        if decided.has_any:
            chain = names.firewall if uses_firewall else names.external
            comment = f'-m comment --comment "{sp.name} loadbalancer IP"'
            writer.rule(NAT_SERVICES, f"{comment} {destination} -j {chain[1]}", reason)
        if uses_firewall:
            comment = f'-m comment --comment "{sp.name} traffic not accepted by {names.firewall[1]}"'
            writer.rule(FILTER_FIREWALL, f"{comment} {destination} -j DROP", f"{reason}: source not allowed")
        if not decided.has_external:
            writer.rule(FILTER_EXTERNAL, f"{refusal} {destination} -j {target}", f"{reason}: {why}")
    if sp.node_port:
        destination = f"--dport {sp.node_port}"
        reason = f"node port {sp.node_port}"
        comment = f"-m comment --comment {sp.name}"
        if decided.has_any:
            if options.features.nfacct and options.localhost_node_ports:
                count = "-m nfacct --nfacct-name localhost_nps_accepted_pkts"
                arguments = f"{comment} {protocol} -d 127.0.0.0/8 {destination} {count} -j {names.external[1]}"
                writer.rule(NAT_NODEPORTS, arguments, f"{reason} on localhost, counted")
            writer.rule(NAT_NODEPORTS, f"{comment} {protocol} {destination} -j {names.external[1]}", reason)
        if not decided.has_external:
            arguments = f"{refusal} -m addrtype --dst-type LOCAL {protocol} {destination} -j {target}"
            writer.rule(FILTER_EXTERNAL, arguments, f"{reason}: {why}")
    if sp.health_check_node_port:
        comment = f'-m comment --comment "{sp.name} health check node port"'
        arguments = f"{comment} -m tcp -p tcp --dport {sp.health_check_node_port} -j ACCEPT"
        writer.rule(FILTER_NODEPORTS, arguments, f"health-check node port {sp.health_check_node_port}")


def _write_masquerade_rule(writer: _Writer, options: RenderOptions, names: _ChainNames) -> None:
    """Traffic to the ClusterIP from outside the pod network cannot be answered by pods, so it is masqueraded."""
    sp = writer.service_port
    ref = names.local if sp.internal_policy_local else names.cluster
    destination = f"-m {sp.protocol} -p {sp.protocol} -d {sp.cluster_ip} --dport {sp.port}"
    arguments = f'-m comment --comment "{sp.name} cluster IP" {destination}'
    if options.masquerade_all:
        writer.rule(ref, f"{arguments} -j {MARK_MASQ}", "cluster IP: masquerade all")
    elif options.local_traffic.is_implemented:
        not_local = options.local_traffic.if_not_local
        writer.rule(ref, f"{arguments} {not_local} -j {MARK_MASQ}", "cluster IP: masquerade what is not from pods")


def _write_external_chain(
    writer: _Writer, selected: SelectedEndpoints, options: RenderOptions, names: _ChainNames
) -> None:
    sp = writer.service_port
    ref, cluster = names.external, names.cluster[1]
    if not sp.external_policy_local:
        # Endpoints may be on other nodes, so the answer must come back through this one.
        comment = f'-m comment --comment "masquerade traffic for {sp.name} external destinations"'
        writer.rule(ref, f"{comment} -j {MARK_MASQ}", "external traffic: masquerade")
        writer.rule(ref, f"-j {cluster}", "external traffic: to endpoints")
        return
    if options.local_traffic.is_implemented:
        comment = f'-m comment --comment "pod traffic for {sp.name} external destinations"'
        from_pods = options.local_traffic.if_local
        writer.rule(ref, f"{comment} {from_pods} -j {cluster}", "external traffic from pods: to endpoints")
    local = "-m addrtype --src-type LOCAL"
    comment = f'-m comment --comment "masquerade LOCAL traffic for {sp.name} external destinations"'
    writer.rule(ref, f"{comment} {local} -j {MARK_MASQ}", "external traffic from the node: masquerade")
    comment = f'-m comment --comment "route LOCAL traffic for {sp.name} external destinations"'
    writer.rule(ref, f"{comment} {local} -j {cluster}", "external traffic from the node: to endpoints")
    if selected.local:
        writer.rule(ref, f"-j {names.local[1]}", "external traffic: to local endpoints")


def _write_firewall_chain(writer: _Writer, options: RenderOptions, names: _ChainNames) -> None:
    sp = writer.service_port
    comment = f'-m comment --comment "{sp.name} loadbalancer IP"'
    for cidr in sp.load_balancer_source_ranges:
        writer.rule(names.firewall, f"{comment} -s {cidr} -j {names.external[1]}", f"source range {cidr}")
    if is_node_allowed(sp, options):
        for ip in sp.load_balancer_vips:
            writer.rule(names.firewall, f"{comment} -s {ip} -j {names.external[1]}", "the node itself is allowed")
    comment = f'-m comment --comment "other traffic to {sp.name} will be dropped by {PROXY_FIREWALL}"'
    writer.rule(names.firewall, comment, "other sources: dropped in the filter table")


def _write_choice(
    writer: _Writer, ref: ChainRef, endpoints: Sequence[Endpoint], chains: dict[str, str], large_cluster: bool
) -> None:
    """Rules that choose an endpoint: the one the client had, else each with the same chance."""
    sp = writer.service_port
    comments = ["" if large_cluster else f'-m comment --comment "{sp.name} -> {ep.address}" ' for ep in endpoints]
    if sp.session_affinity_seconds:
        for comment, endpoint in zip(comments, endpoints, strict=True):
            chain = chains[endpoint.address]
            recent = f"-m recent --name {chain} --rcheck --seconds {sp.session_affinity_seconds} --reap"
            writer.rule(ref, f"{comment}{recent} -j {chain}", "session affinity to endpoint", endpoint)
    left = len(endpoints)
    for comment, endpoint in zip(comments, endpoints, strict=True):
        chance = f"-m statistic --mode random --probability {probability(left)} " if left > 1 else ""
        writer.rule(ref, f"{comment}{chance}-j {chains[endpoint.address]}", "choice of endpoint", endpoint)
        left -= 1


def _write_endpoint_chain(writer: _Writer, endpoint: Endpoint, chain: str, large_cluster: bool) -> None:
    sp = writer.service_port
    comment = "" if large_cluster else f"-m comment --comment {sp.name} "
    recent = f"-m recent --name {chain} --set " if sp.session_affinity_seconds else ""
    ref = (NAT, chain)
    writer.rule(ref, f"{comment}-s {endpoint.ip} -j {MARK_MASQ}", "hairpin: masquerade endpoint", endpoint)
    dnat = f"-m {sp.protocol} -p {sp.protocol} -j DNAT --to-destination {endpoint.address}"
    writer.rule(ref, f"{comment}{recent}{dnat}", "to endpoint", endpoint)
