"""The plan of a lab: names and addresses of its hosts, from a LabSpec. Values only; nothing here touches the machine.

Every lab uses the same addresses, since each is a world of its own. Those of the outside and of load balancers are from
the ranges for documentation (RFC 5737, RFC 3849), all others are private.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from kproxy.lab.errors import LabInputError
from kproxy.overlay.plan import ETHERNET_MTU, Backend, overlay_mtu

IpFamily = Literal["ipv4", "ipv6", "dual"]
Variant = Literal["nft", "legacy"]
Mode = Literal["iptables", "nftables"]
BackendName = Literal["vxlan", "host-gw"]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

PREFIX: Final = "kp-lab-"
"""Of every namespace that a lab makes; the lab's name and a hyphen follow."""
DEFAULT_NAME: Final = "lab"
DEFAULT_NODES: Final = 3
MAX_NODES: Final = 100
FABRIC: Final = "fabric"
"""The name of the fabric's namespace, and of the bridge in it."""
CLIENT: Final = "client"
"""The name of the host outside."""
_NAME: Final = r"[a-z0-9](?:[a-z0-9-]{0,14}[a-z0-9])?"
NAME_RULE: Final = "1 to 16 lower-case letters, digits and dashes, with no dash at either end"
# No host's name ends as another kind's does, so one reading fits: kp-lab-a-node-1 is of lab a, not of a lab a-node.
_NAMESPACE: Final = re.compile(
    rf"{PREFIX}(?P<lab>{_NAME})-(?:{FABRIC}|{CLIENT}|node-[0-9]+|p-[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})"
)

SERVICE_RANGES: Final = {4: "10.96.0.0/16", 6: "fd00:10:96::/112"}
POD_RANGES: Final = {4: "10.244.0.0/16", 6: "fd00:10:244::/48"}
_FABRIC: Final = {4: ipaddress.ip_network("172.30.0.0/24"), 6: ipaddress.ip_network("fd00:172:30::/64")}
_OUTSIDE: Final = {4: ipaddress.ip_network("203.0.113.0/24"), 6: ipaddress.ip_network("2001:db8:203::/64")}
BALANCER_RANGES: Final = {4: ipaddress.ip_network("198.51.100.0/24"), 6: ipaddress.ip_network("2001:db8:198::/112")}
_FIRST_NODE: Final = 10
_HOST_BITS: Final = {4: 24, 6: 64}
"""The prefix length of a node's podCIDR, as kube-controller-manager's --node-cidr-mask-size has it."""


class LabSpec(msgspec.Struct, frozen=True):
    """What was asked for.

    Attributes:
        name: as NAME_RULE has it; part of every namespace's name.
        nodes: how many there were at the start; `node-1` and so on.
        ip_family: of nodes, pods and Services; dual has IPv4 first.
        variant: which iptables the nodes' rules are written with; in mode nftables the overlay's and the plugin's.
        backend: how pods of different nodes meet: `vxlan` or `host-gw`.
        mode: the proxies' mode.
        proxy: the fields of a KubeProxyConfiguration that the nodes' proxies shall have.
        labels: what `node-1` and so on have beside what every node has.
        dns: whether there is cluster DNS.
    """

    name: str
    nodes: int = DEFAULT_NODES
    ip_family: IpFamily = "ipv4"
    variant: Variant = "nft"
    backend: BackendName = "vxlan"
    mode: Mode = "iptables"
    proxy: dict[str, Any] = {}
    labels: tuple[dict[str, str], ...] = ()
    dns: bool = False

    @property
    def families(self) -> tuple[int, ...]:
        """The IP families, 4, 6 or both, the primary one first."""
        return {"ipv4": (4,), "ipv6": (6,), "dual": (4, 6)}[self.ip_family]

    @property
    def pod_mtu(self) -> int:
        """Bytes; of two families what fits both, as the overlay's own plan has it."""
        return min(overlay_mtu(Backend(self.backend), family, ETHERNET_MTU) for family in self.families)

    @property
    def service_cidrs(self) -> tuple[str, ...]:
        return tuple(SERVICE_RANGES[family] for family in self.families)

    @property
    def dns_addresses(self) -> tuple[str, ...]:
        """Where cluster DNS is reached: the tenth address of each range of Services, none without DNS."""
        return tuple(str(ipaddress.ip_network(cidr)[10]) for cidr in self.service_cidrs) if self.dns else ()

    @property
    def pod_cidrs(self) -> tuple[str, ...]:
        """The ranges that all nodes' podCIDRs are in."""
        return tuple(POD_RANGES[family] for family in self.families)

    @property
    def fabric(self) -> str:
        """The fabric's namespace."""
        return self.namespace(FABRIC)

    @property
    def client(self) -> str:
        """The outside client's namespace."""
        return self.namespace(CLIENT)

    def namespace(self, host: str) -> str:
        """The namespace of a host: `fabric`, `client`, or a node's name."""
        return f"{PREFIX}{self.name}-{host}"

    def pod_namespace(self, uid: str) -> str:
        """The namespace of a pod, by its uid."""
        return f"{PREFIX}{self.name}-p-{uid}"

    def node(self, number: int) -> NodePlan:
        """The plan of `node-NUMBER`."""
        return NodePlan(
            f"node-{number}",
            self.namespace(f"node-{number}"),
            tuple(str(_FABRIC[family][_FIRST_NODE + number]) for family in self.families),
            tuple(_pod_cidr(cidr, number) for cidr in self.pod_cidrs),
            self.labels[number - 1] if number <= len(self.labels) else {},
        )

    def node_plans(self) -> Iterator[NodePlan]:
        """The nodes that the lab starts with."""
        return map(self.node, range(1, self.nodes + 1))

    @property
    def api_address(self) -> str:
        """Where nodes and pods reach the API server: the fabric's own address."""
        return str(_FABRIC[self.families[0]][1])

    @property
    def gateways(self) -> tuple[str, ...]:
        """The nodes' default gateways: the fabric's addresses towards them."""
        return tuple(str(_FABRIC[family][1]) for family in self.families)

    @property
    def outside_gateways(self) -> tuple[str, ...]:
        return tuple(str(_OUTSIDE[family][1]) for family in self.families)

    @property
    def client_addresses(self) -> tuple[str, ...]:
        return tuple(str(_OUTSIDE[family][2]) for family in self.families)


class NodePlan(msgspec.Struct, frozen=True):
    """A node: its name, its namespace, its addresses on the fabric and its podCIDRs, the primary family first, and
    labels of its own."""

    name: str
    namespace: str
    addresses: tuple[str, ...]
    pod_cidrs: tuple[str, ...]
    labels: dict[str, str] = {}

    @property
    def number(self) -> int:
        return int(self.name.rpartition("-")[2])


def _pod_cidr(cidr: str, number: int) -> str:
    """The part of the pods' range that a node has: 10.244.3.0/24 for the third."""
    whole = ipaddress.ip_network(cidr)
    bits = _HOST_BITS[whole.version]
    return str(ipaddress.ip_network((int(whole.network_address) + (number << whole.max_prefixlen - bits), bits)))


def with_prefix(address: str) -> str:
    """An address of the fabric or of the outside with the prefix length of its network."""
    ip = ipaddress.ip_address(address)
    network = next(each for each in (_FABRIC[ip.version], _OUTSIDE[ip.version]) if ip in each)
    return f"{address}/{network.prefixlen}"


def family_of(address: str) -> int:
    """The IP family of an address: 4 or 6."""
    return 6 if ":" in address else 4


def check_name(name: str) -> str:
    """A lab's name, checked.

    Raises:
        LabInputError: it is invalid.
    """
    if not is_name(name):
        raise LabInputError(f"--name {name!r}: {NAME_RULE} expected")
    return name


def is_name(name: str) -> bool:
    """Whether a lab can be called so."""
    return re.fullmatch(_NAME, name) is not None


def lab_of(namespace: str) -> str:
    """The name of the lab that a namespace is of, by the namespace's name; "" for any other."""
    found = _NAMESPACE.fullmatch(namespace)
    return found["lab"] if found else ""


def node_number(name: str) -> int | None:
    """The number of `node-NUMBER`, None for another name."""
    found = re.fullmatch(r"node-([1-9][0-9]{0,2})", name)
    return int(found[1]) if found else None
