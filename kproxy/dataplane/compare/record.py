"""A comparison as data for programs: the JSON of `kproxy diff -o json`, whose fields docs/diff.md lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kproxy.dataplane.compare.compare import Comparison
from kproxy.dataplane.compare.difference import Difference
from kproxy.dataplane.concrete.trace import Outcome
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name
from kproxy.words import exact

_OF_OUTCOME: Final = ("verdict", "src", "dst", "dnat", "masquerade", "hook")
_OF_STEP: Final = ("table", "chain", "rule", "text")


def comparison_record(found: Comparison, labels: Sequence[str]) -> dict[str, object]:
    """The whole answer. `labels` name the two sides."""
    return {
        "alike": found.alike,
        **({"families": found.families} if found.families else {}),
        "a": labels[0],
        "b": labels[1],
        "differences": [
            {**({"family": family} if (family := found.family_of(item)) else {}), **difference_record(item)}
            for item in found.differences
        ],
        "unexamined": found.unexamined,
        "unusual": found.unusual,
        "undecided": found.undecided,
        "remarks": found.remarks,
        **({"stopped": found.stopped, "parts": found.parts} if found.stopped else {}),
    }


def difference_record(item: Difference) -> dict[str, object]:
    """One difference."""
    packet, host = item.witness.packet, item.witness.host
    return {
        "destinations": item.destinations,
        "from": item.sources,
        "conditions": item.conditions,
        **({} if item.cause is None else {"cause": item.cause}),
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
                format_address(address, family)
                for family, address in sorted(host.local_addresses or (), key=lambda pair: pair[1])
            ],
            "assumed": [{"match": question.text, "holds": answer} for question, answer in item.witness.assumed],
            "a": list(map(_outcome_record, item.traces[0].outcomes)),
            "b": list(map(_outcome_record, item.traces[1].outcomes)),
        },
    }


def _outcome_record(outcome: Outcome) -> dict[str, object]:
    return {
        "probability": exact(outcome.probability),
        **{name: getattr(outcome, name) for name in _OF_OUTCOME},
        "path": [{name: getattr(step, name) for name in _OF_STEP} for step in outcome.path],
    }
