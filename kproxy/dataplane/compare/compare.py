"""`compare`: do two rule sets treat every packet alike?

They do if their verdicts, rewrites and the probabilities of both agree for every packet, origin, connection state and
host. The answer does not rest on samples; docs/diff.md says why it is complete, docs/symbolic.md how. In short: rule
sets of the same structure are alike (`symbolic.normalize`); of others, the function from packets to distributions is
built for both (`symbolic.hooks`) in a form in which equal functions are one number (`symbolic.mtbdd`). Where the
numbers differ, packets are picked from the regions in which they do, and each difference is reported with one that the
concrete evaluator, which shares no code with the symbolic one, treats differently too. What cannot be shown that way is
listed as undecided.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec

from kproxy.dataplane.compare.causes import Causes
from kproxy.dataplane.compare.difference import Difference, Place, by_cause
from kproxy.dataplane.compare.examine import Examiner, circumstances
from kproxy.dataplane.compare.observe import assumed_index
from kproxy.dataplane.compare.regions import Region, Site, differing_regions
from kproxy.dataplane.concrete.index import Index
from kproxy.dataplane.concrete.trace import TraceResult, trace
from kproxy.dataplane.model.errors import BoundReachedError, DataplaneError
from kproxy.dataplane.model.host import Host
from kproxy.dataplane.model.packet import ARRIVING
from kproxy.dataplane.symbolic.build import Setup, set_up
from kproxy.dataplane.symbolic.cases import CONNTRACK_CASES, ORIGINS, ConntrackCase
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.matches import NfacctMatch
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.iptables.ruleset import Ruleset
from kproxy.netfilter.iptables.save import collector_paused
from kproxy.netfilter.iptables.targets import LogTarget, MarkTarget, NflogTarget, TraceTarget
from kproxy.words import counted

Progress = Callable[[str], None]
"""Is told what is being done, in a few words."""

EXAMINED: Final = 50
"""So many regions are put into words unless all are asked for."""

_RECURSION: Final = 50_000


class Undecided(msgspec.Struct, frozen=True):
    """Something that the model cannot decide: packets that may or may not be treated alike, and why."""

    where: str
    reason: str


class Part(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How far a comparison came that did not end: the packets of an origin in a state, and whether they were found
    `alike` or `different`, or are `not compared`. `family`: theirs, if the comparison is of both."""

    family: str = ""
    origin: str
    state: str
    result: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer.

    Attributes:
        alike: whether every packet is treated alike; False too where that cannot be decided.
        differences: those that were put into words.
        unexamined: how many more destinations differ.
        unusual: how many findings were left out because more usual packets show a difference: those about connections
            that are translated already, broadcast addresses, endpoints that are the host's own.
        undecided: what the model cannot decide.
        remarks: differences that change no packet's treatment.
        stopped: why it ended before it was done; "" if it was not.
        parts: how far it came, if it was stopped.
        families: those of the packets that were compared, where rules of both are there; else none.
    """

    alike: bool
    differences: tuple[Difference, ...] = ()
    unexamined: int = 0
    unusual: int = 0
    undecided: tuple[Undecided, ...] = ()
    remarks: tuple[str, ...] = ()
    stopped: str = ""
    parts: tuple[Part, ...] = ()
    families: tuple[Family, ...] = ()

    @classmethod
    def of(cls, found: Mapping[Family, Comparison]) -> Comparison:
        """The answers for one family or for both as one."""
        if len(found) == 1:
            return next(iter(found.values()))
        answers = found.values()
        return cls(
            all(each.alike for each in answers),
            tuple(sorted((item for each in answers for item in each.differences), key=lambda item: item.rank)),
            sum(each.unexamined for each in answers),
            sum(each.unusual for each in answers),
            tuple(
                Undecided(f"{family.value} {item.where}", item.reason)
                for family, each in found.items()
                for item in each.undecided
            ),
            tuple(dict.fromkeys(text for each in answers for text in each.remarks)),
            next((each.stopped for each in answers if each.stopped), ""),
            tuple(
                msgspec.structs.replace(part, family=family.value)
                for family, each in found.items()
                for part in each.parts
            ),
            tuple(found),
        )

    @property
    def findings(self) -> list[list[Difference]]:
        """The differences of a family that have one cause together."""
        groups = [
            group
            for family in Family
            for group in by_cause((each for each in self.differences if each.family is family), lambda each: each.cause)
        ]
        return sorted(groups, key=lambda group: group[0].rank)

    def family_of(self, item: Difference) -> str:
        """The family that an answer for both names with a difference; else ""."""
        return item.family.value if len(self.families) > 1 else ""


def compare(
    one: Ruleset | SideRules,
    other: Ruleset | SideRules,
    *,
    family: Family | None = None,
    host: Host | None = None,
    progress: Progress | None = None,
    examine: int | None = EXAMINED,
    check: Callable[[], None] | None = None,
) -> Comparison:
    """Compare two rule sets, or all rules of two hosts.

    `family` says for which packets, if no rule does: tables of nftables can be for both.
    With `host`, only packets that its known addresses allow count; else what holds must hold for every host. `examine`
    limits how many differing regions are put into words, and leaves out unusual packets where usual ones differ, too
    (`Comparison.unusual`); None: everything. `check` is called again and again, and ends the comparison by raising
    `BoundReachedError`: the answer then has what was found until then.

    Raises:
        DataplaneError: the rule sets are of two families, or one jumps to a chain that is not there, or in a loop.
    """
    sides = (SideRules.of(one), SideRules.of(other))
    families = {rules.family for rules in sides if rules.family is not None}
    if len(families) > 1:
        raise DataplaneError("rule sets of one family expected, not one of IPv4 and one of IPv6")
    tell = progress or (lambda _what: None)
    with collector_paused(), deep_recursion():
        tell("comparing structure")
        setup = set_up(*sides, family)
        remarks = _remarks(sides, _idle_texts)
        empty = setup.structure.chain(())
        if setup.sides[0].key(empty) == setup.sides[1].key(empty):
            return Comparison(True, remarks=remarks)
        return _compare(setup, sides, host, tell, examine, remarks, check or (lambda: None))


def _compare(
    setup: Setup,
    sides: tuple[SideRules, SideRules],
    host: Host | None,
    tell: Progress,
    examine: int | None,
    remarks: tuple[str, ...],
    check: Callable[[], None],
) -> Comparison:
    diagrams, stopped = setup.variables.diagrams, ""
    examiner = Examiner(setup, sides, host)
    regions: dict[Site, list[Region]] = {}
    parts = {(origin, state.name): "not compared" for origin in ORIGINS for state in CONNTRACK_CASES}
    worded: dict[tuple[Place, object], tuple[Difference, dict[tuple[str, str], None]]] = {}
    undecided: dict[Undecided, None] = {}
    examined = 0
    diagrams.check = check
    try:
        for origin in ORIGINS:
            for state in CONNTRACK_CASES:
                check()
                tell(f"evaluating {origin} packets, {state.name}")
                differing = _regions_of(setup, origin, state)
                parts[origin, state.name] = "different" if differing else "alike"
                for region in differing:
                    regions.setdefault(region.site, []).append(region)
        diagrams.forget()
        tell("putting differences into words")
        for examined, (site, candidates) in enumerate(regions.items(), 1):
            check()
            where = site.place(setup)
            for found, region in examiner.examine(candidates):
                if isinstance(found, str):
                    undecided[Undecided(where.text, found)] = None
                else:
                    _, pairs = worded.setdefault((where, found.wording), (found, {}))
                    pairs[region.origin, region.state.name] = None
            if examine is not None and examined >= examine and worded:
                break
    except BoundReachedError as error:
        stopped = str(error)
        diagrams.forget()
    diagrams.check = lambda: None  # what was found by then is told in any case
    unusual = 0
    if examine is not None and any(item.is_usual for item, _ in worded.values()):
        before = len(worded)
        worded = {key: item for key, item in worded.items() if item[0].is_usual}
        unusual = before - len(worded)
    alike: dict[object, dict[Place, Difference]] = {}
    for (where, _), (item, pairs) in worded.items():
        origins = frozenset(origin for origin, _ in pairs)
        begins = any(name == "NEW" for _, name in pairs)
        item = replace(
            item,
            conditions=", ".join(filter(None, (circumstances(pairs), item.conditions))),
            extent=replace(item.extent, origins=origins),
            oddness=2 * (ARRIVING not in origins) + 3 * (not begins) + bool(item.conditions),
        )
        held = alike.setdefault((item.sources, item.conditions, item.general), {})
        held.setdefault(where.of_host() if item.to_host else where, item)
    differences = tuple(sorted(map(_of_places, alike.values()), key=lambda each: each.rank))
    differences = _with_causes(differences, sides, setup.family, examiner)
    left = len(regions) - examined if regions else 0
    sure = not differences and not undecided and not stopped
    if sure:
        remarks += _remarks(sides, _mark_texts)
    came = tuple(Part(origin=origin, state=state, result=parts[origin, state]) for origin, state in parts if stopped)
    return Comparison(sure, differences, left, unusual, tuple(undecided), remarks, stopped, came)


def _of_places(held: Mapping[Place, Difference]) -> Difference:
    """The same difference at several places as one."""
    places = tuple(sorted(held, key=lambda place: place.rank))
    item = replace(held[places[0]], places=places)
    return item if len(places) == 1 else replace(item, one=item.general[0], other=item.general[1])


def _regions_of(setup: Setup, origin: str, state: ConntrackCase) -> list[Region]:
    """The regions in which the sides differ for packets of an origin in a state."""
    one, other = (setup.pipeline.function(side, origin, state) for side in setup.sides)
    if one != other and setup.outcomes.has_ends:
        # Where marks and fields end alike the two are the same function, written in another way.
        other = setup.variables.diagrams.ite(setup.outcomes.different(one, other), other, one)
    return list(differing_regions(setup, origin, state, one, other))


def _with_causes(
    differences: tuple[Difference, ...],
    sides: tuple[SideRules, SideRules],
    family: Family,
    examiner: Examiner,
) -> tuple[Difference, ...]:
    if not differences:
        return ()
    causes = Causes(sides, family)
    indexes = (examiner.index(0), examiner.index(1))
    found = []
    for item in differences:
        traces = trace_witness(indexes, item)
        cause = causes.of(traces, item.situations, partial(examiner.alike, item.situations))
        found.append(replace(item, cause=cause, traces=traces))
    return tuple(replace(item, cause=causes.joined(item.cause)) for item in found)


def trace_witness(
    rulesets: tuple[Ruleset | Index, Ruleset | Index], difference: Difference
) -> tuple[TraceResult, TraceResult]:
    """The two traces of a difference's witness."""
    first, second = (
        trace(assumed_index(rules, item), item.host, item.packet, item.connection)
        for rules, item in zip(rulesets, difference.situations, strict=True)
    )
    return first, second


def _remarks(sides: tuple[SideRules, SideRules], texts: Callable[[Rule], Iterable[str]]) -> tuple[str, ...]:
    """What differs without changing how packets are treated: how many rules there are of each text."""
    first, second = (
        Counter(text for ruleset in side.rulesets for *_, rule in ruleset.rules() for text in texts(rule))
        for side in sides
    )
    return tuple(
        f"{text}: {counted(first[text], 'rule')} in the first, {second[text]} in the second"
        for text in dict.fromkeys([*sorted(first), *sorted(second)])
        if first[text] != second[text]
    )


def _idle_texts(rule: Rule) -> Iterator[str]:
    """Logging and counters."""
    yield from (match.to_save() for match in rule.matches if isinstance(match, NfacctMatch))
    if isinstance(rule.target, (LogTarget, NflogTarget, TraceTarget)):
        yield rule.target.to_save()


def _mark_texts(rule: Rule) -> Iterator[str]:
    """Marks, of rule sets that are alike. The value that a mark ends with is compared only in bits that no rule asks
    for; of the others, routing policy or a second pass through the rules could tell."""
    if isinstance(rule.target, MarkTarget):
        yield rule.target.to_save()


def comparison_record(found: Comparison, labels: Sequence[str]) -> dict[str, object]:
    """The JSON of `kproxy diff -o json`, whose fields docs/diff.md lists. `labels` name the two sides."""
    return {
        "alike": found.alike,
        **({"families": found.families} if found.families else {}),
        "a": labels[0],
        "b": labels[1],
        "differences": [
            {**({"family": family} if (family := found.family_of(item)) else {}), **item.record}
            for item in found.differences
        ],
        "unexamined": found.unexamined,
        "unusual": found.unusual,
        "undecided": found.undecided,
        "remarks": found.remarks,
        **({"stopped": found.stopped, "parts": found.parts} if found.stopped else {}),
    }


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Diagrams are as deep as there are variables, and a rule set may have a variable per list or rate."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
