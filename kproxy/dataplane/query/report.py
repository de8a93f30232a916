"""A trace made ready for readers: outcomes that differ only in path merged, several possible hosts told as one where
they agree, and each outcome's reply followed back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec

from kproxy.dataplane.concrete.index import Index
from kproxy.dataplane.concrete.reply import is_answered, trace_reply
from kproxy.dataplane.concrete.trace import Outcome, trace
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.host import Host
from kproxy.dataplane.model.unseen import thing_of_reason
from kproxy.dataplane.model.verdict import INDETERMINATE, REJECT
from kproxy.dataplane.query.assumptions import Surroundings, assumed_source
from kproxy.dataplane.query.spec import Question
from kproxy.netfilter.family import protocol_name
from kproxy.netfilter.hooks import HOOKS_IN_ORDER


class Reply(
    msgspec.Struct, frozen=True, omit_defaults=True,
    rename={"received_src": "receivedSrc", "received_dst": "receivedDst", "out_interface": "out"},
):  # fmt: skip
    """The answer to an outcome; docs/trace.md has its JSON.

    Attributes:
        kind: what it is: `TCP RST`, `ICMP icmp-port-unreachable`; the protocol for an ordinary reply.
        verdict: what becomes of it on this host.
        src, dst: source and destination as the answering side sends it.
        received_src, received_dst: the same as it leaves this host, or reaches the process here that waits for it; `?`
            where open.
        reason: why, if it is not accepted.
        out_interface: by which interface it leaves this host, several with ` or ` between; "" if it does not leave, or
            that is not known. Routes decide, so it may be another one than the packet came by.
    """

    kind: str
    verdict: str
    src: str
    dst: str
    received_src: str
    received_dst: str
    reason: str = ""
    out_interface: str = ""


@dataclass(frozen=True, slots=True)
class Reported:
    """An outcome, or several that differ only in path as one: the likeliest of them with the probability of all."""

    outcome: Outcome
    reply: Reply | None


@dataclass(frozen=True, slots=True)
class Report:
    """The answer to a question; `assumptions` are what was taken for granted because it was not given.
    `hooks` are the base chains of each hook in order, of a host with more than the rules of one iptables."""

    question: Question
    outcomes: tuple[Reported, ...]
    assumptions: tuple[str, ...] = ()
    hooks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def report(
    index: Index,
    surroundings: Surroundings,
    question: Question,
    *,
    paths: bool = False,
    limit: bool | None = None,
    assumed: Mapping[str, bool] | None = None,
    told: frozenset[str] = frozenset(),
) -> Report:
    """Trace a packet and follow the replies. `paths`, `limit`, `assumed` and `told` as for `trace`.

    Raises:
        DataplaneError: see `trace`.
    """

    def traced(host: Host) -> list[Outcome]:
        found = trace(
            index, question.on(host), question.packet, question.connection, paths=paths, limit=limit, assumed=assumed,
            told=told,
        ).outcomes  # fmt: skip
        return list(found) if paths else merge(found)

    host, assumptions = surroundings.fitting[0], surroundings.assumptions
    outcomes = traced(host)
    for other in surroundings.fitting[1:]:
        rival = traced(other)
        joined = _same_everywhere(outcomes, rival)
        if joined is None:
            host = surroundings.host
            outcomes = _explained(traced(host), [*outcomes, *rival], surroundings.question)
            break
        outcomes = joined
    reported = tuple(Reported(item, reply_of(index, question.on(host), item, assumed)) for item in outcomes)
    shown = HOOKS_IN_ORDER if index.several or index.nftables is not None else ()
    hooks = {hook.value: lines for hook in shown if (lines := index.pipeline.describe(hook))}
    return Report(question, reported, (*assumptions, *_odd(host, question), *_sources(host, outcomes)), hooks)


def _sources(host: Host, outcomes: list[Outcome]) -> tuple[str, ...]:
    """What is taken for granted of masqueraded packets' sources."""
    sources = dict.fromkeys(filter(None, (assumed_source(host, item) for item in outcomes)))
    return tuple(
        f"{source}, the only address given, is the source of what is masqueraded; in fact it is that of the interface "
        "that the packet leaves by (--host)"
        for source in sources
    )


def _odd(host: Host, question: Question) -> tuple[str, ...]:
    """What is strange about the question, and may be a mistake."""
    name = question.packet.in_interface
    if not name or host.interfaces is None or name in host.interfaces:
        return ()
    return (f"the packet arrives on {name}, though the host has only {', '.join(host.interfaces) or 'no interface'}",)


def _explained(outcomes: list[Outcome], differing: list[Outcome], why: str) -> list[Outcome]:
    """The one outcome that is INDETERMINATE because it differs from host to host, with what it is on each."""
    if len(outcomes) != 1 or outcomes[0].verdict != INDETERMINATE:
        return outcomes
    only = outcomes[0]
    unseen = [reason for reason in only.reasons if thing_of_reason(reason)]
    hints = (_hint(why), *(hint for hint in only.hints if hint.startswith("--assume ") and unseen))
    possible = _possible([only, *differing])
    return [dataclasses.replace(only, reason=why, reasons=(why, *unseen), hints=hints, possible=possible)]


def one_of(reports: Sequence[Report], why: str) -> Report:
    """The answer of which it is not known which of some rule sets a host has: INDETERMINATE, unless they agree. `why`
    says what that depends on."""
    first = reports[0]
    kinds = {frozenset((essence(each.outcome), each.outcome.probability) for each in item.outcomes) for item in reports}
    if len(kinds) == 1:
        return first
    only = undecided([each.outcome for item in reports for each in item.outcomes], why)
    return dataclasses.replace(first, outcomes=(Reported(only, None),))


def undecided(outcomes: Sequence[Outcome], why: str) -> Outcome:
    """What becomes of a packet that comes to one of these outcomes: INDETERMINATE, for the reason `why`, with what they
    agree on."""
    possible = _possible(outcomes)
    return dataclasses.replace(
        outcomes[0], probability=Fraction(1), verdict=INDETERMINATE,
        packet=possible[0].packet.common(each.packet for each in possible),
        dnat=all(each.dnat for each in possible), snat=all(each.snat for each in possible),
        masquerade=all(each.masquerade for each in possible), hook="", via="", reject="", reason=why, reasons=(why,),
        possible=possible, connection=None, steps=(), hints=(),
    )  # fmt: skip


def _possible(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """All that outcomes may turn out to be, each once."""
    ends = (end for item in outcomes for end in (item.possible if item.verdict == INDETERMINATE else (item,)))
    return tuple({(essence(end), end.hook, end.device): end for end in ends}.values())


def _hint(why: str) -> str:
    """What settles whether an address is the host's own."""
    return f"--local-ip {why.split()[1]}" if why.endswith("(--local-ip)") else "--host FILE"


def merge(outcomes: tuple[Outcome, ...]) -> list[Outcome]:
    """The outcomes with those made one that a reader cannot tell apart, but by their path; the likeliest first."""
    found: dict[tuple[object, ...], Outcome] = {}
    for item in outcomes:
        key = (*essence(item), item.hook, item.via, item.packet.out_interface)
        other = found.get(key)
        if other is None:
            found[key] = item
            continue
        chosen = item if item.probability > other.probability else other
        found[key] = dataclasses.replace(chosen, probability=item.probability + other.probability)
    return sorted(found.values(), key=_order)


def _order(outcome: Outcome) -> tuple[object, ...]:
    """Chances that differ only because the kernel rounds them count as equal: then addresses decide."""
    packet = outcome.packet
    return (-round(float(outcome.probability), 6), outcome.verdict, packet.dst or 0, packet.dport or 0, outcome.hook)


def essence(outcome: Outcome) -> tuple[object, ...]:
    """What a reader tells outcomes apart by, but for where they ended."""
    return (
        outcome.verdict, outcome.src, outcome.dst, outcome.dnat, outcome.masquerade, outcome.reject, outcome.reasons,
    )  # fmt: skip


def _same_everywhere(one: list[Outcome], other: list[Outcome]) -> list[Outcome] | None:
    """Two hosts' outcomes as one, with hooks and devices left open where they differ; None if more than that does."""
    if len(one) != len(other):
        return None
    rest = list(other)
    joined = []
    for item in one:
        twins = [twin for twin in rest if essence(twin) == essence(item) and twin.probability == item.probability]
        if not twins:
            return None
        twin = min(twins, key=lambda found: found.hook != item.hook)
        rest.remove(twin)
        if item.verdict == INDETERMINATE:
            item = dataclasses.replace(item, possible=_possible([item, twin]))
        if (item.hook, item.via, item.packet) != (twin.hook, twin.via, twin.packet):
            hooks = dict.fromkeys((*item.hook.split(" or "), *twin.hook.split(" or ")))
            item = dataclasses.replace(item, hook=" or ".join(hooks), via=item.via if item.via == twin.via else "")
        joined.append(item)
    return joined


def reply_of(index: Index, host: Host, outcome: Outcome, assumed: Mapping[str, bool] | None = None) -> Reply | None:
    """What comes back; None if nothing does, or if that is unknown."""
    if not is_answered(outcome):
        return None
    kind = protocol_name(outcome.packet.protocol)
    if outcome.verdict == REJECT:
        kind = "TCP RST" if outcome.reject == "tcp-reset" else f"ICMP {outcome.reject}"
    try:
        result = trace_reply(index, host, outcome, assumed=assumed)
    except DataplaneError as error:
        return Reply(kind, INDETERMINATE, outcome.dst, outcome.src, "?", "?", str(error))
    sent = (result.packet.source, result.packet.destination)
    found = merge(result.outcomes)
    leaves = " or ".join(dict.fromkeys(each.device for item in found for each in (item, *item.possible) if each.device))
    if len(found) == 1:
        only = found[0]
        why = only.reason or "; ".join(only.reasons)
        return Reply(kind, only.verdict, *sent, only.src, only.dst, why, leaves)
    ends = {(item.verdict, item.src, item.dst) for item in found}
    if len(ends) == 1:
        return Reply(kind, found[0].verdict, *sent, found[0].src, found[0].dst, out_interface=leaves)
    reasons = dict.fromkeys(reason for item in found for reason in (item.reason, *item.reasons) if reason)
    return Reply(kind, INDETERMINATE, *sent, "?", "?", "; ".join(reasons) or "it depends on chance")
