"""Runs: the batches of a change as iptables-restore processes.

`kproxy.render.iptables.plan` orders a change into batches, each one transaction; a process carries out several, one
after the other. Starting iptables-nft takes about 5 ms, so 25 batches share a process (5000 services of 10 endpoints:
2.7 s, against 3.1 s with a process each); more would make progress jumpy and a failure's text long, and gain nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kproxy.linux.iptables.ownership import is_service_chain
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.text import target_of
from kproxy.render.iptables.chains import NAT
from kproxy.render.iptables.plan import CHAINS_PER_BATCH, Batch, Change, order_batches

__all__ = ["Batch", "Change", "plan_runs", "run_text"]

BATCHES_PER_RUN: Final = 25


def plan_runs(
    change: Change,
    variant: Variant,
    *,
    chains_per_batch: int = CHAINS_PER_BATCH,
    batches_per_run: int = BATCHES_PER_RUN,
) -> list[list[Batch]]:
    """Orders a change into batches, and the batches into runs."""
    if variant is Variant.NFT and len(change.writes) > chains_per_batch:
        change = msgspec.structs.replace(change, groups=_all_groups(change))
    batches = list(order_batches(change, chains_per_batch if variant is Variant.NFT else None))
    return [batches[start : start + batches_per_run] for start in range(0, len(batches), batches_per_run)]


def run_text(batches: Iterable[Batch]) -> str:
    """The input of one iptables-restore process."""
    return "".join(batch.text for batch in batches)


def _all_groups(change: Change) -> Mapping[str, object]:
    """The groups with chains of unknown ServicePorts (those put back after a failure) grouped by the jumps between
    them."""
    unknown = {
        chain: text
        for (table, chain), text in change.writes.items()
        if table == NAT and chain not in change.groups and is_service_chain(chain)
    }
    return {**_leaders(unknown), **change.groups}


def _leaders(chains: Mapping[str, str]) -> dict[str, str]:
    """One chain to stand for each set of chains that jumps connect (union-find)."""
    leader = {chain: chain for chain in chains}

    def find(chain: str) -> str:
        while leader[chain] != chain:
            leader[chain] = leader[leader[chain]]
            chain = leader[chain]
        return chain

    for chain, text in chains.items():
        for line in text.splitlines():
            target = target_of(line)
            if target in leader:
                leader[find(target)] = find(chain)
    return {chain: find(chain) for chain in chains}
