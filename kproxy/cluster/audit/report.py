"""Observations, what was seen on one node, and the report: findings, one for each cause, the worst first.

`kproxy audit -o json` prints it; docs/audit.md describes the fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kproxy.cluster.audit.finding_kinds import KINDS, Severity
from kproxy.cluster.evidence.unseen import Unseen

FORMAT_VERSION: Final = 1
_MAX_RULES: Final = 50


class BlamedRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule of a node. `file`: as in the snapshot, `nodes/NAME/iptables-save`; `line`: from 1, 0 if the file's lines
    are no rules; `rule`: its number in the chain, from 1, 0 for a policy; `text`: the rule, or the policy."""

    file: str
    line: int
    table: str
    chain: str
    rule: int
    text: str

    @property
    def location(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.table} {self.chain} {self.rule or 'policy'}"


class EndShare(msgspec.Struct, frozen=True):
    """One thing that becomes of a packet: with which exact probability, the verdict, and its addresses then; "" if it
    is not accepted."""

    probability: str
    verdict: str
    src: str
    dst: str


class AuditWitness(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """A packet that shows it: what kube-proxy's rules alone do with it (`expected`, `a`), and what all rules of the
    node do (`found`, `b`). `sender`: as questions name it."""

    node: str
    client: str
    packet: str
    expected: tuple[str, ...]
    found: tuple[str, ...]
    sender: str
    src: str
    dst: str
    proto: str
    origin: str
    a: tuple[EndShare, ...]
    b: tuple[EndShare, ...]


class Observation(msgspec.Struct, frozen=True):
    """Something that is not as it should be. `cause`: what makes two observations one finding: a rule's text, or what
    is wrong, without the node's name; `address`: where the Service answers, as the witness asked it; `client`: who
    asked; `young`: whether it changed while the cluster was read; `mend`: the command for `{mend}` in the kind's
    hint."""

    kind: str
    node: str
    cause: str
    detail: str = ""
    service: str = ""
    address: str = ""
    client: str = ""
    rule: BlamedRule | None = None
    witness: AuditWitness | None = None
    since: str = ""
    young: bool = False
    mend: str = ""


class Finding(msgspec.Struct, frozen=True):
    """One cause. `severity`, `title`, `hint`: see `finding_kinds`; `clients`, `addresses`: who asked, and by which
    addresses of Services; `rules`: those to blame, one of each node; `witness`: of the first node."""

    kind: str
    severity: Severity
    title: str
    hint: str
    nodes: tuple[str, ...]
    services: tuple[str, ...]
    clients: tuple[str, ...]
    addresses: tuple[str, ...]
    details: tuple[str, ...]
    rules: tuple[BlamedRule, ...]
    witness: AuditWitness | None
    since: tuple[str, ...] = ()
    young: bool | msgspec.UnsetType = msgspec.UNSET


class Gap(msgspec.Struct, frozen=True):
    """Something that is not known: `what` is a path of the snapshot without its node, or a reason; `then` what follows;
    `nodes` are empty if it is the cluster's; `count` is of questions that could not be answered."""

    what: str
    then: str = ""
    why: str = ""
    nodes: tuple[str, ...] = ()
    count: int = 0


class AuditReport(msgspec.Struct, frozen=True):
    """The answer. `source`: what was audited; `judged`: the nodes whose rules are known and were asked; `questions`:
    how many were answered; `findings`: the worst first."""

    version: int
    source: str
    created: str
    nodes: tuple[str, ...]
    judged: tuple[str, ...]
    services: int
    questions: int
    findings: tuple[Finding, ...]
    undecided: tuple[Gap, ...]
    missing: tuple[Gap, ...]
    unseen: tuple[Unseen, ...] = ()
    moving: int | msgspec.UnsetType = msgspec.UNSET
    apart: float | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_well(self) -> bool:
        """Whether there is nothing to mend: no error and no warning."""
        return all(finding.severity is Severity.INFO for finding in self.findings)


def group(observations: Iterable[Observation]) -> tuple[Finding, ...]:
    """Findings: of one kind and cause; and, where Services are concerned and no rule of another program is to blame,
    those of one kind on the same nodes."""
    seen = list(observations)
    refusing = {each.cause for each in seen if each.kind == "foreign-drop"}
    by_cause: dict[tuple[str, str, str], list[Observation]] = {}
    for each in seen:
        if each.kind == "foreign-drop-outside" and each.cause in refusing:  # the same rule
            each = msgspec.structs.replace(each, kind="foreign-drop")
        service = each.service if KINDS[each.kind].severity is not Severity.INFO else ""
        by_cause.setdefault((each.kind, each.cause, "" if _by_rule(each) else service), []).append(each)
    joined: dict[tuple[object, ...], list[Observation]] = {}
    for (kind, cause, service), found in by_cause.items():
        nodes = tuple(sorted({each.node for each in found}))
        key: tuple[object, ...] = (kind, nodes) if service else (kind, cause)
        joined.setdefault(key, []).extend(found)
    findings = [_finding(found) for found in joined.values()]
    return tuple(sorted(findings, key=_badness))


def _by_rule(each: Observation) -> bool:
    return each.rule is not None and each.cause == each.rule.text


def _badness(finding: Finding) -> tuple[object, ...]:
    order = list(Severity).index(finding.severity), list(KINDS).index(finding.kind)
    return *order, -len(finding.services), -len(finding.nodes), finding.nodes, finding.details


def _finding(found: Sequence[Observation]) -> Finding:
    kind = KINDS[found[0].kind]
    rules = {(each.rule.file, each.rule.line, each.rule.text): each.rule for each in found if each.rule is not None}
    return Finding(
        kind.id,
        kind.severity,
        kind.title,
        kind.hint.replace("{mend}", "; ".join(dict.fromkeys(each.mend for each in found if each.mend))),
        _sorted(each.node for each in found),
        _sorted(each.service for each in found),
        _sorted(each.client for each in found),
        _sorted(each.address for each in found),
        _sorted(each.detail for each in found),
        tuple(rules[key] for key in sorted(rules))[:_MAX_RULES],
        next((each.witness for each in found if each.witness is not None), None),
        _sorted(each.since for each in found),
        all(each.young for each in found) or msgspec.UNSET,
    )


def _sorted(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({text for text in texts if text}))


def gaps(items: Iterable[tuple[str, Gap]]) -> tuple[Gap, ...]:
    """Gaps of nodes ("" for the cluster's) as one for each thing."""
    found: dict[tuple[str, str, str], tuple[set[str], int]] = {}
    for node, each in items:
        nodes, count = found.setdefault((each.what, each.then, each.why), (set(), 0))
        found[each.what, each.then, each.why] = (nodes | ({node} if node else set()), count + each.count)
    return tuple(
        Gap(what, then, why, tuple(sorted(nodes)), count) for (what, then, why), (nodes, count) in found.items()
    )
