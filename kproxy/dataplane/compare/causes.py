"""Causes of differences: rules that only one side has and that the witness meets.

Rules are compared chain by chain, by their text without comments and counters; chains of one side alone say nothing,
since what leads to them is the cause. So the removal of one rule is one cause, however many destinations it concerns.
Where the sides share no chains (iptables against nftables) there are no causes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kproxy.dataplane.concrete.trace import TraceResult
from kproxy.dataplane.model.pipeline import Source
from kproxy.dataplane.symbolic.nftables.structure import is_idle, table_name
from kproxy.dataplane.symbolic.nftables.text import text_of
from kproxy.dataplane.symbolic.normalize import IDLE_MATCHES
from kproxy.dataplane.symbolic.side import SideRules
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.iptables.targets import Jump
from kproxy.netfilter.nftables.value import Verdict

Place = tuple[bool, str, str]
"""Whether a chain is of native nftables, its table, and its name."""


class Cause(NamedTuple):
    """A rule that only one side has: `side` 0 or 1, `rule` its number in the chain, `action` what it does."""

    side: int
    table: str
    chain: str
    rule: int
    text: str
    action: str

    def words(self, sides: Sequence[str] = ("A", "B")) -> str:
        """`rule 3 of INPUT, jump to f2b-sshd, is only in A`."""
        return f"rule {self.rule} of {self.chain}, {self.action}, is only in {sides[self.side]}"


class Causes:
    """The rules of one side alone, for two sides."""

    def __init__(self, sides: tuple[SideRules, SideRules], family: Family) -> None:
        chains = tuple(dict(_chains(rules, family)) for rules in sides)
        self._alone: dict[tuple[int, Place, int], Cause] = {}
        for place in chains[0].keys() & chains[1].keys():
            for side in (0, 1):
                common = Counter(key for key, _, _ in chains[1 - side][place])
                for number, (key, text, action) in enumerate(chains[side][place], 1):
                    if common[key] > 0:
                        common[key] -= 1
                    else:
                        self._alone[side, place, number] = Cause(side, place[1], place[2], number, text, action)

    def of(self, traces: tuple[TraceResult, TraceResult]) -> Cause | None:
        """The first rule of one side alone that a witness meets; of rules equally early, the first side's."""
        found: list[tuple[int, int, Cause]] = []
        for side, result in enumerate(traces):
            for outcome in result.outcomes:
                for position, step in enumerate(outcome.path):
                    native = step.source == Source.NFTABLES or step.table.startswith(("ip ", "ip6 ", "inet "))
                    cause = self._alone.get((side, (native, step.table, step.chain), step.rule))
                    if cause is not None:
                        found.append((position, side, cause))
                        break
        return min(found)[2] if found else None


def _chains(rules: SideRules, family: Family) -> Iterator[tuple[Place, list[tuple[object, str, str]]]]:
    """The chains, each with its rules: what counts in them, their text, and what they do."""
    for ruleset in rules.rulesets:
        for table in ruleset.tables:
            for chain in table.chains:
                yield (
                    (False, table.name, chain.name),
                    [(_counted(rule), rule.to_save(chain.name), _action(rule)) for rule in chain.rules],
                )
    for held in rules.tables(family):
        for native in held.chains:
            listed: list[tuple[object, str, str]] = []
            for rule in native.rules:
                statements = tuple(statement for statement in rule.statements if not is_idle(statement))
                text = " ".join(text_of(statement, held) for statement in rule.statements)
                last = statements[-1] if statements else None
                action = f"{last.kind} to {last.chain}" if isinstance(last, Verdict) and last.chain else f"`{text}`"
                listed.append((statements, text, action))
            yield (True, table_name(held), native.name), listed


def _counted(rule: Rule) -> object:
    matches = tuple(match for match in rule.matches if not isinstance(match, IDLE_MATCHES))
    return rule.head, matches, rule.target


def _action(rule: Rule) -> str:
    if isinstance(rule.target, Jump):
        return f"{'goto' if rule.target.goto else 'jump'} to {rule.target.chain}"
    return f"`{rule.target.to_save()}`" if rule.target is not None else "without a target"
