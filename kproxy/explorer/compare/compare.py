"""Two states of a cluster compared for every packet, node by node: what-if, diff, migrate; drift is `standing`'s.

A change of a few Services is compared on their rules alone: kube-proxy's rules of other Services are the same on both
sides, and no packet meets rules of two Services. Nodes whose rules read alike are compared once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES
from kproxy.cluster.edits import Edit, EditWords
from kproxy.cluster.equivalence.services import Alike
from kproxy.cluster.migrate.analysis import Analysis, analyse
from kproxy.cluster.migrate.foreign import ForeignRules
from kproxy.cluster.migrate.report import MigrateReport, ModeChange, NotDecided, build_report
from kproxy.cluster.migrate.switch import Switch
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.explorer.answers.map import draw_map
from kproxy.explorer.compare.findings import (
    ALL_PACKETS,
    MAX_SERVICES,
    TIME_OVER,
    AnswerChange,
    AskHint,
    Findings,
    Gathered,
    Open,
    Sent,
    question,
)
from kproxy.explorer.compare.node_by_node import NodeByNode
from kproxy.explorer.compare.present_rules import compare_there, drift, paired, unpaired
from kproxy.explorer.errors import bad_input
from kproxy.explorer.model.map_data import MapView
from kproxy.explorer.model.model import Model, Work, family_named
from kproxy.explorer.sources.source import AGAINST, AGAINST_BY_OBJECTS, BY_OBJECTS
from kproxy.linux.nftables.preflight import MIN_KERNEL, needed
from kproxy.netfilter import Family


class WhatIf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Edits of a copy. `node`: whose chances its map shows; `compare`: whether to say what changes for packets."""

    edits: tuple[Edit, ...]
    node: str = ""
    compare: bool = True


class Side(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One side: a source as it is, or a copy of it (`Explorer.state`)."""

    source: str = ""
    edits: tuple[Edit, ...] = ()


class SideWords(msgspec.Struct, frozen=True):
    """A side of an answer; `source` and `edits` ask it."""

    label: str
    source: str = ""
    edits: tuple[Edit, ...] = ()


class Compare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`kind` is diff, drift or migrate; what else counts follows from it."""

    kind: str
    a: Side = Side()
    b: Side = Side()
    family: str | None = None
    node: str = ""
    nodes: tuple[str, ...] = ()
    to: str = MODE_NFTABLES


class WhatIfAnswer(msgspec.Struct, frozen=True):
    """A copy: its edits in words, what changes for packets, and its map."""

    revision: int
    edits: tuple[EditWords, ...]
    alike: bool
    findings: tuple[AnswerChange, ...]
    undecided: tuple[Open, ...]
    notes: tuple[str, ...]
    touched: tuple[str, ...]
    sides: tuple[SideWords, SideWords]
    map: MapView
    unlisted: tuple[str, ...] = ()


class DiffAnswer(msgspec.Struct, frozen=True):
    kind: str
    a: str
    b: str
    alike: bool
    findings: tuple[AnswerChange, ...]
    undecided: tuple[Open, ...]
    notes: tuple[str, ...]
    sides: tuple[SideWords, SideWords]
    remarks: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()


class MigrateAnswer(msgspec.Struct, frozen=True):
    """`report` is what `kproxy migrate -o json` prints; `asks` has the questions that show each of its findings, and
    `notes` say what was taken for granted. `hidden` has the titles of known differences that may be there unseen."""

    kind: str
    report: MigrateReport
    sides: tuple[SideWords, SideWords]
    asks: tuple[tuple[AskHint | None, AskHint | None], ...]
    notes: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


def what_if(model: Model, copy: Model, asked: WhatIf, work: Work) -> WhatIfAnswer:
    """What changes for packets in a copy.

    Raises:
        Refusal: nobody waits any more.
    """
    assert copy.edited is not None
    words = tuple(copy.edited.words)
    with copy.lock:
        drawn = draw_map(copy, asked.node if asked.node.removeprefix("node/") in copy.nodes else "", work.to_the_end())
    found = _compared(model, copy, asked, work) if asked.compare else Findings(True, (), (), ())
    touched = dict.fromkeys(each for item in words for each in item.touches)
    touched |= dict.fromkeys(found.services)
    notes = [*found.notes]
    notes += [f"packets to and from node {name}, and its pods, are lost" for name in sorted(copy.edited.gone)]
    label = model.known.label
    sides = (SideWords(label, _by_objects(model)), SideWords(f"{label}, edited", "", asked.edits))
    return WhatIfAnswer(
        model.revision, words, found.alike, found.findings, found.undecided, tuple(notes), tuple(touched), sides, drawn,
        found.unlisted,
    )  # fmt: skip


def _compared(model: Model, copy: Model, asked: WhatIf, work: Work) -> Findings:
    """What a copy changes; of a switch of the mode alone the reasons for which modes differ, as migrate tells them."""
    if {each.do for each in asked.edits} != {"mode"}:
        return compare_models(model, copy, work)
    to = copy.rendering.mode_of(copy.cluster.hosts[copy.nodes[0]]) if copy.nodes else ""
    names = [name for name in copy.nodes if model.rendering.mode_of(model.cluster.hosts[name]) != to]
    if to not in (MODE_IPTABLES, MODE_NFTABLES) or not names:
        return compare_models(model, copy, work)
    report = _report(model, names, tuple(Family), to, work)
    findings = tuple(_as_finding(each, _questions(model, each)) for each in report.findings)
    undecided = tuple(dict.fromkeys(Open(each.where, each.reason, each.node) for each in report.undecided))
    services = dict.fromkeys(name for each in findings for name in each.services)
    return Findings(not report.changes, findings, undecided, tuple(model.config_notes(names)), tuple(services))


def _as_finding(found: ModeChange, asks: tuple[AskHint | None, AskHint | None]) -> AnswerChange:
    """A finding of migrate in the form of those of comparisons."""
    services = tuple(dict.fromkeys(f"svc/{name.partition(':')[0]}" for name in found.services))
    return AnswerChange(
        nodes=found.nodes,
        families=found.families,
        services=services[:MAX_SERVICES],
        statement=found.title,
        destinations=(),
        sources="",
        conditions="",
        before=found.today,
        after=found.then,
        witness=found.witness,
        ask=asks[0],
        asks=asks,
        cause=None,
        more=max(0, len(services) - MAX_SERVICES),
        reason=found.reason,
        title=found.title,
        advice=found.advice,
        effort=found.effort,
        do=found.do,
        config=found.config,
    )


def _by_objects(model: Model) -> str:
    """How the rules that the objects of the page's source ask for are named in a question."""
    return "" if model.known.rendered else BY_OBJECTS


def compare_sides(one: Model, other: Model, asked: Compare, work: Work) -> DiffAnswer | MigrateAnswer:
    """diff, drift or migrate.

    Raises:
        Refusal: something in the question is wrong, or it takes too long.
    """
    if asked.kind == "migrate":
        return _migrated(one, asked, work)
    if asked.kind == "drift":
        if asked.a not in (Side(), Side(AGAINST)) or asked.b != Side():
            raise bad_input("a and b: drift is of one source as it is, a, which is the page's or the second one", "a")
        found = drift(one, asked.node, asked.family, work)
        sides = (
            SideWords("the rules that the objects ask for", AGAINST_BY_OBJECTS if asked.a.source else BY_OBJECTS),
            SideWords("the rules that are there", asked.a.source),
        )
    elif asked.kind == "diff":
        as_they_are = asked.a.source != asked.b.source and not (asked.a.edits or asked.b.edits)
        if as_they_are and not (one.known.rendered and other.known.rendered):
            found = compare_there(one, other, asked.node, asked.family, work)
        else:
            found = compare_models(one, other, work, node=asked.node, family=asked.family)
        sides = (_side(one, asked.a), _side(other, asked.b))
    else:
        raise bad_input("kind: diff, drift or migrate expected", "kind")
    first, second = sides
    return DiffAnswer(
        asked.kind, first.label, second.label, found.alike, found.findings, found.undecided, found.notes, sides,
        unlisted=found.unlisted,
    )  # fmt: skip


def _side(model: Model, side: Side) -> SideWords:
    label = model.known.label
    if side.edits:
        label = f"{label}, edited"
    elif side.source == BY_OBJECTS:
        label = f"{label}, as its objects ask for"
    return SideWords(label, side.source, side.edits)


# --- two models ---


def compare_models(one: Model, other: Model, work: Work, *, node: str = "", family: str | None = None) -> Findings:
    """What two clusters' rules do differently, on the nodes that both have. Nodes for which the time does not suffice
    are said to be undecided.

    Raises:
        Refusal: the node or the family is wrong, no node is on both sides, or nobody waits any more.
    """
    is_copy = one.edited is not None or other.edited is not None
    common = [name for name in other.nodes if name in one.nodes]
    names = common if is_copy and not node else paired(one, other, node)
    families = (family_named(family, ()),) if family else tuple(dict.fromkeys((*one.families, *other.families)))
    nodes = NodeByNode(one, other, len(names), work)
    report = Gathered(one, other)
    for name in names:
        for each in families:
            report.add(work, (name, name), each, partial(nodes.compared, name, each))
    # A copy's nodes that are gone are said as such.
    notes = [] if node or is_copy else unpaired(one, other)
    notes += one.config_notes(names)
    if one.known.label != other.known.label:
        notes += other.config_notes(names)
    return report.findings(notes)


# --- migrate ---


def _migrated(model: Model, asked: Compare, work: Work) -> MigrateAnswer:
    if asked.to not in (MODE_IPTABLES, MODE_NFTABLES):
        raise bad_input(f"to: {MODE_IPTABLES} or {MODE_NFTABLES} expected", "to")
    names = [model.node(name, "nodes").name for name in asked.nodes] or list(model.nodes)
    families = (family_named(asked.family, ()),) if asked.family else tuple(Family)
    answer = migrate_answer(model, _report(model, names, families, asked.to, work), asked.a.source)
    return msgspec.structs.replace(answer, notes=tuple(model.config_notes(names)))


def _report(model: Model, names: Sequence[str], families: Sequence[Family], to: str, work: Work) -> MigrateReport:
    """Why nodes treat packets differently in the other mode. Raises Refusal: nobody waits any more."""
    hosts = model.cluster.hosts
    modes = {name: model.rendering.mode_of(hosts[name]) for name in names}
    switch = Switch.of("", to, next(iter(modes.values()), ""))
    alike = {family: Alike(model.rendering.lacking.known(model.manifests, family), family) for family in families}

    def analysed(host: HostFacts, family: Family) -> Analysis:
        work.check()
        there = host.host_rules
        foreign = None if there is None or not there.tells(family) else ForeignRules.of(there, family)
        known = alike[family].cluster  # all Services, or those of which nothing lacks
        whole = known is model.manifests
        facts = model.rendering.facts(host, family) if whole else model.rendering.facts_of(known, host, family)
        return analyse(facts, switch, foreign=foreign, alike=alike[family], tell=work.check)

    analyses, left_out = [], []
    for name in names:
        for family in families:
            if (modes[name] == MODE_IPVS) is not switch.from_ipvs:
                left_out.append(
                    NotDecided(name, family.value, ALL_PACKETS, f"its kube-proxy runs in {modes[name]} mode")
                )
                continue
            found = work.within(partial(analysed, hosts[name], family))
            if found is None:
                left_out.append(NotDecided(name, family.value, ALL_PACKETS, TIME_OVER))
            else:
                analyses.append(found)
    needs, least = (needed(), MIN_KERNEL) if switch.to_nftables else ((), None)
    report = build_report(analyses, switch, needs=needs, least_kernel=least)
    if left_out:
        report = msgspec.structs.replace(report, changes=True, undecided=(*left_out, *report.undecided))
    return report


def migrate_answer(model: Model, report: MigrateReport, source: str = "") -> MigrateAnswer:
    """A report with what shows its findings; `source` as in a question."""
    sides = (_in_mode(model, source, report.from_), _in_mode(model, source, report.to))
    asks = tuple(_questions(model, each) for each in report.findings)
    return MigrateAnswer("migrate", report, sides, asks, hidden=report.hidden)


def _in_mode(model: Model, source: str, mode: str) -> SideWords:
    return SideWords(f"{model.known.label} in {mode} mode", source, (Edit("mode", mode=mode),))


def _questions(model: Model, finding: ModeChange) -> tuple[AskHint | None, AskHint | None]:
    """The question of a finding's witness, the same in both modes."""
    witness = finding.witness
    if witness is None:
        return None, None
    sent = Sent.said(witness.src, witness.dst, witness.proto, witness.origin)
    hint = None if sent is None else question(model, finding.nodes[0], sent)
    return hint, hint
