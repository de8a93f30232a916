"""What besides Services and endpoints decides the rules: configuration, node, and features of the target host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_network

import msgspec

from kproxy.api.kubeproxyconfig.types import IPVS, MODE_NFTABLES, KubeProxyConfiguration
from kproxy.api.types.core import Node
from kproxy.api.types.networking import ServiceCIDR
from kproxy.errors import InputError
from kproxy.services.names import LABEL_TOPOLOGY_ZONE, IPFamily, family_of
from kproxy.services.node import (
    LOOPBACK,
    LocalTrafficDetector,
    NodePortAddresses,
    detect_local,
    host_ips,
    interface_addresses,
    node_ips,
    node_port_addresses,
)


class ModeError(InputError):
    """What is wanted cannot be done in the configuration's mode."""


class Features(msgspec.Struct, frozen=True):
    """Optional abilities of the target host's iptables or nftables.

    Attributes:
        nfacct: the kernel has nfacct matches, so two rules count packets for kube-proxy's metrics.
        random_fully: MASQUERADE knows --random-fully (iptables 1.6.2 and later).
        object_comments: tables, chains, sets and maps of nftables can have comments (Linux 5.10 and later).
    """

    nfacct: bool = False
    random_fully: bool = True
    object_comments: bool = True


class RenderOptions(msgspec.Struct, frozen=True):
    """All inputs of the renderer for one family on one node, but Services and endpoints.

    Attributes:
        node_name, zone: of this node; zone is "" without the label topology.kubernetes.io/zone.
        node_ip: the node's IP of this family, loopback if it has none.
        interface_addresses: the node's own addresses of this family, for nodePortAddresses.
        node_ips: all addresses of the node in this family, ExternalIPs too: where IPVS mode has node ports that answer
            everywhere.
        masquerade_mark: the packet mark that asks for masquerading: one bit.
        localhost_node_ports: whether IPv4 node ports work on 127.0.0.0/8.
        drop_invalid: whether packets that conntrack calls INVALID are dropped (not with tcpBeLiberal).
        service_cidrs: the networks of this family that ClusterIPs come from, sorted; nftables mode only.
        ipvs: the configuration's section of IPVS mode.
        favoured: the Service, `namespace/name`, that gets what several claim; kube-proxy leaves that to chance, and
            rules that are rendered to be written to the order of names ("").
    """

    family: IPFamily = IPFamily.IPV4
    node_name: str = ""
    zone: str = ""
    node_ip: str = LOOPBACK[IPFamily.IPV4]
    interface_addresses: tuple[str, ...] = ()
    node_ips: tuple[str, ...] = ()
    local_traffic: LocalTrafficDetector = LocalTrafficDetector()
    node_port_addresses: NodePortAddresses = NodePortAddresses()
    masquerade_mark: int = 1 << 14
    masquerade_all: bool = False
    localhost_node_ports: bool = True
    drop_invalid: bool = True
    service_cidrs: tuple[str, ...] = ()
    features: Features = Features()
    ipvs: IPVS = IPVS()
    favoured: str = ""

    @property
    def mark(self) -> str:
        """The masquerade mark as kube-proxy prints it."""
        return f"{self.masquerade_mark:#010x}"


def render_options(
    config: KubeProxyConfiguration,
    family: IPFamily,
    node_name: str,
    node: Node | None = None,
    features: Features | None = None,
    addresses: Sequence[str] | None = None,
    service_cidrs: Iterable[ServiceCIDR] = (),
) -> RenderOptions:
    """Reads the options that alter rules out of a configuration and a Node object.

    Args:
        node: the Node object, None when there is none: then its zone, podCIDRs and IPs are unknown.
        features: of the target host; by default those of `Features()`.
        addresses: the addresses of the node's interfaces in this family; by default what the Node object tells.
        service_cidrs: those of the cluster.
    """
    node_ip = node_ips(node, config.bind_address)[family]
    port_addresses = node_port_addresses(config.node_ports_on, family, node_ip)
    own = tuple(addresses) if addresses is not None else interface_addresses(node, family)
    return RenderOptions(
        family=family,
        node_name=node_name,
        zone=node.metadata.labels.get(LABEL_TOPOLOGY_ZONE, "") if node is not None else "",
        node_ip=node_ip,
        interface_addresses=own,
        node_ips=own if addresses is not None else tuple(ip for ip in host_ips(node) if family_of(ip) is family),
        local_traffic=detect_local(
            config.detect_local_mode,
            family,
            cluster_cidr=config.cluster_cidr,
            pod_cidrs=node.pod_cidrs if node is not None else (),
            bridge_interface=config.detect_local.bridge_interface,
            interface_name_prefix=config.detect_local.interface_name_prefix,
        ),
        node_port_addresses=port_addresses,
        masquerade_mark=config.masquerade_mark,
        masquerade_all=config.proxier.masquerade_all,
        # kube-proxy gives up localhost node ports when nodePortAddresses leaves loopback out.
        localhost_node_ports=(
            config.mode != MODE_NFTABLES
            and not family.is_ipv6
            and config.iptables.localhost_node_ports
            and port_addresses.contains_loopback
        ),
        drop_invalid=not config.conntrack.tcp_be_liberal,
        service_cidrs=_of_family(service_cidrs, family),
        features=features or Features(),
        ipvs=config.ipvs,
    )


def _of_family(service_cidrs: Iterable[ServiceCIDR], family: IPFamily) -> tuple[str, ...]:
    """The networks of one family, each once, in the order of addresses."""
    found = {cidr for each in service_cidrs for cidr in each.cidrs if family_of(cidr) is family}
    return tuple(sorted(found, key=lambda cidr: (ip_network(cidr).network_address.packed, ip_network(cidr).prefixlen)))
