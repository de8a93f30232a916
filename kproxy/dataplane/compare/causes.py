"""Causes of differences: rules, and elements of nftables' sets and maps, that only one side has and the witness meets.

Rules are compared chain by chain, by what counts in them; regular chains of one side alone say nothing, since what
leads to them is the cause. So the removal of one rule is one cause, however many destinations it concerns. Rules of
both sides that stand in one place and differ either in which packets they are for or in what they do with them are one
rule, changed (`_changed`). A rule that both sides have with another chance (`-m statistic`) is a cause only where
nothing else is: when an endpoint comes or goes, the rules of the endpoints beside it change theirs. Base chains of one
side alone are a cause unless the other side has some of its own, too: that is another program, and not a changed rule.
What a witness meets is confirmed as its cause: with it alone undone, and those chances, the witness fares alike on both
sides. Where that takes several, as in a chain that was written anew, it is the first rule of the chain with which alone
undone, or without which alone not undone, this is so.
Between a side of iptables and one of nftables there are no causes, also where a side's base chains are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple

from kproxy.dataplane.compare.difference import Cause, Instead
from kproxy.dataplane.compare.elements import SideElements
from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.concrete.graph import Step
from kproxy.dataplane.concrete.trace import Outcome, TraceResult
from kproxy.dataplane.model.pipeline import IptablesRules, Source
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.dataplane.symbolic.nftables.structure import table_name
from kproxy.dataplane.symbolic.nftables.text import text_of
from kproxy.dataplane.symbolic.normalize import IDLE_MATCHES
from kproxy.netfilter import BUILTIN_CHAINS, effect
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.matches import CommentMatch, RecentMatch, StatisticMatch
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.iptables.targets import Jump, RejectTarget
from kproxy.netfilter.iptables.targets import Verdict as IptablesVerdict
from kproxy.netfilter.nftables.effects import is_idle
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.ruleset import Rule as NftRule
from kproxy.netfilter.nftables.ruleset import Table as NftTable
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.statement import Match, Reject
from kproxy.netfilter.nftables.value import Verdict

_MAX_MET: Final = 12
"""So many differences that a witness meets are tried as its cause."""


ChainKey = tuple[str, str, str]
"""A chain by its variant of iptables (empty where no side has two, and for native tables) and its table's and its own
name; names of native tables have two words, so that none is both. A set of a table has `@` before its name."""


class Edit(NamedTuple):
    """What one side's chain, or set, becomes: the chain's rules, or the set."""

    side: int
    key: ChainKey
    content: tuple[Rule | NftRule, ...] | Set


class _Alone(NamedTuple):
    """That the other side does not have a rule.

    Attributes:
        by_chance: it has it, with another chance.
        instead: the number of the one that it has in its place; 0 if there is none.
    """

    by_chance: bool
    instead: int


class _Met(NamedTuple):
    """A difference of rules that a witness meets, and what undoes it, alone and with all of its chain; those with
    another chance last."""

    by_chance: bool
    position: int
    side: int
    cause: Cause
    key: ChainKey
    edits: tuple[Edit, ...]
    chain: Edit


class Causes:
    """The rules of one side alone, for two sides. Chains are compared when a witness comes to them."""

    def __init__(self, sides: tuple[SideRules, SideRules], family: Family) -> None:
        several = any(len(side.iptables) > 1 for side in sides)
        self._chains = (_chains_of(sides[0], family, several), _chains_of(sides[1], family, several))
        self._only = tuple(side.iptables[0].source if several and side.iptables else "" for side in sides)
        bases = [{key for key, chain in self._chains[side].items() if chain.rules and chain.is_base} for side in (0, 1)]
        languages = [{chain.table is None for chain in self._chains[side].values() if chain.rules} for side in (0, 1)]
        strangers = bool(languages[0] and languages[1]) and not languages[0] & languages[1]
        self._bases_count = not (bases[0] - bases[1] and bases[1] - bases[0]) and not strangers
        self._alone_in = cache(self._compare)
        self._elements = SideElements(sides, family)
        self._anew: dict[tuple[str, str], Cause] = {}

    def of(
        self,
        traces: tuple[TraceResult, TraceResult],
        situations: tuple[Situation, Situation],
        alike: Callable[[Sequence[Edit]], bool],
    ) -> Cause | None:
        """The first rule or element of one side alone that a witness meets and that makes the difference, one that the
        other side has with another chance last; of those equally early, the first side's.

        Args:
            alike: whether both sides treat the witness alike once these edits are made.
        """
        met = self._met(traces, situations)
        confirmed = next((each for each in met if alike(each.edits)), None)
        if confirmed is not None:
            return confirmed.cause
        chains = {each.key: each.chain for each in reversed(met)}
        whole = next((each for each in met if alike([chains[each.key]])), None)
        if whole is None and len(chains) > 1 and alike(list(chains.values())):
            others = {key: [edit for each, edit in chains.items() if each != key] for key in chains}
            whole = next((each for each in met if not alike(others[each.key])), None)
        if whole is None:
            return None
        return self._anew.setdefault((whole.cause.table, whole.cause.chain), whole.cause)

    def joined(self, cause: Cause | None) -> Cause | None:
        """A cause, or in a chain of which several rules together made differences the first of those: it was written
        anew, which is one change."""
        return None if cause is None else self._anew.get((cause.table, cause.chain), cause)

    def _met(self, traces: tuple[TraceResult, TraceResult], situations: tuple[Situation, Situation]) -> Sequence[_Met]:
        found: dict[Cause, _Met] = {}

        def add(*met: Any) -> None:
            one = _Met(*met)
            found[one.cause] = min(one, found.get(one.cause, one), key=lambda each: each[:3])

        for side, result in enumerate(traces):
            for outcome in result.outcomes:
                for position, step in enumerate(outcome.path):
                    native = step.source == Source.NFTABLES
                    key = "" if native else step.source or self._only[side], step.table, step.chain
                    alone = self._alone_in(key)[side].get(step.rule)
                    if alone is not None:
                        cause = self._cause(side, key, step.rule, alone)
                        edits = self._edits(side, key, step.rule, alone)
                        add(alone.by_chance, position, side, cause, key, edits, self._whole(key, side))
                    elif (met := self._element(side, key, step, outcome, situations[side])) is not None:
                        cause, before = met
                        edit = Edit(1, (*key[:2], f"@{before.name}"), before)
                        add(False, position, side, cause, key, (edit,), edit)
        return sorted(found.values(), key=lambda each: each[:3])[:_MAX_MET]

    def _whole(self, key: ChainKey, side: int) -> Edit:
        """What takes all of a chain back; of one that only one side has, its rules."""
        first, second = (each.get(key) for each in self._chains)
        return Edit(side, key, ()) if first is None or second is None else Edit(1, key, first.rules)

    def _edits(self, side: int, key: ChainKey, number: int, alone: _Alone) -> tuple[Edit, ...]:
        """What takes a rule back, and with it the chances of the rules beside it."""
        before = [sides[key].rules if key in sides else () for sides in self._chains]
        after = [list[Any](rules) for rules in before]
        changed = {each.instead: place for place, each in self._alone_in(key)[0].items() if each.by_chance}
        if alone.instead and not alone.by_chance:
            changed |= {number: alone.instead} if side else {alone.instead: number}
        for place, own in changed.items():
            after[1][place - 1 : place] = before[0][own - 1 : own]
        if not alone.instead:
            del after[side][number - 1]
        return tuple(Edit(each, key, tuple(after[each])) for each in (0, 1) if tuple(after[each]) != before[each])

    def _cause(self, side: int, key: ChainKey, number: int, alone: _Alone) -> Cause:
        if not alone.instead:
            return Cause("ab"[side], *key[1:], number, *self._chains[side][key].describe(number), alone.by_chance)
        numbers = (alone.instead, number) if side else (number, alone.instead)
        (text, action), other = (self._chains[each][key].describe(numbers[each]) for each in (0, 1))
        instead = Instead(numbers[1], *other)
        return Cause("a", *key[1:], numbers[0], text, action, alone.by_chance, instead=instead)

    def _element(
        self, side: int, key: ChainKey, step: Step, outcome: Outcome, situation: Situation
    ) -> tuple[Cause, Set] | None:
        chain = self._chains[side].get(key)
        rule = None if chain is None else chain.rules[step.rule - 1]
        return self._elements.met(side, step, rule, outcome, situation) if isinstance(rule, NftRule) else None

    def _compare(self, key: ChainKey) -> tuple[dict[int, _Alone], dict[int, _Alone]]:
        """Of each side the numbers of a chain's rules that the other side's chain does not have."""
        chains = [side.get(key) for side in self._chains]
        there = [chain for chain in chains if chain is not None]
        if not there or (len(there) == 1 and not (there[0].is_base and self._bases_count)):
            return {}, {}
        meanings = [[] if chain is None else list(map(_meaning, chain.rules)) for chain in chains]
        every = [list(range(len(each))) for each in meanings]
        alone = _left(every, _pairs(every, lambda side, place: meanings[side][place]))
        by_chance = _pairs(alone, lambda side, place: meanings[side][place]._replace(chance=()))
        instead = by_chance | (_changed(meanings, _left(alone, by_chance)) if len(there) == 2 else {})
        sides = (by_chance, instead), ({*by_chance.values()}, {place: own for own, place in instead.items()})
        first, second = (
            {
                place + 1: _Alone(place in same, others.get(place, -1) + 1)
                for place in places
                if chain is not None and _acts(chain.rules[place])
            }
            for chain, places, (same, others) in zip(chains, alone, sides, strict=True)
        )
        return first, second


def _pairs(places: Sequence[Iterable[int]], key: Callable[[int, int], object]) -> dict[int, int]:
    """The places of both sides, from 0, of equal keys, in order; `key` gives that of a side's place, None for none."""
    waiting: dict[object, list[int]] = {}
    for place in places[1]:
        waiting.setdefault(key(1, place), []).append(place)
    waiting.pop(None, None)
    keys = ((place, key(0, place)) for place in places[0])
    return {place: waiting[wanted].pop(0) for place, wanted in keys if waiting.get(wanted)}


def _left(places: Sequence[Iterable[int]], pairs: Mapping[int, int]) -> list[list[int]]:
    """The places of both sides that are in no pair."""
    paired = pairs.keys(), {*pairs.values()}
    return [[place for place in places[side] if place not in paired[side]] for side in (0, 1)]


def _changed(meanings: Sequence[Sequence[_Meaning]], new: Sequence[Sequence[int]]) -> dict[int, int]:
    """The places of rules that stand between the same rules on both sides, and do the same with other packets, unless
    that is a mere verdict, as many rules have it, or are for the same packets."""
    gaps = [{place: place - rank for rank, place in enumerate(places)} for places in new]

    def deed(side: int, place: int) -> object:
        meaning = meanings[side][place]
        return None if meaning.is_mere_verdict else (gaps[side][place], meaning.deed)

    pairs = _pairs(new, deed)
    return pairs | _pairs(_left(new, pairs), lambda side, place: (gaps[side][place], meanings[side][place].packets))


class _Meaning(NamedTuple):
    """What counts in a rule: which packets it is for, with which chance (in nftables the deed has it), and what it does
    with them."""

    packets: object
    chance: object
    deed: object

    @property
    def is_mere_verdict(self) -> bool:
        """Whether it does what many rules do, or nothing."""
        if isinstance(self.deed, Verdict):
            return not self.deed.chain
        return self.deed is None or isinstance(self.deed, (IptablesVerdict, RejectTarget, Reject))


def _meaning(rule: Rule | NftRule) -> _Meaning:
    if isinstance(rule, Rule):
        chances = tuple(match for match in rule.matches if isinstance(match, StatisticMatch))
        matches = tuple(match for match in rule.matches if not isinstance(match, (*IDLE_MATCHES, StatisticMatch)))
        return _Meaning((rule.head, matches), chances, rule.target)
    *conditions, deed = [statement for statement in rule.statements if not is_idle(statement)] or (None,)
    return _Meaning(tuple(conditions), (), deed)


def _acts(rule: Rule | NftRule) -> bool:
    """Whether a rule can make a difference: those that only match, log or count do not."""
    if isinstance(rule, Rule):
        remembers = any(isinstance(match, RecentMatch) and match.action.value != "rcheck" for match in rule.matches)
        return remembers or not (rule.target is None or effect.is_idle(rule.target.DOES))
    return not all(isinstance(each, Match) or is_idle(each) for each in rule.statements)


class _Chain(NamedTuple):
    """A chain of iptables, or of a `table` of nftables."""

    name: str
    rules: tuple[Rule, ...] | tuple[NftRule, ...]
    is_base: bool
    table: NftTable | None = None

    def describe(self, number: int) -> tuple[str, str]:
        """A rule's text, and what it does."""
        rule = self.rules[number - 1]
        if isinstance(rule, NftRule):
            assert self.table is not None
            text = " ".join(text_of(statement, self.table) for statement in rule.statements)
            last = rule.statements[-1] if rule.statements else None
            return text, f"{last.kind} to {last.chain}" if isinstance(last, Verdict) and last.chain else f"`{text}`"
        target = rule.target
        if isinstance(target, Jump):
            action = f"{'goto' if target.goto else 'jump'} to {target.chain}"
            comment = next((match.comment for match in rule.matches if isinstance(match, CommentMatch)), "")
            action += f" ({comment})" if comment else ""
        else:
            action = f"`{target.to_save()}`" if target is not None else "without a target"
        return rule.to_save(self.name), action


def _chains_of(rules: SideRules, family: Family, several: bool) -> dict[ChainKey, _Chain]:
    found: dict[ChainKey, _Chain] = {}
    for item in rules.iptables:
        source = item.source if several else ""
        for table in item.ruleset.tables:
            for chain in table.chains:
                is_base = chain.name in BUILTIN_CHAINS[table.name]
                found[source, table.name, chain.name] = _Chain(chain.name, chain.rules, is_base)
    for held in rules.tables(family):
        for native in held.chains:
            is_base = native.base is not None
            found["", table_name(held), native.name] = _Chain(native.name, native.rules, is_base, held)
    return found


# --- differences undone ---


def undone(sides: tuple[SideRules, SideRules], edits: Iterable[Edit]) -> tuple[SideRules, SideRules]:
    """The sides with these edits. Chains that rules of the other side lead to come with them."""
    contents: tuple[dict[ChainKey, object], dict[ChainKey, object]] = ({}, {})
    for each in edits:
        contents[each.side][each.key] = each.content
    return _edited(sides[0], sides[1], contents[0]), _edited(sides[1], sides[0], contents[1])


def _edited(side: SideRules, other: SideRules, contents: Mapping[ChainKey, object]) -> SideRules:
    tables = {key[:2] for key in contents}

    def iptables(item: IptablesRules) -> IptablesRules:
        found = []
        for table in item.ruleset.tables:
            source = next((each for each in ("", item.source) if (each, table.name) in tables), None)
            if source is not None:
                theirs = (each.ruleset.table(table.name) for each in other.iptables if source in ("", each.source))
                chains = (chain for each in theirs if each is not None for chain in each.chains)
                table = replace(table, chains=_edited_chains(table.chains, chains, (source, table.name), contents))
            found.append(table)
        return replace(item, ruleset=replace(item.ruleset, tables=tuple(found)))

    def native(table: NftTable) -> NftTable:
        where = "", table_name(table)
        if where not in tables:
            return table
        theirs = (chain for each in other.nftables.tables if table_name(each) == where[1] for chain in each.chains)
        chains = _edited_chains(table.chains, (each for each in theirs if each.base is None), where, contents)
        sets: Any = tuple(contents.get((*where, f"@{each.name}"), each) for each in table.sets)
        return replace(table, chains=chains, sets=sets)

    return SideRules(tuple(map(iptables, side.iptables)), NftRuleset(tuple(map(native, side.nftables.tables))))


def _edited_chains(
    own: Iterable[Any], theirs: Iterable[Any], table: tuple[str, str], contents: Mapping[ChainKey, object]
) -> tuple[Any, ...]:
    """A table's chains with their new rules, and those that only the other side has."""
    found = {}
    for chain in own:
        rules = contents.get((*table, chain.name))
        found[chain.name] = chain if rules is None else replace(chain, rules=rules)
    return tuple((found | {chain.name: chain for chain in theirs if chain.name not in found}).values())
