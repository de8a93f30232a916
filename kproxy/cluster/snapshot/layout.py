"""The names of a snapshot's files, and its bounds."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

FORMAT_VERSION: Final = 1

INFO: Final = "snapshot.json"
OBJECTS: Final = "objects"
NODES: Final = "nodes"
ENDPOINT_SLICES: Final = f"{OBJECTS}/EndpointSlice.json"

KINDS: Final = ("Node", "Service", "EndpointSlice", "ServiceCIDR", "Pod", "NetworkPolicy", "ConfigMap")
"""The objects that `kproxy collect` asks for, one file each. Never Secrets."""

RULES: Final = (
    "iptables-save", "ip6tables-save", "iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save",
    "ip6tables-nft-save", "nft",
)  # fmt: skip
"""Rules: the plain names are those of the variant that the node uses, the others those of the other one."""
OLDER_NFT: Final = "nft.json"
"""What `nft -j list ruleset` printed, which kproxy gathered up to 0.2.0."""
IPSETS: Final = "ipset-save"
IPVS: Final = "ipvs"
IPVS_CONNECTIONS: Final = "ipvs-connections"
ADDRESSES: Final = "ip-addr.json"
ROUTES: Final = "ip-route.json"
ROUTING_RULES: Final = "ip-rule.json"
NEIGHBOURS: Final = "ip-neigh.json"
FDB: Final = "bridge-fdb.json"
SYSCTLS: Final = "sysctl"
CONNTRACK: Final = "conntrack"
RECENT: Final = "xt-recent"
ERRORS: Final = "errors"
CONFIGZ: Final = "kube-proxy/configz"
HEALTHZ: Final = "kube-proxy/healthz"
METRICS: Final = "kube-proxy/metrics"
VERSION: Final = "kube-proxy/version"

HOST_FILES: Final = (
    *RULES, OLDER_NFT, IPSETS, IPVS, IPVS_CONNECTIONS, ADDRESSES, ROUTES, ROUTING_RULES, NEIGHBOURS, FDB, SYSCTLS,
    CONNTRACK, RECENT, ERRORS, CONFIGZ, HEALTHZ, METRICS, VERSION,
)  # fmt: skip

PRINTED_BY: Final = MappingProxyType(
    {
        ADDRESSES: "ip -json -details address show",
        ROUTES: "ip -json -4 route show table all",
        ROUTING_RULES: "ip -json -4 rule show",
        NEIGHBOURS: "ip -json neigh show",
        FDB: "bridge -json fdb show",
    }
)
"""The commands whose JSON the files hold."""

MAX_FILE: Final = 256 << 20
"""Octets of one file. The rules of 5000 Services with 10 endpoints each are 30 MB."""
MAX_TOTAL: Final = 8 << 30
"""Octets of all files of an archive, unpacked."""
MAX_FILES: Final = 100_000


def host_file(host: str, name: str) -> str:
    """The path of a host's file inside a snapshot."""
    return f"{NODES}/{host}/{name}"
