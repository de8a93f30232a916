"""What one Service becomes on one node, in words: its ServicePorts, endpoints (and why others are left out), rules.

The result is a value: `kproxy explain` prints it as a tree or as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kproxy.api.types.core import Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.render.ipvs.node import RenderedIpvs
from kproxy.render.nftables.table import RenderedTable
from kproxy.render.origin import RenderedObject, RenderedRule
from kproxy.render.target import Rendered, RenderedTarget
from kproxy.services.claims import claim_in_words, claimed_twice
from kproxy.services.endpoints import Endpoint
from kproxy.services.names import LABEL_SERVICE_NAME, IPFamily, ServicePortName, is_headless
from kproxy.services.serviceport import ServicePort, cluster_ip_of, why_skipped
from kproxy.services.topology import SelectedEndpoints, select_endpoints, why_unused


class EndpointExplanation(msgspec.Struct, frozen=True, rename="camel"):
    """One endpoint of a ServicePort.

    Attributes:
        address: `ip:port`.
        used_for: "cluster", "local", both, or none: which traffic policies use it on this node.
        why_not: why it gets no traffic on this node; "" if it gets some.
    """

    address: str
    endpoint_slice: str
    is_local: bool
    state: str
    used_for: tuple[str, ...]
    why_not: str


class RuleExplanation(msgspec.Struct, frozen=True):
    """One rule: where it stands, its text, and what it is for."""

    table: str
    chain: str
    rule: int
    text: str
    reason: str


class ObjectExplanation(msgspec.Struct, frozen=True):
    """One object of nftables or IPVS mode: what it is; what it is or is in, by kind and name; what it is for.

    `rule` is a rule's number in its chain; 0 for other objects.
    """

    object: str
    container: str
    name: str
    rule: int
    text: str
    reason: str


class ServicePortExplanation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One port of the Service.

    Attributes:
        name: `namespace/name[:port]`.
        facts: what decides its rules, one sentence each.
        rules: all its rules of iptables, in dispatch chains and in its own.
        objects: all its objects, elements of shared sets and maps included: in nftables and IPVS mode.
    """

    name: str
    protocol: str
    facts: tuple[str, ...]
    endpoints: tuple[EndpointExplanation, ...]
    rules: tuple[RuleExplanation, ...] = ()
    objects: tuple[ObjectExplanation, ...] = ()


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """What a Service becomes on a node.

    Attributes:
        skipped: why kube-proxy programs nothing for it; "" when it programs something.
        notes: about the Service as a whole.
    """

    service: str
    node: str
    family: str
    skipped: str
    notes: tuple[str, ...]
    ports: tuple[ServicePortExplanation, ...]


def explain_service(
    service: Service,
    rendered: Rendered,
    endpoint_slices: Iterable[EndpointSlice] = (),
    found: Iterable[RenderedRule | RenderedObject] | None = None,
    *,
    endpoints_seen: bool = True,
) -> Explanation:
    """Explains one Service of a rendered cluster.

    Args:
        endpoint_slices: those of the cluster; for saying why some have no effect.
        found: rules or objects of `rendered`, this Service's at least, if they are known already.
        endpoints_seen: the EndpointSlices are all that it has.
    """
    key = service.metadata.key
    family = rendered.options.family
    skipped = why_skipped(service)
    if not skipped and not cluster_ip_of(service.spec, family):
        skipped = f"it has no {family.value} ClusterIP"
    mine: dict[ServicePortName, list[RenderedRule | RenderedObject]] = {}
    if not skipped:
        for each in objects_of(rendered) if found is None else found:
            owner = each.origin.service_port
            if owner is not None and owner.service == key:
                mine.setdefault(owner, []).append(each)
    names = sorted(name for name in rendered.state.service_ports if name.service == key)
    return Explanation(
        service=key,
        node=rendered.options.node_name,
        family=family.value,
        skipped=skipped,
        notes=tuple(_notes(rendered, key, skipped, endpoint_slices)),
        ports=tuple(_explain_port(rendered, name, mine.get(name, ()), endpoints_seen) for name in names),
    )


def objects_of(rendered: Rendered) -> Iterable[RenderedRule | RenderedObject]:
    """All rules and objects with what they come from: rules of iptables, objects of nftables, in IPVS mode both."""
    if not isinstance(rendered, RenderedTable):
        yield from rendered.rules()
    if not isinstance(rendered, RenderedTarget):
        yield from rendered.objects()


def _notes(rendered: Rendered, key: str, skipped: str, endpoint_slices: Iterable[EndpointSlice]) -> Iterable[str]:
    if not skipped and isinstance(rendered, RenderedTarget) and rendered.renderer.large_cluster:
        yield "more than 1000 endpoints in the cluster: kube-proxy leaves comments out of endpoint rules"
    known = rendered.state.service_ports
    for claim, ports in claimed_twice(known.values()).items():
        if any(port.name.service == key for port in ports):
            yield claim_in_words(claim, ports)
    for name in sorted(name for name in rendered.state.endpoints if name.service == key and name not in known):
        port = f"port {name.port!r}" if name.port else "an unnamed port"
        yield f"EndpointSlices have {port} ({name.protocol}), which the Service has not: its endpoints are unused"
    for endpoint_slice in endpoint_slices:
        meta = endpoint_slice.metadata
        if f"{meta.namespace}/{meta.labels.get(LABEL_SERVICE_NAME)}" == key:
            yield from _slice_notes(endpoint_slice, rendered.options.family)


def _slice_notes(endpoint_slice: EndpointSlice, family: IPFamily) -> Iterable[str]:
    """Why a slice of the Service, or a part of it, has no effect in this family."""
    where = f"EndpointSlice {endpoint_slice.metadata.key}"
    if is_headless(endpoint_slice.metadata.labels):
        yield f"{where} is ignored: its labels mark it headless"
    elif endpoint_slice.address_type != family.value:
        yield f"{where} is ignored here: its addresses are {endpoint_slice.address_type}"
    else:
        for port in endpoint_slice.ports:
            if not port.port:
                name = f"port {port.name!r}" if port.name else "its unnamed port"
                yield f"{where}: {name} has no number, which kube-proxy ignores"


def _explain_port(
    rendered: Rendered,
    name: ServicePortName,
    found: Iterable[RenderedRule | RenderedObject],
    endpoints_seen: bool,
) -> ServicePortExplanation:
    options = rendered.options
    service_port = rendered.state.service_ports[name]
    endpoints = rendered.state.endpoints.get(name, ())
    selected = select_endpoints(service_port, endpoints, options.node_name, options.zone)
    return ServicePortExplanation(
        name=str(name),
        protocol=name.protocol,
        facts=(
            *_facts(service_port, selected, options.zone),
            *_endpoint_facts(service_port, endpoints, selected, endpoints_seen, isinstance(rendered, RenderedIpvs)),
        ),
        endpoints=tuple(_explain_endpoint(endpoint, service_port, selected) for endpoint in endpoints),
        rules=tuple(
            RuleExplanation(r.table, r.chain, r.number, r.text, r.origin.reason)
            for r in found
            if isinstance(r, RenderedRule)
        ),
        objects=tuple(
            ObjectExplanation(o.kind, o.container, o.name, o.number, o.text, o.origin.reason)
            for o in found
            if isinstance(o, RenderedObject)
        ),
    )


def _facts(sp: ServicePort, selected: SelectedEndpoints, zone: str) -> Iterable[str]:
    yield f"ClusterIP {sp.cluster_ip} port {sp.port}, internal traffic policy {_policy(sp.internal_policy_local)}"
    external = [f"node port {sp.node_port}"] if sp.node_port else []
    external += [f"load-balancer IP {ip}" for ip in sp.load_balancer_vips]
    external += [f"external IP {ip}" for ip in sp.external_ips]
    if external:
        yield f"reachable from outside by {', '.join(external)}; external policy {_policy(sp.external_policy_local)}"
    if sp.load_balancer_source_ranges:
        yield f"load-balancer IPs accept only sources in {', '.join(sp.load_balancer_source_ranges)}"
    if sp.health_check_node_port:
        yield f"health-check node port {sp.health_check_node_port} tells load balancers of local endpoints"
    if sp.session_affinity_seconds:
        yield f"session affinity ClientIP: a client keeps its endpoint for {sp.session_affinity_seconds} s"
    if selected.topology:
        where = "this node" if selected.topology == "PreferSameNode" else f"zone {zone}"
        yield f"topology hints: every ready endpoint has them, so only endpoints hinted for {where} are used"


def _endpoint_facts(
    sp: ServicePort, endpoints: tuple[Endpoint, ...], selected: SelectedEndpoints, seen: bool, ipvs: bool
) -> Iterable[str]:
    if not seen:
        yield "its endpoints were not seen: what becomes of traffic is open; without any it is REJECTed"
    elif not selected.has_any:
        count = f"none of its {len(endpoints)} endpoints is usable" if endpoints else "it has no endpoints"
        yield f"{count}: traffic is REJECTed"
    if not seen or not selected.has_any:
        return
    if selected.cluster and not any(ep.ready for ep in selected.cluster):
        yield "no endpoint is ready: those that still serve while terminating are used"
    if sp.uses_local_endpoints and not selected.local:
        kinds = [
            kind
            for kind, is_local in (("internal", sp.internal_policy_local), ("external", sp.external_policy_local))
            if is_local
        ]
        what = f"policy Local and no usable endpoint on this node: {' and '.join(kinds)} traffic"
        if ipvs:
            yield f"{what} goes to other nodes, as with policy Cluster; answers to clients outside of the node are lost"
        else:
            yield f"{what} is DROPped"


def _policy(is_local: bool) -> str:
    return "Local" if is_local else "Cluster"


def _explain_endpoint(
    endpoint: Endpoint, service_port: ServicePort, selected: SelectedEndpoints
) -> EndpointExplanation:
    conditions = (("ready", endpoint.ready), ("serving", endpoint.serving and not endpoint.ready))
    state = ", ".join(name for name, holds in (*conditions, ("terminating", endpoint.terminating)) if holds)
    return EndpointExplanation(
        address=endpoint.address,
        endpoint_slice=endpoint.slice,
        is_local=endpoint.is_local,
        state=state or "not ready",
        used_for=selected.used_for.get(endpoint.address, ()),
        why_not=why_unused(endpoint, service_port, selected),
    )
