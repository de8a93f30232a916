"""The ipsets of IPVS mode, and the iptables rules that ask them: rows, in kube-proxy v1.36's order."""

from __future__ import annotations

from typing import Final

import msgspec

from kproxy.services.names import IPFamily

IP_PORT: Final = "hash:ip,port"
IP_PORT_IP: Final = "hash:ip,port,ip"
IP_PORT_NET: Final = "hash:ip,port,net"
PORT: Final = "bitmap:port"

MOST_OCTETS: Final = 31
"""The kernel's limit of a set's name."""


class IpSet(msgspec.Struct, frozen=True):
    """A set: its name in IPv4, its type, and what it is for, as the comment of its rule says it."""

    name: str
    type: str
    comment: str

    def name_in(self, family: IPFamily) -> str:
        """Its name in a family; too long ones are cut."""
        return self.name if not family.is_ipv6 else f"KUBE-6-{self.name.removeprefix('KUBE-')}"[:MOST_OCTETS]

    def create(self, family: IPFamily) -> str:
        """The line of `ipset save` that makes it."""
        more = "range 0-65535" if self.type == PORT else f"family {'inet6' if family.is_ipv6 else 'inet'}"
        size = "" if self.type == PORT else " hashsize 1024 maxelem 65536"
        return f"create {self.name_in(family)} {self.type} {more}{size}"


def _set(name: str, kind: str, comment: str) -> IpSet:
    return IpSet(name, kind, f"Kubernetes {comment}")


LOOP_BACK: Final = _set("KUBE-LOOP-BACK", IP_PORT_IP, "endpoints dst ip:port, source ip for solving hairpin purpose")
ACTIVE: Final = _set("KUBE-IPVS-IPS", "hash:ip", "addresses that kube-ipvs0 has")
CLUSTER_IP: Final = _set("KUBE-CLUSTER-IP", IP_PORT, "service cluster ip + port for masquerade purpose")
EXTERNAL_IP: Final = _set("KUBE-EXTERNAL-IP", IP_PORT, "service external ip + port for masquerade and filter purpose")
EXTERNAL_IP_LOCAL: Final = _set(
    "KUBE-EXTERNAL-IP-LOCAL", IP_PORT, "service external ip + port with externalTrafficPolicy=local"
)
LOAD_BALANCER: Final = _set("KUBE-LOAD-BALANCER", IP_PORT, "service lb portal")
LOAD_BALANCER_LOCAL: Final = _set(
    "KUBE-LOAD-BALANCER-LOCAL", IP_PORT, "service load balancer ip + port with externalTrafficPolicy=local"
)
LOAD_BALANCER_FW: Final = _set(
    "KUBE-LOAD-BALANCER-FW", IP_PORT, "service load balancer ip + port for load balancer with sourceRange"
)
SOURCE_CIDR: Final = _set(
    "KUBE-LOAD-BALANCER-SOURCE-CIDR", IP_PORT_NET,
    "service load balancer ip + port + source cidr for packet filter purpose",
)  # fmt: skip
SOURCE_IP: Final = _set(
    "KUBE-LOAD-BALANCER-SOURCE-IP", IP_PORT_IP, "service load balancer ip + port + source IP for packet filter purpose"
)
HEALTH_CHECK: Final = _set("KUBE-HEALTH-CHECK-NODE-PORT", PORT, "health check node port")


def _node_port(protocol: str, local: bool) -> IpSet:
    hashed = protocol == "sctp"
    name = f"KUBE-NODE-PORT{'-LOCAL' if local else ''}-{protocol.upper()}{'-HASH' if hashed else ''}"
    purpose = "with externalTrafficPolicy=local" if local else "for masquerade purpose"
    end = " with type 'hash ip:port'" if hashed else ""
    kind = IP_PORT if hashed else PORT
    return _set(name, kind, f"nodeport {protocol.upper()} port {purpose}{end}")


PROTOCOLS: Final = ("tcp", "udp", "sctp")
NODE_PORTS: Final = {
    (protocol, local): _node_port(protocol, local) for protocol in PROTOCOLS for local in (True, False)
}
"""By protocol, and whether for policy Local."""

SETS: Final = tuple(
    sorted(
        (
            LOOP_BACK, ACTIVE, CLUSTER_IP, EXTERNAL_IP, EXTERNAL_IP_LOCAL, LOAD_BALANCER, LOAD_BALANCER_LOCAL,
            LOAD_BALANCER_FW, SOURCE_CIDR, SOURCE_IP, HEALTH_CHECK, *NODE_PORTS.values(),
        ),
        key=lambda each: each.name,
    )
)  # fmt: skip
"""All sets: each is there, with members or without."""


class SetRule(msgspec.Struct, frozen=True):
    """A rule that asks a set, and is there while the set has members.

    Attributes:
        asks: which of a packet's fields, as `--match-set` has them.
        protocol: that the rule is for; "" for all.
    """

    table: str
    chain: str
    set: IpSet
    asks: str
    target: str
    protocol: str = ""


SET_RULES: Final = (
    SetRule("nat", "KUBE-POSTROUTING", LOOP_BACK, "dst,dst,src", "MASQUERADE"),
    SetRule("nat", "KUBE-SERVICES", LOAD_BALANCER, "dst,dst", "KUBE-LOAD-BALANCER"),
    SetRule("nat", "KUBE-LOAD-BALANCER", LOAD_BALANCER_LOCAL, "dst,dst", "RETURN"),
    *(
        SetRule(
            "nat", "KUBE-NODE-PORT", found, "dst,dst" if found.type == IP_PORT else "dst",
            "RETURN" if local else "KUBE-MARK-MASQ", protocol,
        )
        for (protocol, local), found in NODE_PORTS.items()
    ),
    SetRule("filter", "KUBE-PROXY-FIREWALL", LOAD_BALANCER_FW, "dst,dst", "KUBE-SOURCE-RANGES-FIREWALL"),
    SetRule("filter", "KUBE-SOURCE-RANGES-FIREWALL", SOURCE_CIDR, "dst,dst,src", "RETURN"),
    SetRule("filter", "KUBE-SOURCE-RANGES-FIREWALL", SOURCE_IP, "dst,dst,src", "RETURN"),
)  # fmt: skip
