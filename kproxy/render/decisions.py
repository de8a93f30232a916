"""What becomes of a ServicePort's traffic on a node, whatever writes the rules: kube-proxy's decisions, taken once.

Both writers, `iptables` and `nftables`, read them from here, and differ only in how they say it.
"""

from __future__ import annotations

import ipaddress

import msgspec

from kproxy.render.options import RenderOptions
from kproxy.services.serviceport import ServicePort
from kproxy.services.topology import SelectedEndpoints


class Decisions(msgspec.Struct, frozen=True):
    """What becomes of one ServicePort's traffic.

    Attributes:
        has_any: whether any node has a usable endpoint; if not, all traffic is rejected.
        has_internal: whether traffic to the ClusterIP reaches endpoints; if not, it is rejected or dropped.
        has_external: whether external traffic does, that of pods and of this node aside, which goes to any node.
        restricts_sources: whether load-balancer IPs accept only some sources, should there be endpoints or not.
    """

    has_any: bool
    has_internal: bool
    has_external: bool
    restricts_sources: bool

    @property
    def why_refused(self) -> str:
        """In words, why traffic that does not reach endpoints is refused."""
        return "no local endpoints" if self.has_any else "no endpoints"


def decide(service_port: ServicePort, selected: SelectedEndpoints) -> Decisions:
    """The decisions for a ServicePort with the endpoints that were selected for this node."""
    has_any, has_local = selected.has_any, bool(selected.local)
    return Decisions(
        has_any,
        has_any and (has_local or not service_port.internal_policy_local),
        has_any and (has_local or not service_port.external_policy_local),
        bool(service_port.load_balancer_vips and service_port.load_balancer_source_ranges),
    )


def is_node_allowed(service_port: ServicePort, options: RenderOptions) -> bool:
    """Whether the source ranges hold the node's own IP.

    Then the load-balancer IPs are allowed as sources too: such an IP is often also a local address of the node, which
    then uses it as its source.
    """
    node_ip = ipaddress.ip_address(options.node_ip)
    return any(node_ip in ipaddress.ip_network(cidr) for cidr in service_port.load_balancer_source_ranges)
