"""The difference between what the kernel should hold and what it holds, as what has to be written."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kproxy.linux.iptables.canonical import ChainRef, same_rules
from kproxy.linux.iptables.ownership import foreign_references, is_owned, keep_reachable, kubelet_present
from kproxy.linux.sync.desired import DesiredRules
from kproxy.linux.sync.jumps import JumpEdit, JumpFault, ensure_jumps
from kproxy.netfilter.text import SaveText
from kproxy.render.iptables.chains import FILTER, FIREWALL


class Difference(msgspec.Struct, frozen=True):
    """What has to be written; false if nothing.

    Attributes:
        writes: restore lines of each chain that is missing or differs, in order of declaration.
        missing: those of `writes` that do not exist.
        deletions: owned chains that are no longer needed.
        edits: edits of built-in chains that put the jump rules right.
        faults: what is wrong with jump rules.
        dormant: tables whose chains the kernel does not call, although some of kube-proxy's rules are to be there.
        kept: owned chains that should go but stay, because a rule in this chain, which is not ours, jumps to them.
    """

    writes: Mapping[ChainRef, str]
    missing: frozenset[ChainRef]
    deletions: tuple[ChainRef, ...] = ()
    edits: tuple[JumpEdit, ...] = ()
    faults: tuple[JumpFault, ...] = ()
    kept: Mapping[ChainRef, str] = {}
    dormant: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.writes or self.deletions or self.edits or self.dormant)


def find_difference(desired: DesiredRules, dump: SaveText) -> Difference:
    """Compares the kernel's rules with the desired ones, chain by chain."""
    writes: dict[ChainRef, str] = {}
    missing: set[ChainRef] = set()
    shared = kubelet_present(dump)
    for ref, text in desired.chains.items():
        chain = dump.chain(*ref)
        if chain is None:
            missing.add(ref)
            writes[ref] = text
        elif shared and ref == (FILTER, FIREWALL) and not text:
            continue  # the kubelet has its own rule there, whether or not kube-proxy wants one
        elif len(chain.rules) != text.count("\n") or not same_rules(desired.rules(ref), chain.rules, desired.family):
            writes[ref] = text
    references = foreign_references(dump)
    stale = [
        (table, chain)
        for table, chains in dump.tables.items()
        for chain in chains
        if is_owned(table, chain) and (table, chain) not in desired.chains
    ]
    edits, faults = ensure_jumps(dump, desired.family, desired.jumps)
    kept = keep_reachable(stale, references, dump)
    return Difference(
        writes, frozenset(missing), tuple(p for p in stale if p not in kept), tuple(edits), tuple(faults), kept,
        asleep(desired, dump.dormant),
    )  # fmt: skip


def asleep(desired: DesiredRules, dormant: frozenset[str]) -> tuple[str, ...]:
    """The dormant tables that are to have rules of kube-proxy's: not mangle, where its canary is alone."""
    return tuple(sorted(dormant & {table for (table, _), text in desired.chains.items() if text})) if dormant else ()
