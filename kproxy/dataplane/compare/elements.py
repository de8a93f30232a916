"""Elements of named sets and maps as causes of differences.

A rule of nftables that both sides have may treat a packet differently because the set or map that it asks holds other
elements. What the witness asks for is evaluated again, at each rule that it meets, and looked up on both sides. Sets
that rules change are state, and no cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from kproxy.dataplane.compare.difference import Cause, Instead
from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.concrete.graph import Step
from kproxy.dataplane.concrete.nft.expressions import evaluate
from kproxy.dataplane.concrete.nft.index import NftTable
from kproxy.dataplane.concrete.nft.values import Drawn, is_known
from kproxy.dataplane.concrete.state import TRACKED, RuleRef, State, View
from kproxy.dataplane.concrete.trace import Outcome
from kproxy.dataplane.model.packet import Packet
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.dataplane.symbolic.nftables.structure import changed_sets, parts_of, table_name
from kproxy.netfilter.family import Family
from kproxy.netfilter.nftables.element import Element
from kproxy.netfilter.nftables.elements import print_element
from kproxy.netfilter.nftables.expression import Expression, MapLookup, SetReference
from kproxy.netfilter.nftables.ruleset import Rule
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.statement import Match, VerdictMap
from kproxy.netfilter.nftables.style import Scope


class SideElements:
    """The sets and maps of two sides."""

    def __init__(self, sides: tuple[SideRules, SideRules], family: Family) -> None:
        self._tables = tuple({table_name(each): NftTable(each) for each in side.tables(family)} for side in sides)
        self._changed = cache(lambda side, table: changed_sets(self._tables[side][table].table))

    def met(
        self, side: int, step: Step, rule: Rule, outcome: Outcome, situation: Situation
    ) -> tuple[Cause, Set] | None:
        """The first element of one side alone that a packet meets at a rule which both sides have, as a cause; and the
        set or map as the first side has it.

        Args:
            side: 0 or 1, whose trace it is.
            step: the rule in that trace, on the way to `outcome`.
        """
        tables = [each[step.table] for each in self._tables if step.table in each]
        if len(tables) < 2:
            return None
        state = self._changed(0, step.table) | self._changed(1, step.table)
        for key, name in _asked(rule):
            sets = [held for each in tables if (held := each.table.set(name)) is not None]
            if name in state or len(sets) < 2:
                continue
            for packet in _packets(situation.packet, outcome):
                found = State(packet, situation.connection, TRACKED)
                view = View(situation.host, step.hook, RuleRef(step.table, step.chain, step.rule), found)
                value = evaluate(key, view, tables[side])
                if isinstance(value, Drawn) or not is_known(value):
                    continue
                one, other = (each.elements(SetReference(name)).find(value) for each in tables)
                if (one and (one.data,)) == (other and (other.data,)):
                    continue
                action = f"{'map' if sets[0].is_map else 'set'} {name}"
                first, second = _text(sets[0], one), _text(sets[1], other)
                instead = Instead(step.rule, second, action) if first and second else None
                text, of = (first, "a") if first else (second, "b")
                return Cause(of, step.table, step.chain, step.rule, text, action, False, name, instead), sets[0]
        return None


def _asked(rule: Rule) -> Iterator[tuple[Expression, str]]:
    """The keys that a rule looks up, and the names of the sets and maps."""
    for part in parts_of(rule.statements):
        if isinstance(part, Match) and isinstance(part.right, SetReference):
            yield part.left, part.right.name
        elif isinstance(part, (VerdictMap, MapLookup)) and isinstance(part.map, SetReference):
            yield part.key, part.map.name


def _packets(packet: Packet, outcome: Outcome) -> Iterator[Packet]:
    """The packet as rules may see it: as it came, and with its translated destination."""
    yield packet
    if outcome.dnat:
        yield packet.replace(dst=outcome.packet.dst, dport=outcome.packet.dport)


def _text(held: Set, element: Element | None) -> str:
    """An element as nft prints it; "" if it is not there."""
    if element is None:
        return ""
    return print_element(element, held.types, held.data_types, Scope())
