"""The tables of nftables made ready for packets: chains by name, rules as steps, and the elements of sets and maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kproxy.dataplane.concrete.answer import answer
from kproxy.dataplane.concrete.effects import ACTS, Way
from kproxy.dataplane.concrete.nft.matches import match_answer
from kproxy.dataplane.concrete.nft.sets import IndexedElements
from kproxy.dataplane.concrete.nft.statements import STATEMENTS
from kproxy.dataplane.concrete.state import Answer, Note, RuleRef, View
from kproxy.dataplane.concrete.steps import IndexedRule, RuleStep, RuleTable, acting
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.packet import Packet
from kproxy.netfilter.nftables.effects import lower
from kproxy.netfilter.nftables.expression import AnonymousMap, AnonymousSet, SetReference
from kproxy.netfilter.nftables.lowering import condition_of
from kproxy.netfilter.nftables.rule import RulePrinter
from kproxy.netfilter.nftables.ruleset import Chain, Rule, Table
from kproxy.netfilter.nftables.statement import Match
from kproxy.netfilter.nftables.style import BOOKWORM


class NftChain:
    """A chain; the rules are made ready when a packet comes to them."""

    __slots__ = ("_rules", "_table", "chain", "policy")

    def __init__(self, table: NftTable, chain: Chain) -> None:
        self._table = table
        self._rules: dict[int, IndexedRule] = {}
        self.chain = chain
        self.policy = "DROP" if chain.base is not None and chain.base.policy == "drop" else "ACCEPT"

    def candidates(self, _packet: Packet) -> Sequence[int]:
        """The indexes, from 0 and in order, of the rules that may match the packet."""
        return range(len(self.chain.rules))

    def rule(self, index: int) -> IndexedRule:
        """The rule at an index, counted from 0."""
        found = self._rules.get(index)
        if found is None:
            rule, ref = self.chain.rules[index], RuleRef(self._table.name, self.chain.name, index + 1)
            steps = self._table.steps(rule)
            found = self._rules[index] = IndexedRule(ref, steps, lambda: self._table.described(ref, rule))
        return found


class NftTable(RuleTable):
    """A table. `name` is its family and name, `ip kube-proxy`."""

    def __init__(self, table: Table, note: Note | None = None) -> None:
        super().__init__(f"{table.family.value} {table.name}")
        self.table = table
        self._note = note
        self._sets: dict[str, IndexedElements] = {}
        self._printer = RulePrinter(table.family, BOOKWORM, {item.name: item for item in table.sets})
        self._anonymous: dict[int, tuple[object, IndexedElements]] = {}

    def indexed(self, name: str) -> NftChain | None:
        """A chain made ready for packets; None if the table has no such chain."""
        chain = self.table.chain(name)
        return None if chain is None else NftChain(self, chain)

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

    def steps(self, rule: Rule) -> list[RuleStep]:
        """What a rule asks and does."""
        family, text, steps = self.table.family.value, self._printer.statement, []
        for statement in rule.statements:
            for what in lower(statement, family, text):
                if type(what) in ACTS or type(what) in STATEMENTS:
                    steps.append(acting(what, statement))
                    continue
                asked = condition_of(what) or what if isinstance(what, Match) else what
                steps.append(RuleStep(asked, statement, acts=False, pure=True))
        return steps

    def ask(self, step: RuleStep, view: View) -> Answer:
        """Whether a comparison holds, or what nft asks beside."""
        return match_answer(step.what, view, self) if type(step.what) is Match else answer(step.what, view)

    def act(self, step: RuleStep, view: View) -> list[Way]:
        """What a statement may do."""
        action = ACTS.get(type(step.what))
        return STATEMENTS[type(step.what)](step.what, view, self) if action is None else action(step.what, view)

    def texts(self, step: RuleStep) -> tuple[str, ...]:
        """A statement as nft prints it, and the words in it by which it may be meant: `fib saddr . iif oif`, `fib`."""
        text = self._printer.statement(step.source)
        return (text, *text.split()) if isinstance(step.source, Match) else (text, text.split()[0])

    def described(self, ref: RuleRef, rule: Rule) -> tuple[str, str]:
        """A rule as nft prints it; and where it comes from, or else its comment, "" for neither."""
        note = self._note(self.name, ref.chain, ref.rule) if self._note is not None else None
        return self._printer.rule(rule), note or rule.comment or ""
