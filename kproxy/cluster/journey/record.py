"""Journeys as data for programs: `kproxy trace --snapshot -o json`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kproxy.cluster.journey.network import Outer
from kproxy.cluster.journey.path import Hop, Journey
from kproxy.cluster.journey.question import Question
from kproxy.dataplane.query.json import RuleStep, rule_step


class OuterRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a packet travels in."""

    kind: str
    src: str
    dst: str
    device: str
    vni: int = 0
    port: int = 0


class HopRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"in_interface": "in", "out_interface": "out"}):
    """A packet's stay on one host: as it came or was made there (`src`, `dst`), and as it left."""

    host: str
    src: str
    dst: str
    left_src: str = msgspec.field(name="leftSrc")
    left_dst: str = msgspec.field(name="leftDst")
    verdict: str
    in_interface: str = ""
    out_interface: str = ""
    via: str = ""
    reason: str = ""
    outer: OuterRecord | None = None
    rules: tuple[RuleStep, ...] = ()


class JourneyRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way that things can go. `probability` is exact, the others are as in `path.Journey`."""

    probability: str
    end: str
    at: str
    there: tuple[HopRecord, ...]
    back: tuple[HopRecord, ...]
    pod: str = ""
    source: str = ""
    target: str = ""
    reason: str = ""


class JourneysRecord(msgspec.Struct, frozen=True, rename={"client": "from"}):
    """A question and all its journeys, whose probabilities add up to 1; what was assumed, and what is missing of the
    hosts on the way."""

    client: str
    to: str
    protocol: str
    journeys: tuple[JourneyRecord, ...]
    assumptions: tuple[str, ...]
    missing: tuple[str, ...]


def journeys_record(
    question: Question, journeys: Sequence[Journey], assumptions: Sequence[str], missing: Sequence[str]
) -> JourneysRecord:
    """Turns journeys into what programs read."""
    found = tuple(map(_journey, journeys))
    return JourneysRecord(
        question.client, question.destination, question.protocol, found, tuple(assumptions), tuple(missing)
    )


def _journey(item: Journey) -> JourneyRecord:
    return JourneyRecord(
        probability=f"{item.probability.numerator}/{item.probability.denominator}",
        end=item.end,
        at=item.at,
        there=tuple(map(_hop, item.there)),
        back=tuple(map(_hop, item.back)),
        pod=item.pod,
        source=item.source,
        target=item.target,
        reason=item.reason,
    )


def _hop(hop: Hop) -> HopRecord:
    came, left = hop.arrived, hop.left
    return HopRecord(
        host=hop.host,
        src=came.source,
        dst=came.destination,
        left_src=left.source,
        left_dst=left.destination,
        verdict=hop.outcome.verdict,
        in_interface=came.in_interface or "",
        out_interface=(left.out_interface or "") if hop.outcome.via == "out" else "",
        via=hop.outcome.via,
        reason=hop.outcome.reason or "; ".join(hop.outcome.reasons),
        outer=None if hop.outer is None else _outer(hop.outer),
        rules=tuple(rule_step(step) for step in hop.outcome.path),
    )


def _outer(outer: Outer) -> OuterRecord:
    return OuterRecord(outer.kind, outer.src, outer.dst, outer.device, outer.vni, outer.port)
