"""The operations of restore input, each done to a table.

A `TableState` is a table that operations may change. It refuses what the kernel refuses, with a `RefusedError`; the
message is the reason. Whether a refusal comes at the line or at COMMIT makes no difference, since a table changes as a
whole or not at all. Where iptables-nft and iptables-legacy disagree, the stricter of the two is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kproxy.netfilter.family import BUILTIN_CHAINS, VERDICTS
from kproxy.netfilter.iptables.rule import Counters, Rule
from kproxy.netfilter.iptables.ruleset import Chain, Table
from kproxy.netfilter.iptables.targets import OPAQUE_TARGETS, TARGETS, Jump, OpaqueTarget


class RefusedError(Exception):
    """The kernel would refuse the operation."""


class TableState:
    """A table while operations work on it: its chains, whose rules are in `_rules` once they are asked for."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.builtin = BUILTIN_CHAINS[table.name]
        self.chains = {chain: Chain(chain, "ACCEPT") for chain in self.builtin}
        self.chains |= {chain.name: chain for chain in table.chains}
        self._rules: dict[str, list[Rule]] = {}

    def rules(self, name: str) -> list[Rule]:
        """The rules of a chain, to be changed in place. Raises RefusedError."""
        rules = self._rules.get(name)
        if rules is None:
            if name not in self.chains:
                raise RefusedError(f"no chain {name}")
            rules = self._rules[name] = list(self.chains[name].rules)
        return rules

    def is_used(self, name: str) -> bool:
        """Whether a rule of this table jumps to the chain."""
        rules = (self._rules.get(chain.name, chain.rules) for chain in self.chains.values())
        return any(isinstance(rule.target, Jump) and rule.target.chain == name for some in rules for rule in some)

    def remove(self, name: str) -> None:
        """Take a chain out of the table."""
        del self.chains[name]
        self._rules.pop(name, None)

    def checked(self, rule: Rule | None) -> Rule:
        """A rule to be added, unless it jumps to a chain that is missing or built in, or has a target that iptables
        1.8.9 does not have. Raises RefusedError."""
        assert rule is not None
        target = rule.target
        if isinstance(target, OpaqueTarget) and target.name not in TARGETS and target.name not in OPAQUE_TARGETS:
            raise RefusedError(f"no target extension {target.name}")
        if isinstance(target, Jump):
            if target.chain in self.builtin:
                raise RefusedError(f"jump to the built-in chain {target.chain}")
            if target.chain not in self.chains:
                raise RefusedError(f"no chain {target.chain}")
        return rule

    def table(self) -> Table:
        """The result, with its chains in the order of iptables-save."""
        chains = (
            replace(chain, rules=tuple(self._rules[name])) if name in self._rules else chain
            for name, chain in self.chains.items()
        )
        return Table(self._table.name, tuple(chains), self._table.comments).in_save_order()


@dataclass(frozen=True, slots=True)
class Operation:
    """One line of restore input.

    `command` is `-A`, `-D`, `-F`, `-I`, `-X`, or `:` for a declaration, whose `policy` is None for `-`. `number` is
    where to insert, or the rule to delete, from 1 (0: not given). `line` counts from 1 and takes no part in
    comparisons.
    """

    command: str
    chain: str
    rule: Rule | None = None
    number: int = 0
    policy: str | None = None
    line: int = field(default=0, compare=False, kw_only=True)

    def apply(self, table: TableState) -> None:
        """Change the table. Raises RefusedError."""
        _CHANGES[self.command](table, self, self.chain)


def _declare(table: TableState, operation: Operation, name: str) -> None:
    """A user-defined chain is made, or emptied if it is there; a built-in chain keeps its rules and gets the policy. A
    policy of `-` changes nothing there."""
    policy = operation.policy
    if name in table.builtin:
        if policy not in (None, "ACCEPT", "DROP"):
            raise RefusedError(f"policy {policy}")
        if policy is not None:
            table.chains[name] = replace(table.chains[name], policy=policy, counters=Counters())
    elif policy is not None:
        raise RefusedError(f"a policy for {name}, which is no built-in chain")
    elif name in table.chains:
        table.rules(name).clear()
    elif name in VERDICTS:
        raise RefusedError(f"a chain called {name}, like the verdict")
    else:
        table.chains[name] = Chain(name)


def _append(table: TableState, operation: Operation, name: str) -> None:
    table.rules(name).append(table.checked(operation.rule))


def _insert(table: TableState, operation: Operation, name: str) -> None:
    """In front of the rule of that number, or of all."""
    rules, number = table.rules(name), operation.number or 1
    if number > len(rules) + 1:
        raise RefusedError(f"no place {number} in chain {name}")
    rules.insert(number - 1, table.checked(operation.rule))


def _delete(table: TableState, operation: Operation, name: str) -> None:
    """The rule of that number, or the first that is equal (counters do not count)."""
    rules, number = table.rules(name), operation.number
    if number > len(rules) or (operation.rule is not None and operation.rule not in rules):
        raise RefusedError(f"no such rule in chain {name}")
    del rules[number - 1 if operation.rule is None else rules.index(operation.rule)]


def _flush(table: TableState, _operation: Operation, name: str) -> None:
    table.rules(name).clear()


def _delete_chain(table: TableState, _operation: Operation, name: str) -> None:
    """An empty user-defined chain that nothing jumps to."""
    if name in table.builtin:
        raise RefusedError(f"chain {name} is built in")
    if table.rules(name):
        raise RefusedError(f"chain {name} is not empty")
    if table.is_used(name):
        raise RefusedError(f"chain {name} is in use")
    table.remove(name)


_CHANGES: Final[Mapping[str, Callable[[TableState, Operation, str], None]]] = {
    ":": _declare, "-A": _append, "-I": _insert, "-D": _delete, "-F": _flush, "-X": _delete_chain,
}  # fmt: skip
