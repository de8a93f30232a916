"""`apply`: brings a namespace, or the machine itself, to the rules of a node; both families, conntrack included."""

from __future__ import annotations

import msgspec

from kproxy.linux.conntrack.flows import table_full
from kproxy.linux.conntrack.stale import StaleFlow, clean_flows, desired_addresses, programmed_addresses
from kproxy.linux.errors import INTERRUPTS, ApplyFailedError, KernelState, LinuxError, failure_message
from kproxy.linux.iptables.binaries import Variant
from kproxy.linux.iptables.dump import Dump
from kproxy.linux.iptables.libiptc import MAX_RULES, compare_read_back, read_back
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.partial_failure import family_failure, interrupted_after_rules
from kproxy.linux.sync.prepare import NodeRequest, PreparedFamily, prepare_node
from kproxy.linux.sync.progress import Progress
from kproxy.linux.sync.reconcile import Outcome, read_dump, reconcile_rules
from kproxy.linux.sync.report import FamilyReport, StepTime, Stopwatch


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
        conntrack: the entries that were deleted.
        seconds: all in all.
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
    names = [family.family.value for family in prepared.families]
    reports: list[FamilyReport] = []
    stale: list[StaleEntry] = []
    notes = list(prepared.notes)
    for family in prepared.families:
        with watch.step(family.family.value):
            outcome = _apply_family(family, namespace, reports, dry_run, progress)
        reports.append(outcome.report)
        try:
            if request.libiptc and outcome.report.transactions and family.executor.variant is Variant.LEGACY:
                with watch.step(f"{family.family.value} libiptc"):
                    notes += _read_back(family, namespace)
            with watch.step(f"{family.family.value} conntrack"):
                stale += _clean_conntrack(family, namespace, outcome.before, dry_run, notes)
        except INTERRUPTS as error:
            raise interrupted_after_rules(names[: len(reports)], names[len(reports) :], _written(reports)) from error
    full = table_full(namespace)
    if full:
        notes.append(full)
    return ApplyReport(
        node=request.target.node_name,
        where=namespace.label,
        dry_run=dry_run,
        changed=any(bool(report.chains_written or report.chains_deleted or report.jumps) for report in reports),
        variant=prepared.choice.variant.value,
        variant_reason=prepared.choice.reason,
        families=tuple(reports),
        conntrack=tuple(stale),
        notes=tuple(notes),
        steps=tuple(watch.times),
        seconds=round(sum(time.seconds for time in watch.times), 6),
    )


def _apply_family(
    family: PreparedFamily, namespace: Namespace, done: list[FamilyReport], dry_run: bool, progress: Progress | None
) -> Outcome:
    try:
        return reconcile_rules(
            family.executor,
            family.desired,
            namespace,
            dry_run=dry_run,
            name=str(family.host.iptables),
            progress=progress,
        )
    except (LinuxError, *INTERRUPTS) as error:
        raise family_failure(error, family.family.value, _written(done)) from error


def _written(reports: list[FamilyReport]) -> list[str]:
    return [report.family for report in reports if report.transactions]


def _read_back(family: PreparedFamily, namespace: Namespace) -> list[str]:
    """Reads legacy tables through libiptc as well; the notes say where that differs from iptables-save.

    The rules are verified by then: this is a second witness, whose disagreement is a note and undoes nothing.
    """
    if sum(text.count("\n") for text in family.desired.chains.values()) > MAX_RULES:
        return []
    name = f"{family.family.value} legacy"
    try:
        saved = read_dump(family.executor, counters=False)
        told = compare_read_back(saved, read_back(namespace, family.family), family.family)
    except LinuxError as error:
        return [f"{name}: no second reading through libiptc: {error}"]
    return [f"{name}: libiptc and iptables-save disagree: {difference}" for difference in told[:10]]


def _clean_conntrack(
    family: PreparedFamily, namespace: Namespace, before: Dump, dry_run: bool, notes: list[str]
) -> list[StaleEntry]:
    """Deletes stale entries. A failure is a note: the rules are right, and new flows follow them."""
    desired, programmed = desired_addresses(family.rendered.state), programmed_addresses(before)
    try:
        stale = clean_flows(namespace, family.family, desired, programmed, dry_run=dry_run)
    except LinuxError as error:
        notes.append(f"{family.family.value}: stale connection tracking entries were not all removed: {error}")
        return []
    return [_entry(family, each) for each in stale]


def _entry(family: PreparedFamily, stale: StaleFlow) -> StaleEntry:
    return StaleEntry(family.family.value, stale.service, str(stale.flow), stale.reason)
