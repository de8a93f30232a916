"""Drift: every difference between what the kernel should hold and what it holds, each with its Service and its meaning.

Reading only. `repair` writes exactly what was found, nothing else, by the same means as `apply`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.cluster.snapshot.inferred import Inferred, InferredConfigs
from kproxy.cluster.snapshot.layout import host_file
from kproxy.cluster.stale_flows import desired_addresses
from kproxy.errors import KproxyError
from kproxy.linux.conntrack.stale import clean_flows
from kproxy.linux.drift import explain
from kproxy.linux.drift.finding import Compared, Drift, rule_changes
from kproxy.linux.drift.samples import packet_effects
from kproxy.linux.drift.tables import compare_table
from kproxy.linux.errors import INTERRUPTS, ApplyFailedError, KernelState, LinuxError, failure_message
from kproxy.linux.host.rules import output_of
from kproxy.linux.iptables.binaries import COMMAND, find_iptables, installed
from kproxy.linux.iptables.canonical import ChainRef, same_rule
from kproxy.linux.iptables.executor import IptablesExecutor
from kproxy.linux.iptables.ownership import TABLES, services_of_chains
from kproxy.linux.iptables.variant import Choice
from kproxy.linux.namespace import Namespace
from kproxy.linux.programs import find_program
from kproxy.linux.sync.backend import NodeRequest, Prepared
from kproxy.linux.sync.cleanup import cleanup_other_mode, cleanup_tables
from kproxy.linux.sync.desired import DesiredRules
from kproxy.linux.sync.difference import Difference, find_difference
from kproxy.linux.sync.iptables_host import PreparedFamily
from kproxy.linux.sync.nftables_host import PreparedTable
from kproxy.linux.sync.partial_failure import family_failure, interrupted_after_rules
from kproxy.linux.sync.prepare import prepare_node
from kproxy.linux.sync.reconcile import read_dump
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.text import SaveText, service_of
from kproxy.render.iptables.chains import CANARY, NAT
from kproxy.render.nftables.names import TABLE
from kproxy.render.origin import Origin
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
        compared = {family.family: _compare(family, namespace) for family in prepared.families}
        findings: list[Drift] = []
        packets: list[str] = []
        notes = list(prepared.notes)
        for family, own in compared.items():
            findings += own.findings
            if services := {each.service for each in own.findings if each.kind not in NO_MATTER}:
                packets += [f"{family.value}: {text}" for text in own.packets(services)]
            notes += own.notes
        choice = prepared.host.choice
        if choice is not None:
            findings += _other_variant(choice)
        findings += _other_mode(request, namespace, prepared.families)

    def mend() -> None:
        _repair_families(prepared.families, {family: own.differs for family, own in compared.items()}, namespace)
        if choice is not None:
            for family in choice.others:
                tools = find_iptables(family, choice.variant.other)
                cleanup_tables(IptablesExecutor(namespace, tools, lock_wait=request.lock_wait))
        _clean_other_mode(request, namespace, prepared.families)

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


def _compare(family: Prepared, namespace: Namespace) -> Compared:
    if isinstance(family, PreparedTable):
        return compare_table(family, namespace)
    assert isinstance(family, PreparedFamily)
    dump = family.found or read_dump(family.executor, counters=False)
    difference = find_difference(family.desired, dump)
    return Compared(
        bool(difference),
        family_findings(family.desired, dump, difference, family.executor.variant),
        lambda services: packet_effects(family, namespace, dump, difference, services),
    )


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
        if left.variant == MODE_NFTABLES:
            what, table = f"{left.chains_deleted} chains of nftables mode", TABLE
        else:
            what, table = f"{left.chains_deleted} chains of iptables mode", ""
        if left.chains_deleted or left.sets_deleted:
            yield Drift(
                left.family,
                left.variant,
                "other-mode",
                table,
                "",
                f"packets meet kube-proxy's rules of both modes: {what} send traffic where they were told to last",
            )


def _clean_other_mode(request: NodeRequest, namespace: Namespace, families: Sequence[Prepared]) -> None:
    own = tuple(family.family for family in families)
    try:
        cleanup_other_mode(request.config.mode, namespace, own, lock_wait=request.lock_wait)
    except (LinuxError, *INTERRUPTS) as error:
        what = f"kube-proxy's rules of the other mode were not all removed: {failure_message(error)}"
        raise ApplyFailedError(what, KernelState.APPLIED) from error


def _repair_families(families: Sequence[Prepared], differing: Mapping[IPFamily, bool], namespace: Namespace) -> None:
    names = [family.family.value for family in families]
    written: list[str] = []
    for index, family in enumerate(families):
        if differing[family.family]:
            try:
                _, before = family.reconcile(namespace)
            except (LinuxError, *INTERRUPTS) as error:
                raise family_failure(error, family.family.value, written) from error
            written.append(family.family.value)
            try:
                # Flows that wrong rules led astray would stay so.
                clean_flows(namespace, family.family, desired_addresses(family.state), before())
            except INTERRUPTS as error:
                raise interrupted_after_rules(names[: index + 1], names[index + 1 :], written) from error


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


def family_findings(desired: DesiredRules, dump: SaveText, difference: Difference, variant: Variant) -> list[Drift]:
    """All findings of one family, in the order of tables and chains."""
    if not difference and not difference.faults:
        return []
    return list(_Finder(desired, dump, difference, variant).findings())


class _Finder:
    def __init__(self, desired: DesiredRules, dump: SaveText, difference: Difference, variant: Variant) -> None:
        self._desired = desired
        self._dump = dump
        self._difference = difference
        self._names = (desired.family.value, variant.value)
        self._origins = desired.origins()
        self._old_owners: dict[str, str] | None = None

    def findings(self) -> Iterator[Drift]:
        for table in self._difference.dormant:
            what = "no Service works" if table == NAT else "what they do is not done"
            yield self._make("table-dormant", (table, ""), f"the kernel calls none of its chains: {what}", "")
        yield from self._flushed()
        for ref in self._difference.writes:
            yield from self._missing(ref) if ref in self._difference.missing else self._differing(ref)
        for table, chain in self._difference.deletions:
            service = self._owner(chain)
            what = "no rule of kube-proxy's leads to it, so it does nothing until one does"
            yield self._make("chain-extra", (table, chain), what, service)
        for fault in self._difference.faults:
            text = explain.faulty_jump(fault.table, fault.chain, fault.kind, fault.rule)
            desired, found = ("", fault.rule) if fault.kind == "extra" else (fault.rule, "")
            yield self._make(f"jump-{fault.kind}", (fault.table, fault.chain), text, "", 0, desired, found)

    def _make(
        self,
        kind: str,
        ref: ChainRef,
        text: str,
        service: str,
        rule: int = 0,
        desired: str = "",
        found: str = "",
    ) -> Drift:
        return Drift(*self._names, kind, *ref, text, service, rule, desired, found)

    def _flushed(self) -> Iterator[Drift]:
        for table in TABLES:
            refs = [ref for ref in self._desired.chains if ref[0] == table]
            full = [ref for ref in refs if self._desired.chains[ref]] or refs
            if full and all(self._is_empty(ref) for ref in full):
                what = "no Service works" if table == NAT else "what they do is not done"
                text = f"kube-proxy's chains in it are gone or empty: {what}"
                yield self._make("table-flushed", (table, ""), text, "")

    def _is_empty(self, ref: ChainRef) -> bool:
        chain = self._dump.chain(*ref)
        return chain is None or (bool(self._desired.chains[ref]) and not chain.rules)

    def _missing(self, ref: ChainRef) -> Iterator[Drift]:
        owner = self._desired.owners.get(ref[1])
        service = str(owner) if owner is not None and ref[0] == NAT else ""
        kind = "canary-missing" if ref[1] == CANARY else "chain-missing"
        yield self._make(kind, ref, explain.missing_chain(*ref, service), service)
        for number, (rule, origin) in enumerate(self._with_origins(ref), 1):
            yield self._rule("rule-missing", ref, number, rule, "", explain.missing_rule(origin), origin)

    def _with_origins(self, ref: ChainRef) -> list[tuple[str, Origin | None]]:
        rules = self._desired.rules(ref)
        origins: Sequence[Origin | None] = self._origins.get(ref, ())
        if len(origins) != len(rules):
            origins = [None] * len(rules)
        return list(zip(rules, origins, strict=True))

    def _rule(
        self, kind: str, ref: ChainRef, number: int, desired: str, found: str, text: str, origin: Origin | None
    ) -> Drift:
        if origin is not None:
            service = str(origin.service_port) if origin.service_port else ""
        else:
            service = service_of(found) or self._owner(ref[1])
        return self._make(kind, ref, text, service, number, desired, found)

    def _owner(self, chain: str) -> str:
        known = self._desired.owners.get(chain)
        if known is not None:
            return str(known)
        if self._old_owners is None:
            self._old_owners = services_of_chains(self._dump)
        return self._old_owners.get(chain, "")

    def _differing(self, ref: ChainRef) -> Iterator[Drift]:
        rules = self._with_origins(ref)
        desired = [rule for rule, _ in rules]
        chain = self._dump.chain(*ref)
        real = _spelled_alike(desired, list(chain.rules) if chain else [], self._desired.family)
        for change in rule_changes(desired, real):
            origin = None
            if change.kind == "rules-reordered":
                service = self._owner(ref[1])
                text = explain.reordered_rules(ref[1], service)
                yield self._make(change.kind, ref, text, service, change.at + 1, change.wanted, change.found)
                continue
            if change.kind == "rule-extra":
                text = explain.extra_rule(ref[1], change.found, service_of(change.found) or self._owner(ref[1]))
            else:
                origin = rules[change.at][1]
                text = (explain.altered_rule if change.found else explain.missing_rule)(origin)
            yield self._rule(change.kind, ref, change.at + 1, change.wanted, change.found, text, origin)


def _spelled_alike(desired: list[str], real: list[str], family: IPFamily) -> list[str]:
    """The real rules; those that mean the same as a desired one are spelled as that one."""
    known = set(desired)
    unknown = [rule for rule in desired if rule not in set(real)]
    if not unknown:
        return real
    return [
        rule if rule in known else next((other for other in unknown if same_rule(rule, other, family)), rule)
        for rule in real
    ]
