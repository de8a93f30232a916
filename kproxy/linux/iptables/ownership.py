"""Which chains and rules are kube-proxy's, and therefore ours to write and to delete.

A chain is owned by its table and name: those of v1.36, and those that older releases left behind (KUBE-XLB until 1.24,
KUBE-MARK-DROP until 1.25, the user-space proxy's portals until 1.25, the IPVS proxy's iptables chains). In a chain
that is not owned, a rule is kube-proxy's if it stands in a built-in chain and jumps to an owned chain.

Not ours, although they start with KUBE: the kubelet's KUBE-KUBELET-CANARY, KUBE-IPTABLES-HINT and KUBE-HOSTPORTS with
its KUBE-HP chains, and whatever network policy engines name so. KUBE-FIREWALL is shared: the kubelet writes the same
rule and keeps its own KUBE-KUBELET-CANARY, by which one sees that there is a kubelet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kproxy.linux.iptables.canonical import ChainRef
from kproxy.netfilter.text import SaveText, service_of, target_of
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


def is_owned(table: str, chain: str) -> bool:
    """Whether a chain is kube-proxy's."""
    fixed = _FIXED.get(table)
    return fixed is not None and (chain in fixed or (table == NAT and chain.startswith(_NAT_PREFIXES)))


def is_service_chain(chain: str) -> bool:
    """Whether a nat chain belongs to one ServicePort."""
    return chain.startswith(_NAT_PREFIXES)


def kubelet_present(dump: SaveText) -> bool:
    """Whether a kubelet keeps rules here."""
    return any(KUBELET_CANARY in chains for chains in dump.tables.values())


def owned_chains(dump: SaveText) -> list[tuple[str, str]]:
    """Every owned chain that exists."""
    return [(table, chain) for table, chains in dump.tables.items() for chain in chains if is_owned(table, chain)]


def foreign_references(dump: SaveText) -> dict[tuple[str, str], str]:
    """Owned chains that a rule in a user-defined chain of others jumps to, each with one such chain's name.

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


def keep_reachable(stale: list[ChainRef], references: Mapping[ChainRef, str], dump: SaveText) -> dict[ChainRef, str]:
    """Stale chains that cannot be deleted: rules of others lead to them, at once or through others."""
    doomed = set(stale)
    kept: dict[ChainRef, str] = {}
    queue = [(ref, references[ref]) for ref in stale if ref in references]
    while queue:
        ref, by = queue.pop()
        if ref in kept or ref not in doomed:
            continue
        kept[ref] = by
        chain = dump.chain(*ref)
        queue += [((ref[0], target_of(rule)), by) for rule in (chain.rules if chain else ())]
    return kept


def removable_chains(dump: SaveText) -> tuple[list[ChainRef], dict[ChainRef, str]]:
    """What there is of kube-proxy's to remove, and the owned chains that have to stay, each with what keeps it: a
    chain whose rules lead to it, or the kubelet, with whom KUBE-FIREWALL is shared."""
    owned = owned_chains(dump)
    kept = keep_reachable(owned, foreign_references(dump), dump)
    if kubelet_present(dump) and (FILTER, FIREWALL) in owned:
        kept[(FILTER, FIREWALL)] = "the kubelet"
    return [ref for ref in owned if ref not in kept], kept


def services_of_chains(dump: SaveText) -> dict[str, str]:
    """The Service of each nat chain of a ServicePort as the rules' comments tell, in large-cluster mode too.

    There endpoint chains have no comments, but the chains that jump to them are known by their own comments or by
    those of the dispatch chains.
    """
    owners: dict[str, str] = {}
    pending: list[tuple[str, str]] = []
    for name, chain in dump.tables.get(NAT, {}).items():
        for rule in chain.rules:
            service = service_of(rule) if "--comment" in rule else ""
            target = target_of(rule)
            if is_service_chain(name):
                if service:
                    owners.setdefault(name, service)
                if is_service_chain(target):
                    pending.append((name, target))
            elif service and is_service_chain(target):
                owners.setdefault(target, service)
    changed = True
    while changed:
        changed = False
        for name, target in pending:
            if name in owners and target not in owners:
                owners[target] = owners[name]
                changed = True
    return owners
