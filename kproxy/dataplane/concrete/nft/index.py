"""Native nftables made ready for traces: tables by name, each set indexed when a packet first asks for it."""

from __future__ import annotations

from collections.abc import Mapping

from kproxy.dataplane.concrete.nft.sets import IndexedElements
from kproxy.dataplane.concrete.state import Note, View
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.netfilter.condition import Condition
from kproxy.netfilter.nftables.expression import AnonymousMap, AnonymousSet, SetReference
from kproxy.netfilter.nftables.lowering import condition_of
from kproxy.netfilter.nftables.rule import RulePrinter
from kproxy.netfilter.nftables.ruleset import Chain, NftRuleset, Rule, Table
from kproxy.netfilter.nftables.statement import Match, Statement
from kproxy.netfilter.nftables.style import BOOKWORM


class NftTable:
    """A table. `name` is its family and name, `ip kube-proxy`."""

    __slots__ = ("_anonymous", "_conditions", "_note", "_printer", "_rules", "_sets", "name", "table")

    def __init__(self, table: Table, note: Note | None = None) -> None:
        self.table = table
        self._note = note
        self.name = f"{table.family.value} {table.name}"
        self._sets: dict[str, IndexedElements] = {}
        self._printer = RulePrinter(table.family, BOOKWORM, {item.name: item for item in table.sets})
        self._anonymous: dict[int, tuple[object, IndexedElements]] = {}
        self._conditions: dict[int, tuple[Match, Condition | None]] = {}
        self._rules: dict[int, tuple[Rule, str]] = {}

    def chain(self, name: str) -> Chain:
        """A chain. Raises DataplaneError if it is not there."""
        found = self.table.chain(name)
        if found is None:
            raise DataplaneError(f"table {self.name}: a jump to chain {name}, which is not there")
        return found

    def condition(self, match: Match) -> Condition | None:
        """What a comparison asks of the packet's fields; None if it asks more."""
        kept = self._conditions.get(id(match))
        if kept is None:
            kept = self._conditions[id(match)] = (match, condition_of(match))
        return kept[1]

    def has_chain(self, name: str) -> bool:
        """Whether the table has it."""
        return self.table.chain(name) is not None

    def elements(self, which: SetReference | AnonymousSet | AnonymousMap) -> IndexedElements:
        """The elements of a set or map. Raises DataplaneError if the table has no set of that name."""
        if isinstance(which, SetReference):
            known = self._sets.get(which.name)
            if known is None:
                found = self.table.set(which.name)
                if found is None:
                    raise DataplaneError(f"table {self.name}: no set or map @{which.name}")
                known = self._sets[which.name] = IndexedElements(found.elements)
            return known
        kept = self._anonymous.get(id(which))
        if kept is None or kept[0] is not which:
            kept = self._anonymous[id(which)] = (which, IndexedElements(which.elements))
        return kept[1]

    def changed(self, view: View, name: str) -> Mapping[object, object | None]:
        """The elements of a named set that packets have changed."""
        found = dict(view.host.elements.get((self.name, name), {}))
        found.update((key, data) for table, which, key, data in view.state.sets if (table, which) == (self.name, name))
        return found

    def texts(self, statement: Statement) -> tuple[str, ...]:
        """A statement as nft prints it, and the words in it by which it may be meant: `fib saddr . iif oif`, `fib`."""
        text = self._printer.statement(statement)
        return (text, *text.split()) if isinstance(statement, Match) else (text, text.split()[0])

    def note(self, chain: str, number: int, rule: Rule) -> str:
        """Where a rule comes from, or else its comment; "" for neither."""
        found = self._note(self.name, chain, number) if self._note is not None else None
        return found or rule.comment or ""

    def text(self, rule: Rule) -> str:
        """The rule as nft prints it; kept, since each way of a choice among thousands of endpoints has it."""
        kept = self._rules.get(id(rule))
        if kept is None or kept[0] is not rule:
            kept = self._rules[id(rule)] = (rule, self._printer.rule(rule))
        return kept[1]


class NftRules:
    """The tables of a host."""

    def __init__(self, ruleset: NftRuleset, note: Note | None = None) -> None:
        self.ruleset = ruleset
        tables = (NftTable(table, note) for table in ruleset.tables)
        self._tables = {table.name: table for table in tables}

    def table(self, name: str) -> NftTable:
        """A table by its family and name."""
        return self._tables[name]
