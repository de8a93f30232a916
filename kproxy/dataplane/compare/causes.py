"""Causes of differences: rules, and elements of nftables' sets and maps, that only one side has and the witness meets.

Rules are compared chain by chain, by what counts in them; regular chains of one side alone say nothing, since what
leads to them is the cause. So the removal of one rule is one cause, however many destinations it concerns. A rule that
both sides have with another chance (`-m statistic`) is a cause only where nothing else is: when an endpoint comes or
goes, the rules of the endpoints beside it change theirs. Base chains of one side alone are a cause unless the other
side has some of its own, too: that is another program, and not a changed rule. Between a side of iptables and one of
nftables there are no causes, also where a side's base chains are empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from kproxy.dataplane.compare.elements import SideElements
from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.concrete.graph import Step
from kproxy.dataplane.concrete.trace import Outcome, TraceResult
from kproxy.dataplane.model.pipeline import Source
from kproxy.dataplane.symbolic.nftables.structure import is_idle, table_name
from kproxy.dataplane.symbolic.nftables.text import text_of
from kproxy.dataplane.symbolic.normalize import IDLE_MATCHES, IDLE_TARGETS
from kproxy.dataplane.symbolic.side import SideRules
from kproxy.netfilter import BUILTIN_CHAINS, Chain
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.matches import CommentMatch, RecentMatch, StatisticMatch
from kproxy.netfilter.iptables.targets import Jump
from kproxy.netfilter.nftables.ruleset import Chain as NftChain
from kproxy.netfilter.nftables.ruleset import Table as NftTable
from kproxy.netfilter.nftables.statement import Match
from kproxy.netfilter.nftables.value import Verdict

_Item = TypeVar("_Item")
ChainKey = tuple[str, str, str]
"""A chain by its variant of iptables (empty where no side has two, and for native tables) and its table's and its own
name; names of native tables have two words, so that none is both."""


class Cause(NamedTuple):
    """A rule that only one side has, or an element of a set or map that a rule of both asks.

    Attributes:
        side: 0 or 1.
        rule: its number in the chain.
        text: the rule's, or the element's.
        action: what the rule does, in words; of an element, what has it.
        same_but_chance: the other side has the rule, too, with another chance.
        set: the name of the set or map whose element it is; "" if it is the rule.
    """

    side: int
    table: str
    chain: str
    rule: int
    text: str
    action: str
    same_but_chance: bool = False
    set: str = ""

    def words(self, sides: Sequence[str] = ("A", "B")) -> str:
        """`rule 3 of INPUT, jump to f2b-sshd, is only in A`."""
        if self.set:
            return f"element `{self.text}` of {self.action} is only in {sides[self.side]}"
        other = sides[1 - self.side]
        how = f"has another chance in {other}" if self.same_but_chance else f"is only in {sides[self.side]}"
        return f"rule {self.rule} of {self.chain}, {self.action}, {how}"


def by_cause(items: Iterable[_Item], cause_of: Callable[[_Item], Cause | None]) -> list[list[_Item]]:
    """Those of one cause together, in the order of the first of each; what has no cause is alone. The same rule of the
    same chain is one cause on several nodes, whatever its number there."""
    groups: list[list[_Item]] = []
    known: dict[Cause, list[_Item]] = {}
    for item in items:
        cause = cause_of(item)
        if cause is None:
            groups.append([item])
            continue
        key = cause._replace(rule=0)
        if key not in known:
            groups.append(known.setdefault(key, []))
        known[key].append(item)
    return groups


class Causes:
    """The rules of one side alone, for two sides. Chains are compared when a witness comes to them."""

    def __init__(self, sides: tuple[SideRules, SideRules], family: Family) -> None:
        several = any(len(side.iptables) > 1 for side in sides)
        self._chains = (_chains_of(sides[0], family, several), _chains_of(sides[1], family, several))
        self._only = tuple(side.iptables[0].source if several and side.iptables else "" for side in sides)
        bases = [{key for key, chain in self._chains[side].items() if chain.rules and chain.is_base} for side in (0, 1)]
        languages = [{type(chain) for chain in self._chains[side].values() if chain.rules} for side in (0, 1)]
        strangers = bool(languages[0] and languages[1]) and not languages[0] & languages[1]
        self._bases_count = not (bases[0] - bases[1] and bases[1] - bases[0]) and not strangers
        self._alone: dict[tuple[int, ChainKey], dict[int, bool]] = {}
        self._elements = SideElements(sides, family)

    def of(self, traces: tuple[TraceResult, TraceResult], situations: tuple[Situation, Situation]) -> Cause | None:
        """The first rule or element of one side alone that a witness meets, one that the other side has with another
        chance last; of those equally early, the first side's."""
        found: list[tuple[bool, int, int, Cause]] = []
        for side, result in enumerate(traces):
            for outcome in result.outcomes:
                for position, step in enumerate(outcome.path):
                    native = step.source == Source.NFTABLES
                    key = "" if native else step.source or self._only[side], step.table, step.chain
                    alone = self._alone_in(side, key)
                    if step.rule in alone:
                        text, action = self._chains[side][key].describe(step.rule)
                        by_chance = alone[step.rule]
                        cause = Cause(side, *key[1:], step.rule, text, action, by_chance)
                        found.append((by_chance, position, side, cause))
                        if not by_chance:
                            break
                    elif (met := self._element(side, key, step, outcome, situations[side])) is not None:
                        found.append((False, position, side, met))
                        break
        return min(found)[3] if found else None

    def _element(self, side: int, key: ChainKey, step: Step, outcome: Outcome, situation: Situation) -> Cause | None:
        chain = self._chains[side].get(key)
        if not isinstance(chain, _NativeChain):
            return None
        met = self._elements.met(side, step, chain.rules[step.rule - 1], outcome, situation)
        if met is None:
            return None
        action = f"{'map' if met.is_map else 'set'} {met.set}"
        return Cause(met.side, *key[1:], step.rule, met.text, action, set=met.set)

    def _alone_in(self, side: int, key: ChainKey) -> Mapping[int, bool]:
        """The numbers of a chain's rules that the other side's chain does not have, and of each whether it has it with
        another chance."""
        known = self._alone.get((side, key))
        if known is None:
            known = self._alone[side, key] = self._compare(side, key)
        return known

    def _compare(self, side: int, key: ChainKey) -> dict[int, bool]:
        ours, theirs = self._chains[side].get(key), self._chains[1 - side].get(key)
        if ours is None or (theirs is None and not (ours.is_base and self._bases_count)):
            return {}
        alone = _unmatched(ours.keys(), () if theirs is None else theirs.keys())
        if theirs is None or not alone:
            return dict.fromkeys((number + 1 for number in alone if ours.acts(number + 1)), False)
        left = _unmatched(theirs.keys(), ours.keys())
        plain, other_plain = list(ours.keys(chance=False)), list(theirs.keys(chance=False))
        new = {
            alone[place] for place in _unmatched((plain[each] for each in alone), (other_plain[each] for each in left))
        }
        return {number + 1: number not in new for number in alone if ours.acts(number + 1)}


def _unmatched(keys: Iterable[object], others: Iterable[object]) -> list[int]:
    """The places of those keys, from 0, that have no like of their own among the others."""
    common = Counter(others)
    found = []
    for place, key in enumerate(keys):
        if common[key] > 0:
            common[key] -= 1
        else:
            found.append(place)
    return found


class _IptablesChain:
    """A chain of iptables."""

    def __init__(self, table: str, chain: Chain) -> None:
        self.rules = chain.rules
        self.is_base = chain.name in BUILTIN_CHAINS[table]
        self._name = chain.name

    def keys(self, *, chance: bool = True) -> Iterator[object]:
        """What counts in each rule; without `chance` all but with which probability it matches."""
        idle = IDLE_MATCHES if chance else (*IDLE_MATCHES, StatisticMatch)
        for rule in self.rules:
            matches = tuple(match for match in rule.matches if not isinstance(match, idle))
            yield rule.head, matches, rule.target

    def acts(self, number: int) -> bool:
        """Whether a rule can make a difference: those that log or count do not."""
        rule = self.rules[number - 1]
        remembers = any(isinstance(match, RecentMatch) and match.action.value != "rcheck" for match in rule.matches)
        return remembers or not (rule.target is None or isinstance(rule.target, IDLE_TARGETS))

    def describe(self, number: int) -> tuple[str, str]:
        """A rule's text, and what it does."""
        rule = self.rules[number - 1]
        target = rule.target
        if isinstance(target, Jump):
            action = f"{'goto' if target.goto else 'jump'} to {target.chain}"
            comment = next((match.comment for match in rule.matches if isinstance(match, CommentMatch)), "")
            action += f" ({comment})" if comment else ""
        else:
            action = f"`{target.to_save()}`" if target is not None else "without a target"
        return rule.to_save(self._name), action


class _NativeChain:
    """A chain of nftables."""

    def __init__(self, table: NftTable, chain: NftChain) -> None:
        self.rules = chain.rules
        self.is_base = chain.base is not None
        self._table = table

    def keys(self, *, chance: bool = True) -> Iterator[object]:
        """What counts in each rule, chances always: a rule of nftables has those of all endpoints."""
        del chance
        for rule in self.rules:
            yield tuple(statement for statement in rule.statements if not is_idle(statement))

    def acts(self, number: int) -> bool:
        """Whether a rule does more than to match, log and count."""
        statements = self.rules[number - 1].statements
        return not all(isinstance(each, Match) or is_idle(each) for each in statements)

    def describe(self, number: int) -> tuple[str, str]:
        """A rule's text, and what it does."""
        statements = self.rules[number - 1].statements
        text = " ".join(text_of(statement, self._table) for statement in statements)
        last = statements[-1] if statements else None
        return text, f"{last.kind} to {last.chain}" if isinstance(last, Verdict) and last.chain else f"`{text}`"


def _chains_of(rules: SideRules, family: Family, several: bool) -> dict[ChainKey, _IptablesChain | _NativeChain]:
    found: dict[ChainKey, _IptablesChain | _NativeChain] = {}
    for item in rules.iptables:
        source = item.source if several else ""
        for table in item.ruleset.tables:
            found |= {(source, table.name, chain.name): _IptablesChain(table.name, chain) for chain in table.chains}
    for held in rules.tables(family):
        found |= {("", table_name(held), chain.name): _NativeChain(held, chain) for chain in held.chains}
    return found
