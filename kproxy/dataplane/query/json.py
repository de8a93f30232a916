"""Reports as data for programs: the JSON of `kproxy trace -o json`, whose fields docs/trace.md lists.

The first fields of a packet and of an outcome are a contract; what follows them may be absent.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kproxy.dataplane.concrete.graph import Step
from kproxy.dataplane.concrete.trace import Outcome
from kproxy.dataplane.model.verdict import INDETERMINATE
from kproxy.dataplane.query.report import Report
from kproxy.dataplane.query.spec import write_question
from kproxy.words import exact


class RuleStep(msgspec.Struct, frozen=True, omit_defaults=True, rename={"note": "provenance"}):
    """A rule that matched; `rule` is its number in the chain, from 1. `did` is what it did, `note` what it is for,
    where that is known, `source` whose it is, among rules of several writers."""

    table: str = ""
    chain: str = ""
    rule: int = 0
    text: str = ""
    hook: str = ""
    did: str = ""
    note: str = ""
    source: str = ""


def report_record(report: Report, source: str = "") -> dict[str, Any]:
    """A packet and its outcomes; their probabilities add up to 1.

    Args:
        source: where the packet was read, of many.
    """
    return {
        "packet": write_question(report.question),
        "outcomes": [
            {**_outcome(each.outcome), **({} if each.reply is None else {"reply": each.reply})}
            for each in report.outcomes
        ],
        **_given(assumptions=report.assumptions, source=source, hooks=report.hooks),
    }


def _outcome(item: Outcome) -> dict[str, Any]:
    return {
        "probability": exact(item.probability),
        **_end(item),
        "masquerade": item.masquerade if item.determined or item.verdict == INDETERMINATE else None,
        "path": list(map(rule_step, item.path)),
        **_given(via=item.via, reject=item.reject, reasons=item.reasons, hints=item.hints),
        **_given(possible=list(map(_end, item.possible))),
    }


def _end(item: Outcome) -> dict[str, Any]:
    """What an outcome has in common with what one that is open may turn out to be."""
    names = ("verdict", "src", "dst", "dnat", "masquerade", "hook")
    return {name: getattr(item, name) for name in names} | _given(reason=item.reason, out=item.device)


def _given(**fields: Any) -> dict[str, Any]:
    """The fields that are not empty."""
    return {name: value for name, value in fields.items() if value}


def rule_step(step: Step) -> RuleStep:
    """Turns a step that is a rule into what programs read."""
    return RuleStep(**step_fields(step))


def step_fields(step: Step) -> dict[str, Any]:
    """The fields of a `RuleStep`."""
    return {name: getattr(step, name) for name in RuleStep.__struct_fields__}
