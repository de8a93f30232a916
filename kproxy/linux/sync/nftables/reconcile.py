"""Bringing one family's table in the kernel to the desired state from whatever state it is in, and removing it.

As in iptables mode: read what is there, compare, write only the difference, read back, compare again. What changes for
packets is one transaction, so a failure leaves the table as it was, with nothing to put back but what transactions
before it prepared. When one of these has been carried out, or the second comparison fails since another program wrote
at the same time, what was there before is brought back by the same means; the error says what it came to.

kube-proxy's own `--cleanup` deletes the whole table. Here what others put into it stays, with what their rules lead to;
without anything of others the table goes in one transaction.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Final

import msgspec

from kproxy.linux.conntrack.flows import clean_flows
from kproxy.linux.conntrack.programmed import table_addresses
from kproxy.linux.errors import (
    INTERRUPTS,
    ApplyFailedError,
    KernelState,
    LinuxError,
    RestoreFailedError,
    failure_message,
)
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.executor import NftExecutor
from kproxy.linux.nftables.ownership import keep_reachable
from kproxy.linux.nftables.readback import Listing, read_awake, read_table
from kproxy.linux.nftables.table import (
    STALE,
    Change,
    TableDifference,
    TableText,
    deletion_script,
    describe_change,
    difference,
    plan_transactions,
)
from kproxy.linux.sync.nftables.desired import DesiredTable, ElementOwners
from kproxy.linux.sync.report import (
    APPLIED,
    NOTHING,
    WOULD_CHANGE,
    CleanedTables,
    FamilyReport,
    KeptChain,
    Progress,
    ServiceChange,
    Stopwatch,
    Tallies,
)

MODE: Final = "nftables"

_RETRY: Final = 0.25
"""Seconds between attempts to delete stale chains."""


class TableOutcome(msgspec.Struct, frozen=True):
    """What `reconcile_table` did."""

    report: FamilyReport
    difference: TableDifference


def find_table_difference(desired: TableText, listing: Listing) -> TableDifference:
    """Compares object by object; of a dormant table nothing else is said, since it has to be woken first."""
    table = listing.table
    if listing.dormant:
        return TableDifference(table, Change(desired.name, wake=True), foreign=listing.foreign)
    if table is None:
        return TableDifference(None, difference(None, desired))
    stale = [chain for chain in table.chains if chain not in desired.chains]
    kept = keep_reachable(stale, listing.foreign_rules, table)
    if kept:
        ours = {chain: d for chain, d in table.chains.items() if chain not in kept}
        rules = {chain: own for chain, own in table.rules.items() if chain not in kept}
        table = msgspec.structs.replace(table, chains=ours, rules=rules)
    return TableDifference(table, difference(table, desired), tuple(sorted(kept)), listing.foreign)


def reconcile_table(
    executor: NftExecutor,
    desired: DesiredTable,
    namespace: Namespace | None = None,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> TableOutcome:
    """Brings the kernel to the desired state.

    Args:
        namespace: where to delete connection tracking entries that a failure leaves; None leaves them alone.
        dry_run: only tell what would change.

    Raises:
        LinuxError: nothing could be read, so nothing was tried.
        ApplyFailedError: it could not be done; its `state` says what the kernel was left in.
    """
    watch = Stopwatch()
    with watch.step("read"):
        listing, woken = (read_table(executor, desired.text), False) if dry_run else read_awake(executor, desired.text)
    with watch.step("compare"):
        found = find_table_difference(desired.text, listing).after(woken)
        transactions = plan_transactions(found.change)
    notes: list[str] = []
    written = bool(found) and not dry_run
    deletions = 0
    if written:
        try:
            deletions = _write_verified(executor, desired, found, transactions, watch, progress, notes, namespace)
        except ApplyFailedError as error:
            if not woken or error.state is KernelState.APPLIED:
                raise
            detail = f"the table was dormant and is not any more{f'; {error.detail}' if error.detail else ''}"
            raise ApplyFailedError(error.message, KernelState.PARTLY_APPLIED, detail) from error
    try:
        with watch.step("report"):
            services = table_service_changes(desired, found.before, found.change)
    except INTERRUPTS as error:
        raise ApplyFailedError("interrupted", KernelState.APPLIED if written else KernelState.UNCHANGED) from error
    change = found.change
    report = FamilyReport(
        family=desired.family.value,
        variant=MODE,
        iptables=str(executor.nft),
        result=(WOULD_CHANGE if dry_run else APPLIED) if found else NOTHING,
        chains_written=len(change.rules.keys() | change.chains.keys()),
        chains_created=len(change.chains),
        chains_deleted=len(change.stale_chains),
        transactions=len(transactions) + deletions + woken if written else 0,
        processes=len(transactions) + deletions + woken if written else 0,
        services=services,
        kept=tuple(KeptChain(desired.text.name, chain, "a rule of another program") for chain in found.kept),
        steps=tuple(watch.times),
        notes=tuple(notes),
        elements_added=len(change.elements),
        elements_deleted=len(change.stale_elements),
        sets_written=len(change.sets),
        sets_deleted=len(change.stale_sets),
        foreign=found.foreign,
    )
    return TableOutcome(report, found)


def table_service_changes(desired: DesiredTable, before: TableText | None, change: Change) -> tuple[ServiceChange, ...]:
    """What a change means for each Service, sorted by name."""
    old = before if before is not None else TableText(change.table)
    tallies = Tallies()
    for chain, rules in change.rules.items():
        new, real = Counter(rules), Counter(old.rules.get(chain, ()))
        counts = {"rules_added": (new - real).total(), "rules_removed": (real - new).total()}
        tallies[desired.owner_of_chain(chain)].update(counts, chains_written=1)
    for chain in change.stale_chains:
        gone = len(old.rules.get(chain, ()))
        tallies[desired.owner_of_chain(chain)].update(chains_deleted=1, rules_removed=gone)
    owners = ElementOwners(desired, (desired.text, old))
    for ref, value in change.elements.items():
        tallies[owners.owner(ref, value)]["elements_added"] += 1
    for ref in change.stale_elements:
        tallies[owners.owner(ref, old.elements[ref])]["elements_removed"] += 1
    there = {desired.owner_of_chain(chain) for chain in desired.text.chains}
    there |= {owners.owner(ref, value) for ref, value in desired.text.elements.items()}
    return tallies.changes(there, elements=True)


def _write_verified(
    executor: NftExecutor,
    desired: DesiredTable,
    found: TableDifference,
    transactions: list[str],
    watch: Stopwatch,
    progress: Progress | None,
    notes: list[str],
    namespace: Namespace | None,
) -> int:
    """Writes, deletes what is stale, and reads back; the number of transactions that deletions took."""
    try:
        with watch.step("write"):
            write_transactions(executor, transactions, progress)
    except TransactionError as error:
        if error.untouched:
            raise ApplyFailedError(str(error), KernelState.UNCHANGED) from error
        raise roll_back(executor, found.before, str(error), desired, namespace) from error
    deletions = 0
    if found.change.stale_chains:
        with watch.step("delete"):
            deletions = delete_chains(executor, found.change.stale_chains, notes)
    if progress is not None:
        progress("verifying", len(transactions), len(transactions))
    try:
        with watch.step("verify"):
            left = find_table_difference(desired.text, read_table(executor, desired.text))
    except (LinuxError, *INTERRUPTS) as error:
        what = f"the table was written but could not be read back: {failure_message(error)}"
        raise ApplyFailedError(what, KernelState.APPLIED) from error
    problem = describe_change(msgspec.structs.replace(left.change, stale_chains=()))
    if problem:
        raise roll_back(
            executor,
            found.before,
            f"verification failed: what was written is not what is there: {problem}",
            desired,
            namespace,
        )
    return deletions


def write_transactions(executor: NftExecutor, transactions: list[str], progress: Progress | None = None) -> None:
    """Carries out the transactions of a change.

    Raises:
        TransactionError: one failed.
    """
    for done, transaction in enumerate(transactions):
        if progress is not None:
            progress("writing", done, len(transactions))
        try:
            executor.run(transaction)
        except (LinuxError, *INTERRUPTS) as error:
            many = f"\n({done} of {len(transactions)} transactions had been carried out)"
            untouched = not done and isinstance(error, RestoreFailedError)
            what = failure_message(error) + (many if len(transactions) > 1 else "")
            raise TransactionError(what, untouched) from error


class TransactionError(LinuxError):
    """A transaction failed. `untouched`: nothing of the change is in the kernel; otherwise that is not known."""

    def __init__(self, message: str, untouched: bool) -> None:
        super().__init__(message)
        self.untouched = untouched


def delete_chains(executor: NftExecutor, chains: tuple[str, ...], notes: list[str]) -> int:
    """Deletes stale chains, for as long as `STALE` after they became so; the number of transactions.

    That they cannot be deleted is a note: they are empty, and nothing leads to them.
    """
    until = time.monotonic() + STALE + _RETRY
    while True:
        try:
            executor.run(deletion_script(executor.table, chains))
        except RestoreFailedError as error:
            if time.monotonic() >= until:
                notes.append(f"{len(chains)} chains that are empty and not used could not be deleted: {error.reason}")
                return 0
            time.sleep(_RETRY)
        except (LinuxError, *INTERRUPTS) as error:
            what = f"chains that are empty and not used are left: {failure_message(error)}"
            raise ApplyFailedError(what, KernelState.APPLIED) from error
        else:
            return 1


def roll_back(
    executor: NftExecutor, before: TableText | None, what: str, tried: DesiredTable, namespace: Namespace | None
) -> ApplyFailedError:
    """Brings back what was there before, and makes the error that says how that went."""
    try:
        if _is_as_before(executor, before):
            return ApplyFailedError(what, KernelState.UNCHANGED)
        _bring_back(executor, before)
        if namespace is not None:
            # While what was tried was in force, packets may have followed it.
            then = table_addresses(tried.text)
            clean_flows(namespace, executor.family, table_addresses(before), then, endpoints=then.all_endpoints)
        if _is_as_before(executor, before):
            return ApplyFailedError(what, KernelState.RESTORED)
    except (LinuxError, *INTERRUPTS) as error:
        detail = f"bringing back what was there before failed too: {failure_message(error)}"
        return ApplyFailedError(what, KernelState.PARTLY_APPLIED, detail)
    return ApplyFailedError(what, KernelState.PARTLY_APPLIED, "what was there before is not what is there now")


def _is_as_before(executor: NftExecutor, before: TableText | None) -> bool:
    now = read_table(executor, before).table
    return now is None if before is None else not difference(now, before)


def _bring_back(executor: NftExecutor, before: TableText | None) -> None:
    if before is None:
        executor.run(f"delete table {executor.table}\n")
        return
    back = difference(read_table(executor, before).table, before)
    write_transactions(executor, plan_transactions(back))
    if back.stale_chains:
        delete_chains(executor, back.stale_chains, [])


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
