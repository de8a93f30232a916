"""What the proxy needs to know of its own node: addresses, node-port addresses, and what traffic is local.

All of it is kube-proxy v1.36's reading of its configuration and its Node object, as values; nothing here asks the
machine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

import msgspec

from kproxy.api.addresses import canonical_cidr, canonical_ip
from kproxy.api.types.core import Node
from kproxy.errors import InputError
from kproxy.services.names import IPFamily, family_of

PRIMARY = "primary"
LOOPBACK = {IPFamily.IPV4: "127.0.0.1", IPFamily.IPV6: "::1"}


MAX_INTERFACE_NAME = 15
"""Bytes; IFNAMSIZ of the kernel less the final NUL. A `+` that stands for any ending counts."""


class LocalTrafficDetector(msgspec.Struct, frozen=True):
    """How to tell traffic of local pods from other traffic; at most one of `source` and `interface` is set.

    Attributes:
        source: the network that pods send from, canonical.
        written: the same as it was configured, which is how kube-proxy writes it in nftables mode.
        interface: the name of the interface that their packets come in by, or how the names of those begin.
        is_prefix: whether `interface` is only the beginning of names.
    """

    source: str = ""
    written: str = ""
    interface: str = ""
    is_prefix: bool = False

    @property
    def is_implemented(self) -> bool:
        """Whether local traffic can be recognized; if not, kube-proxy leaves rules out."""
        return bool(self.source or self.interface)

    @property
    def if_local(self) -> str:
        """iptables arguments that match local pod traffic; "" if it cannot be recognized."""
        if self.source:
            return f"-s {self.source}"
        return f"-i {self.interface}{'+' if self.is_prefix else ''}" if self.interface else ""

    @property
    def if_not_local(self) -> str:
        """iptables arguments that match everything else; "" if it cannot be recognized."""
        return f"! {self.if_local}" if self.is_implemented else ""


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

    Raises:
        InputError: an invalid CIDR, or an interface name that iptables would refuse.
    """
    if mode == "BridgeInterface":
        name = _interface_name(bridge_interface, "bridgeInterface")
        return LocalTrafficDetector(interface=name)
    if mode == "InterfaceNamePrefix":
        prefix = _interface_name(interface_name_prefix, "interfaceNamePrefix", room=1)
        return LocalTrafficDetector(interface=prefix, is_prefix=bool(prefix))
    cidrs = pod_cidrs if mode == "NodeCIDR" else cluster_cidr.split(",")
    for cidr in cidrs:
        network = _network(cidr) if cidr.strip() else None
        if network is not None and family_of(str(network)) is family:
            return LocalTrafficDetector(source=str(network), written=_as_nft_reads(cidr.strip(), str(network)))
    return LocalTrafficDetector()


def _interface_name(name: str, field: str, room: int = 0) -> str:
    unusable = len(name.encode()) > MAX_INTERFACE_NAME - room or any(c.isspace() or c in "/\"'\\!" for c in name)
    if unusable or name.startswith("-") or not name.isprintable():
        raise InputError(f"KubeProxyConfiguration.detectLocal.{field}: {name!r} cannot be a name of interfaces")
    return name


def _as_nft_reads(cidr: str, canonical: str) -> str:
    """`cidr` as it is written; canonical where nft would read it otherwise than Go: zeros in front are octal to it."""
    try:
        ipaddress.ip_interface(cidr)
    except ValueError:
        return canonical
    return cidr


def _network(cidr: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """The network of a CIDR as Go reads it, leading zeros and host bits included.

    Raises:
        InputError: an invalid CIDR.
    """
    canonical = canonical_cidr(cidr.strip())
    if canonical is None:
        raise InputError(f"{cidr!r} is not a CIDR")
    return ipaddress.ip_network(canonical, strict=False)


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

    Raises:
        InputError: an invalid CIDR.
    """
    cidrs = list(configured)
    if cidrs == [PRIMARY]:
        bits = 128 if family.is_ipv6 else 32
        cidrs = [] if ipaddress.ip_address(node_ip).is_loopback else [f"{node_ip}/{bits}"]
    networks = [network for network in map(_network, cidrs) if family_of(str(network)) is family]
    if not networks or any(network.prefixlen == 0 for network in networks):
        return NodePortAddresses()
    return NodePortAddresses(False, tuple(map(str, networks)))


def node_ips(node: Node | None, bind_address: str = "") -> dict[IPFamily, str]:
    """The node's IP of each family.

    The first InternalIP of a family, else its first ExternalIP; a bindAddress other than the unspecified address
    overrides that of its family; a family without any gets loopback, as in kube-proxy.
    """
    ips = dict(LOOPBACK)
    for ip in reversed(host_ips(node)):
        ips[family_of(ip)] = ip
    bound = _bound_ip(bind_address)
    if bound:
        ips[family_of(bound)] = bound
    return ips


def primary_family(node: Node | None, bind_address: str = "") -> IPFamily:
    """The family kube-proxy calls primary: that of a specific bindAddress, else of the node's first IP, else IPv4."""
    bound = _bound_ip(bind_address)
    return family_of(bound or next(iter(host_ips(node)), LOOPBACK[IPFamily.IPV4]))


def interface_addresses(node: Node | None, family: IPFamily) -> tuple[str, ...]:
    """The addresses a node's interfaces have in a family, as far as its Node object tells: loopback and InternalIPs.

    An ExternalIP is most often an address of the cloud's router and on no interface of the node.
    """
    own = [ip for ip in _addresses(node, "InternalIP") if family_of(ip) is family]
    return tuple(dict.fromkeys((LOOPBACK[family], *own)))


def host_ips(node: Node | None) -> list[str]:
    """The node's IPs, as GetNodeHostIPs of Kubernetes: internal addresses first, then external ones.

    Anything that is not an IP is skipped.
    """
    return [*_addresses(node, "InternalIP"), *_addresses(node, "ExternalIP")]


def _addresses(node: Node | None, kind: str) -> list[str]:
    entries = node.addresses if node is not None else ()
    return [ip for entry in entries if entry.type == kind for ip in [canonical_ip(entry.address)] if ip is not None]


def _bound_ip(bind_address: str) -> str:
    """A bindAddress that says something: an IP other than the unspecified one; "" otherwise."""
    ip = canonical_ip(bind_address)
    return ip if ip is not None and not ipaddress.ip_address(ip).is_unspecified else ""
