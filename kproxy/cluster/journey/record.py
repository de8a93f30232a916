"""Journeys as data for programs: `kproxy trace SNAPSHOT -o json`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kproxy.cluster.evidence.unseen import Unseen
from kproxy.cluster.journey.known import KnownNetwork
from kproxy.cluster.journey.network import Outer
from kproxy.cluster.journey.path import Hop, Journey
from kproxy.cluster.journey.question import PathQuestion
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.dataplane import Connection, format_endpoint
from kproxy.dataplane.concrete.graph import Step
from kproxy.dataplane.concrete.reply import error_name
from kproxy.dataplane.query.assumptions import assumed_source
from kproxy.dataplane.query.json import RuleStep, rule_step, step_fields
from kproxy.netfilter import Family
from kproxy.words import exact


class StepRecord(RuleStep, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that happened on a host, in order: `kind` is rule, policy, conntrack, route, translate or end; `src`
    and `dst` are the packet's after a step that rewrote it."""

    kind: str
    src: str = ""
    dst: str = ""


class HopRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"in_interface": "in", "out_interface": "out"}):
    """A packet's stay on one host: as it came or was made there (`src`, `dst`), and as it left.

    Attributes:
        error: of an answer that refuses, what it is, as `--reject-with` says it: `icmp-port-unreachable`, `tcp-reset`.
        held: it was to leave and did not: its next hop does not answer, or the interface has no carrier.
        mark: the packet's when it left, `0x4000`.
        ctstate: what conntrack called it. dnat, snat: whether it was translated.
        conntrack: the entry, if it is translated: source and destination of `original` and `reply`, `?` where open.
        hints: what would settle an INDETERMINATE verdict.
        steps: everything that happened, where that was asked for.
    """

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
    outer: Outer | None = None
    rules: tuple[RuleStep, ...] = ()
    error: str = ""
    held: bool = False
    mark: str = ""
    ctstate: str = ""
    dnat: bool = False
    snat: bool = False
    conntrack: dict[str, tuple[str, str]] | None = None
    hints: tuple[str, ...] = ()
    steps: tuple[StepRecord, ...] = ()


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


def journeys_record(
    question: PathQuestion, journeys: Iterable[Journey], assumptions: Sequence[str], missing: Sequence[str]
) -> dict[str, object]:
    """A question and all its journeys, whose probabilities add up to 1; what was assumed, and what is missing of the
    hosts on the way."""
    return {
        "from": question.client,
        "to": question.destination,
        "protocol": question.protocol,
        "journeys": list(map(journey_record, journeys)),
        "assumptions": assumptions,
        "missing": missing,
    }


def assumed_on_the_way(network: KnownNetwork, found: Sequence[Journey]) -> tuple[str, ...]:
    """What was taken for granted: by the network, and of the sources of what its hosts masquerade."""
    sources = {
        (hop.host, source): None
        for item in found
        for hop in (*item.there, *item.back)
        if (source := assumed_source(network.host(hop.host).host, hop.outcome)) is not None
    }
    taken = (
        f"{host}: the source of what it masquerades is taken to be {source}, its only known address: no ip-addr.json"
        for host, source in sources
    )
    return (*network.notes, *taken)


def missing_on_the_way(network: KnownNetwork, found: Sequence[Journey]) -> tuple[str, ...]:
    """What the snapshot lacks of the hosts that the journeys come by, as far as it decides ways."""
    return tuple(str(each) for host in _met(network, found) for each in host.missing if each.decides)


def unseen_on_the_way(network: KnownNetwork, found: Sequence[Journey]) -> tuple[Unseen, ...]:
    """What was not seen of the hosts that the journeys come by, of rules of the packets' family, and what the network
    suspects."""
    families = {hop.arrived.family for item in found for hop in item.there}
    names = {"", *(family.value for family in families)}
    unseen = (each for host in _met(network, found) for each in host.unseen_by_packet(families) if each.family in names)
    return (*unseen, *network.suspected)


def _met(network: KnownNetwork, found: Sequence[Journey]) -> list[HostFacts]:
    hosts = dict.fromkeys(hop.host for item in found for hop in (*item.there, *item.back))
    return [network.cluster.hosts[name] for name in hosts if name in network.cluster.hosts]


def journey_record(item: Journey, *, steps: bool = False) -> JourneyRecord:
    """One journey. `steps`: with everything that happened on its hosts, not only the rules that matched."""
    there, back = (tuple(_hop(hop, steps) for hop in hops) for hops in (item.there, item.back))
    names = ("end", "at", "pod", "source", "target", "reason")
    told = {name: getattr(item, name) for name in names}
    return JourneyRecord(probability=exact(item.probability), there=there, back=back, **told)


def _hop(hop: Hop, steps: bool) -> HopRecord:
    came, left, outcome = hop.arrived, hop.left, hop.outcome
    entry = outcome.connection
    return HopRecord(
        host=hop.host,
        src=came.source,
        dst=came.destination,
        left_src=left.source,
        left_dst=left.destination,
        in_interface=came.in_interface or "",
        out_interface=outcome.device,
        reason=outcome.reason or "; ".join(outcome.reasons),
        outer=hop.outer,
        rules=tuple(map(rule_step, outcome.path)),
        error=error_name(came),
        held=hop.held,
        mark=f"0x{left.mark:x}" if left.mark else "",
        ctstate=(entry.state or "") if entry is not None else "",
        conntrack=_entry(entry, left.family),
        steps=tuple(map(_step, outcome.steps)) if steps else (),
        **{name: getattr(outcome, name) for name in ("verdict", "via", "dnat", "snat", "hints")},
    )


def _step(step: Step) -> StepRecord:
    src, _, dst = step.did.partition(" becomes ")[2].partition(" -> ") if step.kind == "translate" else ("", "", "")
    return StepRecord(kind=step.kind, src=src, dst=dst, **step_fields(step))


def _entry(entry: Connection | None, family: Family) -> dict[str, tuple[str, str]] | None:
    if entry is None or not entry.translated or entry.original is None or entry.reply is None:
        return None
    return {
        name: (format_endpoint(family, flow.src, flow.sport), format_endpoint(family, flow.dst, flow.dport))
        for name, flow in (("original", entry.original), ("reply", entry.reply))
    }
