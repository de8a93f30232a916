"""What the proxy needs to know of its own node: addresses, node-port addresses, and what traffic is local.

All of it is kube-proxy v1.36's reading of its configuration and its Node object, as values; nothing here asks the
machine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

import msgspec

from kproxy.api.core import Node
from kproxy.services.names import IPFamily, family_of

PRIMARY = "primary"
LOOPBACK = {IPFamily.IPV4: "127.0.0.1", IPFamily.IPV6: "::1"}


class LocalTrafficDetector(msgspec.Struct, frozen=True):
    """How to tell traffic of local pods from other traffic, as iptables arguments.

    Attributes:
        if_local: arguments that match local pod traffic, "" when nothing can be told ("not implemented" in kube-proxy).
        if_not_local: arguments that match everything else, "" likewise.
    """

    if_local: str = ""
    if_not_local: str = ""

    @property
    def is_implemented(self) -> bool:
        return bool(self.if_local)


def detect_local(
    mode: str,
    family: IPFamily,
    *,
    cluster_cidr: str = "",
    pod_cidrs: Sequence[str] = (),
    bridge_interface: str = "",
    interface_name_prefix: str = "",
) -> LocalTrafficDetector:
    """The detector for a detectLocalMode.

    Args:
        mode: ClusterCIDR (also ""), NodeCIDR, BridgeInterface or InterfaceNamePrefix.
        cluster_cidr: comma-separated CIDRs, of which the first of the family counts.
        pod_cidrs: the Node's podCIDRs, of which the first of the family counts.
    """
    if mode == "BridgeInterface":
        return _detector(f"-i {bridge_interface}") if bridge_interface else LocalTrafficDetector()
    if mode == "InterfaceNamePrefix":
        return _detector(f"-i {interface_name_prefix}+") if interface_name_prefix else LocalTrafficDetector()
    cidrs = pod_cidrs if mode == "NodeCIDR" else cluster_cidr.split(",")
    for text in cidrs:
        cidr = text.strip()
        if cidr and family_of(cidr) is family:
            return _detector(f"-s {ipaddress.ip_network(cidr, strict=False)}")
    return LocalTrafficDetector()


def _detector(match: str) -> LocalTrafficDetector:
    return LocalTrafficDetector(match, f"! {match}")


class NodePortAddresses(msgspec.Struct, frozen=True):
    """On which of the node's addresses node ports are reachable.

    Attributes:
        match_all: every local address.
        cidrs: otherwise, the CIDRs of this family whose local addresses are meant.
    """

    match_all: bool = True
    cidrs: tuple[str, ...] = ()

    @property
    def contains_loopback(self) -> bool:
        """Whether IPv4 loopback is among them: only then are node ports on localhost worth supporting."""
        if self.match_all:
            return True
        loopback = ipaddress.ip_address("127.0.0.1")
        networks = [ipaddress.ip_network(cidr, strict=False) for cidr in self.cidrs]
        return any(loopback in net or net.network_address.is_loopback for net in networks)

    def matching(self, addresses: Iterable[str]) -> tuple[str, ...]:
        """Those of the node's interface addresses that the CIDRs contain, in the given order, without repeats."""
        networks = [ipaddress.ip_network(cidr, strict=False) for cidr in self.cidrs]
        return tuple(
            address
            for address in dict.fromkeys(addresses)
            if any(ipaddress.ip_address(address) in network for network in networks)
        )


def node_port_addresses(configured: Sequence[str], family: IPFamily, node_ip: str) -> NodePortAddresses:
    """Reads nodePortAddresses for one family.

    `primary` alone stands for the node's own IP. No CIDR of the family, or one that ends in /0, means every local
    address.

    Args:
        node_ip: the node's IP of this family as kube-proxy detects it; a loopback address means it has none.
    """
    cidrs = list(configured)
    if cidrs == [PRIMARY]:
        bits = 128 if family.is_ipv6 else 32
        cidrs = [] if ipaddress.ip_address(node_ip).is_loopback else [f"{node_ip}/{bits}"]
    mine = tuple(cidr for cidr in cidrs if family_of(cidr) is family)
    match_all = not mine or any(ipaddress.ip_network(cidr, strict=False).prefixlen == 0 for cidr in mine)
    return NodePortAddresses(match_all, () if match_all else mine)


def node_ips(node: Node | None, bind_address: str = "") -> dict[IPFamily, str]:
    """The node's IP of each family.

    The first InternalIP of a family, else its first ExternalIP; a bindAddress other than the unspecified address
    overrides that of its family; a family without any gets loopback, as in kube-proxy.
    """
    ips = dict(LOOPBACK)
    if node is not None:
        for kind in ("ExternalIP", "InternalIP"):
            for entry in reversed(node.addresses):
                if entry.type == kind:
                    ips[family_of(entry.address)] = entry.address
    if bind_address and not ipaddress.ip_address(bind_address).is_unspecified:
        ips[family_of(bind_address)] = bind_address
    return ips


def primary_family(node: Node | None, bind_address: str = "") -> IPFamily:
    """The family kube-proxy calls primary: that of the node's first IP, else of bindAddress, else IPv4."""
    if node is not None:
        for kind in ("InternalIP", "ExternalIP"):
            for entry in node.addresses:
                if entry.type == kind:
                    return family_of(entry.address)
    return family_of(bind_address) if bind_address else IPFamily.IPV4


def interface_addresses(node: Node | None, family: IPFamily) -> tuple[str, ...]:
    """The addresses a node's interfaces have in a family, as far as its Node object tells: loopback, then its IPs."""
    own = [a.address for a in node.addresses if a.type in ("InternalIP", "ExternalIP")] if node is not None else []
    return (LOOPBACK[family], *(ip for ip in own if family_of(ip) is family))
