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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Final, NamedTuple

from kproxy.dataplane.compare.causes import Cause, Causes, by_cause
from kproxy.dataplane.compare.examine import ANY, Examiner, Extent, Finding, circumstances
from kproxy.dataplane.compare.observe import assumed_index
from kproxy.dataplane.compare.regions import Place, Region, Site, differing_regions
from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.concrete.index import Index
from kproxy.dataplane.concrete.trace import TraceResult, trace
from kproxy.dataplane.model.errors import BoundReachedError, DataplaneError
from kproxy.dataplane.model.host import Host
from kproxy.dataplane.model.packet import ARRIVING
from kproxy.dataplane.symbolic.build import Setup, set_up
from kproxy.dataplane.symbolic.cases import CONNTRACK_CASES, ORIGINS, ConntrackCase
from kproxy.dataplane.symbolic.side import SideRules
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.matches import NfacctMatch
from kproxy.netfilter.iptables.ruleset import Ruleset
from kproxy.netfilter.iptables.save import collector_paused
from kproxy.netfilter.iptables.targets import LogTarget, MarkTarget, NflogTarget, TraceTarget

Progress = Callable[[str], None]
"""Is told what is being done, in a few words."""

EXAMINED: Final = 50
"""So many regions are put into words unless all are asked for."""

_RECURSION: Final = 50_000


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which the rule sets differ.

    Attributes:
        places: where packets go to for which they differ, one for each service or address, the usual ones first.
        sources: where those come from, in words (`anywhere`).
        conditions: what else must hold of them, in words; may be empty.
        one, other: what each rule set does.
        witness: a packet, its host and its connection, for which they differ.
        chances: what becomes of the witness under each, in words, with the exact probability.
        cause: the rule of one side alone that makes the difference, if there is one.
        traces: of the witness, through the one and the other.
        extent: what of the witness may be another for the same difference.
        oddness: the greater, the fewer packets fulfil the conditions.
        ends: what becomes of the witness under each, if that is certain: `dropped`, `rejected`, `sent`; else "".
        source_only: whether they differ only in how the source is rewritten.
    """

    places: tuple[Place, ...]
    sources: str
    conditions: str
    one: str
    other: str
    witness: Situation
    witness_other: Situation
    chances: tuple[tuple[tuple[str, Fraction], ...], tuple[tuple[str, Fraction], ...]]
    cause: Cause | None = None
    traces: tuple[TraceResult, ...] = field(default=(), compare=False, repr=False)
    extent: Extent = field(default=ANY, compare=False, repr=False)
    oddness: int = field(default=0, compare=False, repr=False)
    ends: tuple[str, str] = field(default=("", ""), compare=False, repr=False)
    source_only: bool = field(default=False, compare=False, repr=False)

    @property
    def rank(self) -> tuple[int, bool]:
        """The less, the more usual packets meet it: to one address, as a Service's, under few conditions; among those,
        what one side accepts and the other drops or refuses comes first."""
        usual = min((each.rank for each in self.places), default=0) + self.oddness
        return usual, not ("sent" in self.ends and {"dropped", "rejected"} & set(self.ends))

    @property
    def family(self) -> Family:
        """That of its packets."""
        return self.witness.packet.family

    @property
    def destinations(self) -> tuple[str, ...]:
        """The places in words."""
        return tuple(each.text for each in self.places)

    @property
    def situations(self) -> tuple[Situation, Situation]:
        """What the witness meets on the one side and on the other: its host may remember other things there."""
        return self.witness, self.witness_other

    def statement(self, one: str = "A", other: str = "B", max_shown: int = 3) -> str:
        """The difference in one sentence."""
        shown = ", ".join(self.destinations[:max_shown])
        if len(self.destinations) > max_shown:
            more = len(self.destinations) - max_shown
            shown += f" and {more:,} more destination{'' if more == 1 else 's'}"
        conditions = f", {self.conditions}" if self.conditions else ""
        return f"{shown} from {self.sources}{conditions}: {one} {self.one}; {other} {self.other}"


@dataclass(frozen=True, slots=True)
class Undecided:
    """Something that the model cannot decide: packets that may or may not be treated alike, and why."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Part:
    """How far a comparison came that did not end: the packets of an origin in a state, and whether they were found
    `alike` or `different`, or are `not compared`. `family`: theirs, if the comparison is of both."""

    origin: str
    state: str
    result: str
    family: str = ""


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
            tuple(replace(part, family=family.value) for family, each in found.items() for part in each.parts),
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


class _Key(NamedTuple):
    sources: str
    conditions: str
    one: str
    other: str


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
        remarks = _remarks(*sides)
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
    worded: dict[tuple[Place, tuple[str, ...]], tuple[Finding, dict[tuple[str, str], None]]] = {}
    undecided: dict[Undecided, None] = {}
    examined = 0
    diagrams.check = check
    try:
        for origin in ORIGINS:
            for state in CONNTRACK_CASES:
                check()
                tell(f"evaluating {origin} packets, {state.name}")
                found = _regions_of(setup, origin, state)
                parts[origin, state.name] = "different" if found else "alike"
                for region in found:
                    regions.setdefault(region.site, []).append(region)
        diagrams.forget()
        tell("putting differences into words")
        for examined, (site, candidates) in enumerate(regions.items(), 1):
            check()
            where = site.place(setup)
            for finding, met in examiner.examine(candidates):
                if finding.reason:
                    undecided[Undecided(where.text, finding.reason)] = None
                else:
                    pairs = worded.setdefault((where, finding.words()), (finding, {}))[1]
                    pairs |= {(region.origin, region.state.name): None for region in met}
            if examine is not None and examined >= examine and worded:
                break
    except BoundReachedError as error:
        stopped = str(error)
        diagrams.forget()
    diagrams.check = lambda: None  # what was found by then is told in any case
    unusual = 0
    if examine is not None and any(finding.is_usual for finding, _ in worded.values()):
        before = len(worded)
        worded = {key: item for key, item in worded.items() if item[0].is_usual}
        unusual = before - len(worded)
    merged: dict[_Key, dict[Place, Finding]] = {}
    for (where, _), (finding, pairs) in worded.items():
        conditions = ", ".join(filter(None, (circumstances(pairs), finding.conditions)))
        origins = frozenset(origin for origin, _ in pairs)
        begins = any(name == "NEW" for _, name in pairs)
        oddness = 2 * (ARRIVING not in origins) + 3 * (not begins) + bool(finding.conditions)
        finding = replace(finding, extent=replace(finding.extent, origins=origins), oddness=oddness)
        key = _Key(finding.sources, conditions, *finding.general)
        merged.setdefault(key, {}).setdefault(where.of_host() if finding.to_host else where, finding)
    differences = tuple(sorted((_difference(key, found) for key, found in merged.items()), key=lambda each: each.rank))
    differences = _with_causes(differences, sides, setup.family, examiner)
    left = len(regions) - examined if regions else 0
    if not differences and not undecided and not stopped:
        remarks += _mark_remarks(*sides)
    alike = not differences and not undecided and not stopped
    came = tuple(Part(*key, result) for key, result in parts.items()) if stopped else ()
    return Comparison(alike, differences, left, unusual, tuple(undecided), remarks, stopped, came)


def _regions_of(setup: Setup, origin: str, state: ConntrackCase) -> list[Region]:
    """The regions in which the sides differ for packets of an origin in a state."""
    one, other = (setup.pipeline.function(side, origin, state) for side in setup.sides)
    if one != other and setup.outcomes.has_ends:
        # Where marks and fields end alike the two are the same function, written in another way.
        other = setup.variables.diagrams.ite(setup.outcomes.different(one, other), other, one)
    return list(differing_regions(setup, origin, state, one, other))


def _difference(key: _Key, found: dict[Place, Finding]) -> Difference:
    places = tuple(sorted(found, key=lambda place: place.rank))
    finding = found[places[0]]
    assert finding.witness is not None
    assert finding.witness_other is not None
    texts = (finding.one, finding.other) if len(places) == 1 else (key.one, key.other)
    return Difference(
        places, key.sources, key.conditions, *texts, finding.witness, finding.witness_other,
        finding.chances, extent=finding.extent, oddness=finding.oddness, ends=finding.ends,
        source_only=finding.source_only,
    )  # fmt: skip


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


def _remarks(one: SideRules, other: SideRules) -> tuple[str, ...]:
    """What differs without changing how packets are treated: rules that log, and counters."""
    return _counted(_idle_texts(one), _idle_texts(other))


def _mark_remarks(one: SideRules, other: SideRules) -> tuple[str, ...]:
    """Of rule sets that are alike: rules that mark. The value that a mark ends with is compared only in bits that no
    rule asks for; of the others, routing policy or a second pass through the rules could tell."""
    return _counted(*(
        Counter(
            rule.target.to_save()
            for ruleset in side.rulesets
            for _, _, _, rule in ruleset.rules()
            if isinstance(rule.target, MarkTarget)
        )
        for side in (one, other)
    ))  # fmt: skip


def _counted(first: Counter[str], second: Counter[str]) -> tuple[str, ...]:
    return tuple(
        f"{text}: {_rules(first[text])} in the first, {second[text]} in the second"
        for text in dict.fromkeys([*sorted(first), *sorted(second)])
        if first[text] != second[text]
    )


def _rules(count: int) -> str:
    return "1 rule" if count == 1 else f"{count} rules"


def _idle_texts(rules: SideRules) -> Counter[str]:
    counts: Counter[str] = Counter()
    for _, _, _, rule in (found for ruleset in rules.rulesets for found in ruleset.rules()):
        counts.update(match.to_save() for match in rule.matches if isinstance(match, NfacctMatch))
        if isinstance(rule.target, (LogTarget, NflogTarget, TraceTarget)):
            counts[rule.target.to_save()] += 1
    return counts


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Diagrams are as deep as there are variables, and a rule set may have a variable per list or rate."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


__all__ = ["EXAMINED", "Comparison", "Difference", "Undecided", "compare", "trace_witness"]
