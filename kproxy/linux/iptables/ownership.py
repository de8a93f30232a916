"""Which chains and rules are kube-proxy's, and therefore ours to write and to delete.

A chain is owned by its table and name: those of v1.36, and those that older releases left behind (KUBE-XLB until 1.24,
KUBE-MARK-DROP until 1.25, the user-space proxy's portals until 1.25, the IPVS proxy's iptables chains). In a chain
that is not owned, a rule is kube-proxy's if it stands in a built-in chain and jumps to an owned chain.

Not ours, although they start with KUBE: the kubelet's KUBE-KUBELET-CANARY, KUBE-IPTABLES-HINT and KUBE-HOSTPORTS with
its KUBE-HP chains, and whatever network policy engines name so. KUBE-FIREWALL is shared: the kubelet writes the same
rule and keeps its own KUBE-KUBELET-CANARY, by which one sees that there is a kubelet.
"""

from __future__ import annotations

import re
from typing import Final

from kproxy.linux.iptables.dump import Dump
from kproxy.render.iptables.base import BASE_CHAINS
from kproxy.render.iptables.chains import CANARY, FILTER, FIREWALL, MANGLE, NAT, SERVICE_PORT_CHAIN_PREFIXES

PREFLIGHT_CHAIN: Final = "KUBE-PREFLIGHT"
"""kproxy's own: where it tries what the kernel can load, for a moment (`preflight`)."""

OLD_PREFIXES: Final = ("KUBE-XLB-",)
OLD_CHAINS: Final = {
    NAT: (
        "KUBE-MARK-DROP",
        "KUBE-PORTALS-CONTAINER",
        "KUBE-PORTALS-HOST",
        "KUBE-NODEPORT-CONTAINER",
        "KUBE-NODEPORT-HOST",
        "KUBE-FIRE-WALL",
        "KUBE-NODE-PORT",
        "KUBE-LOAD-BALANCER",
    ),
    FILTER: (
        "KUBE-NODEPORT-NON-LOCAL",
        "KUBE-NODE-PORT",
        "KUBE-SOURCE-RANGES-FIREWALL",
        "KUBE-IPVS-FILTER",
        "KUBE-IPVS-OUT-FILTER",
    ),
    MANGLE: (),
}
_FIXED: Final = {
    table: frozenset(
        (
            *BASE_CHAINS.get(table, ()),
            *OLD_CHAINS[table],
            CANARY,
            PREFLIGHT_CHAIN,
            *((FIREWALL,) if table == FILTER else ()),
        )
    )
    for table in (FILTER, NAT, MANGLE)
}
_NAT_PREFIXES: Final = (*SERVICE_PORT_CHAIN_PREFIXES, *OLD_PREFIXES)

TABLES: Final = (FILTER, NAT, MANGLE)
"""The tables in which kube-proxy owns chains."""

KUBELET_CANARY: Final = "KUBE-KUBELET-CANARY"
KUBELET_HINT: Final = "KUBE-IPTABLES-HINT"

_TARGET: Final = re.compile(r"(?:^| )-[jg] (\S+)")


def is_owned(table: str, chain: str) -> bool:
    """Whether a chain is kube-proxy's."""
    fixed = _FIXED.get(table)
    return fixed is not None and (chain in fixed or (table == NAT and chain.startswith(_NAT_PREFIXES)))


def is_service_chain(chain: str) -> bool:
    """Whether a nat chain belongs to one ServicePort."""
    return chain.startswith(_NAT_PREFIXES)


def target_of(rule: str) -> str:
    """The chain or target that a rule leads to; "" if it has none."""
    # A comment may hold " -j ", and the target stands after every match: the last one outside of quotes counts.
    found = _TARGET.findall(re.sub(r'"(?:[^"\\]|\\.)*"', '""', rule) if '"' in rule else rule)
    return found[-1] if found else ""


def kubelet_present(dump: Dump) -> bool:
    """Whether a kubelet keeps rules here."""
    return any(KUBELET_CANARY in chains for chains in dump.tables.values())


def owned_chains(dump: Dump) -> list[tuple[str, str]]:
    """Every owned chain that exists."""
    return [(table, chain) for table, chains in dump.tables.items() for chain in chains if is_owned(table, chain)]


def foreign_references(dump: Dump) -> dict[tuple[str, str], str]:
    """Owned chains that a rule in somebody's own user-defined chain jumps to, each with one such chain's name.

    The kernel refuses to delete a chain that is jumped to.
    """
    found: dict[tuple[str, str], str] = {}
    for table, chains in dump.tables.items():
        for name, chain in chains.items():
            if chain.is_builtin or is_owned(table, name):
                continue
            for rule in chain.rules:
                if "KUBE-" in rule and is_owned(table, target := target_of(rule)):
                    found.setdefault((table, target), name)
    return found
