"""Bringing one family's rules in the kernel to the desired state from whatever state they are in, and removing them.

Read what is there, compare, write only the difference, read back, compare again. When writing or the second comparison
fails, what was there before is brought back by the same means, read back and compared too; the error says which of
unchanged, restored and partly applied it came to.

While some of the batches of a failed attempt were in the kernel, packets followed them. The connection tracking entries
that they left would go on leading flows to endpoints that neither the old rules nor the next ones want, so they are
deleted once the old rules are back.

Runs are the batches of a change as iptables-restore processes: `kproxy.render.iptables.plan` orders a change into
batches, each one transaction; a process carries out several, one after the other. Starting iptables-nft takes about
5 ms, so 25 batches share a process (5000 services of 10 endpoints: 2.7 s, against 3.1 s with a process each); more
would make progress jumpy and a failure's text long, and gain nothing.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from kproxy.cluster.stale_flows import StaleFlow
from kproxy.linux.conntrack.flows import clean_flows
from kproxy.linux.conntrack.programmed import programmed_addresses
from kproxy.linux.errors import (
    INTERRUPTS,
    ApplyFailedError,
    KernelState,
    LinuxError,
    RestoreFailedError,
    failure_message,
)
from kproxy.linux.iptables.canonical import ChainRef
from kproxy.linux.iptables.executor import Executor, parse_dump
from kproxy.linux.iptables.ownership import is_service_chain, owned_chains, removable_chains, services_of_chains
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.iptables.desired import (
    Blocks,
    DesiredRules,
    Difference,
    expected_blocks,
    find_difference,
    find_left,
)
from kproxy.linux.sync.iptables.jumps import remove_jumps, return_jumps
from kproxy.linux.sync.report import (
    APPLIED,
    NOTHING,
    WOULD_CHANGE,
    CleanedTables,
    FamilyReport,
    KeptChain,
    Progress,
    ServiceChange,
    StepTime,
    Stopwatch,
    Tallies,
)
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.text import ChainText, SaveText, service_of, target_of
from kproxy.render.iptables.chains import FILTER, NAT
from kproxy.render.iptables.plan import CHAINS_PER_BATCH, Batch, Change, order_batches
from kproxy.words import listed

HEAD_START: Final = 0.02
"""Seconds until what is to be read back is worked out: two busy threads would take turns of 5 ms, and starting iptables
needs many turns."""


class Outcome(msgspec.Struct, frozen=True):
    """What `reconcile_rules` did.

    Attributes:
        before: what the kernel held before.
        difference: what had to be written.
        transactions: how many were carried out; `processes`, by how many iptables-restore.
        steps: how long each step took.
    """

    before: SaveText
    difference: Difference
    transactions: int = 0
    processes: int = 0
    steps: tuple[StepTime, ...] = ()


def read_dump(executor: Executor, *, counters: bool) -> SaveText:
    """What the kernel holds. Raises LinuxError."""
    dump = parse_dump(executor.save(counters=counters), f"iptables-{executor.variant.value}-save")
    return dataclasses.replace(dump, dormant=executor.dormant())


def reconcile_rules(
    executor: Executor,
    desired: DesiredRules,
    namespace: Namespace | None = None,
    *,
    dry_run: bool = False,
    verify: bool = True,
    progress: Progress | None = None,
) -> Outcome:
    """Brings the kernel to the desired state.

    Args:
        namespace: where to delete connection tracking entries that a failure leaves; None leaves them alone.
        dry_run: only tell what would change.
        verify: read back what was written; else iptables is believed.

    Raises:
        LinuxError: nothing could be read, so nothing was tried.
        ApplyFailedError: it could not be done; its `state` says what the kernel was left in.
    """
    try:
        return _reconcile(executor, desired, dry_run, verify, progress)
    except ApplyFailedError as error:
        if namespace is None or error.state in (KernelState.UNCHANGED, KernelState.APPLIED):
            raise
        try:
            clean_after_failure(executor, desired, namespace)
        except (LinuxError, *INTERRUPTS) as second:
            note = f"connection tracking entries that it left were not all removed: {failure_message(second)}"
            raise ApplyFailedError(f"{error.message}\n({note})", error.state, error.detail) from error
        raise


def _reconcile(
    executor: Executor, desired: DesiredRules, dry_run: bool, verify: bool, progress: Progress | None
) -> Outcome:
    watch = Stopwatch()
    with watch.step("read"):
        before = read_dump(executor, counters=True)
    with watch.step("compare"):
        difference = find_difference(desired, before)
    if dry_run or not difference:
        return Outcome(before, difference, steps=tuple(watch.times))
    runs = plan_runs(change_of(difference, desired, before), executor.variant)
    write_verified(executor, desired, before, runs, watch, progress, difference.dormant, verify=verify)
    return Outcome(before, difference, sum(map(len, runs)), len(runs), tuple(watch.times))


def family_report(
    executor: Executor, name: str, desired: DesiredRules, outcome: Outcome, dry_run: bool
) -> FamilyReport:
    """What was done, or in a dry run would be, for each Service. `name`: what to call the iptables."""
    watch = Stopwatch()
    difference = outcome.difference
    try:
        with watch.step("report"):
            services = service_changes(desired, outcome.before, difference)
    except INTERRUPTS as error:
        state = KernelState.APPLIED if outcome.transactions else KernelState.UNCHANGED
        raise ApplyFailedError("interrupted", state) from error
    return FamilyReport(
        family=desired.family.value,
        variant=executor.variant.value,
        iptables=name,
        result=(WOULD_CHANGE if dry_run else APPLIED) if difference else NOTHING,
        chains_written=len(difference.writes),
        chains_created=len(difference.missing),
        chains_deleted=len(difference.deletions),
        transactions=outcome.transactions,
        processes=outcome.processes,
        services=services,
        jumps=difference.faults,
        kept=tuple(KeptChain(*ref, by) for ref, by in difference.kept.items()),
        steps=(*outcome.steps, *watch.times),
        notes=tuple(_asleep(table) for table in difference.dormant),
    )


def service_changes(desired: DesiredRules, before: SaveText, difference: Difference) -> tuple[ServiceChange, ...]:
    """What a difference means for each Service, sorted by name."""
    tallies = Tallies()
    old_names: dict[str, str] | None = None
    for ref, text in difference.writes.items():
        owner = desired.owners.get(ref[1]) if ref[0] == NAT else None
        chain = before.chain(*ref)
        added, removed = _rule_changes(desired, ref, text, chain.rules if chain else [])
        tallies[str(owner or "")]["chains_written"] += 1
        for what, rules in (("rules_added", added), ("rules_removed", removed)):
            for rule, count in rules.items():
                tallies[service_of(rule) if owner is None else str(owner)][what] += count
    for ref in difference.deletions:
        if old_names is None:
            old_names = services_of_chains(before)
        chain = before.chain(*ref)
        mine = tallies[old_names.get(ref[1], "")]
        mine["chains_deleted"] += 1
        mine["rules_removed"] += len(chain.rules) if chain else 0
    return tallies.changes(set(map(str, desired.owners.values())))


def _rule_changes(
    desired: DesiredRules, ref: ChainRef, text: str, real: list[str]
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    if not real:
        if ref[1].startswith(("KUBE-SEP-", "KUBE-SVC-")):  # only their number counts
            return {"": text.count("\n")}, {}
        return Counter(text.splitlines()), {}
    new, old = Counter(desired.rules(ref)), Counter(real)
    return new - old, old - new


def change_of(difference: Difference, desired: DesiredRules, before: SaveText) -> Change:
    """A difference as something to write."""
    previous = {
        ref: _spelled(ref[1], chain.rules, zip(desired.rules(ref), text.splitlines(keepends=True), strict=True))
        for ref, text in difference.writes.items()
        if ref[0] == FILTER and (chain := before.chain(*ref)) is not None
    }
    return Change(difference.writes, difference.deletions, difference.edits, desired.owners, previous)


def _spelled(name: str, rules: list[str], known: Iterable[tuple[str, str]]) -> str:
    """The rules of a chain as restore lines, those that will be written again exactly as they will be."""
    lines = dict(known)
    return "".join(lines.get(rule) or f"-A {name} {rule}\n" for rule in rules)


def write_verified(
    executor: Executor,
    desired: DesiredRules,
    before: SaveText,
    runs: list[list[Batch]],
    watch: Stopwatch,
    progress: Progress | None,
    dormant: Iterable[str] = (),
    *,
    verify: bool = True,
) -> None:
    """Carries out the runs and reads back; puts back what was there if either fails. At last, when the rules are right,
    wakes dormant tables.

    Raises:
        ApplyFailedError: see there.
    """
    total = sum(map(len, runs))
    done = 0
    left: Difference | None = None
    saver = f"iptables-{executor.variant.value}-save"
    try:
        with ThreadPoolExecutor(1) as beside:
            # How it will look when read back can be worked out while iptables works.
            blocks = beside.submit(_expect, desired) if verify else None
            with watch.step("write"):
                for run in runs:
                    if progress is not None:
                        progress("writing", done, total)
                    executor.restore(run_text(run))
                    done += len(run)
            if blocks is not None:
                if progress is not None:
                    progress("verifying", done, total)
                with watch.step("verify"):
                    left = find_left(desired, executor.save(counters=False), saver, blocks.result())
        for table in () if left else dormant:
            executor.wake(table)
    except (LinuxError, *INTERRUPTS) as error:
        if isinstance(error, RestoreFailedError):
            done += error.committed
        least = "at least " if isinstance(error, LinuxError) and not getattr(error, "lines", ()) else ""
        raise roll_back(
            executor, before, f"{failure_message(error)}\n({least}{done} of {total} transactions had been carried out)"
        ) from error
    if left:
        differences = describe(left)
        raise roll_back(executor, before, f"verification failed: what was written is not what is there: {differences}")


def _expect(desired: DesiredRules) -> Blocks:
    time.sleep(HEAD_START)
    return expected_blocks(desired)


def roll_back(executor: Executor, before: SaveText, what: str) -> ApplyFailedError:
    """Brings back what was there before, and makes the error that says how that went."""
    try:
        now = read_dump(executor, counters=False)
        change = reverse_change(before, now)
        if not change:
            return ApplyFailedError(what, KernelState.UNCHANGED)
        for run in plan_runs(change, executor.variant):
            executor.restore(run_text(run))
        left = reverse_change(before, read_dump(executor, counters=False))
    except (LinuxError, *INTERRUPTS) as error:
        detail = f"bringing back what was there before failed too: {failure_message(error)}"
        return ApplyFailedError(what, KernelState.PARTLY_APPLIED, detail + _which(executor, before))
    if left:
        return ApplyFailedError(what, KernelState.PARTLY_APPLIED, _chain_names([*left.writes, *left.deletions]))
    return ApplyFailedError(what, KernelState.RESTORED)


def clean_after_failure(executor: Executor, tried: DesiredRules, namespace: Namespace) -> list[StaleFlow]:
    """Deletes entries that lead to endpoints of what was tried and that the kernel's rules do not lead to.

    Raises:
        LinuxError: the rules or the entries cannot be read, or an entry cannot be deleted.
    """
    now = programmed_addresses(read_dump(executor, counters=False))
    then = programmed_addresses(desired_dump(tried))
    return clean_flows(namespace, executor.family, now, then, endpoints=then.all_endpoints)


def desired_dump(desired: DesiredRules) -> SaveText:
    """The desired nat table, as if it had been read."""
    return SaveText(
        {
            NAT: {
                chain: ChainText("-", desired.rules((NAT, chain)), [])
                for table, chain in desired.chains
                if table == NAT
            }
        }
    )


def _which(executor: Executor, before: SaveText) -> str:
    try:
        left = reverse_change(before, read_dump(executor, counters=False))
    except LinuxError:
        return "; which chains are new cannot be read"
    return f"; not as before: {_chain_names([*left.writes, *left.deletions])}"


def reverse_change(before: SaveText, now: SaveText) -> Change:
    """What brings owned chains and jump rules back to what they were, their counters included."""
    writes: dict[ChainRef, str] = {}
    previous: dict[ChainRef, str] = {}
    for ref in owned_chains(before):
        old, new = before.chain(*ref), now.chain(*ref)
        assert old is not None
        if new is None or new.rules != old.rules:
            lines = _with_counters(ref[1], old)
            writes[ref] = "".join(lines)
            if new is not None and ref[0] == FILTER:
                previous[ref] = _spelled(ref[1], new.rules, zip(old.rules, lines, strict=True))
    deletions = [ref for ref in owned_chains(now) if before.chain(*ref) is None]
    return Change(writes, deletions, return_jumps(before, now), {}, previous)


def _with_counters(name: str, chain: ChainText) -> list[str]:
    return [
        f"{f'{counters} ' if counters else ''}-A {name}{f' {rule}' if rule else ''}\n"
        for rule, counters in zip(chain.rules, chain.counters, strict=True)
    ]


def describe(difference: Difference) -> str:
    """A difference in a few words, for messages."""
    parts = []
    for refs, what in ((list(difference.writes), "other than wanted"), (list(difference.deletions), "too many")):
        if refs:
            parts.append(f"{len(refs)} chain{'' if len(refs) == 1 else 's'} {what} ({_chain_names(refs)})")
    if difference.faults:
        fault = difference.faults[0]
        parts.append(f"{len(difference.faults)} jump rules are not right ({fault.chain}: {fault.kind}: {fault.rule})")
    parts += map(_asleep, difference.dormant)
    return "; ".join(parts)


def _asleep(table: str) -> str:
    return f"table {table} was dormant, so the kernel called none of its chains"


def _chain_names(refs: list[ChainRef]) -> str:
    return listed([f"{table} {chain}" for table, chain in refs], 5)


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


def cleanup_tables(executor: Executor, *, dry_run: bool = False, progress: Progress | None = None) -> CleanedTables:
    """Removes all that is kube-proxy's from one family and variant.

    Raises:
        LinuxError: it cannot be read.
        ApplyFailedError: removing failed.
    """
    before = read_dump(executor, counters=True)
    doomed, kept = removable_chains(before)
    edits = remove_jumps(before, kept)
    report = CleanedTables(
        executor.family.value,
        executor.variant.value,
        chains_deleted=len(doomed),
        rules_deleted=sum(len(chain.rules) for ref in doomed if (chain := before.chain(*ref)) is not None),
        jumps_deleted=sum(len(edit.deletions) for edit in edits),
        kept=tuple(KeptChain(*ref, by) for ref, by in kept.items()),
    )
    if dry_run or not (doomed or edits):
        return report
    runs = plan_runs(Change({}, doomed, edits), executor.variant)
    total, done = sum(map(len, runs)), 0
    try:
        for run in runs:
            if progress is not None:
                progress("removing", done, total)
            executor.restore(run_text(run))
            done += len(run)
        after = read_dump(executor, counters=False)
    except (LinuxError, *INTERRUPTS) as error:
        raise roll_back(executor, before, failure_message(error)) from error
    left, _ = removable_chains(after)
    if left or remove_jumps(after, kept):
        raise roll_back(executor, before, f"removing failed: {len(left)} chains of kube-proxy's are still there")
    return report
