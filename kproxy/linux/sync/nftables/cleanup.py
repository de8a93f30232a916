"""Removing kube-proxy's table of one family.

kube-proxy's own `--cleanup` deletes the whole table. Here what others put into it stays, with what their rules lead to;
without anything of others the table goes in one transaction.
"""

from __future__ import annotations

import json

from kproxy.linux.errors import INTERRUPTS, ApplyFailedError, KernelState, LinuxError, failure_message
from kproxy.linux.nftables.executor import NftExecutor
from kproxy.linux.nftables.ownership import keep_reachable
from kproxy.linux.nftables.readback import Listing, read_awake, read_table
from kproxy.linux.nftables.table import TableText
from kproxy.linux.sync.nftables.reconcile import MODE, delete_chains
from kproxy.linux.sync.report import CleanedTables, KeptChain


def cleanup_table(executor: NftExecutor, *, dry_run: bool = False) -> CleanedTables:
    """Removes what is kube-proxy's.

    Raises:
        LinuxError: it cannot be read, or nothing was removed.
        ApplyFailedError: removing failed half-way.
    """
    listing = read_table(executor)
    if listing.dormant and listing.table is None and not dry_run:
        listing, _ = read_awake(executor)
    table = listing.table
    if table is None:
        return CleanedTables(executor.family.value, MODE)
    kept = keep_reachable(set(table.chains), listing.foreign_rules, table)
    doomed = [chain for chain in table.chains if chain not in kept]
    report = CleanedTables(
        executor.family.value,
        MODE,
        chains_deleted=len(doomed),
        rules_deleted=sum(len(table.rules.get(chain, ())) for chain in doomed),
        kept=tuple(KeptChain(table.name, chain, "a rule of another program") for chain in sorted(kept)),
        foreign=listing.foreign,
        sets_deleted=len(table.sets),
    )
    if dry_run:
        return report
    if not listing.foreign:
        executor.run(f"delete table {table.name}\n")
        return report
    sets = _unused_sets(table, listing, kept)
    if doomed or sets:
        script = [f"flush chain {table.name} {chain}\n" for chain in doomed]
        script += [f"delete set {table.name} {name}\n" for name in sets]
        executor.run("".join(script))
    notes: list[str] = []
    try:
        if doomed:
            delete_chains(executor, tuple(doomed), notes)
    except (LinuxError, *INTERRUPTS) as error:
        raise ApplyFailedError(failure_message(error), KernelState.PARTLY_APPLIED, "empty chains are left") from error
    if notes:
        raise ApplyFailedError(notes[0], KernelState.PARTLY_APPLIED, "empty chains are left")
    return report


def _unused_sets(table: TableText, listing: Listing, kept: set[str]) -> list[str]:
    """The sets and maps that no rule that stays refers to."""
    staying = [rule for chain in kept for rule in table.rules.get(chain, ())]
    used = {word for rule in staying for word in rule.split() if word.startswith("@")}
    foreign = "\n".join(listing.foreign_rules)
    return [name for name in table.sets if f"@{name}" not in used and not _names(foreign, name)]


def _names(text: str, name: str) -> bool:
    """Whether rules refer to a set, spelled in words or as JSON."""
    return json.dumps(f"@{name}") in text or f"@{name} " in f"{text.replace(chr(10), ' ')} "
