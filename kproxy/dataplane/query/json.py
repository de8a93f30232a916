"""Reports as data for programs: the JSON of `kproxy trace -o json`, whose fields docs/trace.md lists.

The first fields of a packet and of an outcome are a contract; what follows them may be absent.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kproxy.dataplane.concrete.graph import Step
from kproxy.dataplane.concrete.trace import Outcome
from kproxy.dataplane.model.verdict import INDETERMINATE
from kproxy.dataplane.query.report import Reply, Report, Reported
from kproxy.dataplane.query.spec import write_question
from kproxy.words import exact


class RuleStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule that matched; `rule` is its number in the chain, from 1. `did` is what it did, `provenance` what it is
    for, where that is known, `source` whose it is, among rules of several writers."""

    table: str
    chain: str
    rule: int
    text: str
    hook: str = ""
    did: str = ""
    provenance: str = ""
    source: str = ""


class OutcomeRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"out_interface": "out"}, kw_only=True):
    """One outcome, or one of the possible ones of an outcome that is open, which have neither probability nor path.
    `via` is `local`, `out` or `bridged`, `out_interface` the device it leaves by, where known; `reject` is the answer
    of REJECT; `reason` says why if no rule does, `reasons` what an open one depends on, `hints` which options would
    settle it."""

    probability: str | msgspec.UnsetType = msgspec.UNSET
    verdict: str
    src: str
    dst: str
    dnat: bool
    masquerade: bool | None
    hook: str
    path: tuple[RuleStep, ...] | msgspec.UnsetType = msgspec.UNSET
    via: str = ""
    out_interface: str = ""
    reject: str = ""
    reason: str = ""
    reasons: tuple[str, ...] = ()
    possible: tuple[OutcomeRecord, ...] = ()
    hints: tuple[str, ...] = ()
    reply: Reply | None = None


class ReportRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A packet and its outcomes; their probabilities add up to 1. `source` says where the packet was read, of many;
    `hooks` which base chains each hook calls, in order, of a host with more than the rules of one iptables."""

    packet: dict[str, object]
    outcomes: tuple[OutcomeRecord, ...]
    assumptions: tuple[str, ...] = ()
    source: str = ""
    hooks: dict[str, tuple[str, ...]] = {}


def report_record(report: Report, source: str = "") -> ReportRecord:
    """Turns a report into what programs read."""
    outcomes = tuple(map(_outcome, report.outcomes))
    return ReportRecord(write_question(report.question), outcomes, report.assumptions, source, dict(report.hooks))


def _outcome(reported: Reported) -> OutcomeRecord:
    item = reported.outcome
    return _record(
        item,
        probability=exact(item.probability),
        masquerade=item.masquerade if item.determined or item.verdict == INDETERMINATE else None,
        path=tuple(map(rule_step, item.path)),
        via=item.via,
        reject=item.reject,
        reasons=item.reasons,
        hints=item.hints,
        possible=tuple(map(_record, item.possible)),
        reply=reported.reply,
    )


def _record(item: Outcome, **more: Any) -> OutcomeRecord:
    names = ("verdict", "src", "dst", "dnat", "masquerade", "hook", "reason")
    return OutcomeRecord(**{name: getattr(item, name) for name in names} | {"out_interface": item.device} | more)


def rule_step(step: Step) -> RuleStep:
    """Turns a step that is a rule into what programs read."""
    return RuleStep(step.table, step.chain, step.rule, step.text, step.hook, step.did, step.note, step.source)
