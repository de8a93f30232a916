"""A comparison as data for programs: the JSON of `kproxy diff -o json`, whose fields docs/diff.md lists."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kproxy.dataplane.compare.causes import Cause
from kproxy.dataplane.compare.compare import Comparison, Difference, Part
from kproxy.dataplane.concrete.trace import Outcome
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name
from kproxy.words import exact

SIDES = ("A", "B")


class InsteadRecord(msgspec.Struct, frozen=True):
    """What the other side has in place of a rule or element: the fields are as those of `CauseRecord`."""

    rule: int
    text: str
    action: str


class CauseRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The rule that only one side has, or the element of a set or map; docs/diff.md has the fields.

    Two that are equal but for `rule`, and that of `instead`, are the same cause, on several hosts.

    Attributes:
        side: `a` or `b`.
        rule: its number in the chain, from 1; of an element, the rule that asks for it.
        text: the rule's as iptables-save or nft prints it, or the element's.
        action: in words, what the rule does; of an element, which set or map has it.
        same_but_chance: the other side has the rule, too, with another chance.
        set: of an element, the name of its set or map.
        instead: what the other side, which is `b` then, has in its place.
    """

    side: str
    table: str
    chain: str
    rule: int
    text: str
    action: str
    same_but_chance: bool
    set: str | msgspec.UnsetType = msgspec.UNSET
    instead: InsteadRecord | msgspec.UnsetType = msgspec.UNSET


def cause_record(cause: Cause | None) -> CauseRecord | None:
    """A cause as data, if there is one."""
    if cause is None:
        return None
    return CauseRecord(
        SIDES[cause.side].lower(), cause.table, cause.chain, cause.rule, cause.text, cause.action,
        cause.same_but_chance, cause.set or msgspec.UNSET,
        msgspec.UNSET if cause.instead is None else InsteadRecord(*cause.instead),
    )  # fmt: skip


def comparison_record(found: Comparison, labels: Sequence[str]) -> dict[str, object]:
    """The whole answer. `labels` name the two sides."""
    return {
        "alike": found.alike,
        **({"families": [family.value for family in found.families]} if found.families else {}),
        "a": labels[0],
        "b": labels[1],
        "differences": [
            {**({"family": family} if (family := found.family_of(item)) else {}), **difference_record(item)}
            for item in found.differences
        ],
        "unexamined": found.unexamined,
        "unusual": found.unusual,
        "undecided": [{"where": item.where, "reason": item.reason} for item in found.undecided],
        "remarks": list(found.remarks),
        **({"stopped": found.stopped, "parts": [_part_record(part) for part in found.parts]} if found.stopped else {}),
    }


def _part_record(part: Part) -> dict[str, str]:
    family = {"family": part.family} if part.family else {}
    return {**family, "origin": part.origin, "state": part.state, "result": part.result}


def difference_record(item: Difference) -> dict[str, object]:
    """One difference."""
    packet = item.witness.packet
    traces = item.traces
    return {
        "destinations": list(item.destinations),
        "from": item.sources,
        "conditions": item.conditions,
        **({} if item.cause is None else {"cause": cause_record(item.cause)}),
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


def _outcome_record(outcome: Outcome) -> dict[str, object]:
    return {
        "probability": exact(outcome.probability),
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
