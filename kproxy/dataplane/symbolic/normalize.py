"""Rule sets reduced to their structure: chains without names, rules without what does not change a packet's treatment.

Theory: docs/symbolic.md, "Normalized rules".

Both sides share one `Structure`. A chain is known by a number, and two chains, of either side, have the same number if
their rules are the same: comments and counters apart, rules that only log or count apart, and with the numbers of the
chains they jump to in place of names. So two rule sets whose built-in chains have the same numbers treat every packet
alike, which takes one pass to find out.

Lists of `-m recent` are known by name, and a renderer may name them after chains, so they get the names that `lists`
gives both sides; renaming lists one to one changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar, get_args

from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.unseen import unseen_reason
from kproxy.netfilter import BUILTIN_CHAINS, Chain, Jump, Rule, Ruleset
from kproxy.netfilter import Table as IptablesTable
from kproxy.netfilter.condition import Condition, Open
from kproxy.netfilter.effect import Unknown, is_idle
from kproxy.netfilter.iptables.matches import (
    CommentMatch,
    LimitMatch,
    Match,
    NfacctMatch,
    OpaqueMatch,
    RecentMatch,
)
from kproxy.netfilter.iptables.targets import Target
from kproxy.netfilter.nftables.ruleset import Chain as NftChain
from kproxy.netfilter.nftables.ruleset import Table
from kproxy.netfilter.nftables.statement import Match as NftMatch

_QUESTIONS: Final = (Rule, Match, NftMatch, *get_args(Condition))
IDLE_MATCHES: Final = (CommentMatch, NfacctMatch)


class Call(NamedTuple):
    """A jump to the chain of this number; with `goto`, its end is that of the chain, too."""

    number: int
    goto: bool


class NormalizedRule(NamedTuple):
    """A rule of a chain: its steps that count. Of iptables, the rule with its fixed part, the matches, and what the
    target does; of nftables, the steps of its statements. `role` tells equal rate limits of one chain apart."""

    steps: tuple[object, ...]
    role: Hashable = 0


class NormalizedChain(NamedTuple):
    """A chain. Of nftables: `table` has its sets, `callees` the numbers of the chains of this table by name, and
    `lists` the names of its sets that are state."""

    rules: tuple[NormalizedRule, ...]
    table: Table | None = None
    callees: Mapping[str, int] = MappingProxyType({})
    lists: Mapping[str, str] = MappingProxyType({})

    @property
    def native(self) -> Table:
        """The table of nftables."""
        assert self.table is not None
        return self.table


def is_question(step: object) -> bool:
    """Whether a step asks something, and does nothing."""
    return isinstance(step, _QUESTIONS)


@dataclass
class Structure:
    """The chains of both sides, by number."""

    chains: list[NormalizedChain] = field(default_factory=list)
    _numbers: dict[object, int] = field(default_factory=dict)
    _rule_numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    _pieces: dict[object, int] = field(default_factory=dict)
    _rules: list[NormalizedRule] = field(default_factory=list)

    def piece(self, value: object) -> int:
        """A number that equal values share."""
        return self._pieces.setdefault(value, len(self._pieces))

    def rule_number(self, key: tuple[object, ...], rule: Callable[[], NormalizedRule]) -> int:
        """A number that equal rules of iptables share."""
        found = self._rule_numbers.get(key)
        if found is None:
            found = self._rule_numbers[key] = len(self._rules)
            self._rules.append(rule())
        return found

    def chain(self, rules: tuple[int, ...]) -> int:
        """A number that equal chains of iptables share."""
        return self.number(rules, lambda: NormalizedChain(tuple(self._rules[rule] for rule in rules)))

    def number(self, key: object, chain: Callable[[], NormalizedChain]) -> int:
        """A number that equal chains share."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.chains)
            self.chains.append(chain())
        return found

    def steps(self) -> Iterator[tuple[NormalizedChain, object]]:
        """All steps of rules, with their chains."""
        return ((chain, step) for chain in self.chains for rule in chain.rules for step in rule.steps)


AnyChain = TypeVar("AnyChain", Chain, NftChain)


def ordered_chains(
    table: str, starts: Iterable[str], find: Callable[[str], AnyChain | None],
    callees: Callable[[AnyChain], Iterator[str]],
) -> list[AnyChain]:  # fmt: skip
    """The chains of a table that some chains reach, each after all that it jumps to.

    Raises:
        DataplaneError: a jump to a chain that is not there, or a loop.
    """
    done: set[str] = set()
    order: list[AnyChain] = []
    for name in starts:
        start = find(name)
        if start is None or name in done:
            continue
        path = [(start, callees(start))]
        on_path = {name}
        while path:
            chain, below = path[-1]
            following = next(below, None)
            if following is None:
                path.pop()
                on_path.discard(chain.name)
                done.add(chain.name)
                order.append(chain)
            elif following in on_path:
                names = [item.name for item, _ in path] + [following]
                raise DataplaneError(f"table {table}: a loop of jumps: {' → '.join(names)}")
            elif following not in done:
                callee = find(following)
                if callee is None:
                    raise DataplaneError(
                        f"table {table}: chain {chain.name} jumps to chain {following}, which is not there"
                    )
                path.append((callee, callees(callee)))
                on_path.add(following)
    return order


def _reached(table: IptablesTable) -> list[Chain]:
    return ordered_chains(
        table.name, BUILTIN_CHAINS[table.name], table.chain,
        lambda chain: (rule.target.chain for rule in chain.rules if isinstance(rule.target, Jump)),
    )  # fmt: skip


Roles = dict[tuple[str, str, int], Hashable]
"""What tells rules with equal rate limits apart, by table, chain and position."""
Reached = tuple[Ruleset, dict[str, list[Chain]]]
"""A rule set, and of each of its tables the chains that packets reach, callees first."""


def _asked(matches: Iterable[Match]) -> tuple[Match, ...]:
    return tuple(match for match in matches if not isinstance(match, IDLE_MATCHES))


class Side:
    """One rule set reduced. `hooks` gives, by table and hook, the built-in chain's number and policy.

    `lists` renames lists of `-m recent`; `reached` keeps the reachable chains per table in order.
    """

    def __init__(
        self,
        structure: Structure,
        ruleset: Ruleset,
        reached: dict[str, list[Chain]],
        lists: Mapping[str, str],
        roles: Roles,
    ) -> None:
        self.ruleset = ruleset
        self.hooks: dict[tuple[str, str], tuple[int, str]] = {}
        self._structure = structure
        self._lists = lists
        self._roles = roles
        self._matches: dict[int, tuple[tuple[Match, ...], int, bool]] = {}
        self._heads: dict[int, int] = {}
        for table in ruleset.tables:
            numbers: dict[str, int] = {}
            for chain in reached[table.name]:
                numbers[chain.name] = self._chain(table.name, chain, numbers)
            for name in BUILTIN_CHAINS[table.name]:
                built_in = table.chain(name)
                if built_in is not None:
                    self.hooks[table.name, name] = numbers[name], built_in.policy or "ACCEPT"

    def _chain(self, table: str, chain: Chain, numbers: dict[str, int]) -> int:
        structure = self._structure
        rules: list[int] = []
        for position, rule in enumerate(chain.rules):
            matches, asked, acts = self._effective(rule.matches)
            last: Call | Target | None = rule.target
            if isinstance(last, Jump):
                last = Call(numbers[last.chain], last.goto)
                if not structure.chains[last.number].rules and not last.goto and not acts:
                    continue
            elif not isinstance(last, Target) or is_idle(last.DOES):
                if not acts:
                    continue
                last = None
            role = self._roles.get((table, chain.name, position), 0)
            key = (structure.piece(rule.head), asked, last, role)
            rules.append(structure.rule_number(key, partial(_normalized, rule, matches, last, role)))
        return structure.chain(tuple(rules))

    def _effective(self, matches: tuple[Match, ...]) -> tuple[tuple[Match, ...], int, bool]:
        """The matches that count, a number for them, and whether being asked changes something."""
        kept = []
        acts = False
        for match in matches:
            if isinstance(match, IDLE_MATCHES):
                continue
            if isinstance(match, RecentMatch):
                acts = acts or match.action.value != "rcheck"
                if (name := self._lists.get(match.name, match.name)) != match.name:
                    match = dataclasses.replace(match, name=name)
            kept.append(match)
        result = tuple(kept)
        return result, self._structure.piece(result), acts


def _normalized(rule: Rule, matches: tuple[Match, ...], last: Call | Target | None, role: Hashable) -> NormalizedRule:
    if isinstance(last, Target):
        unseen = unseen_reason(last)
        return NormalizedRule((rule, *matches, Unknown(unseen, unseen) if unseen else last.effect()), role)
    return NormalizedRule((rule, *matches, *([] if last is None else [last])), role)


Rates = dict[tuple[str, str, int], int]


def _rate_rules(structure: Structure, rulesets: Iterable[Reached]) -> Rates:
    """The rules with a rate limit of their own, by position: what they ask."""
    return {
        (table, chain.name, position): structure.piece((table, rule.head, _asked(rule.matches)))
        for _, reached in rulesets
        for table, chains in reached.items()
        for chain in chains
        for position, rule in enumerate(chain.rules)
        if any(isinstance(match, (LimitMatch, OpaqueMatch)) and _has_its_own(match) for match in rule.matches)
    }


def _has_its_own(match: Match) -> bool:
    condition = match.condition()
    return isinstance(condition, Open) and condition.each


def _match_rates(ours: Rates, theirs: Rates) -> tuple[Roles, Roles]:
    """Which rate-limited rule of one side is which of the other: those that ask the same in a chain of the same name,
    then in the same order."""
    roles: tuple[Roles, Roles] = ({}, {})
    for named in (True, False):
        waiting: dict[Hashable, list[tuple[str, str, int]]] = {}
        for position, asked in ours.items():
            if position not in roles[0]:
                waiting.setdefault((asked, named and position[1]), []).append(position)
        for position, asked in theirs.items():
            candidates = waiting.get((asked, named and position[1]), [])
            if position not in roles[1] and candidates:
                mine = candidates.pop(0)
                roles[0][mine] = roles[1][position] = mine
    for number, rates in enumerate((ours, theirs)):
        for position in rates:
            roles[number].setdefault(position, (number, position))
    return roles


def reduce_both(
    one: Sequence[Ruleset], other: Sequence[Ruleset], lists: Sequence[Mapping[str, str]]
) -> tuple[Structure, list[Side], list[Side]]:
    """The rule sets of both sides over one structure; `lists` renames each side's lists of `-m recent`.

    Raises:
        DataplaneError: see `ordered_chains`.
    """
    structure = Structure()
    found = [
        [(ruleset, {table.name: _reached(table) for table in ruleset.tables}) for ruleset in rulesets]
        for rulesets in (one, other)
    ]
    roles = _match_rates(*(_rate_rules(structure, rulesets) for rulesets in found))
    ours, theirs = (
        [Side(structure, ruleset, reached, lists[number], roles[number]) for ruleset, reached in rulesets]
        for number, rulesets in enumerate(found)
    )
    return structure, ours, theirs
