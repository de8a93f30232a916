"""Rule sets reduced to their structure: chains without names, rules without what does not change a packet's treatment.

Theory: docs/symbolic.md, "Normalized rules".

Both sides share one `Structure`. A chain is known by a number, and two chains, of either side, have the same number if
their rules are the same: comments and counters apart, rules that only log or count apart, and with the numbers of the
chains they jump to in place of names. So two rule sets whose built-in chains have the same numbers treat every packet
alike, which takes one pass to find out.

Lists of `-m recent` are known by name, and a renderer may name them after chains. `match_lists` finds out which list of
the one side plays the part of which list of the other; renaming lists one to one changes nothing.
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
from kproxy.netfilter.condition import Condition
from kproxy.netfilter.effect import Unknown, is_idle
from kproxy.netfilter.iptables.matches import (
    CommentMatch,
    LimitMatch,
    Match,
    NfacctMatch,
    RecentMatch,
    StatisticMatch,
)
from kproxy.netfilter.iptables.targets import DnatTarget, Target
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


class Side:
    """One rule set reduced. `hooks` gives, by table and hook, the built-in chain's number and policy.

    `lists` renames lists of `-m recent`; `reached` keeps the reachable chains per table in order.
    """

    def __init__(
        self,
        structure: Structure,
        ruleset: Ruleset,
        reached: dict[str, list[Chain]],
        lists: dict[str, str],
        roles: dict[tuple[str, str, int], Hashable],
    ) -> None:
        self.ruleset = ruleset
        self.hooks: dict[tuple[str, str], tuple[int, str]] = {}
        self._structure = structure
        self.lists = lists
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
            key = (self._head(rule), asked, last, role)
            rules.append(structure.rule_number(key, partial(_normalized, rule, matches, last, role)))
        return structure.chain(tuple(rules))

    def _head(self, rule: Rule) -> int:
        return self._structure.piece(
            (rule.source, rule.destination, rule.in_interface, rule.out_interface, rule.protocol, rule.fragment)
        )

    def _effective(self, matches: tuple[Match, ...]) -> tuple[tuple[Match, ...], int, bool]:
        """The matches that count, a number for them, and whether being asked changes something."""
        kept = []
        acts = False
        for match in matches:
            if isinstance(match, IDLE_MATCHES):
                continue
            if isinstance(match, RecentMatch):
                acts = acts or match.action.value != "rcheck"
                if match.name in self.lists:
                    match = dataclasses.replace(match, name=self.lists[match.name])
            kept.append(match)
        result = tuple(kept)
        return result, self._structure.piece(result), acts


def _normalized(rule: Rule, matches: tuple[Match, ...], last: Call | Target | None, role: Hashable) -> NormalizedRule:
    if isinstance(last, Target):
        unseen = unseen_reason(last)
        return NormalizedRule((rule, *matches, Unknown(unseen, unseen) if unseen else last.effect()), role)
    return NormalizedRule((rule, *matches, *([] if last is None else [last])), role)


def contexts_of(structure: Structure, table: IptablesTable, reached: list[Chain]) -> dict[tuple[str, str], int]:
    """For each chain a number for where packets come to it from: the conditions of the jumps on the way, names and
    chances apart. Chains that play the same part on both sides have the same number."""
    calls: dict[str, set[tuple[int, int]]] = {chain.name: set() for chain in reached}
    result: dict[tuple[str, str], int] = {}
    for chain in reversed(reached):
        inside = chain.name if chain.policy is not None or chain.name in BUILTIN_CHAINS[table.name] else ""
        own = structure.piece(("context", table.name, inside, tuple(sorted(calls[chain.name]))))
        result[table.name, chain.name] = own
        for rule in chain.rules:
            if isinstance(rule.target, Jump):
                head = (rule.source, rule.destination, rule.in_interface, rule.out_interface, rule.protocol)
                kept = tuple(
                    dataclasses.replace(match, name="") if isinstance(match, RecentMatch) else match
                    for match in rule.matches
                    if not isinstance(match, (*IDLE_MATCHES, StatisticMatch))
                )
                if not kept and head == (None,) * len(head) and not inside:
                    calls[rule.target.chain] |= calls[chain.name]  # a chain in between changes nothing
                else:
                    calls[rule.target.chain].add((own, structure.piece((head, kept))))
    return result


Part = tuple[object, ...]


def list_parts(
    ruleset: Ruleset, reached: dict[str, list[Chain]], contexts: dict[tuple[str, str], int]
) -> dict[str, Part]:
    """For each list of `-m recent`, the part it plays: where it is asked, how, and which destinations follow."""
    parts: dict[str, list[tuple[str, ...]]] = {}
    for table in ruleset.tables:
        for chain in reached[table.name]:
            for rule in chain.rules:
                for match in rule.matches:
                    if isinstance(match, RecentMatch):
                        plain = dataclasses.replace(match, name="").to_save()
                        parts.setdefault(match.name, []).append(
                            (str(contexts[table.name, chain.name]), plain, *_destinations(table, chain, rule))
                        )
    return {name: tuple(sorted(found)) for name, found in parts.items()}


def _destinations(table: IptablesTable, chain: Chain, rule: Rule) -> list[str]:
    callee = table.chain(rule.target.chain) if isinstance(rule.target, Jump) else chain
    rules = () if callee is None else callee.rules
    return [str(item.target.to_destination) for item in rules if isinstance(item.target, DnatTarget)]


def match_lists(ours: dict[str, Part], theirs: dict[str, Part]) -> dict[str, str]:
    """Which of our lists each of their lists is: same part first, then same name. Lists left over keep apart."""
    result: dict[str, str] = {}
    taken: set[str] = set()
    by_part: dict[Part, list[str]] = {}
    for name, part in sorted(ours.items()):
        by_part.setdefault(part, []).append(name)
    for name, part in sorted(theirs.items()):
        if name in by_part.get(part, ()):
            result[name] = name
            taken.add(name)
    for name, part in sorted(theirs.items()):
        if name not in result:
            found = next((other for other in by_part.get(part, ()) if other not in taken), None)
            if found is not None:
                result[name] = found
                taken.add(found)
    for name in sorted(theirs):
        if name not in result:
            alone = name if name in ours and name not in taken else f"{name} (of the second)"
            result[name] = alone
            taken.add(alone)
    return result


Roles = dict[tuple[str, str, int], Hashable]
Rates = dict[tuple[str, str, int], tuple[int, int]]


def rate_rules(
    structure: Structure, ruleset: Ruleset, reached: dict[str, list[Chain]], contexts: dict[tuple[str, str], int]
) -> Rates:
    """The rules with a rate limit of their own, by position: what they ask, and where packets come to them from."""
    found = {}
    for table in ruleset.tables:
        for chain in reached[table.name]:
            for position, rule in enumerate(chain.rules):
                if any(isinstance(match, LimitMatch) for match in rule.matches):
                    kept = tuple(match for match in rule.matches if not isinstance(match, IDLE_MATCHES))
                    head = (rule.source, rule.destination, rule.in_interface, rule.out_interface, rule.protocol)
                    asked = structure.piece((table.name, head, kept))
                    found[table.name, chain.name, position] = asked, contexts[table.name, chain.name]
    return found


def match_rates(ours: Rates, theirs: Rates) -> tuple[Roles, Roles]:
    """Which rate-limited rule of one side is which of the other: those that ask the same in the same circumstances,
    then in a chain of the same name, then in the same order."""
    roles: tuple[Roles, Roles] = ({}, {})
    for fits in (
        lambda position, rate: (rate, 0),
        lambda position, rate: (rate[0], position[1]),
        lambda position, rate: (rate[0], 0),
    ):
        waiting: dict[Hashable, list[tuple[str, str, int]]] = {}
        for position, rate in ours.items():
            if position not in roles[0]:
                waiting.setdefault(fits(position, rate), []).append(position)
        for position, rate in theirs.items():
            candidates = waiting.get(fits(position, rate), [])
            if position not in roles[1] and candidates:
                mine = candidates.pop(0)
                roles[0][mine] = roles[1][position] = mine
    for number, rates in enumerate((ours, theirs)):
        for position in rates:
            roles[number].setdefault(position, (number, position))
    return roles


def reduce_both(one: Sequence[Ruleset], other: Sequence[Ruleset]) -> tuple[Structure, list[Side], list[Side]]:
    """The rule sets of both sides over one structure.

    Raises:
        DataplaneError: see `ordered_chains`.
    """
    structure = Structure()
    found = tuple(
        [(ruleset, {table.name: _reached(table) for table in ruleset.tables}) for ruleset in rulesets]
        for rulesets in (one, other)
    )
    lists: dict[str, str] = {}
    roles: tuple[Roles, Roles] = ({}, {})
    if any(_has_state_by_name(reached) for rulesets in found for _, reached in rulesets):
        parts: list[dict[str, Part]] = [{}, {}]
        rates: list[Rates] = [{}, {}]
        for number, rulesets in enumerate(found):
            for ruleset, reached in rulesets:
                contexts: dict[tuple[str, str], int] = {}
                for table in ruleset.tables:
                    contexts |= contexts_of(structure, table, reached[table.name])
                parts[number] |= list_parts(ruleset, reached, contexts)
                rates[number] |= rate_rules(structure, ruleset, reached, contexts)
        lists = match_lists(parts[0], parts[1])
        roles = match_rates(rates[0], rates[1])
    ours, theirs = (
        [Side(structure, ruleset, reached, names, roles[number]) for ruleset, reached in rulesets]
        for number, (rulesets, names) in enumerate(zip(found, ({}, lists), strict=True))
    )
    return structure, ours, theirs


def _has_state_by_name(reached: dict[str, list[Chain]]) -> bool:
    return any(
        isinstance(match, (RecentMatch, LimitMatch))
        for chains in reached.values()
        for chain in chains
        for rule in chain.rules
        for match in rule.matches
    )
