"""What is wrong with a rule set that parses: jumps to nowhere, loops, matches that the kernel would refuse.

A dump that a kernel printed has none of these; hand-written rules and edited dumps do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kproxy.netfilter import loop
from kproxy.netfilter.family import BUILTIN_CHAINS, protocol_name
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.iptables.ruleset import Ruleset, Table
from kproxy.netfilter.iptables.targets import Jump

_RULE_OF: Final = re.compile(r"(?:\[\d+:\d+\] )?-A ")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong. `rule` is the rule's number in the chain, from 1; 0 means the chain as a whole. `kind` is
    `missing-chain`, `builtin-target`, `loop` or `protocol`."""

    kind: str
    table: str
    chain: str
    rule: int
    text: str

    def __str__(self) -> str:
        where = f"rule {self.rule}: " if self.rule else ""
        return f"table {self.table}: chain {self.chain}: {where}{self.text}"


def check_ruleset(ruleset: Ruleset) -> tuple[Problem, ...]:
    """All problems, in the order of the rule set; empty if there are none."""
    problems: list[Problem] = []
    for table in ruleset.tables:
        builtin = BUILTIN_CHAINS.get(table.name, ())
        for chain in table.chains:
            for number, rule in enumerate(chain.rules, 1):
                for kind, text in _rule_problems(table, builtin, rule):
                    problems.append(Problem(kind, table.name, chain.name, number, text))
        if found := find_loop(table):
            problems.append(Problem("loop", table.name, found[0], 0, f"a loop of jumps: {' → '.join(found)}"))
    return tuple(problems)


def line_of_rule(text: str, table: str, chain: str, rule: int) -> int:
    """The line of a dump, from 1, in which a chain's rule of this number stands, or the chain itself for number 0; 0 if
    the dump does not hold it."""
    current, count = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("*"):
            current = line[1:].strip()
        elif (current, rule) == (table, 0) and line.startswith(f":{chain} "):
            return number
        elif current == table and _RULE_OF.match(line) is not None:
            words = line.partition("-A ")[2].split(" ", 1)
            count += words[0] == chain
            if count == rule and words[0] == chain:
                return number
    return 0


def _rule_problems(table: Table, builtin: tuple[str, ...], rule: Rule) -> Iterator[tuple[str, str]]:
    if isinstance(rule.target, Jump):
        chain = rule.target.chain
        if chain in builtin:
            yield "builtin-target", f"a jump to the built-in chain {chain}"
        elif table.chain(chain) is None:
            yield "missing-chain", f"a jump to chain {chain}, which is not there"
    named = None if rule.protocol is None or rule.protocol.negated else rule.protocol.value
    for part in (*rule.matches, *filter(None, (rule.target,))):
        wanted = part.protocols()
        if wanted and named not in wanted:
            text = part.to_save() if wanted != part.PROTOCOLS else f"{part.FLAG} {part.NAME}"
            yield "protocol", f"{text} needs -p {' or '.join(map(protocol_name, sorted(wanted)))}"


def find_loop(table: Table, *, hooked: bool = False) -> tuple[str, ...]:
    """A loop of jumps and gotos, as the chains in order with the first one again at the end; empty if there is none.

    With `hooked` only loops that a built-in chain leads to count, whether or not a packet could go round: these
    iptables-nft refuses. (iptables-legacy took them all when tried, with Linux 6.18.)
    """
    jumps = {
        chain.name: tuple(dict.fromkeys(rule.target.chain for rule in chain.rules if isinstance(rule.target, Jump)))
        for chain in table.chains
    }
    starts: Iterable[str] = [chain.name for chain in table.chains if chain.policy is not None] if hooked else jumps
    return loop.find_loop(jumps, starts)
