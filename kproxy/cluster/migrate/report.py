"""The report: findings of all nodes and families, grouped by reason, as `kproxy migrate -o json` prints it.

docs/migrate.md describes the fields. `today` is the mode that is left, `then` the one that is switched to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES
from kproxy.cluster.evidence.unseen import IPVS
from kproxy.cluster.fates import shares
from kproxy.cluster.migrate import ids
from kproxy.cluster.migrate.analysis import Analysis, Found
from kproxy.cluster.migrate.reason import Advice, Effort, said
from kproxy.cluster.migrate.reasons import FOREIGN, REASONS
from kproxy.cluster.migrate.ruled_out import Absent, absent, hidden
from kproxy.cluster.migrate.witness import Witness, is_fully_random
from kproxy.cluster.node import AddressKind, NodeFacts
from kproxy.dataplane import ACCEPT, Outcome, TraceResult, format_endpoint
from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.model.packet import LOCAL
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name
from kproxy.netfilter.iptables.codec import UINT32

_ORDER: Final = {reason.id: place for place, reason in enumerate((*FOREIGN, *REASONS))}
FIREWALL_SETTING: Final = "on a host whose policies of INPUT and FORWARD are DROP"
DUMP_SETTING: Final = "with the other rules of the node's dump"
_FEW_ADDRESSES: Final = 2
_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*")
OTHER_TITLE: Final = "Something else"
OTHER_ADVICE: Final = Advice(
    "act",
    "See what becomes of the packet.",
    "No known difference of the modes: look at the packet, and trace others like it with kproxy trace.",
)
EFFORTS: Final[tuple[Effort, ...]] = ("act", "look", "after", "none")
"""In the order of the report."""


class FateRecord(msgspec.Struct, frozen=True):
    """One thing that can become of the packet.

    Attributes:
        chance: exact, as `1/3`; what iptables rounds to 31 bits and nftables to 32 is said as it is meant.
        verdict: ACCEPT, DROP or REJECT.
        text: in words.
        path: the rules that matched, in order.
        src, dst: the packet's `IP:PORT` at the end if it is accepted; a masqueraded source has no port.
        local: whether the node's own programs get it.
    """

    chance: str
    verdict: str
    text: str
    path: tuple[str, ...]
    src: str = ""
    dst: str = ""
    local: bool = False


class KernelAnswer(msgspec.Struct, frozen=True):
    """What the kernel did with a witness, in a namespace with each mode's rules.

    Attributes:
        verdict: `confirmed`; `refuted`: a kernel did what the model does not say; `not shown by one packet`: each did
            what the model says, and that is the same; `not sent`.
        today, then: what was seen, in words. reason: of `not sent` and `refuted`.
    """

    verdict: str
    today: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    reason: str = ""


Confirm = Callable[[NodeFacts, Found], KernelAnswer]


class WitnessRecord(
    msgspec.Struct,
    frozen=True,
    rename={"in_": "in", "local_addresses": "localAddresses", "address_kind": "addressKind"},
):
    """A packet that shows the difference.

    Attributes:
        setting: what else must hold of the host, in words.
        service: `namespace/name` of the Service whose address, or node port, it is sent to; "" if it is none's.
        address_kind: which of its addresses that is, as `AddressKind` has them.
        hypothetical: whether the node is known not to be as `setting` says, so that the packet cannot come there.
    """

    text: str
    family: str
    src: str
    dst: str
    proto: str
    origin: str
    in_: str
    mark: int
    ctstate: str
    local_addresses: tuple[str, ...]
    setting: str
    today: tuple[FateRecord, ...]
    then: tuple[FateRecord, ...]
    service: str = ""
    address_kind: AddressKind = ""
    hypothetical: bool = False
    kernel: KernelAnswer | None = None


class ModeChange(msgspec.Struct, frozen=True):
    """One thing that changes.

    Attributes:
        reason: its identifier, see `ids`.
        nodes, families: where it holds.
        services: `namespace/name` of those concerned. addresses: addresses and ports concerned.
        today, then: what happens in each mode.
        advice: what to do about it. effort, do: that in a word, and in a few. config: a line of configuration, or a
            command, that does it; "" if there is none.
    """

    reason: str
    title: str
    nodes: tuple[str, ...]
    families: tuple[str, ...]
    services: tuple[str, ...]
    addresses: tuple[str, ...]
    today: str
    then: str
    advice: tuple[str, ...]
    witness: WitnessRecord | None
    effort: Effort
    do: str = ""
    config: str = ""


class NotDecided(msgspec.Struct, frozen=True):
    """What the model cannot decide; `hides` are identifiers of the known differences that may be there for that."""

    node: str
    family: str
    where: str
    reason: str
    hides: tuple[str, ...] = ()


class Kernel(msgspec.Struct, frozen=True):
    """The kernel of a node, as its Node object tells; `fits` whether it is new enough for nftables mode."""

    node: str
    version: str
    fits: bool


class MigrateReport(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """The whole answer.

    Attributes:
        changes: whether anything does, or may.
        needs: what each node must have.
        tried: how many packets met the rules of a dump.
        absent: the known differences that were looked for and do not show.
        kernels: those of the nodes whose Node objects tell them, on the way to nftables mode.
    """

    from_: str
    to: str
    nodes: tuple[str, ...]
    families: tuple[str, ...]
    services: int
    changes: bool
    findings: tuple[ModeChange, ...]
    undecided: tuple[NotDecided, ...]
    needs: tuple[str, ...] = ()
    tried: int = 0
    absent: tuple[Absent, ...] = ()
    kernels: tuple[Kernel, ...] = ()

    @property
    def hidden(self) -> tuple[str, ...]:
        """The titles of the known differences that what was not seen may hide, and nothing shows."""
        names = {each for row in self.undecided for each in row.hides} - {each.reason for each in self.findings}
        return tuple(reason.title for reason in (*FOREIGN, *REASONS) if reason.id in names)


def build_report(
    analyses: Sequence[Analysis],
    *,
    to_nftables: bool,
    confirm: Confirm | None = None,
    needs: Sequence[str] = (),
    least_kernel: tuple[int, int] | None = None,
) -> MigrateReport:
    """Group what was found on all nodes: findings that read alike are one, with the first one's witness.

    `confirm` is asked what the kernel does with each witness that is shown. `needs` is what each node must have, and
    `least_kernel` the kernel of that, major and minor.
    """
    groups: dict[tuple[object, ...], list[ModeChange]] = {}
    for analysis in analyses:
        for found in analysis.found:
            finding = _finding(analysis.facts, found, to_nftables)
            key = (finding.reason, finding.today, finding.then, finding.addresses if found.reason is None else ())
            # The first one that a node can meet is shown.
            is_shown = all(map(_is_hypothetical, groups.get(key, ())))
            if is_shown and analysis.is_of_fewer:
                finding = _finding(analysis.facts, analysis.shown(found), to_nftables)
            if is_shown and confirm is not None and finding.witness is not None:
                witness = msgspec.structs.replace(finding.witness, kernel=confirm(analysis.facts, found))
                finding = msgspec.structs.replace(finding, witness=witness)
            groups.setdefault(key, []).append(finding)
    findings = sorted(map(_merged, groups.values()), key=_place)
    undecided = tuple(each for analysis in analyses for each in _undecided(analysis))
    before, then = (MODE_IPTABLES, MODE_NFTABLES) if to_nftables else (MODE_NFTABLES, MODE_IPTABLES)
    if any(gap.what == IPVS for analysis in analyses for gap in analysis.unseen):
        before = MODE_IPVS
    services = {port.name.service for analysis in analyses for port in analysis.facts.service_ports}
    return MigrateReport(
        before,
        then,
        nodes=_unique(analysis.facts.target.node_name for analysis in analyses),
        families=_unique(analysis.facts.family.value for analysis in analyses),
        services=len(services),
        changes=bool(findings or undecided),
        findings=tuple(findings),
        undecided=undecided,
        needs=tuple(needs),
        tried=sum(analysis.tried for analysis in analyses),
        absent=tuple(absent(analyses, {each.reason for each in findings})),
        kernels=tuple(_kernels(analyses, least_kernel)),
    )


def _undecided(analysis: Analysis) -> Iterator[NotDecided]:
    node, family = analysis.facts.target.node_name, analysis.facts.family.value
    for gap in analysis.unseen:
        yield NotDecided(node, family, gap.what, gap.why, hidden(analysis, gap.what))
    for each in analysis.undecided:
        yield NotDecided(node, family, each.where, each.reason)


def _kernels(analyses: Sequence[Analysis], least: tuple[int, int] | None) -> Iterator[Kernel]:
    nodes = {each.facts.target.node_name: each.facts.target.node for each in analyses}
    for name, node in nodes.items():
        found = _VERSION.match(node.kernel_version) if node is not None else None
        if found is not None and least is not None:
            yield Kernel(name, found[0], (int(found[1]), int(found[2])) >= least)


def _place(finding: ModeChange) -> tuple[int, int]:
    """What is to be done first comes first, and of that what most traffic meets."""
    return EFFORTS.index(finding.effort), _ORDER.get(finding.reason, -1)


def _is_hypothetical(finding: ModeChange) -> bool:
    return finding.witness is not None and finding.witness.hypothetical


def _merged(findings: Sequence[ModeChange]) -> ModeChange:
    first = next((each for each in findings if not _is_hypothetical(each)), findings[0])
    return msgspec.structs.replace(
        first,
        nodes=_unique(node for each in findings for node in each.nodes),
        families=_unique(family for each in findings for family in each.families),
        services=tuple(sorted({service for each in findings for service in each.services})),
        addresses=_unique(address for each in findings for address in each.addresses),
    )


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _finding(facts: NodeFacts, found: Found, to_nftables: bool) -> ModeChange:
    reason, difference = found.reason, found.difference
    if reason is not None:
        title, advice = said(reason.case or reason.title, facts), reason.advice(to_nftables=to_nftables)
        services, addresses = reason.services(facts), reason.addresses(facts)
        words = (said(reason.iptables, facts), said(reason.nftables, facts))
    else:
        assert difference is not None
        where = f"{', '.join(difference.destinations)} from {difference.sources}"
        title, services, addresses, advice = OTHER_TITLE, iter(()), iter((where,)), OTHER_ADVICE
        words = (f"iptables mode {difference.one}", f"nftables mode {difference.other}")
    do = said(advice.do, facts)
    sentences = [advice.sentence or do, *filter(None, [advice.without_dump])]
    today, then = words if to_nftables else words[::-1]
    setting = ""
    if found.with_dump:
        setting = DUMP_SETTING
        sentences = sentences[:1]
    elif reason is not None and reason.firewall:
        setting = FIREWALL_SETTING
    return ModeChange(
        found.id,
        title,
        (facts.target.node_name,),
        (facts.family.value,),
        tuple(sorted(set(services))),
        _unique([*addresses, *found.rules]),
        today,
        then,
        tuple(sentences),
        None if found.witness is None else witness_record(facts, found, found.witness, to_nftables, setting),
        advice.effort,
        do,
        said(advice.config, facts),
    )


# witnesses


def witness_record(facts: NodeFacts, found: Found, witness: Witness, to_nftables: bool, setting: str) -> WitnessRecord:
    """The witness of a finding."""
    candidate = witness.candidate
    traces = (witness.iptables, witness.nftables)
    situation = candidate.iptables if to_nftables else candidate.nftables
    by_device = len({devices for each in traces for outcome in each.outcomes if (devices := _devices(outcome))}) > 1
    today, then = traces if to_nftables else traces[::-1]
    packet, family = situation.packet, situation.packet.family
    own = sorted(address for kind, address in situation.host.local_addresses or () if kind is family)
    own_texts = [format_address(address, family) for address in own]
    hypothetical = False
    if found.id == ids.SESSION_AFFINITY:
        setting = "the mode that is left remembers which endpoint the client has"
    elif not setting and found.reason is not None:
        setting, hypothetical = _of_addresses(facts, own_texts)
    address = "" if packet.dst is None else format_address(packet.dst, family)
    service, address_kind = facts.addressed(address, packet.dport, protocol_name(packet.protocol))
    return WitnessRecord(
        text=situation_text(situation),
        family=family.value,
        src=packet.source,
        dst=packet.destination,
        proto=protocol_name(packet.protocol),
        origin=packet.origin,
        in_=packet.in_interface or "",
        mark=packet.mark,
        ctstate=situation.connection.state or "",
        local_addresses=tuple(own_texts),
        setting=setting,
        today=fates(today, by_device=by_device, by_marks=witness.by_marks),
        then=fates(then, by_device=by_device, by_marks=witness.by_marks),
        service=service,
        address_kind=address_kind,
        hypothetical=hypothetical,
    )


def _of_addresses(facts: NodeFacts, own: Sequence[str]) -> tuple[str, bool]:
    """What a witness presumes of a node's addresses, in words, and whether the node is known not to be so."""
    known = facts.known_addresses
    if gone := [text for text in facts.own_addresses if text not in own]:
        return f"if the node does not have {', '.join(gone)}", False
    more = [text for text in own if text not in known]
    if not more or not known:
        return "", False
    if facts.interfaces_known:
        return f"only on a node that has {', '.join(more)}", True
    return f"if the node has {', '.join(more)} beside {', '.join(known[:_FEW_ADDRESSES])}", False


def situation_text(situation: Situation) -> str:
    """The packet in one line."""
    packet = situation.packet
    parts = [f"{protocol_name(packet.protocol)} {packet.source} → {packet.destination}"]
    parts.append("made by the node" if packet.origin == LOCAL else f"arriving on {packet.in_interface}")
    if situation.connection.state != "NEW":
        parts.append(f"state {situation.connection.state}")
    if packet.mark:
        parts.append(f"mark 0x{packet.mark:x}")
    parts += [f"`{question.text}` {'holds' if answer else 'does not hold'}" for question, answer in situation.assumed]
    return ", ".join(parts)


def fates(result: TraceResult, *, by_device: bool = False, by_marks: bool = False) -> tuple[FateRecord, ...]:
    """What becomes of the packet, likeliest first; outcomes that read alike are one. `by_device` says by which
    interface it leaves, `by_marks` with which marks it ends."""
    first: dict[tuple[str, str], Outcome] = {}

    def key(outcome: Outcome) -> tuple[str, str]:
        text = _outcome_text(outcome)
        if by_device and (devices := _devices(outcome)):
            text += f", by {devices}"
        if by_marks and outcome.verdict == ACCEPT:
            text += f", {_marks_text(outcome)}"
        first.setdefault((outcome.verdict, text), outcome)
        return outcome.verdict, text

    rounded = {each: chance.limit_denominator(10_000) for each, chance in shares(result, key).items()}
    return tuple(
        _fate(first[each], str(chance), each[1])
        for each, chance in sorted(rounded.items(), key=lambda item: (-item[1], item[0]))
    )


def _fate(outcome: Outcome, chance: str, text: str) -> FateRecord:
    path = tuple(f"{step.table} {step.chain} {step.rule}" for step in outcome.path)
    if outcome.verdict != ACCEPT:
        return FateRecord(chance, outcome.verdict, text, path)
    return FateRecord(chance, outcome.verdict, text, path, outcome.src, outcome.dst, outcome.via == "local")


def _devices(outcome: Outcome) -> str:
    """By which interface it leaves, or may leave; "" if it does not or that is not known."""
    return " or ".join(sorted({each.device for each in outcome.possible or (outcome,)} - {""}))


def _marks_text(outcome: Outcome) -> str:
    entry = outcome.connection
    text = f"mark {_mark_text(outcome.packet.mark, outcome.packet.mark_known)}"
    if entry is None or not (entry.mark or ~entry.mark_known & UINT32):
        return text
    return f"{text}, connection mark {_mark_text(entry.mark, entry.mark_known)}"


def _mark_text(mark: int, known: int) -> str:
    unsure = ~known & UINT32
    return f"0x{mark:x}, or with 0x{unsure:x} in it" if unsure else f"0x{mark:x}"


def _outcome_text(outcome: Outcome) -> str:
    packet: Family = outcome.packet.family
    if outcome.verdict == "REJECT":
        return f"rejected ({outcome.reject})"
    if outcome.verdict == "DROP":
        return f"dropped{f': {outcome.reason}' if outcome.reason else ''}"
    if outcome.verdict != "ACCEPT":
        return "not decided"
    where = format_endpoint(packet, outcome.packet.dst, outcome.packet.dport)
    text = f"to {where}" if outcome.dnat else f"passed on, to {where} as it is"
    if outcome.via == "local":
        text = f"to {where} on the node itself" if outcome.dnat else "to the node's own programs"
    if outcome.snat:
        text += ", source rewritten" + (" (random port)" if is_fully_random(outcome) else "")
    return text
