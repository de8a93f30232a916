"""What each match asks, as a condition on the variables.

Theory: docs/symbolic.md, "The function".

Every match becomes one of three things: a condition (`Node`), a probability, or an effect that always applies
and changes something. What the variables do not hold (a set's members, a rate, a match that is not interpreted) becomes
a *free variable*: yes or no, the same on both sides where the same is asked. Semantics are those of `concrete.matches`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from kproxy.dataplane.symbolic.ask import OpaqueError, ask
from kproxy.dataplane.symbolic.free_variables import FreeVariable, Stage, recent_variable, set_moment
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.variables import Variables
from kproxy.netfilter.condition import Chance, Condition, Open
from kproxy.netfilter.iptables.matches import Match, PhysdevMatch, RecentMatch, SetMatch
from kproxy.netfilter.iptables.option import Negatable
from kproxy.netfilter.iptables.rule import Rule


class RecentCheck(NamedTuple):
    """A `-m recent` match: an effect on a list, and for anything but `set` a condition too."""

    condition: Node
    match: RecentMatch


MatchEffect = Node | Chance | RecentCheck


class Conditions:
    """Translates the matches of rules; one for both sides, so that equal matches get equal conditions."""

    def __init__(self, variables: Variables) -> None:
        self.variables = variables
        self._heads: dict[tuple[object, ...], Node] = {}
        self._matches: dict[tuple[Match, Stage], MatchEffect] = {}

    def head(self, rule: Rule, stage: Stage) -> Node:
        """The fixed part of a rule."""
        key = (rule.source, rule.destination, rule.in_interface, rule.out_interface, rule.protocol, rule.fragment)
        inside = (key, stage.input, stage.output) if rule.in_interface or rule.out_interface else key
        found = self._heads.get(inside)
        if found is None:
            found = self._heads[inside] = ask(rule.asks(), self.variables, stage)
        return found

    def match(self, match: Match, stage: Stage, role: Hashable) -> MatchEffect:
        """One match. `role` tells rules with rates of their own apart."""
        key = (match, stage)
        found = self._matches.get(key)
        if found is None:
            condition = match.condition()
            if isinstance(condition, Open) and condition.each:
                return self.variables.free(FreeVariable(condition.kind, condition.text, role))
            found = self._matches[key] = self._match(match, condition, stage)
        return found

    def _match(self, match: Match, condition: Condition | None, stage: Stage) -> MatchEffect:
        if isinstance(condition, Chance):
            return condition
        if isinstance(match, RecentMatch):
            return self._recent(match, stage)
        if isinstance(match, SetMatch) and match == _plain(match):
            reference = match.match_set.value
            where = (reference, set_moment(reference, stage))
            asked = self.variables.free(FreeVariable("set", SetMatch(Negatable(reference)).to_save(), where))
            return self.variables.signed(asked, match.match_set)
        try:
            if condition is not None:
                return ask(condition, self.variables, stage)
        except OpaqueError:
            pass
        met = (stage.hook, stage.table)
        if isinstance(match, PhysdevMatch):  # 0 is the answer for a packet that comes by no bridge port
            flag, is_negated = match.positive
            node = self.variables.free(FreeVariable("physdev", flag.to_save(), met))
            return self.variables.diagrams.negate(node) if is_negated else node
        return self.variables.free(FreeVariable("opaque", match.to_save(), met))

    def _recent(self, match: RecentMatch, stage: Stage) -> MatchEffect:
        action = match.action.value
        if action == "set":
            return RecentCheck(FALSE if match.action.negated else TRUE, match)
        held = self.variables.free(recent_variable(match, stage))
        return RecentCheck(self.variables.signed(held, match.action), match)


def _plain(match: SetMatch) -> SetMatch:
    """A match that asks for nothing but membership."""
    counted = match.update_counters, match.update_subcounters
    return SetMatch(match.match_set, update_counters=counted[0], update_subcounters=counted[1])
