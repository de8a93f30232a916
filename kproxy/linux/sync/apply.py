"""`apply`: brings a namespace, or the machine itself, to the rules of a node; both families, conntrack included."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import msgspec

from kproxy.cluster.stale_flows import Addresses, StaleFlow, desired_addresses, merge_addresses
from kproxy.linux.conntrack.flows import table_full
from kproxy.linux.conntrack.stale import clean_flows
from kproxy.linux.errors import INTERRUPTS, ApplyFailedError, KernelState, LinuxError, failure_message
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.backend import NodeRequest, Prepared
from kproxy.linux.sync.cleanup import cleanup_other_mode
from kproxy.linux.sync.flow_cleaner import NO_ADDRESSES
from kproxy.linux.sync.partial_failure import family_failure, interrupted_after_rules
from kproxy.linux.sync.prepare import PreparedNode, prepare_node
from kproxy.linux.sync.report import APPLIED, NOTHING, CleanedTables, FamilyReport, Progress, StepTime, Stopwatch
from kproxy.services.names import IPFamily


class StaleEntry(msgspec.Struct, frozen=True, rename="camel"):
    """A connection tracking entry that was, or would be, deleted."""

    family: str
    service: str
    entry: str
    reason: str


class ApplyReport(msgspec.Struct, frozen=True, rename="camel"):
    """What `apply` did, or with `dry_run` would do.

    Attributes:
        where: the namespace.
        variant_reason: why this variant was chosen.
        variant: of iptables; `nftables` in nftables mode.
        conntrack: the entries that were deleted.
        seconds: all in all.
        cleaned: the rules of the other mode that were removed.
    """

    node: str
    where: str
    dry_run: bool
    changed: bool
    variant: str
    variant_reason: str
    families: tuple[FamilyReport, ...]
    conntrack: tuple[StaleEntry, ...]
    notes: tuple[str, ...]
    steps: tuple[StepTime, ...]
    seconds: float
    cleaned: tuple[CleanedTables, ...] = ()


def apply_node(
    request: NodeRequest, namespace: Namespace, *, dry_run: bool = False, progress: Progress | None = None
) -> ApplyReport:
    """Brings the namespace to the node's rules.

    Raises:
        ApplyFailedError: it failed; the error says what the kernel was left in.
    """
    watch = Stopwatch()
    try:
        with watch.step("prepare"):
            prepared = prepare_node(request, namespace, writes=not dry_run)
    except (LinuxError, *INTERRUPTS) as error:
        raise ApplyFailedError(failure_message(error), KernelState.UNCHANGED) from error
    return apply_prepared(request, prepared, namespace, watch, dry_run=dry_run, progress=progress)


def apply_prepared(
    request: NodeRequest,
    prepared: PreparedNode,
    namespace: Namespace,
    watch: Stopwatch,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ApplyReport:
    """`apply_node` for what is prepared already; `watch` has the steps until now."""
    names = [family.family.value for family in prepared.families]
    reports: list[FamilyReport] = []
    stale: list[StaleEntry] = []
    notes = list(prepared.notes)
    cleaned: list[CleanedTables] = []
    for family in prepared.families:
        with watch.step(family.family.value):
            report, before = _apply_family(family, namespace, reports, dry_run, progress)
        reports.append(report)
        with watch.step(f"{family.family.value} other mode"):
            removed, others = _clean_other_mode(request, namespace, family.family, _written(reports), dry_run)
        cleaned += removed
        try:
            if request.libiptc and report.transactions:
                with watch.step(f"{family.family.value} libiptc"):
                    notes += family.read_again()
            with watch.step(f"{family.family.value} conntrack"):
                # Until they were gone, the other mode's rules may have led flows astray.
                stale += _clean_conntrack(family, namespace, merge_addresses(before(), others), dry_run, notes)
        except INTERRUPTS as error:
            raise interrupted_after_rules(names[: len(reports)], names[len(reports) :], _written(reports)) from error
    full = table_full(namespace)
    if full:
        notes.append(full)
    return ApplyReport(
        node=request.target.node_name,
        where=namespace.label,
        dry_run=dry_run,
        changed=any(report.result != NOTHING for report in reports) or bool(cleaned),
        variant=prepared.host.variant,
        variant_reason=prepared.host.reason,
        families=tuple(reports),
        conntrack=tuple(stale),
        notes=tuple(notes),
        steps=tuple(watch.times),
        seconds=round(sum(time.seconds for time in watch.times), 6),
        cleaned=tuple(cleaned),
    )


def _clean_other_mode(
    request: NodeRequest, namespace: Namespace, family: IPFamily, written: list[str], dry_run: bool
) -> tuple[list[CleanedTables], Addresses]:
    """Removes the other mode's rules of a family whose rules are there: packets meet those of one mode at least.

    Returns what was removed, and where it sent traffic.
    """
    sent = [NO_ADDRESSES]

    def remember(_family: IPFamily, addresses: Addresses) -> None:
        sent.append(addresses)

    mode, wait = request.config.mode, request.lock_wait
    try:
        cleaned = cleanup_other_mode(mode, namespace, (family,), dry_run=dry_run, lock_wait=wait, seen=remember)
    except (LinuxError, *INTERRUPTS) as error:
        what = f"kube-proxy's rules of the other mode were not all removed: {failure_message(error)}"
        state = KernelState.PARTLY_APPLIED if written else KernelState.UNCHANGED
        detail = f"the rules of {' and '.join(written)} are applied" if written else ""
        raise ApplyFailedError(what, state, detail) from error
    return cleaned, reduce(merge_addresses, sent)


def _apply_family(
    family: Prepared,
    namespace: Namespace,
    done: list[FamilyReport],
    dry_run: bool,
    progress: Progress | None,
) -> tuple[FamilyReport, Callable[[], Addresses]]:
    try:
        return family.reconcile(namespace, dry_run=dry_run, progress=progress)
    except (LinuxError, *INTERRUPTS) as error:
        raise family_failure(error, family.family.value, _written(done)) from error


def _written(reports: list[FamilyReport]) -> list[str]:
    return [report.family for report in reports if report.result == APPLIED]


def _clean_conntrack(
    family: Prepared,
    namespace: Namespace,
    before: Addresses,
    dry_run: bool,
    notes: list[str],
) -> list[StaleEntry]:
    """Deletes stale entries. A failure is a note: the rules are right, and new flows follow them."""
    try:
        stale = clean_flows(namespace, family.family, desired_addresses(family.state), before, dry_run=dry_run)
    except LinuxError as error:
        notes.append(f"{family.family.value}: stale connection tracking entries were not all removed: {error}")
        return []
    return [_entry(family, each) for each in stale]


def _entry(family: Prepared, stale: StaleFlow) -> StaleEntry:
    return StaleEntry(family.family.value, stale.service, str(stale.flow), stale.reason)
