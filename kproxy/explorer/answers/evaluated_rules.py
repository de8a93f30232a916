"""The rules that a packet was compared with on one host, in the order of hooks and priorities: those that matched, and
those that were asked and did not.

A trace tells what matched. What was asked follows from it: a chain is gone through from its first rule on, until a rule
ends it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from kproxy.cluster.journey.path import Hop
from kproxy.dataplane import Index
from kproxy.dataplane.concrete.graph import Step
from kproxy.dataplane.model.conntrack import NEW
from kproxy.dataplane.model.pipeline import BaseChain, Source, StageKind
from kproxy.netfilter.hooks import HOOKS_IN_ORDER

SHOWN: Final = 50
"""Rules that did not match which are shown before each that did, and after the last."""
_DEEPEST: Final = 64
_WAY: Final = re.compile(r"\b(jump|goto) (\S+)")
_RETURNS: Final = re.compile(r"(?:^|; )return\b", re.IGNORECASE)
_ENDS: Final = re.compile(
    r"(?:^|; )(?:accept|drop|reject|dnat|snat|masquerade|redirect|netmap|tproxy|queue|nfqueue)\b", re.IGNORECASE
)


class EvaluatedRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule that was asked. `did` and `provenance` are as in a trace."""

    rule: int
    text: str
    matched: bool = False
    did: str = ""
    provenance: str = ""
    packets: int | None = None
    bytes: int | None = None


class EvaluatedChain(msgspec.Struct, frozen=True):
    """A chain that the packet came to. `asked` is how many of its rules were asked, `left` how many of these are left
    out of `rules`."""

    table: str
    chain: str
    source: str
    rules: tuple[EvaluatedRule, ...]
    asked: int
    left: int


class EvaluatedHook(msgspec.Struct, frozen=True):
    hook: str
    chains: tuple[EvaluatedChain, ...]


def evaluated_hooks(index: Index, hop: Hop) -> Iterator[EvaluatedHook]:
    """Each hook that a packet met on a host."""
    steps = hop.outcome.steps
    order = list(dict.fromkeys(step.hook for step in steps))
    entry = hop.outcome.connection
    begins = entry is None or entry.state in (None, NEW)
    for hook in sorted(order, key=HOOKS_IN_ORDER.index):
        mine = deque(step for step in steps if step.hook == hook and step.kind == "rule")
        chains: dict[tuple[str, str, str], _Chain] = {}
        ended = False
        for stage in index.pipeline.stages(hook):
            if stage.kind is StageKind.CONNTRACK or (stage.kind is StageKind.NAT and not begins):
                continue
            for place in stage.orders[0]:
                if not ended:
                    base = stage.chains[place]
                    ended = _Walk(index, base, mine, chains).through(base.chain) and not mine
        shown = tuple(item.shown() for item in chains.values() if item.asked)
        if shown:
            yield EvaluatedHook(hook, shown)


class _Chain:
    """A chain, and which of its rules were asked, with the steps of those that matched. Rules are put into words only
    if they are shown."""

    def __init__(self, source: str, table: str, name: str, texts: Callable[[int], str]) -> None:
        self.key = (source, table, name)
        self.asked: dict[int, Step | None] = {}
        self._texts = texts

    def shown(self) -> EvaluatedChain:
        source, table, name = self.key
        kept: list[int] = []
        run: list[int] = []
        for number in sorted(self.asked):
            run.append(number)
            if self.asked[number] is not None:
                kept += run[-SHOWN - 1 :]
                run = []
        kept += run[:SHOWN]
        rules = tuple(map(self._rule, kept))
        return EvaluatedChain(table, name, source, rules, len(self.asked), len(self.asked) - len(kept))

    def _rule(self, number: int) -> EvaluatedRule:
        step = self.asked[number]
        if step is None:
            return EvaluatedRule(number, self._texts(number))
        return EvaluatedRule(number, step.text, True, step.did, step.note)


class _Walk:
    """A base chain gone through again, along the rules that matched."""

    def __init__(
        self, index: Index, base: BaseChain, steps: deque[Step], chains: dict[tuple[str, str, str], _Chain]
    ) -> None:
        self._index = index
        self._base = base
        self._steps = steps
        self._chains = chains
        self._source = "" if base.source is Source.NFTABLES or not index.several else base.source.value

    def through(self, name: str, depth: int = 0) -> bool:
        """One chain, and those that it jumps to; whether the packet ended there."""
        table, count, texts = self._rules(name)
        key = (self._source, table, name)
        chain = self._chains.setdefault(key, _Chain(*key, texts))
        for number in range(1, count + 1):
            step = self._steps[0] if self._steps else None
            if step is None or (step.table, step.chain, step.rule) != (table, name, number):
                chain.asked.setdefault(number)
                continue
            self._steps.popleft()
            chain.asked[number] = step
            way = _WAY.search(step.did)
            if way is not None and depth < _DEEPEST:
                ended = self.through(way[2], depth + 1)
                if way[1] == "goto" or ended:
                    return ended
            elif _RETURNS.search(step.did):
                return False
            elif _ENDS.search(step.did):
                return True
        return False

    def _rules(self, name: str) -> tuple[str, int, Callable[[int], str]]:
        """The table's name as steps have it, how many rules a chain has, and each in words."""
        base = self._base
        if base.source is Source.NFTABLES:
            native = self._index.table(base.source, base.table).chain(name)
            return base.table, len(native.chain.rules), lambda number: native.rule(number - 1).described()[0]
        found = self._index.table(base.source, base.table).chain(name).chain
        return base.table, len(found.rules), lambda number: found.rules[number - 1].to_restore(name)
