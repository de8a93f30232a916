"""Netfilter's hooks, and what hangs on them at which priority.

A base chain hangs on one hook at a priority; the kernel calls what hangs there in ascending order of priority. Both
variants of iptables and native nftables hang their chains on the same hooks, so this module is what they share:

* `Hook`: the hooks, by iptables' names (`PREROUTING`), with nft's (`prerouting`) as `nft_name`.
* `Table` and `IPTABLES_PRIORITIES`: iptables' tables, and where each variant hangs them.
* `PRIORITY_NAMES`: the names that nft takes and prints instead of numbers, by family.
* `ChainType`: nft's chain types.

Sources: include/uapi/linux/netfilter_ipv4.h (enum nf_ip_hook_priorities), netfilter_bridge.h, nft(8), and what
iptables 1.8.9 loads into the kernel.

Order of equal priority: the kernel puts a hook that is registered later before the ones that are there
(nf_hook_entries_grow). NAT is a special case: chains of type nat do not hang on the netfilter hook themselves, but on
the NAT core, which hangs there once at `DSTNAT` or `SRCNAT` and calls them in order of their priorities until one of
them has chosen a translation (nf_nat_inet_fn). So a nat chain at priority -150 still runs at -100.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Hook(StrEnum):
    """Where the kernel calls base chains, valued as iptables names its built-in chains."""

    INGRESS = "INGRESS"
    PREROUTING = "PREROUTING"
    INPUT = "INPUT"
    FORWARD = "FORWARD"
    OUTPUT = "OUTPUT"
    POSTROUTING = "POSTROUTING"
    EGRESS = "EGRESS"

    @property
    def nft_name(self) -> str:
        """As nft writes it: `prerouting`."""
        return self.value.lower()

    @classmethod
    def of_nft(cls, name: str) -> Hook:
        """The hook that nft calls so. Raises ValueError."""
        if name != name.lower():
            raise ValueError(f"a hook expected, not {name!r}")
        return cls(name.upper())


IP_HOOKS: Final = (Hook.PREROUTING, Hook.INPUT, Hook.FORWARD, Hook.OUTPUT, Hook.POSTROUTING)
"""The hooks of the families ip, ip6 and inet that every packet's way is made of."""

HOOKS_IN_ORDER: Final = (Hook.INGRESS, *IP_HOOKS, Hook.EGRESS)
"""These with those of single devices (families netdev and, at ingress, inet), in the order of a packet's way."""


class Table(StrEnum):
    """iptables' tables."""

    RAW = "raw"
    MANGLE = "mangle"
    NAT = "nat"
    FILTER = "filter"
    SECURITY = "security"


class Variant(StrEnum):
    """Who wrote iptables' rules into the kernel, iptables-nft or iptables-legacy, as binaries and options spell it."""

    NFT = "nft"
    LEGACY = "legacy"

    @property
    def other(self) -> Variant:
        return Variant.LEGACY if self is Variant.NFT else Variant.NFT


class ChainType(StrEnum):
    """nft's types of base chains."""

    FILTER = "filter"
    NAT = "nat"
    ROUTE = "route"


# Priorities of what hangs on the hooks of IPv4 and IPv6.
RAW: Final = -300
CONNTRACK: Final = -200
MANGLE: Final = -150
DSTNAT: Final = -100
FILTER: Final = 0
SECURITY: Final = 50
SRCNAT: Final = 100

CONNTRACK_HOOKS: Final = (Hook.PREROUTING, Hook.OUTPUT)
"""Where connection tracking looks a packet up, at priority `CONNTRACK`."""

NAT_PRIORITIES: Final[Mapping[Hook, int]] = MappingProxyType(
    {Hook.PREROUTING: DSTNAT, Hook.INPUT: SRCNAT, Hook.OUTPUT: DSTNAT, Hook.POSTROUTING: SRCNAT}
)
"""Where the NAT core hangs: destinations are translated in PREROUTING and OUTPUT, sources in INPUT and POSTROUTING."""

IPVS_REPLIES: Final[Mapping[Hook, int]] = MappingProxyType(
    {Hook.INPUT: SRCNAT - 2, Hook.OUTPUT: DSTNAT + 1, Hook.FORWARD: SRCNAT}
)
"""Where IPVS gives answers of real servers the address of the virtual server (ip_vs_ops4 of ip_vs_core.c)."""
IPVS_REQUESTS: Final[Mapping[Hook, int]] = MappingProxyType({Hook.INPUT: SRCNAT - 1, Hook.OUTPUT: DSTNAT + 2})
"""Where IPVS sends what comes to a virtual server to a real one."""


def _iptables(security: int) -> Mapping[Table, Mapping[Hook, int]]:
    everywhere = dict.fromkeys(IP_HOOKS, MANGLE)
    inside = (Hook.INPUT, Hook.FORWARD, Hook.OUTPUT)
    return MappingProxyType(
        {
            Table.RAW: MappingProxyType({Hook.PREROUTING: RAW, Hook.OUTPUT: RAW}),
            Table.MANGLE: MappingProxyType(everywhere),
            Table.NAT: NAT_PRIORITIES,
            Table.FILTER: MappingProxyType(dict.fromkeys(inside, FILTER)),
            Table.SECURITY: MappingProxyType(dict.fromkeys(inside, security)),
        }
    )


IPTABLES_PRIORITIES: Final[Mapping[Variant, Mapping[Table, Mapping[Hook, int]]]] = MappingProxyType(
    {Variant.LEGACY: _iptables(SECURITY), Variant.NFT: _iptables(150)}
)
"""The priority of each table's built-in chains. iptables-nft hangs the security table in at 150, so that on INPUT it
comes after source NAT (seen with 1.8.9); everything else is at the same priority in both."""

IP_PRIORITY_NAMES: Final[Mapping[str, int]] = MappingProxyType(
    {"raw": RAW, "mangle": MANGLE, "dstnat": DSTNAT, "filter": FILTER, "security": SECURITY, "srcnat": SRCNAT}
)
BRIDGE_PRIORITY_NAMES: Final[Mapping[str, int]] = MappingProxyType(
    {"dstnat": -300, "filter": -200, "out": 100, "srcnat": 300}
)

PRIORITY_NAMES: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType(
    {
        "ip": IP_PRIORITY_NAMES,
        "ip6": IP_PRIORITY_NAMES,
        "inet": IP_PRIORITY_NAMES,
        "bridge": BRIDGE_PRIORITY_NAMES,
        "arp": MappingProxyType({"filter": FILTER}),
        "netdev": MappingProxyType({"filter": FILTER}),
    }
)
"""nft's names of priorities in each of its families; an offset may follow: `dstnat - 10`."""
