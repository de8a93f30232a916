"""What the concrete evaluator makes of a witness, in the terms in which rule sets are compared.

Some questions of the rules have answers that no host can be made to give; there the witness gives them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, cast

from kproxy.dataplane.compare.witness import Situation, Watch
from kproxy.dataplane.concrete.effects import Result, Way
from kproxy.dataplane.concrete.explore import Exploration
from kproxy.dataplane.concrete.hooks import PacketPath
from kproxy.dataplane.concrete.index import Index, index_ruleset
from kproxy.dataplane.concrete.state import Answer, State, View
from kproxy.dataplane.concrete.steps import RuleStep, RuleTable
from kproxy.dataplane.model.pipeline import IptablesRules, Source
from kproxy.dataplane.model.verdict import ACCEPT, INDETERMINATE
from kproxy.dataplane.symbolic.build import Setup
from kproxy.dataplane.symbolic.hooks import SERVED
from kproxy.dataplane.symbolic.host_rules import HostSide, SideRules
from kproxy.dataplane.symbolic.nftables.text import positive
from kproxy.netfilter import condition
from kproxy.netfilter.family import Family
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.iptables.matches import PhysdevMatch, SetMatch
from kproxy.netfilter.iptables.option import Negatable
from kproxy.netfilter.iptables.ruleset import Ruleset
from kproxy.netfilter.nftables.statement import Match as NftMatch

Observation = tuple[object, ...]
"""What becomes of a packet as far as rule sets are compared by it."""
Observed = dict[Observation, Fraction]


def watch_of(setup: Setup, side: HostSide) -> Watch:
    """What to watch on a side."""
    variables, read = setup.variables, setup.effects.read_lists
    mark, connmark = (
        sum(1 << bit for bit, level in enumerate(reversed(variables.levels[name])) if level in setup.outcomes.watched)
        for name in ("mark", "connmark")
    )
    sets = {
        key: (alias, None if time is None else time // 1000)
        for key, (alias, time) in side.state_sets.items()
        if alias in read
    }
    lists = {name: alias for name, alias in side.lists.items() if alias in read}
    new_source = any(each.pipeline.asks_new_source for each in setup.sides)
    return Watch(mark, connmark, lists, sets, new_source, side.rules.own, side.rules.sets)


def index_rules(rules: SideRules, family: Family) -> Index:
    """A side's rules ready for traces."""
    native = rules.nftables if rules.nftables.tables else None
    return index_ruleset(rules.iptables, nftables=native, family=family, ipvs=rules.ipvs)


def observe(rules: Ruleset | Index, situation: Situation, watch: Watch) -> Observed:
    """What becomes of the packet, with chances.

    Raises:
        DataplaneError: as `trace`.
    """
    index = assumed_index(rules, situation)
    start = State(situation.packet, situation.connection, ipvs=None if index.ipvs is None else False)
    exploration = Exploration(PacketPath(index, situation.host), start)
    held = situation.host.recent or {}
    result: Observed = {}
    for arrival in exploration.paths():
        state, end = arrival.end.state, arrival.end
        packet = state.packet
        goes = end.verdict == ACCEPT
        effects = {
            f"{watch.sets[table, name][0]} {key} {bool(data)}"
            for table, name, key, data in state.sets
            if (table, name) in watch.sets
        }
        effects |= {
            f"{watch.lists[name]} {address} {bool(ages)}"
            for (name, address), ages in state.recent
            if name in watch.lists and ages != held.get(name, {}).get(address, ())
        }
        effects |= {text for text, stays in state.told if goes or stays}
        if goes and end.via == "local" and packet.dst in watch.own:
            effects.add(SERVED)
        tracked = state.has_connection
        seen: Observation = (end.verdict, end.reject, end.reason if end.verdict == INDETERMINATE else "")
        if goes:
            source = (state.masqueraded, packet.src, packet.sport)
            seen += (packet.dst, packet.dport, source, packet.mark & watch.mark, packet.ttl, packet.tos)
            seen += (packet.tcp_flags, packet.icmp_type, packet.icmp_code)
            seen += (state.tracking,)
        if (tracked and goes) or state.connection.state == "ESTABLISHED":
            seen += (state.connection.mark & watch.connmark,)
        seen += (tuple(sorted(effects)),)
        result[seen] = result.get(seen, Fraction(0)) + arrival.chance
    return result


def assumed_index(rules: Ruleset | Index, situation: Situation) -> Index:
    """The rules ready for a trace, with what the situation assumes."""
    index = rules if isinstance(rules, Index) else index_ruleset(rules)
    if situation.variant and not index.variant:
        iptables = [IptablesRules(each.ruleset, each.variant or Variant(situation.variant)) for each in index.iptables]
        index = index_ruleset(iptables, index.note, nftables=index.nftables, family=index.family, ipvs=index.ipvs)
    answers = {question.text: answer for question, answer in situation.assumed}
    return AssumingIndex(index, answers) if answers else index


class AssumingIndex(Index):
    """An index in which the free variables of these texts have these answers."""

    def __init__(self, index: Index, answers: Mapping[str, bool]) -> None:
        self.__dict__.update(vars(index))
        self._answers = answers

    def table(self, source: Source, name: str) -> RuleTable:
        """As `Index.table`."""
        return cast(RuleTable, _AssumingTable(super().table(source, name), self._answers))


class _AssumingTable:
    """A table whose questions have these answers; all else is as the table has it."""

    def __init__(self, table: RuleTable, answers: Mapping[str, bool]) -> None:
        self.table = table
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def ask(self, step: RuleStep, view: View) -> Answer:
        what = self._filled(step.what)
        said = self._said(step) if what == step.what else None
        return self.table.ask(step._replace(what=what), view) if said is None else said

    def act(self, step: RuleStep, view: View) -> list[Way]:
        said = self._said(step)
        return self.table.act(step, view) if said is None else [Way(_RESULTS[said], view.state)]

    def _said(self, step: RuleStep) -> bool | None:
        """The answer to a whole match or statement; None if it has none."""
        asked = (
            (self.answers.get(text), negated)
            for part, negated in _spellings(step.source)
            for text in self.table.texts(step._replace(source=part))[:1]
        )
        return next((answer != negated for answer, negated in asked if answer is not None), None)

    def _filled(self, what: Any) -> Any:
        """A condition in which what is open has its answers."""
        match what:
            case condition.Open(_, text) if text in self.answers:
                return condition.ALWAYS if self.answers[text] else condition.NEVER
            case condition.Not(part):
                return condition.Not(self._filled(part))
            case condition.All(parts) | condition.Any(parts):
                return type(what)(tuple(map(self._filled, parts)))
        return what


_RESULTS = {True: Result.CONTINUE, False: Result.BREAK}


def _spellings(part: Any) -> Iterator[tuple[Any, bool]]:
    """A match or statement without its negation, and whether it has one; and as it is."""
    if isinstance(part, SetMatch):
        yield SetMatch(Negatable(part.match_set.value)), part.match_set.negated
    if isinstance(part, PhysdevMatch):
        yield part.positive
    yield positive(part) if isinstance(part, NftMatch) else (part, False)
