"""`apply`: brings a namespace, or the machine itself, to the rules of a node; both families, conntrack included.

`prepare_host` finds out what this host can do in a mode, which is where a mode becomes a backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPVS, MODE_NFTABLES
from kproxy.cluster.stale_flows import Addresses, desired_addresses, merge_addresses
from kproxy.linux.conntrack.flows import clean_flows, table_full
from kproxy.linux.errors import INTERRUPTS, ApplyFailedError, KernelState, LinuxError, failure_message
from kproxy.linux.iptables.legacy import DEFAULT_WAIT
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.backend import Host, NodeRequest, Prepared
from kproxy.linux.sync.cleanup import cleanup_other_mode
from kproxy.linux.sync.family_syncer import NO_ADDRESSES
from kproxy.linux.sync.iptables.backend import prepare_iptables
from kproxy.linux.sync.nftables.backend import prepare_nftables
from kproxy.linux.sync.report import APPLIED, NOTHING, CleanedTables, FamilyReport, Progress, StepTime, Stopwatch
from kproxy.netfilter.hooks import Variant
from kproxy.render import Features
from kproxy.services import IPFamily


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
            try:
                report, before = family.reconcile(namespace, dry_run=dry_run, progress=progress)
            except (LinuxError, *INTERRUPTS) as error:
                raise family_failure(error, family.family.value, _written(reports)) from error
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
    return [StaleEntry(family.family.value, each.service, str(each.flow), each.reason) for each in stale]


class PreparedNode(msgspec.Struct, frozen=True):
    """The host, and the families of the node that can be programmed."""

    host: Host
    families: tuple[Prepared, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know."""
        return (*self.host.general_notes, *(note for family in self.families for note in family.notes))


def prepare_host(
    mode: str,
    namespace: Namespace,
    families: tuple[IPFamily, ...] = (),
    variant: Variant | None = None,
    features: Features | None = None,
    lock_wait: float = DEFAULT_WAIT,
    *,
    writes: bool = True,
) -> Host:
    """Finds out what the host can do in a mode.

    Args:
        families: those that must work; both if empty, as far as the host has them.
        variant: of iptables; None for auto.
        features: which optional features to use if the host has them.
        lock_wait: seconds to wait for the xtables lock.
        writes: whether the namespace may be written to: counters, and rules to try where no scratch namespace can be
            made.

    Raises:
        LinuxError: it cannot be programmed.
    """
    features = features or Features(nfacct=mode != MODE_NFTABLES)
    if mode == MODE_NFTABLES:
        return prepare_nftables(namespace, families, features)
    if mode == MODE_IPVS:
        from kproxy.linux.sync.ipvs_host import ipvs_host  # what few need

        plain = msgspec.structs.replace(features, nfacct=False)
        return ipvs_host(prepare_iptables(namespace, families, variant, plain, lock_wait, writes=writes))
    return prepare_iptables(namespace, families, variant, features, lock_wait, writes=writes)


def prepare_node(request: NodeRequest, namespace: Namespace, *, writes: bool) -> PreparedNode:
    """Finds out what the host can do and renders for it. Raises as `prepare_host`."""
    wanted = (request.families, request.variant, request.features, request.lock_wait)
    host = prepare_host(request.config.mode, namespace, *wanted, writes=writes)
    return PreparedNode(host, tuple(family.render(request) for family in host.families))


def interrupted_after_rules(right: Sequence[str], left: Sequence[str], written: Sequence[str]) -> ApplyFailedError:
    """The error for an interruption after the rules of a family.

    Args:
        right: the families whose rules are right by now.
        left: those that nothing was done to yet.
        written: those of `right` that were written to.
    """
    what = "interrupted: stale connection tracking entries may be left"
    if not written:
        return ApplyFailedError(what, KernelState.UNCHANGED)
    if not left:
        return ApplyFailedError(what, KernelState.APPLIED)
    detail = f"the rules of {' and '.join(written)} are applied, those of {' and '.join(left)} are unchanged"
    return ApplyFailedError(what, KernelState.PARTLY_APPLIED, detail)


def family_failure(error: BaseException, family: str, written: Sequence[str]) -> ApplyFailedError:
    """An error of one family that names it, and those that were written to before it."""
    state = error.state if isinstance(error, ApplyFailedError) else KernelState.UNCHANGED
    detail = error.detail if isinstance(error, ApplyFailedError) else ""
    what = failure_message(error)
    if written:
        tail = f"the rules of {' and '.join(written)} are applied, those of {family} are {state.value}"
        detail = f"{tail}: {detail}" if detail and state is not KernelState.APPLIED else tail
        return ApplyFailedError(f"{family}: {what}", KernelState.PARTLY_APPLIED, detail)
    if state is KernelState.APPLIED:
        detail = f"those of {family}"
    return ApplyFailedError(f"{family}: {what}", state, detail)
