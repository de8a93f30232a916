"""What each match asks, as a condition on the variables.

Theory: docs/symbolic.md, "The function".

Every match becomes one of three things: a condition (`Node`), a probability, or an effect that always applies
and changes something. What the variables do not hold (a set's members, a rate, a match that is not interpreted) becomes
a *free variable*: yes or no, the same on both sides where the same is asked. Semantics are those of `concrete.matches`.
"""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from typing import Final, NamedTuple

from kproxy.dataplane.symbolic.ask import ask
from kproxy.dataplane.symbolic.free_variables import FreeVariable, Stage, recent_variable, set_moment
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.variables import (
    BROADCAST,
    LOCAL,
    MULTICAST,
    NO_INTERFACE,
    UNICAST,
    Variables,
)
from kproxy.netfilter.address import Network
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.matches import (
    AddrtypeMatch,
    HashlimitMatch,
    LimitMatch,
    Match,
    OwnerMatch,
    PhysdevMatch,
    RecentMatch,
    SetMatch,
    StatisticMatch,
)
from kproxy.netfilter.iptables.option import Negatable
from kproxy.netfilter.iptables.rule import Rule

_STATE_OF_RULE: Final = (LimitMatch, HashlimitMatch)


class Chance(NamedTuple):
    """A match that applies by chance."""

    chance: Fraction


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
            found = self._heads[inside] = self._head(rule, stage)
        return found

    def _head(self, rule: Rule, stage: Stage) -> Node:
        variables, diagrams = self.variables, self.variables.diagrams
        parts = []
        for level, network in ((variables.dst, rule.destination), (variables.src, rule.source)):
            if network is not None:
                parts.append(variables.signed(variables.address_under(level, network.value), network))
        if rule.protocol is not None:
            parts.append(variables.signed(diagrams.equals(variables.protocol, rule.protocol.value), rule.protocol))
        for level, name, present in (
            (variables.in_interface, rule.in_interface, stage.input),
            (variables.out_interface, rule.out_interface, stage.output),
        ):
            if name is not None:
                parts.append(variables.signed(self._interface(level, name.value, present), name))
        if rule.fragment is not None:
            parts.append(diagrams.equals(variables.fragment, int(rule.fragment)))
        return diagrams.all_of(parts)

    def _interface(self, level: int, pattern: str, present: bool) -> Node:
        variables = self.variables
        if not present:
            return TRUE if (NO_INTERFACE, NO_INTERFACE) in variables.interfaces.atoms(pattern) else FALSE
        return variables.interface_fits(level, pattern)

    def match(self, match: Match, stage: Stage, role: Hashable) -> MatchEffect:
        """One match. `role` tells rules with rates of their own apart."""
        if isinstance(match, _STATE_OF_RULE):
            return self._rate(match, role)
        key = (match, stage)
        found = self._matches.get(key)
        if found is None:
            found = self._matches[key] = self._match(match, stage)
        return found

    def _rate(self, match: LimitMatch | HashlimitMatch, role: Hashable) -> Node:
        if isinstance(match, HashlimitMatch):
            # A named table of buckets, shared by all rules that name it; `above` asks the opposite of `upto`.
            within = self._free("rate", match.to_save().replace("--hashlimit-above", "--hashlimit-upto"))
            return within if match.above is None else self.variables.diagrams.negate(within)
        return self._free("rate", match.to_save(), role)

    def _free(self, kind: str, text: str, where: Hashable = "") -> Node:
        return self.variables.free(FreeVariable(kind, text, where))

    def _match(self, match: Match, stage: Stage) -> MatchEffect:
        condition = match.condition()
        if condition is not None:
            return ask(condition, self.variables, stage)
        if isinstance(match, StatisticMatch):
            chance = match.chance
            if chance is None:
                every = match.every or Negatable(1)
                chance = 1 - Fraction(1, every.value) if every.negated else Fraction(1, every.value)
            return Chance(chance)
        if isinstance(match, RecentMatch):
            return self._recent(match, stage)
        if isinstance(match, AddrtypeMatch):
            return self._addrtype(match, stage)
        where = (stage.hook, stage.table)
        if isinstance(match, SetMatch):
            return self._set(match, stage)
        if isinstance(match, OwnerMatch):
            return self.owner(match)
        if isinstance(match, PhysdevMatch):
            return self._free("physdev", match.to_save(), where)
        return self._free("opaque", match.to_save(), where)

    def _addrtype(self, match: AddrtypeMatch, stage: Stage) -> Node:
        variables = self.variables
        if match.limit_iface_in or match.limit_iface_out:
            return self._free("opaque", match.to_save(), (stage.hook, stage.table))
        parts = []
        for level, kind, wanted in (
            (variables.src, variables.src_kind, match.src_type),
            (variables.dst, variables.dst_kind, match.dst_type),
        ):
            if wanted is not None:
                held = self._kind_v4(kind, wanted.value)
                if variables.family is Family.IPV6:
                    held = self._kind_v6(level, kind, wanted.value, match, stage)
                parts.append(variables.signed(held, wanted))
        return variables.diagrams.all_of(parts)

    def _kind_v4(self, level: int, names: frozenset[str]) -> Node:
        numbers = {"UNICAST": UNICAST, "LOCAL": LOCAL, "BROADCAST": BROADCAST, "MULTICAST": MULTICAST}
        wanted = sorted(numbers[name] for name in names if name in numbers)
        return self.variables.diagrams.among(level, [(number, number) for number in wanted])

    def _kind_v6(self, level: int, kind: int, names: frozenset[str], match: AddrtypeMatch, stage: Stage) -> Node:
        """As `concrete.matches.state._fits_v6`: types are alternatives only among those that routing answers."""
        variables, diagrams = self.variables, self.variables.diagrams
        if not names <= {"LOCAL", "UNICAST", "MULTICAST", "UNSPEC"}:
            return self._free("opaque", match.to_save(), (stage.hook, stage.table))
        multicast = variables.address_under(level, Network(Family.IPV6, 0xFF << 120, 0xFF << 120))
        zero = variables.address_under(level, Network(Family.IPV6, 0, Family.IPV6.full_mask))
        parts = []
        if "MULTICAST" in names:
            parts.append(multicast)
        if "UNICAST" in names:
            parts.append(diagrams.negate(diagrams.either(multicast, zero)))
        if "UNSPEC" in names:
            parts.append(zero)
        if "LOCAL" in names:
            parts.append(diagrams.equals(kind, LOCAL))
        return diagrams.all_of(parts)

    def _recent(self, match: RecentMatch, stage: Stage) -> MatchEffect:
        action = match.action.value
        if action == "set":
            return RecentCheck(FALSE if match.action.negated else TRUE, match)
        held = self.variables.free(recent_variable(match, stage))
        return RecentCheck(self.variables.signed(held, match.action), match)

    def _set(self, match: SetMatch, stage: Stage) -> Node:
        reference = match.match_set.value
        plain = SetMatch(Negatable(reference))
        if match.return_nomatch or match != SetMatch(
            match.match_set, update_counters=match.update_counters, update_subcounters=match.update_subcounters
        ):
            return self._free("opaque", match.to_save(), (stage.hook, stage.table))
        asked = self._free("set", plain.to_save(), (reference, set_moment(reference, stage)))
        return self.variables.signed(asked, match.match_set)

    def owner(self, match: OwnerMatch) -> Node:
        parts = []
        if match.socket_exists is not None:
            held = self._free("owner", "-m owner --socket-exists", "socket")
            parts.append(held if match.socket_exists else self.variables.diagrams.negate(held))
        for name, wanted in (("uid", match.uid_owner), ("gid", match.gid_owner)):
            if wanted is not None:
                groups = name == "gid" and match.suppl_groups
                text = f"-m owner --{name}-owner {wanted.value.text('-')}" + (" --suppl-groups" if groups else "")
                held = self._free("owner", text, (name, wanted.value.first, wanted.value.last, groups))
                parts.append(self.variables.signed(held, wanted))
        return self.variables.diagrams.all_of(parts)
