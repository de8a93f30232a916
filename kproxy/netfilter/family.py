"""The two address families, and what Linux fixes about tables, hooks and protocols.

Chain order is hook order, which is also the order of iptables-save. The order of tables is the variant's own:
iptables-nft-save prints mangle, security, raw, filter, nat, whatever was made first; iptables-legacy-save prints the
table that was first used last (both observed with 1.8.9).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from kproxy.family import IPFamily

Family = IPFamily
"""IPv4 is iptables, IPv6 is ip6tables."""

BUILTIN_CHAINS: Final = MappingProxyType(
    {
        "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
        "security": ("INPUT", "FORWARD", "OUTPUT"),
        "raw": ("PREROUTING", "OUTPUT"),
        "filter": ("INPUT", "FORWARD", "OUTPUT"),
        "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    }
)
"""The built-in chains of each table in hook order; the tables are in the order of iptables-nft-save."""

POLICIES: Final = frozenset({"ACCEPT", "DROP", "QUEUE", "RETURN"})
"""What may stand as a built-in chain's policy; the kernel takes ACCEPT and DROP, old dumps hold the others."""

VERDICTS: Final = frozenset({"ACCEPT", "DROP", "QUEUE", "RETURN"})

# The names that netbase's /etc/protocols (Debian 12) gives, which is where iptables-save takes them from; a number
# without a name there prints as the number. 0 stands for "any protocol" and is never printed.
PROTOCOL_NAMES: Final = MappingProxyType(
    {
        1: "icmp", 2: "igmp", 3: "ggp", 4: "ipencap", 5: "st", 6: "tcp", 8: "egp", 9: "igp", 12: "pup", 17: "udp",
        20: "hmp", 22: "xns-idp", 27: "rdp", 29: "iso-tp4", 33: "dccp", 36: "xtp", 37: "ddp", 38: "idpr-cmtp",
        41: "ipv6", 43: "ipv6-route", 44: "ipv6-frag", 45: "idrp", 46: "rsvp", 47: "gre", 50: "esp", 51: "ah",
        57: "skip", 58: "ipv6-icmp", 59: "ipv6-nonxt", 60: "ipv6-opts", 73: "rspf", 81: "vmtp", 88: "eigrp",
        89: "ospf", 93: "ax.25", 94: "ipip", 97: "etherip", 98: "encap", 103: "pim", 108: "ipcomp", 112: "vrrp",
        115: "l2tp", 124: "isis", 132: "sctp", 133: "fc", 135: "mobility-header", 136: "udplite", 137: "mpls-in-ip",
        138: "manet", 139: "hip", 140: "shim6", 141: "wesp", 142: "rohc", 143: "ethernet",
    }
)  # fmt: skip

PROTOCOL_NUMBERS: Final = MappingProxyType(
    {name: number for number, name in PROTOCOL_NAMES.items()}
    | {"ip": 0, "hopopt": 0, "all": 0, "icmpv6": 58, "ipv6-mh": 135, "mh": 135}
)
"""Protocol names that a rule may use, in lower case; `all` is 0."""


def protocol_name(number: int) -> str:
    """A protocol as iptables-save prints it."""
    return PROTOCOL_NAMES.get(number) or str(number)


ICMP_TYPES: Final = {
    Family.IPV4: {
        0: "echo-reply", 3: "destination-unreachable", 4: "source-quench", 5: "redirect", 8: "echo-request",
        9: "router-advertisement", 10: "router-solicitation", 11: "time-exceeded", 12: "parameter-problem",
        13: "timestamp-request", 14: "timestamp-reply", 15: "info-request", 16: "info-reply",
        17: "address-mask-request", 18: "address-mask-reply",
    },
    Family.IPV6: {
        1: "destination-unreachable", 2: "packet-too-big", 3: "time-exceeded", 4: "parameter-problem",
        128: "echo-request", 129: "echo-reply", 130: "mld-listener-query", 131: "mld-listener-report",
        132: "mld-listener-done", 133: "nd-router-solicit", 134: "nd-router-advert", 135: "nd-neighbor-solicit",
        136: "nd-neighbor-advert", 137: "nd-redirect", 138: "router-renumbering", 141: "ind-neighbor-solicit",
        142: "ind-neighbor-advert", 143: "mld2-listener-report",
    },
}  # fmt: skip
"""The types of ICMP that have a name in nft, most of them the same in iptables."""

ICMP_NUMBERS: Final = {family: {name: number for number, name in ICMP_TYPES[family].items()} for family in ICMP_TYPES}
"""Their numbers by name."""
