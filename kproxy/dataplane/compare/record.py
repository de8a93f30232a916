"""A comparison as data for programs: the JSON of `kproxy diff -o json`, whose fields docs/diff.md lists."""

from __future__ import annotations

from collections.abc import Sequence

from kproxy.dataplane.compare.causes import Cause
from kproxy.dataplane.compare.compare import Comparison, Difference
from kproxy.dataplane.concrete.trace import Outcome
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name

SIDES = ("A", "B")


def comparison_record(found: Comparison, labels: Sequence[str]) -> dict[str, object]:
    """The whole answer. `labels` name the two sides."""
    return {
        "alike": found.alike,
        "a": labels[0],
        "b": labels[1],
        "differences": [difference_record(item) for item in found.differences],
        "unexamined": found.unexamined,
        "unusual": found.unusual,
        "undecided": [{"where": item.where, "reason": item.reason} for item in found.undecided],
        "remarks": list(found.remarks),
    }


def difference_record(item: Difference) -> dict[str, object]:
    """One difference."""
    packet = item.witness.packet
    traces = item.traces
    return {
        "destinations": list(item.destinations),
        "from": item.sources,
        "conditions": item.conditions,
        **({} if item.cause is None else {"cause": _cause_record(item.cause)}),
        "a": item.one,
        "b": item.other,
        "witness": {
            "src": packet.source,
            "dst": packet.destination,
            "proto": protocol_name(packet.protocol),
            "origin": packet.origin,
            "in": packet.in_interface or "",
            "mark": packet.mark,
            "ctstate": item.witness.connection.state,
            "localAddresses": [
                format_address(address, family) for family, address in sorted(
                    item.witness.host.local_addresses or (), key=lambda pair: pair[1]
                )
            ],
            "assumed": [{"match": question.text, "holds": answer} for question, answer in item.witness.assumed],
            "a": [_outcome_record(outcome) for outcome in traces[0].outcomes],
            "b": [_outcome_record(outcome) for outcome in traces[1].outcomes],
        },
    }  # fmt: skip


def _cause_record(cause: Cause) -> dict[str, object]:
    return {
        "side": SIDES[cause.side].lower(), "table": cause.table, "chain": cause.chain, "rule": cause.rule,
        "text": cause.text, **({"set": cause.set} if cause.set else {}),
    }  # fmt: skip


def _outcome_record(outcome: Outcome) -> dict[str, object]:
    return {
        "probability": f"{outcome.probability.numerator}/{outcome.probability.denominator}",
        "verdict": outcome.verdict,
        "src": outcome.src,
        "dst": outcome.dst,
        "dnat": outcome.dnat,
        "masquerade": outcome.masquerade,
        "hook": outcome.hook,
        "path": [
            {"table": step.table, "chain": step.chain, "rule": step.rule, "text": step.text} for step in outcome.path
        ],
    }
