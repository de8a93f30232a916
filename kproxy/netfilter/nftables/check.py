"""What is wrong with a rule set that reads well: references to what is not there, loops of jumps, tables that another
program writes.

The kernel refuses such rule sets, so a dump that has one was cut, filtered or written by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kproxy.netfilter.loop import find_loop
from kproxy.netfilter.nftables.references import chains_of_elements, references_of
from kproxy.netfilter.nftables.ruleset import NftRuleset, Table


@dataclass(frozen=True, slots=True)
class NftProblem:
    """One thing that is wrong. `line` is that of the rule or set in the text (0: unknown)."""

    family: str
    table: str
    where: str
    message: str
    line: int = 0

    def __str__(self) -> str:
        return f"{f'line {self.line}: ' if self.line else ''}{self.words}"

    @property
    def words(self) -> str:
        """Without the line."""
        return f"table {self.family} {self.table}: {self.where}: {self.message}"


def check_nft(ruleset: NftRuleset) -> list[NftProblem]:
    """Find references to chains, sets, objects and flowtables that are not there, and loops of jumps."""
    return [problem for table in ruleset.tables for problem in _check_table(table)]


def _check_table(table: Table) -> Iterator[NftProblem]:
    family = table.family.value

    def problem(where: str, message: str, line: int) -> NftProblem:
        return NftProblem(family, table.name, where, message, line)

    known = {("set", item.name) for item in table.sets} | {(item.kind, item.name) for item in table.objects}
    maps = {item.name: dict.fromkeys(chains_of_elements(item.elements)) for item in table.sets if item.is_verdict_map}
    leads: dict[str, dict[str, None]] = {}
    for chain in table.chains:
        reached = leads[chain.name] = {}
        for number, rule in enumerate(chain.rules, 1):
            found = references_of(rule)
            where = f"rule {number} of chain {chain.name}"
            for name in found.chains:
                target = table.chain(name)
                if target is None:
                    yield problem(where, f"jump to a chain that does not exist: {name}", rule.line)
                elif target.base is not None:
                    yield problem(where, f"jump to a base chain: {name}", rule.line)
            for kind, name in (*(("set", name) for name in found.sets), *found.objects):
                if (kind, name) not in known:
                    yield problem(where, f"a {kind} that does not exist: {name}", rule.line)
            reached |= dict.fromkeys(found.chains)
            for name in found.sets:
                reached |= maps.get(name, {})
    for item in table.sets:
        for name in maps.get(item.name, ()):
            if table.chain(name) is None:
                yield problem(f"map {item.name}", f"jump to a chain that does not exist: {name}", item.line)
    if loop := find_loop({name: tuple(reached) for name, reached in leads.items()}, leads):
        first = table.chain(loop[0])
        line = 0 if first is None else first.line
        yield problem(f"chain {loop[0]}", "a loop of jumps: " + " → ".join(loop), line)
