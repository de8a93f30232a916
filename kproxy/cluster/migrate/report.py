"""The report: findings of all nodes and families, grouped by reason, as `kproxy migrate -o json` prints it.

docs/migrate.md describes the fields. `today` is the mode that is left, `then` the one that is switched to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, get_args

import msgspec

from kproxy.cluster.evidence.unseen import CLUSTER_IPS, ENDPOINTS, NODE_ADDRESSES, NODE_PORTS
from kproxy.cluster.migrate.affected_services import nobody
from kproxy.cluster.migrate.analysis import Analysis, Found
from kproxy.cluster.migrate.from_ipvs import IPVS_REASONS
from kproxy.cluster.migrate.reasons import FOREIGN, REASONS, Effort, Reason, said
from kproxy.cluster.migrate.switch import Switch
from kproxy.cluster.migrate.witness import fates_differ, is_fully_random
from kproxy.cluster.node import AddressKind, NodeFacts
from kproxy.dataplane import ACCEPT, Outcome, TraceResult, format_endpoint
from kproxy.dataplane.compare.outcome_words import summed
from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.model.packet import LOCAL
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name
from kproxy.netfilter.iptables.codec import UINT32

_ORDER: Final = {reason.id: place for place, reason in enumerate((*FOREIGN, *IPVS_REASONS, *REASONS))}
_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*")
NO_PACKET: Final = "No packet of these Services and nodes shows it."
NOT_CONFIGURED: Final = "Neither the configuration nor what is known of ServiceCIDRs and these hosts brings it about."
NO_OTHER_RULES: Final = "These nodes have no rules of other programs."
OTHER_RULES: Final = "Neither other programs' rules in the nodes' dumps show it, nor packets that were tried with them."


class FateRecord(msgspec.Struct, frozen=True):
    """One thing that can become of the packet. `chance`: what iptables rounds to 31 bits and nftables to 32 is said as
    it is meant, `1/3`. `path`: the rules that matched. `local`: whether the node's own programs get it."""

    chance: str
    verdict: str
    text: str
    path: tuple[str, ...]
    src: str = ""
    dst: str = ""
    local: bool = False


class KernelAnswer(msgspec.Struct, frozen=True):
    """What the kernel did with a witness, in a namespace with each mode's rules. `verdict`: `confirmed`; `refuted`, if
    a kernel did what the model does not say; `not shown by one packet`, if each did what the model says, and that is
    the same; `not sent`. `today`, `then`: what was seen."""

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
    """A packet that shows the difference. `setting`: what else must hold of the host; `hypothetical`: whether the node
    is known not to be so. `service`: the one whose address it is sent to, "" if it is none's."""

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
    """One thing that changes. `reason`: its identifier, as `reasons` have them; `nodes`, `families`: where it holds;
    `services`, `addresses`: those concerned; `config`: a line of configuration, or a command, that does it."""

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


class Absent(msgspec.Struct, frozen=True):
    """A known difference that was looked for and does not show: its identifier, and a sentence why."""

    reason: str
    title: str
    why: str


class Kernel(msgspec.Struct, frozen=True):
    """The kernel of a node, as its Node object tells; `fits` whether it is new enough for nftables mode."""

    node: str
    version: str
    fits: bool


class MigrateReport(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """The whole answer. `changes`: whether anything does, or may; `needs`: what each node must have; `tried`: how many
    packets met the rules of a dump; `kernels`: those of nodes whose Node objects tell them."""

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
        return _unique(reason.title for reason in (*FOREIGN, *IPVS_REASONS, *REASONS) if reason.id in names)


def build_report(
    analyses: Sequence[Analysis],
    switch: Switch,
    *,
    confirm: Confirm | None = None,
    needs: Sequence[str] = (),
    least_kernel: tuple[int, int] | None = None,
) -> MigrateReport:
    """Group what was found on all nodes: findings that read alike are one, with the first one's witness.

    `confirm` is asked what the kernel does with each witness that is shown. `needs` is what each node must have, and
    `least_kernel` the kernel of that, major and minor.
    """
    groups: dict[tuple[object, ...], list[_Told]] = {}
    for analysis in analyses:
        for found in analysis.found:
            change = _change(analysis.facts, found, switch)
            key = (change.reason, change.today, change.then, change.addresses if found.difference else ())
            groups.setdefault(key, []).append((analysis, found, change))
    findings = sorted((_merged(group, switch, confirm) for group in groups.values()), key=_place)
    undecided = tuple(each for analysis in analyses for each in _undecided(analysis))
    services = {port.name.service for analysis in analyses for port in analysis.facts.service_ports}
    return MigrateReport(
        *switch,
        nodes=_unique(analysis.facts.target.node_name for analysis in analyses),
        families=_unique(analysis.facts.family.value for analysis in analyses),
        services=len(services),
        changes=bool(findings or undecided),
        findings=tuple(findings),
        undecided=undecided,
        needs=tuple(needs),
        tried=sum(analysis.tried for analysis in analyses),
        absent=tuple(_absent(analyses, {each.reason for each in findings})),
        kernels=tuple(_kernels(analyses, least_kernel)),
    )


def _undecided(analysis: Analysis) -> Iterator[NotDecided]:
    node, family = analysis.facts.target.node_name, analysis.facts.family.value
    for gap in analysis.unseen:
        yield NotDecided(node, family, gap.what, gap.why, _hidden(analysis, gap.what))
    for each in analysis.undecided:
        yield NotDecided(node, family, each.where, each.reason)


def _hidden(analysis: Analysis, what: str) -> tuple[str, ...]:
    """The identifiers of the known differences that may be there on a node and do not show: a thing was not seen."""
    shown = {each.id for each in analysis.found}
    known = sorted(analysis.looked_for, key=lambda reason: _ORDER[reason.id])
    found = (each for each in known if each.id not in shown and each.applies(analysis.facts))
    return _unique(each.id for each in found if _can_hide(what, each))


def _can_hide(what: str, reason: Reason) -> bool:
    """Whether a thing that was not seen, one of a node's rules if nothing else, may hide a known difference."""
    if what in {CLUSTER_IPS, ENDPOINTS, NODE_PORTS}:
        return reason.services is not nobody
    if what == NODE_ADDRESSES:
        return reason.id == "node-port-addresses"
    return _is_of_dump(reason)


def _is_of_dump(reason: Reason) -> bool:
    """Whether only rules of other programs, in a node's dump, bring a difference about."""
    return reason.firewall or reason in FOREIGN


def _absent(analyses: Sequence[Analysis], found: Collection[str]) -> Iterator[Absent]:
    """All that were looked for and are not in `found`, in the report's order; those that only a dump shows, where there
    is one."""
    gaps = [(each, gap.what) for each in analyses for gap in each.unseen]
    if not analyses:
        return
    is_dumped = any(each.foreign is not None for each in analyses)
    looked_for = dict.fromkeys(reason for each in analyses for reason in each.looked_for)
    others = OTHER_RULES if any(each.tried for each in analyses) else NO_OTHER_RULES
    told = {*found, *(reason for each, what in gaps for reason in _hidden(each, what))}
    for reason in looked_for:
        if reason.id not in told:
            told.add(reason.id)
            why = others if is_dumped and _is_of_dump(reason) else NO_PACKET
            applies = any(reason.applies(each.facts) for each in analyses)
            yield Absent(reason.id, reason.title, why if applies else NOT_CONFIGURED)


def _kernels(analyses: Sequence[Analysis], least: tuple[int, int] | None) -> Iterator[Kernel]:
    nodes = {each.facts.target.node_name: each.facts.target.node for each in analyses}
    for name, node in nodes.items():
        found = _VERSION.match(node.kernel_version) if node is not None else None
        if found is not None and least is not None:
            yield Kernel(name, found[0], (int(found[1]), int(found[2])) >= least)


def _place(finding: ModeChange) -> tuple[int, int]:
    """What is to be done first comes first, and of that what most traffic meets."""
    return get_args(Effort).index(finding.effort), _ORDER.get(finding.reason, -1)


_Told = tuple[Analysis, Found, ModeChange]


def _merged(group: Sequence[_Told], switch: Switch, confirm: Confirm | None) -> ModeChange:
    """One of some that read alike, the first that a node can meet, for all of them."""
    analysis, found, first = next(
        (each for each in group if each[2].witness is None or not each[2].witness.hypothetical), group[0]
    )
    if analysis.is_of_fewer:
        first = _change(analysis.facts, analysis.shown(found), switch)
    witness = first.witness
    if witness is not None and confirm is not None:
        witness = msgspec.structs.replace(witness, kernel=confirm(analysis.facts, found))
    changes = [change for _, _, change in group]
    return msgspec.structs.replace(
        first,
        witness=witness,
        nodes=_unique(node for each in changes for node in each.nodes),
        families=_unique(family for each in changes for family in each.families),
        services=tuple(sorted({service for each in changes for service in each.services})),
        addresses=_unique(address for each in changes for address in each.addresses),
    )


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _change(facts: NodeFacts, found: Found, switch: Switch) -> ModeChange:
    reason, difference = found.reason, found.difference
    advice = reason.advice(to_nftables=switch.to_nftables)
    words = (said(reason.first, facts), said(reason.second, facts))
    addresses = [*reason.addresses(facts), *found.rules]
    if difference is not None:
        one, other = switch.modes
        words = (f"{one} mode {difference.one}", f"{other} mode {difference.other}")
        addresses = [f"{', '.join(difference.destinations)} from {difference.sources}"]
    today, then = switch.in_time(words)
    return ModeChange(
        reason.id,
        said(reason.case or reason.title, facts),
        (facts.target.node_name,),
        (facts.family.value,),
        tuple(sorted({port.name.service for port in reason.services(facts)})),
        _unique(addresses),
        today,
        then,
        (advice.sentence or advice.do, *(() if found.with_dump else advice.without_dump)),
        witness_record(facts, found, switch),
        advice.effort,
        advice.do,
        advice.config if isinstance(advice.config, str) else advice.config(facts, switch.to_nftables),
    )


# witnesses


def witness_record(facts: NodeFacts, found: Found, switch: Switch) -> WitnessRecord | None:
    """The witness of a finding, if it has one."""
    if found.witness is None:
        return None
    candidate, traces = found.witness
    by_device = len({devices for each in traces for outcome in each.outcomes if (devices := _devices(outcome))}) > 1
    by_marks = not fates_differ(*traces)
    today, then = switch.in_time(traces)
    situation = switch.in_time(candidate)[0]
    packet, family = situation.packet, situation.packet.family
    own = sorted(address for kind, address in situation.host.local_addresses or () if kind is family)
    own_texts = tuple(format_address(address, family) for address in own)
    setting, hypothetical = "", False
    if found.reason.id == "session-affinity":
        setting = "the mode that is left remembers which endpoint the client has"
    elif found.with_dump:
        setting = "with the other rules of the node's dump"
    elif found.reason.firewall:
        setting = "on a host whose policies of INPUT and FORWARD are DROP"
    elif found.difference is None:
        setting, hypothetical = _of_addresses(facts, own_texts, switch)
    address = "" if packet.dst is None else format_address(packet.dst, family)
    service, address_kind = facts.addressed(address, packet.dport, protocol_name(packet.protocol))
    return WitnessRecord(
        text=_situation_text(situation),
        family=family.value,
        src=packet.source,
        dst=packet.destination,
        proto=protocol_name(packet.protocol),
        origin=packet.origin,
        in_=packet.in_interface or "",
        mark=packet.mark,
        ctstate=situation.connection.state or "",
        local_addresses=own_texts,
        setting=setting,
        today=_fates(today, by_device=by_device, by_marks=by_marks),
        then=_fates(then, by_device=by_device, by_marks=by_marks),
        service=service,
        address_kind=address_kind,
        hypothetical=hypothetical,
    )


def _of_addresses(facts: NodeFacts, own: Sequence[str], switch: Switch) -> tuple[str, bool]:
    """What a witness presumes of a node's addresses, in words, and whether the node is known not to be so."""
    served = frozenset(facts.service_addresses) if switch.from_ipvs else frozenset[str]()  # IPVS mode gives it those
    own, known = [text for text in own if text not in served], facts.known_addresses
    if gone := [text for text in facts.own_addresses if text not in own]:
        return f"if the node does not have {', '.join(gone)}", False
    more = ", ".join(text for text in own if text not in known)
    if not more or not known:
        return "", False
    return (f"only on a node that has {more}", True) if facts.interfaces_known else (f"if the node has {more}", False)


def _situation_text(situation: Situation) -> str:
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


def _fates(result: TraceResult, *, by_device: bool, by_marks: bool) -> tuple[FateRecord, ...]:
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

    chances = summed((key(outcome), outcome.probability) for outcome in result.outcomes)
    rounded = {end: chance.limit_denominator(10_000) for end, chance in chances.items()}
    found = []
    for (verdict, text), chance in sorted(rounded.items(), key=lambda item: (-item[1], item[0])):
        outcome = first[verdict, text]
        path = tuple(f"{step.table} {step.chain} {step.rule}" for step in outcome.path)
        ends = (outcome.src, outcome.dst, outcome.via == "local") if verdict == ACCEPT else ()
        found.append(FateRecord(str(chance), verdict, text, path, *ends))
    return tuple(found)


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
    if outcome.verdict == "REJECT":
        return f"rejected ({outcome.reject})"
    if outcome.verdict == "DROP":
        return f"dropped{f': {outcome.reason}' if outcome.reason else ''}"
    if outcome.verdict != "ACCEPT":
        return "not decided"
    where = format_endpoint(outcome.packet.family, outcome.packet.dst, outcome.packet.dport)
    text = f"to {where}" if outcome.dnat else f"passed on, to {where} as it is"
    if outcome.via == "local":
        text = f"to {where} on the node itself" if outcome.dnat else "to the node's own programs"
    if outcome.snat:
        text += ", source rewritten" + (" (random port)" if is_fully_random(outcome) else "")
    return text
