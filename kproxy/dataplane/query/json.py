"""Reports as data for programs: the JSON of `kproxy trace -o json`, whose fields docs/trace.md lists.

The first fields of a packet and of an outcome are a contract; what follows them may be absent.
"""

from __future__ import annotations

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


class ReplyRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The answer: as it is sent (`src`, `dst`), and as the sender of the packet gets it; `out` is the interface that it
    leaves by, where known."""

    kind: str
    verdict: str
    src: str
    dst: str
    received_src: str
    received_dst: str
    reason: str = ""
    out: str = ""


class Possibility(msgspec.Struct, frozen=True, omit_defaults=True, rename={"out_interface": "out"}):
    """What an outcome that is open may turn out to be: as `OutcomeRecord`."""

    verdict: str
    src: str
    dst: str
    dnat: bool
    masquerade: bool
    hook: str
    reason: str = ""
    out_interface: str = ""


class OutcomeRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"out_interface": "out"}):
    """One outcome. `via` is `local`, `out` or `bridged`, `out_interface` the device it leaves by, where known; `reject`
    is the answer of REJECT; `reason` says why if no rule does, `reasons` what an open one depends on,
    `hints` which options would settle it."""

    probability: str
    verdict: str
    src: str
    dst: str
    dnat: bool
    masquerade: bool | None
    hook: str
    path: tuple[RuleStep, ...]
    via: str = ""
    out_interface: str = ""
    reject: str = ""
    reason: str = ""
    reasons: tuple[str, ...] = ()
    possible: tuple[Possibility, ...] = ()
    hints: tuple[str, ...] = ()
    reply: ReplyRecord | None = None


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
    return OutcomeRecord(
        probability=exact(item.probability),
        verdict=item.verdict,
        src=item.src,
        dst=item.dst,
        dnat=item.dnat,
        masquerade=item.masquerade if item.determined or item.verdict == INDETERMINATE else None,
        hook=item.hook,
        path=tuple(map(rule_step, item.path)),
        via=item.via,
        out_interface=item.device,
        reject=item.reject,
        reason=item.reason,
        reasons=item.reasons,
        hints=item.hints,
        possible=tuple(map(_possibility, item.possible)),
        reply=None if reported.reply is None else _reply(reported.reply),
    )


def rule_step(step: Step) -> RuleStep:
    """Turns a step that is a rule into what programs read."""
    return RuleStep(step.table, step.chain, step.rule, step.text, step.hook, step.did, step.note, step.source)


def _possibility(item: Outcome) -> Possibility:
    return Possibility(
        item.verdict, item.src, item.dst, item.dnat, item.masquerade, item.hook, item.reason, item.device
    )


def _reply(reply: Reply) -> ReplyRecord:
    return ReplyRecord(reply.kind, reply.verdict, *reply.sent, *reply.received, reply.reason, reply.out_interface)
