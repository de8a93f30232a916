"""Names of the table, its chains, sets and maps, as kube-proxy v1.36 writes them.

A ServicePort's own objects are called PREFIX-HASH-namespace/name/protocol/port, those of an endpoint have
`__ip/port` behind that. Names of base objects hold no slash, so a slash tells them apart.
"""

from __future__ import annotations

from base64 import b32encode
from hashlib import sha256
from typing import Final

from kproxy.services.endpoints import Endpoint
from kproxy.services.names import IPFamily, ServicePortName

TABLE: Final = "kube-proxy"

FILTER_PREROUTING_PRE_DNAT: Final = "filter-prerouting-pre-dnat"
FILTER_OUTPUT_PRE_DNAT: Final = "filter-output-pre-dnat"
FILTER_INPUT: Final = "filter-input"
FILTER_FORWARD: Final = "filter-forward"
FILTER_OUTPUT: Final = "filter-output"
NAT_PREROUTING: Final = "nat-prerouting"
NAT_OUTPUT: Final = "nat-output"
NAT_POSTROUTING: Final = "nat-postrouting"

SERVICES: Final = "services"
MASQUERADING: Final = "masquerading"
SERVICE_ENDPOINTS_CHECK: Final = "service-endpoints-check"
NODEPORT_ENDPOINTS_CHECK: Final = "nodeport-endpoints-check"
CLUSTER_IPS_CHECK: Final = "cluster-ips-check"
FIREWALL_CHECK: Final = "firewall-check"
REJECT_CHAIN: Final = "reject-chain"

CLUSTER_IPS: Final = "cluster-ips"
NODEPORT_IPS: Final = "nodeport-ips"
HAIRPIN_CONNECTIONS: Final = "hairpin-connections"
SERVICE_IPS: Final = "service-ips"
SERVICE_NODEPORTS: Final = "service-nodeports"
NO_ENDPOINT_SERVICES: Final = "no-endpoint-services"
NO_ENDPOINT_NODEPORTS: Final = "no-endpoint-nodeports"
FIREWALL_IPS: Final = "firewall-ips"

MAX_NAME: Final = 256
"""What nftables allows."""

MAX_COMMENT: Final = 128
"""What nft allows. kube-proxy cuts comments there too, since https://github.com/kubernetes/kubernetes/pull/139516."""

MAX_BASE: Final = MAX_NAME - 16
"""kube-proxy leaves 16 characters for the prefix."""


def nft_family(family: IPFamily) -> str:
    """The family of a table: ip or ip6. It is also how rules name the network header."""
    return "ip6" if family.is_ipv6 else "ip"


def service_port_base(name: ServicePortName) -> str:
    """What follows the prefix in the names of a ServicePort's chains."""
    return hashed_base(f"{name.namespace}/{name.name}/{name.protocol.lower()}/{name.port}")


def service_port_comment(name: ServicePortName) -> str:
    """The comment that names a ServicePort. A longer one would have nft refuse the whole table."""
    return str(name)[:MAX_COMMENT]


def endpoint_base(name: ServicePortName, endpoint: Endpoint) -> str:
    """What follows the prefix in the names of the chain and the affinity set of an endpoint.

    A colon must not be in a name, so the dots of an IPv6 address stand for its colons.
    """
    ip = endpoint.ip.replace(":", ".")
    return hashed_base(f"{name.namespace}/{name.name}/{name.protocol.lower()}/{name.port}__{ip}/{port_of(endpoint)}")


def port_of(endpoint: Endpoint) -> str:
    """The port of an endpoint's `ip:port`."""
    return endpoint.address[endpoint.address.rindex(":") + 1 :]


def is_service_chain(name: str) -> bool:
    """Whether a chain is one of a ServicePort."""
    return "/" in name


def hashed_base(name: str) -> str:
    """A name with 8 characters of its hash before it, cut to `MAX_BASE`; the hash keeps cut names apart."""
    # 5 bytes are exactly 8 base32 characters.
    text = f"{b32encode(sha256(name.encode()).digest()[:5]).decode('ascii')}-{name}"
    return text if len(text) <= MAX_BASE else text[: MAX_BASE - 3] + "..."
