"""Drift: every difference between what the kernel should hold and what it holds, each with its Service and its meaning.

Reading only. `repair` writes exactly what was found, nothing else, by the same means as `apply`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.cluster.snapshot.inferred import Inferred, InferredConfigs
from kproxy.cluster.snapshot.layout import host_file
from kproxy.errors import KproxyError
from kproxy.linux.errors import INTERRUPTS, ApplyFailedError, KernelState, LinuxError
from kproxy.linux.host.rules import output_of
from kproxy.linux.iptables.executor import COMMAND, IptablesExecutor, find_iptables, installed
from kproxy.linux.iptables.variant import Choice
from kproxy.linux.namespace import Namespace
from kproxy.linux.programs import find_program
from kproxy.linux.sync.apply import apply_prepared, prepare_node
from kproxy.linux.sync.backend import NodeRequest, Prepared
from kproxy.linux.sync.cleanup import cleanup_other_mode
from kproxy.linux.sync.finding import Drift
from kproxy.linux.sync.iptables.reconcile import cleanup_tables
from kproxy.linux.sync.report import Stopwatch
from kproxy.render.nftables.names import TABLE
from kproxy.services.names import IPFamily

NO_MATTER: Final = frozenset({"canary-missing", "chain-extra", "set-extra"})
"""Kinds of findings that no packet meets."""


_IPV6: Final = Path("/proc/sys/net/ipv6")
"""There if the kernel has IPv6."""


class CannotTellError(KproxyError):
    """Whether there is drift is unknown."""

    exit_code = 2


class DriftReport(msgspec.Struct, frozen=True, rename="camel"):
    """All that was found.

    Attributes:
        packets: what the data-plane model says of it.
        repaired: whether it was mended; None if that was not asked for.
        unread: families whose rules could not be looked at, although the host may have some: their iptables is not
            installed. `notes` say more.
        unjudged: Services of which nobody gave the endpoints, and the node has rules, if there are some.
        moving: how many more differences from a live cluster were gone when it was read again, if there are some.
    """

    node: str
    where: str
    variant: str
    variant_reason: str
    findings: tuple[Drift, ...]
    notes: tuple[str, ...] = ()
    packets: tuple[str, ...] = ()
    repaired: bool | None = None
    unread: tuple[str, ...] = ()
    unjudged: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    moving: int | msgspec.UnsetType = msgspec.UNSET


def find_drift(request: NodeRequest, namespace: Namespace, *, repair: bool = False) -> DriftReport:
    """Compares a namespace with a node's rules.

    Where kube-proxy's configuration is not known, that which the rules themselves tell counts if they differ less from
    it than from the defaults, as they do behind `kproxy run --cluster-cidr ...`; the report notes it.

    Args:
        repair: mend what is found.

    Raises:
        CannotTellError: it cannot be read.
        LinuxError: it could not be mended; ApplyFailedError says what state that left.
    """
    report, mend = _find(request, namespace, repair)
    if report.findings and not request.config_known:
        with _telling(repair):
            told = _told_by_rules(request, namespace)
        if told is not None and told.config != request.config:
            as_told = msgspec.structs.replace(request, config=told.config)
            other, mend_other = _find(as_told, namespace, repair)
            if len(other.findings) < len(report.findings):
                note = f"kube-proxy's configuration is not known; {told.words}, as the rules have it"
                report, mend = msgspec.structs.replace(other, notes=(note, *other.notes)), mend_other
    if not repair:
        return report
    if report.findings:
        mend()
    return msgspec.structs.replace(report, repaired=bool(report.findings))


def _told_by_rules(request: NodeRequest, namespace: Namespace) -> Inferred | None:
    """The configuration that the rules of a namespace show, None if kube-proxy has none there."""
    name = request.target.node_name
    files = MemoryFiles(namespace.label)
    for family in IPFamily:
        for variant, binaries in installed(family).items():
            text = IptablesExecutor(namespace, binaries, lock_wait=request.lock_wait).save(counters=False)
            path = host_file(name, f"{COMMAND[family]}-{variant.value}-save")
            files.put(path, text.encode("utf-8", "surrogateescape"))
    if find_program("nft") is not None:
        files.put(host_file(name, "nft"), output_of(namespace, ["nft", "list", "ruleset"]).encode())
    nodes = () if request.target.node is None else (request.target.node,)
    return InferredConfigs({name: HostFacts(files, name)}, nodes).of(name)


def _find(request: NodeRequest, namespace: Namespace, repair: bool) -> tuple[DriftReport, Callable[[], None]]:
    """The differences from a configuration's rules, and what mends them."""
    with _telling(repair):
        prepared = prepare_node(request, namespace, writes=repair)
        findings: list[Drift] = []
        packets: list[str] = []
        notes = list(prepared.notes)
        for family in prepared.families:
            own = family.compare(namespace)
            findings += own.findings
            notes += own.notes
            if services := {each.service for each in own.findings if each.kind not in NO_MATTER}:
                # Imported here: it costs as much as all else, and most often there is no drift.
                from kproxy.linux.drift.judge import packet_effects

                told = packet_effects(family, own, namespace, services)
                packets += [f"{family.family.value}: {text}" for text in told]
        choice = prepared.host.choice
        if choice is not None:
            findings += _other_variant(choice)
        findings += _other_mode(request, namespace, prepared.families)

    def mend() -> None:
        apply_prepared(request, prepared, namespace, Stopwatch())
        if choice is not None:
            for family in choice.others:
                tools = find_iptables(family, choice.variant.other)
                cleanup_tables(IptablesExecutor(namespace, tools, lock_wait=request.lock_wait))

    # Families that this host's kernel has and whose iptables is not installed.
    missing = [f for f in IPFamily if choice is not None and f not in choice.tools and not request.families]
    report = DriftReport(
        request.target.node_name,
        namespace.label,
        prepared.host.variant,
        prepared.host.reason,
        tuple(findings),
        tuple(notes),
        tuple(packets),
        unread=tuple(family.value for family in missing if family is IPFamily.IPV4 or _IPV6.exists()),
    )
    return report, mend


@contextlib.contextmanager
def _telling(repair: bool) -> Iterator[None]:
    """Turns what keeps drift from being found into errors that say so."""
    try:
        yield
    except LinuxError as error:
        raise CannotTellError(f"whether there is drift is unknown: {error}") from error
    except INTERRUPTS as error:
        if repair:  # --repair reports that nothing had to change
            raise ApplyFailedError("interrupted", KernelState.UNCHANGED) from error
        raise


def _other_mode(request: NodeRequest, namespace: Namespace, families: Sequence[Prepared]) -> Iterator[Drift]:
    """Rules of the mode that is not in use: a finding for each family and variant that has some."""
    mode, own = request.config.mode, tuple(family.family for family in families)
    for left in cleanup_other_mode(mode, namespace, own, dry_run=True, lock_wait=request.lock_wait):
        native = left.variant == MODE_NFTABLES
        what = f"{left.chains_deleted} chains of {'nftables' if native else 'iptables'} mode"
        if left.chains_deleted or left.sets_deleted:
            yield Drift(
                left.family,
                left.variant,
                "other-mode",
                TABLE if native else "",
                "",
                f"packets meet kube-proxy's rules of both modes: {what} send traffic where they were told to last",
            )


def _other_variant(choice: Choice) -> Iterator[Drift]:
    """Rules in the other variant: a finding for each table that has some, which names the chains."""
    variant = choice.variant.other
    for family, refs in choice.others.items():
        for table in dict.fromkeys(table for table, _ in refs):
            chains = [chain for each, chain in refs if each == table]
            yield Drift(
                family.value,
                variant.value,
                "other-variant",
                table,
                "",
                f"packets meet kube-proxy's rules of both variants: {len(chains)} chains of the {variant.value} "
                "variant still send traffic where they were told to last",
                found=" ".join(chains),
            )
