"""What becomes of packets: the whole distribution at a point, and in words how two sides differ in it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeVar

from kproxy.dataplane.compare.witness import Values
from kproxy.dataplane.model.packet import format_endpoint
from kproxy.dataplane.model.verdict import ACCEPT, DROP, INDETERMINATE
from kproxy.dataplane.symbolic.build import Setup
from kproxy.dataplane.symbolic.leaves import Outcome
from kproxy.dataplane.symbolic.nodes import ZERO, Node
from kproxy.dataplane.symbolic.table import TABLE
from kproxy.dataplane.symbolic.translated import KEEP, UNKNOWN, Destination
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import Family
from kproxy.netfilter.field import PORT_PROTOCOLS

_MAX_PARTS: Final = 4

Here = tuple[int, int]
"""The destination that a packet has: address and port, the port 0 if its protocol has none."""


class Fate(NamedTuple):
    """One thing that can become of a packet: where it goes, and the rest. Without a destination it goes nowhere."""

    destination: Destination | None
    outcome: Outcome


Distribution = dict[Fate, Fraction]


_Key = TypeVar("_Key", bound=Hashable)


def summed(parts: Iterable[tuple[_Key, Fraction]]) -> dict[_Key, Fraction]:
    """Chances by key, those of equal keys added up."""
    result: dict[_Key, Fraction] = {}
    for key, weight in parts:
        result[key] = result.get(key, Fraction(0)) + weight
    return result


def distribution_at(setup: Setup, node: Node, values: Mapping[int, int]) -> Distribution:
    """Everything that can become of the packet with these values, with its chances."""
    return summed(_fates(setup, node, values))


def _fates(setup: Setup, node: Node, values: Mapping[int, int]) -> Iterator[tuple[Fate, Fraction]]:
    variables, diagrams = setup.variables, setup.variables.diagrams
    while diagrams.level[node] < variables.destination:
        node = diagrams.at_level(node, values)
    pending = []
    start = 0
    for end, child in zip(*diagrams.parts(node, variables.destination), strict=True):
        if child != ZERO:
            pending += [(destination, child) for destination in range(start, end)]
        start = end
    here = Values(variables, values).destination
    for destination, child in pending:
        leaf = diagrams.at(child, values)
        for symbolic, weight in setup.outcomes.entries(leaf):
            outcome = setup.outcomes.settled(symbolic, values)
            fate = Fate(None, outcome._replace(source=""))
            if outcome.goes_on:
                fate = Fate(exact(setup.translation.destinations[destination], here), outcome)
            yield fate, weight


def exact(destination: Destination, here: tuple[int, int]) -> Destination:
    """A translated destination in full, for a packet that was sent here."""
    if destination.text:
        return destination
    return Destination(
        here[0] if destination.address == KEEP else destination.address,
        here[1] if destination.port == KEEP else destination.port,
    )


# --- in words ---


def share(weight: Fraction) -> str:
    """A probability for reading: exact if short, else the nearest short fraction that iptables would round to it."""
    near = weight.limit_denominator(10_000)
    if near == weight or abs(near - weight) < Fraction(1, 1 << 26):
        return "all" if near == 1 else f"{near.numerator}/{near.denominator}"
    return f"{float(weight):.6%}"


class FateWords(NamedTuple):
    """What a side does with a packet, and the rest of the sentence: `sends`, `to 10.244.0.36:8080`; `drops` and
    nothing; `rejects`, `(icmp-port-unreachable)`."""

    verb: str
    rest: str

    def sentence(self, share: str) -> str:
        """With how much of the packets it does so: `1/2`."""
        return " ".join(filter(None, (self.verb, share, self.rest)))


_SENDS: Final = "sends"


class _Told(NamedTuple):
    """What both sides differ in, and so is told of each: how the source is rewritten, how marks end, the rest."""

    source: bool
    marks: bool
    rest: bool


def _fate_words(family: Family, fate: Fate, ports: bool, told: _Told, here: Here | None) -> FateWords:
    """One fate in words."""
    outcome = fate.outcome
    if outcome.verdict == INDETERMINATE:
        verb, text = "leaves", f"undecided ({outcome.detail})"
    elif outcome.verdict != ACCEPT or fate.destination is None:
        verb, text = ("drops", "") if outcome.verdict == DROP else ("rejects", f"({outcome.detail})")
    else:
        verb, text = _SENDS, f"to {_destination_text(family, fate.destination, ports, here)}"
    details = []
    if told.source and outcome.verdict == ACCEPT:
        details.append(f"source rewritten by {outcome.source}" if outcome.source else "source as it is")
    if told.rest and outcome.verdict != INDETERMINATE:
        details += [*map(_field_text, outcome.fields), *outcome.headers, *sorted(outcome.effects)]
    marks = f"(mark bits {_marks_text(outcome)})" if told.marks and outcome.marks else ""
    return FateWords(verb, " ".join(filter(None, (text, f"({'; '.join(details)})" if details else "", marks))))


def _field_text(field: tuple[str, tuple[int, ...]]) -> str:
    """How a header's field ends that has changed: `TTL 5`."""
    name, ends = field
    row = next(row for row in TABLE if row.name == name)
    return f"{row.words} {ends[0]}"


def _destination_text(family: Family, destination: Destination, ports: bool, here: Here | None) -> str:
    if (destination.address, destination.port, destination.text) == (*(here or (-1, -1)), ""):
        return "its own destination"
    if not destination.text:
        return format_endpoint(family, destination.address, destination.port if ports else None)
    if destination.address == UNKNOWN:
        return destination.text
    return f"{format_address(destination.address, family)} ({destination.text})"


def distributions_text(
    family: Family, protocol: int, one: Distribution, other: Distribution, here: Here | None = None
) -> tuple[str, str]:
    """Two distributions in words, without what both have in common. `here` is the packet's own
    destination, if that is to be called so."""
    if differ_in_source(one, other):
        return _only_source(one, other)
    told = _Told(_sources(one) != _sources(other), _without(one, marks=()) == _without(other, marks=()),
                 _rests(one) != _rests(other))  # fmt: skip
    ports = protocol in PORT_PROTOCOLS
    first, second = (
        summed((_fate_words(family, fate, ports, told, here), weight) for fate, weight in item.items())
        for item in (one, other)
    )
    same = first.items() & second.items()
    if min(len(first), len(second)) <= _MAX_PARTS or len(same) in (0, len(first), len(second)):
        return _parts_text(first), _parts_text(second)
    texts = [
        _parts_text({words: weight for words, weight in item.items() if (words, weight) not in same}, partly=True)
        for item in (first, second)
    ]
    return f"{texts[0]}, the rest as B", f"{texts[1]}, the rest as A"


def end_of(item: Distribution) -> str:
    """What becomes of every packet: `dropped`, `rejected`, `sent`; "" if it is not the same of all, or not decided."""
    ends = {{ACCEPT: "sent", DROP: "dropped", INDETERMINATE: ""}.get(fate.outcome.verdict, "rejected") for fate in item}
    return ends.pop() if len(ends) == 1 else ""


def differ_in_source(one: Distribution, other: Distribution) -> bool:
    """Whether two distributions differ only in how the source is rewritten."""
    return _without(one, source="") == _without(other, source="")


def _without(item: Distribution, **cleared: Any) -> Distribution:
    """A distribution in which some fields of outcomes are cleared, so that these tell none apart."""
    return summed((fate._replace(outcome=fate.outcome._replace(**cleared)), weight) for fate, weight in item.items())


def _sources(item: Distribution) -> set[str]:
    return {fate.outcome.source for fate in item if fate.outcome.verdict == ACCEPT}


def _rests(item: Distribution) -> set[tuple[object, ...]]:
    return {(fate.outcome.fields, fate.outcome.headers, fate.outcome.effects) for fate in item}


def _only_source(one: Distribution, other: Distribution) -> tuple[str, str]:
    """Two distributions that differ only in how the source is rewritten."""
    texts = []
    for item in (one, other):
        accepted = ((fate.outcome, weight) for fate, weight in item.items() if fate.outcome.verdict == ACCEPT)
        parts = summed((outcome.source, weight) for outcome, weight in accepted)
        total = sum(parts.values())
        shown = []
        for source, weight in sorted(parts.items(), key=lambda part: (-part[1], part[0])):
            how = f"rewrites the source ({source})" if source else "leaves the source as it is"
            shown.append(how if weight == total else f"{how} for {share(weight)}")
        texts.append(", ".join(shown))
    return texts[0], texts[1]


def _parts_text(parts: dict[FateWords, Fraction], *, partly: bool = False) -> str:
    if len(parts) == 1 and not partly:
        only = next(iter(parts))
        return only.sentence("all" if only.verb == _SENDS else "it")
    shown = sorted(parts.items(), key=lambda part: (-part[1], part[0]))
    even = {share(weight) for weight in parts.values()}
    if len(shown) > _MAX_PARTS and len(even) == 1 and {words.verb for words in parts} == {_SENDS}:
        return _evenly([words.rest for words, _ in shown], even.pop())
    by_verb: dict[str, list[str]] = {}
    for words, weight in shown[:_MAX_PARTS]:
        by_verb.setdefault(words.verb, []).append(words._replace(verb="").sentence(share(weight)))
    found = [f"{verb} {_joined(items)}" for verb, items in by_verb.items()]
    if len(shown) > _MAX_PARTS:
        found[-1] += f", and {len(shown) - _MAX_PARTS} more"
    return _joined(found)


def _evenly(rests: Sequence[str], each: str) -> str:
    """Many destinations that get the same share; what is said of all of them is said once."""
    details = {rest.partition(" (")[2] for rest in rests}
    common = f" ({details.pop()}" if len(details) == 1 and details != {""} else ""
    names = [rest.removeprefix("to ").removesuffix(common) for rest in sorted(rests)[:_MAX_PARTS]]
    return f"{_SENDS} {each} each to {', '.join(names)} and {len(rests) - _MAX_PARTS} more{common}"


def _joined(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" and {words[-1]}"


def _marks_text(outcome: Outcome) -> str:
    """The values of the bits that are compared, the highest first."""
    return "".join("1" if expression else "0" for _, expression in outcome.marks)
