"""Examining where two outcome functions differ: a confirmed witness for each position, and the difference in words.

Packets are picked (`witness_search`) from the region in which two functions differ, one per path of the diagram, until
the concrete evaluator confirms one. A region that no packet can be in (an address cannot be local and not local) is no
difference; one that the evaluator does not confirm is undecided, and is said to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, cached_property
from typing import Final, NamedTuple

from kproxy.dataplane.compare.causes import Edit, undone
from kproxy.dataplane.compare.consistency import correlated
from kproxy.dataplane.compare.describe import Side, box_around, box_text, intervals_of
from kproxy.dataplane.compare.difference import ALL, Difference, Extent
from kproxy.dataplane.compare.observe import Observed, index_rules, observe, watch_of
from kproxy.dataplane.compare.outcome_words import (
    Distribution,
    Fate,
    differ_in_source,
    distribution_at,
    distributions_text,
    end_of,
)
from kproxy.dataplane.compare.regions import Region
from kproxy.dataplane.compare.witness import Situation, Values, situation_of
from kproxy.dataplane.compare.witness_search import DOCUMENTATION, WitnessSearch
from kproxy.dataplane.concrete.index import Index
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.host import MULTICAST_NETWORKS, Host
from kproxy.dataplane.model.verdict import INDETERMINATE
from kproxy.dataplane.symbolic.build import Setup
from kproxy.dataplane.symbolic.cases import CONNTRACK_CASES
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.quantify import exists, for_all
from kproxy.dataplane.symbolic.table import PacketVariables
from kproxy.dataplane.symbolic.translated import Destination
from kproxy.dataplane.symbolic.variables import LOCAL, UNICAST
from kproxy.netfilter.address import parse_address
from kproxy.netfilter.effect import Nat
from kproxy.netfilter.family import Family

_MAX_TRIES: Final = 60
_MAX_MULTICAST: Final = 8
"""How many packets to one multicast address are tried: which of them are routed, and so not modelled, is not asked."""
_MAX_BOXES: Final = 3
NOT_MODELLED: Final = "multicast is not modelled"
"""What the evaluator says of multicast once it is routed."""
UNCONFIRMED: Final = "the model sees a difference here that traces do not confirm"
TOO_MANY: Final = "the model sees a difference here, and too many regions to find a packet in"
CONTRADICTION: Final = "the model sees a difference here, only for packets that contradict themselves as far as tried"

Found = Difference | str
"""A confirmed difference; or why one is not decided."""


class Shown(NamedTuple):
    """A confirmed difference at a point: the distributions, and the situation for each side."""

    point: dict[int, int]
    one: Distribution
    other: Distribution
    situations: tuple[Situation, Situation]


class Examiner:
    """Examines regions of one comparison."""

    def __init__(self, setup: Setup, sides: tuple[SideRules, SideRules], host: Host | None) -> None:
        self._setup = setup
        self._variables = setup.variables
        self._diagrams = setup.variables.diagrams
        self._rules = sides
        self._host = host
        self.index: Callable[[int], Index] = cache(lambda number: index_rules(sides[number], setup.family))
        steps = (step for chain, step in setup.structure.steps() if chain.table is None)
        ranges = (step.addresses for step in steps if isinstance(step, Nat) and step.kind == "snat")
        self._sources = tuple(sorted({addresses[0] for addresses in ranges if addresses is not None}))
        self._search = WitnessSearch(setup, host)
        self._watches = [watch_of(setup, side) for side in setup.sides]

    @cached_property
    def _one_sided(self) -> frozenset[str]:
        """Matches whose answer nothing here tells, typed or not, and that only one rule set has."""
        opaque = {key.text for key in self._variables.free_variables if key.kind == "opaque"}
        if not opaque:
            return frozenset()
        first, second = (
            {match.to_save() for each in side.rulesets for _, _, _, rule in each.rules() for match in rule.matches}
            for side in self._rules
        )
        return frozenset((first ^ second) & opaque)

    def examine(self, regions: Iterable[Region]) -> Iterator[tuple[Found, Region]]:
        """What differs at a site: regions of one site, for all origins and states."""
        results: dict[tuple[Node, Node, bool, bool], list[Found]] = {}
        for region in regions:
            key = (region.one, region.other, region.origin == "local", region.state.fresh)
            if key not in results:
                results[key] = self._examine(region)
            yield from ((found, region) for found in results[key])

    def _examine(self, region: Region) -> list[Found]:
        variables, diagrams = self._variables, self._diagrams
        different = self._setup.outcomes.different(region.one, region.other, variables.destination)
        certain = different
        asked = {level: key.text for key, level in variables.free_variables.items() if key.text in self._one_sided}
        for level in asked:
            certain = for_all(diagrams, certain, range(level, level + 1), TRUE)
        differences: list[Found] = []
        reason = ""
        for _ in range(_MAX_BOXES):
            found, left, reason = self._find(region, certain, reason)
            if found is None:
                break
            differences.append(found)
            certain = left
            if certain == FALSE:
                break
        if differences or reason:
            return differences or [reason]
        unsure = diagrams.both(different, diagrams.negate(certain))
        if unsure != FALSE:
            found, _, reason = self._find(region, unsure, "")
            if found is not None or reason:
                texts = sorted({asked[level] for level in diagrams.support(unsure) if level in asked})
                why = ", ".join(f"`{text}`" for text in texts)
                return [f"depends on {why}, whose answer is not known, on one side only" if why else reason]
        return []

    def _find(self, region: Region, different: Node, reason: str) -> tuple[Difference | None, Node, str]:
        """A confirmed difference inside a condition, and what is left of the condition without its box."""
        variables, diagrams = self._variables, self._diagrams
        everywhere = self._correlated(region)
        outcomes = self._setup.outcomes
        rest = diagrams.both(different, outcomes.different(everywhere[0], everywhere[1], variables.destination))
        if rest == FALSE:
            return None, rest, reason
        exhausted = False
        alike: list[Node] = []
        for values, feasible in self._search.upper_values(region, rest, alike):
            if values is None:
                exhausted = True
                break
            nodes = self._correlated(region, values)
            inside = diagrams.both(outcomes.different(nodes[0], nodes[1], variables.destination), rest)
            if inside == FALSE:
                alike.append(self._search.alike(region, values))
            inside = diagrams.both(inside, feasible)
            multicast = 0
            for _ in range(_MAX_TRIES):
                diagrams.check()
                if inside == FALSE or multicast == _MAX_MULTICAST:
                    break
                agreed = diagrams.both(inside, self._search.agreed(inside))
                chosen, path = self._search.pick(inside if agreed == FALSE else agreed, values)
                found = self._try(region, nodes, {**values, **self._search.same_answers(chosen)})
                if isinstance(found, str):
                    reason = found or reason
                    multicast += found == NOT_MODELLED
                    inside = diagrams.both(inside, diagrams.negate(path))
                    continue
                return (*self._put(region, found, rest, feasible), reason)
            else:
                reason = reason or TOO_MANY
        return None, rest, reason if exhausted else reason or TOO_MANY

    def _correlated(self, region: Region, values: Mapping[int, int] | None = None) -> list[Node]:
        return [correlated(self._setup, node, region.state, values) for node in (region.one, region.other)]

    def _put(self, region: Region, found: Shown, rest: Node, feasible: Node) -> tuple[Difference, Node]:
        """A confirmed difference in words, and what is left of its condition without its box."""
        variables, diagrams = self._variables, self._diagrams
        point = found.point
        possible = diagrams.both(feasible, self._usual(point))
        # What is feasible may depend on the address that REDIRECT chose, of which no box is made.
        chosen = [level for level in sorted(diagrams.support(possible)) if level < variables.destination]
        possible = diagrams.restrict(possible, tuple((level, point.get(level, 0)) for level in chosen))
        box = box_around(variables, rest, possible, point)
        words = box_text(variables, box)
        protocol, here = point.get(variables.protocol, 0), Values(variables, point).destination
        one, other = distributions_text(variables.family, protocol, found.one, found.other)
        covered = diagrams.all_of(side.condition for side in box)
        difference = Difference(
            words.sources, words.conditions, one, other, found.situations, extent=self._extent(region, box),
            ends=(end_of(found.one), end_of(found.other)), source_only=differ_in_source(found.one, found.other),
            general=distributions_text(variables.family, protocol, found.one, found.other, here),
            to_host=words.to_host, is_usual=self._is_usual(point, found.situations[0]),
        )  # fmt: skip
        return difference, diagrams.both(rest, diagrams.negate(covered))

    def _extent(self, region: Region, box: Iterable[Side]) -> Extent:
        """The addresses of a box, and of the region's site."""
        variables, diagrams = self._variables, self._diagrams
        found = (each.condition for each in box if each.group.row is PacketVariables.src)
        sources = next((tuple(intervals_of(variables, variables.src, each)) for each in found), ALL)
        inside = exists(diagrams, region.site.address, variables.levels["translated_dst"])
        return Extent(sources, ALL if inside == TRUE else tuple(intervals_of(variables, variables.dst, inside)))

    def _is_usual(self, point: Mapping[int, int], witness: Situation) -> bool:
        """Whether destinations are single addresses that hosts have, none that is an endpoint of others is the host's
        own, and the connection is not translated yet."""
        variables, family, dst = self._variables, self._variables.family, witness.packet.dst or 0
        kinds = [point.get(kind, 0) for kind in (variables.dst_kind, variables.translated_kind)]
        if any(kind not in (UNICAST, LOCAL) for kind in kinds) or witness.connection.translated:
            return False
        if dst in self._search.addresses and kinds[0] == LOCAL:
            return False
        if family is Family.IPV4:
            return 0x01000000 <= dst <= 0xDFFFFFFF
        return not MULTICAST_NETWORKS[family].contains(dst)

    def _usual(self, point: Mapping[int, int]) -> Node:
        """Which sources count when a difference is put into words: not those that no host sends a packet from, unless
        it is about them."""
        variables, diagrams = self._variables, self._diagrams
        usual = diagrams.among(variables.src_kind, ((UNICAST, LOCAL),))
        usual = diagrams.both(usual, self._search.unicast(variables.src))
        return usual if diagrams.at(usual, point) == TRUE else TRUE

    def _try(self, region: Region, nodes: list[Node], values: dict[int, int]) -> Shown | str:
        """Whether a packet shows a difference; if not, why, or nothing if it is sure that it cannot."""
        variables = self._variables
        kinds = values.get(variables.dst_kind), values.get(variables.translated_kind)
        if region.origin == "local" and LOCAL in kinds:
            # What MASQUERADE takes for a packet that the host sends to itself.
            masqueraded = parse_address(DOCUMENTATION[variables.family][2], variables.family) + 100
            values = {**dict(variables.values_of(variables.translated_src, masqueraded)), **values}
        read = Values(variables, values)
        src = read.number(variables.src)
        if src == read.number(variables.dst):  # one address is of one kind: see `correlated`
            values = {**values, variables.src_kind: values.get(variables.dst_kind, 0)}
        if region.state.known and src == read.number(variables.translated_src):
            values = {**values, variables.translated_src_kind: values.get(variables.src_kind, 0)}
        for point in self._variants(values):
            one, other = (distribution_at(self._setup, node, point) for node in nodes)
            if one != other:
                return self._observe(region, point, one, other)
        return ""

    def _observe(self, region: Region, point: dict[int, int], one: Distribution, other: Distribution) -> Shown | str:
        """Whether the concrete evaluator confirms that distributions at a point differ; if not, why."""
        variables = self._variables
        unsure = [_indeterminate_part(item) for item in (one, other)]
        if unsure[0] != unsure[1]:
            details = sorted({fate.outcome.detail for item in unsure for fate in item})
            return f"depends on {', '.join(details)}"
        free = variables.free_variables.items()
        open_ones = dict.fromkeys(key.text.rstrip() for key, level in free if key.kind == "onward" and point.get(level))
        if open_ones:
            return f"depends on {', '.join(open_ones)}"
        here = Values(variables, point).destination
        chosen = (fate.destination for item in (one, other) for fate in item if fate.destination is not None)
        named = self._search.addresses
        elsewhere = (each for each in chosen if each.text or (each[:2] != here and each.address in named))
        destinations = tuple(dict.fromkeys(elsewhere))
        if region.state.fresh and not self._allows(destinations, point):
            return ""
        first, second = (
            situation_of(variables, point, region.origin, region.state, destinations, watch, self._sources)
            for watch in self._watches
        )
        if first is None or second is None:
            return CONTRADICTION
        seen = self._seen((first, second), (self.index(0), self.index(1)))
        reasons = {ends[2] for item in seen for ends in item if ends[0] == INDETERMINATE} - {NOT_MODELLED}
        if seen[0] != seen[1] and (not reasons or any(unsure)):
            return Shown(point, one, other, (first, second))
        if seen[0] == seen[1] and any(ends[2] == NOT_MODELLED for ends in seen[0]):
            return NOT_MODELLED
        return UNCONFIRMED

    def _allows(self, destinations: tuple[Destination, ...], point: Mapping[int, int]) -> bool:
        """Whether new destinations can be of this kind on the given host."""
        if self._host is None or self._host.local_addresses is None:
            return True
        local = point.get(self._variables.translated_kind, 0) == LOCAL
        family = self._variables.family
        return all(
            self._host.is_local(family, destination.address) == local
            for destination in destinations
            if destination.address >= 0
        )

    def _variants(self, values: dict[int, int]) -> Iterator[dict[int, int]]:
        """The values, and the same with one bit of a mark turned, which may show how marks end differently."""
        yield values
        if self._setup.outcomes.watched:
            for level in (*self._variables.levels["mark"], *self._variables.levels["connmark"]):
                yield {**values, level: 1 - values.get(level, 0)}

    def alike(self, situations: tuple[Situation, Situation], edits: Sequence[Edit]) -> bool:
        """Whether both sides treat a witness alike once these edits are made."""
        touched = {each.side for each in edits}
        sides, family = undone(self._rules, edits), self._setup.family
        try:
            first, second = (
                index_rules(sides[side], family) if side in touched else self.index(side) for side in (0, 1)
            )
            one, other = self._seen(situations, (first, second))
        except DataplaneError:  # a chain is not there then
            return False
        return one == other

    def _seen(self, situations: tuple[Situation, Situation], indexes: tuple[Index, Index]) -> list[Observed]:
        """What the concrete evaluator makes of a witness on both sides."""
        return [observe(*each) for each in zip(indexes, situations, self._watches, strict=True)]


def _indeterminate_part(item: Distribution) -> dict[Fate, Fraction]:
    return {fate: weight for fate, weight in item.items() if fate.outcome.verdict == INDETERMINATE}


def circumstances(met: Iterable[tuple[str, str]]) -> str:
    """Origins and states in words, where those are not the usual ones: arriving or local, beginning a connection."""
    pairs = set(met)
    origins = {origin for origin, _ in pairs}
    names = [state.name for state in CONNTRACK_CASES if any(state.name == name for _, name in pairs)]
    notes = []
    if len(origins) == 1:
        notes.append("made by this host" if origins == {"local"} else "arriving")
    if len(names) == len(CONNTRACK_CASES):
        notes.append("in any connection state")
    elif set(names) - {"NEW", "RELATED (a connection)"} or "NEW" not in names:
        notes.append(f"in state {names[0] if len(names) == 1 else ', '.join(names[:-1]) + ' or ' + names[-1]}")
    return ", ".join(notes)
