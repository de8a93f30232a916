"""Names of tables and chains, and the hashes in them, as kube-proxy v1.36 writes them.

A chain name is a prefix and the first 16 characters of base32(sha256(...)): iptables allows no more than 28
characters, and the name must not depend on what else is in the cluster.
"""

from __future__ import annotations

from base64 import b32encode
from hashlib import sha256
from typing import Final

from kproxy.services.names import ServicePortName

NAT: Final = "nat"
FILTER: Final = "filter"
MANGLE: Final = "mangle"

SERVICES: Final = "KUBE-SERVICES"
EXTERNAL_SERVICES: Final = "KUBE-EXTERNAL-SERVICES"
NODEPORTS: Final = "KUBE-NODEPORTS"
FORWARD: Final = "KUBE-FORWARD"
PROXY_FIREWALL: Final = "KUBE-PROXY-FIREWALL"
FIREWALL: Final = "KUBE-FIREWALL"  # shared with the kubelet, which writes the same rule
POSTROUTING: Final = "KUBE-POSTROUTING"
MARK_MASQ: Final = "KUBE-MARK-MASQ"
CANARY: Final = "KUBE-PROXY-CANARY"

SERVICE_PORT_CHAIN_PREFIXES: Final = ("KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-")


def _hash(text: str) -> str:
    # 10 bytes are exactly 16 base32 characters.
    return b32encode(sha256(text.encode()).digest()[:10]).decode("ascii")


def service_port_hash(name: ServicePortName) -> str:
    """The hash in the KUBE-SVC, KUBE-SVL, KUBE-EXT and KUBE-FW chain names of a ServicePort."""
    return _hash(f"{name}{name.protocol.lower()}")


def endpoint_chain_name(name: ServicePortName, address: str) -> str:
    """The KUBE-SEP chain of one endpoint of a ServicePort; `address` is `ip:port` or `[ip]:port`."""
    return "KUBE-SEP-" + _hash(f"{name}{name.protocol.lower()}{address}")
