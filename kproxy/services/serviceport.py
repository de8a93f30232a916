"""A ServicePort: what one port of one Service means to the proxy of one IP family.

A dual-stack Service gives a ServicePort to each family, with only that family's addresses in it. The rules here are
those of kube-proxy v1.36 (its BaseServicePortInfo), seen in the recorded clusters.
"""

from __future__ import annotations

import ipaddress

import msgspec

from kproxy.api.types.core import Service, ServiceSpec
from kproxy.services.names import IPFamily, ServicePortName, family_of, is_of_another_proxy


class ServicePort(msgspec.Struct, frozen=True):
    """One port of a Service for one IP family.

    Attributes:
        name: which Service and port this is.
        cluster_ip: canonical IP text.
        port, node_port, health_check_node_port: port numbers, 0 where there is none.
        external_ips, load_balancer_vips: canonical IPs of this family. Ingress in ipMode Proxy is left out, since the
            load balancer itself terminates or rewrites that traffic.
        load_balancer_source_ranges: canonical CIDRs of this family; empty means no restriction.
        session_affinity_seconds: how long a client keeps its endpoint; 0 means no session affinity.
        internal_policy_local, external_policy_local: the traffic policies, as far as they have an effect.
    """

    name: ServicePortName
    cluster_ip: str
    port: int
    node_port: int = 0
    external_ips: tuple[str, ...] = ()
    load_balancer_vips: tuple[str, ...] = ()
    load_balancer_source_ranges: tuple[str, ...] = ()
    health_check_node_port: int = 0
    session_affinity_seconds: int = 0
    internal_policy_local: bool = False
    external_policy_local: bool = False

    @property
    def protocol(self) -> str:
        """The protocol as iptables writes it: tcp, udp or sctp."""
        return self.name.protocol.lower()

    @property
    def externally_accessible(self) -> bool:
        """Whether it has a node port, a load-balancer VIP or an external IP."""
        return bool(self.node_port or self.load_balancer_vips or self.external_ips)

    @property
    def uses_cluster_endpoints(self) -> bool:
        """Whether some traffic may go to endpoints on any node.

        External traffic counts even under policy Local, because traffic from pods and from the node itself to an
        external address is short-circuited to the Cluster chain.
        """
        return not self.internal_policy_local or self.externally_accessible

    @property
    def uses_local_endpoints(self) -> bool:
        """Whether some traffic may go to endpoints of this node only."""
        return self.internal_policy_local or (self.external_policy_local and self.externally_accessible)


def why_skipped(service: Service) -> str:
    """Why kube-proxy programs nothing for a Service, in words; "" when it does.

    The order is kube-proxy's: the informers' selectors first, then ExternalName, then a missing ClusterIP.
    """
    if is_of_another_proxy(service.metadata.labels):
        return "its label service-proxy-name hands it to another proxy"
    spec = service.spec
    if spec.type == "ExternalName":
        return "type ExternalName is answered by DNS alone"
    if spec.cluster_ip == "None":
        return "it is headless (clusterIP None): clients reach its endpoints through DNS"
    if not spec.cluster_ip:
        return "it has no clusterIP yet"
    return ""


def cluster_ip_of(spec: ServiceSpec, family: IPFamily) -> str:
    """The ClusterIP of a family, "" if the Service has none of it."""
    for ip in spec.cluster_ips or (spec.cluster_ip,):
        if ip and ip != "None" and family_of(ip) is family:
            return ip
    return ""


def service_ports(service: Service, family: IPFamily) -> dict[ServicePortName, ServicePort]:
    """The ServicePorts a Service has in a family; empty when kube-proxy skips it there."""
    if why_skipped(service):
        return {}
    spec = service.spec
    cluster_ip = cluster_ip_of(spec, family)
    if not cluster_ip:
        return {}
    meta = service.metadata
    # ExternalPolicyLocal of Kubernetes' service helpers: the policy only means something for external traffic.
    accepts_external = spec.type in ("NodePort", "LoadBalancer") or bool(spec.external_ips)
    external_policy_local = accepts_external and spec.external_traffic_policy == "Local"
    external_ips = tuple(ip for ip in spec.external_ips if family_of(ip) is family)
    vips = tuple(
        ingress.ip
        for ingress in service.ingress
        if ingress.ip and ingress.ip_mode in (None, "VIP") and family_of(ingress.ip) is family
    )
    source_ranges = _source_ranges(spec.load_balancer_source_ranges, family)
    needs_health_check = spec.type == "LoadBalancer" and spec.external_traffic_policy == "Local"
    affinity = (spec.session_affinity_timeout or 0) if spec.session_affinity == "ClientIP" else 0
    ports: dict[ServicePortName, ServicePort] = {}
    for port in spec.ports:
        name = ServicePortName(meta.namespace, meta.name, port.name, port.protocol)
        ports[name] = ServicePort(
            name=name,
            cluster_ip=cluster_ip,
            port=port.port,
            node_port=port.node_port,
            external_ips=external_ips,
            load_balancer_vips=vips,
            load_balancer_source_ranges=source_ranges,
            health_check_node_port=spec.health_check_node_port if needs_health_check else 0,
            session_affinity_seconds=affinity,
            internal_policy_local=spec.internal_traffic_policy == "Local",
            external_policy_local=external_policy_local,
        )
    return ports


def _source_ranges(ranges: tuple[str, ...], family: IPFamily) -> tuple[str, ...]:
    """Source ranges of a family, canonical and in the given order; none if one of them is the whole address space.

    Validation lets blanks around a range pass, so kube-proxy trims them; it masks host bits off.
    """
    chosen = []
    for text in ranges:
        cidr = text.strip()
        if family_of(cidr) is not family:
            continue
        network = ipaddress.ip_network(cidr, strict=False)
        if network.prefixlen == 0:
            return ()
        chosen.append(str(network))
    return tuple(chosen)
