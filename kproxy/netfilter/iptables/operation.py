"""The operations of restore input: each reads itself from one line and does itself to a table.

A `TableState` is a table that operations may change. It refuses what the kernel refuses, with a `RefusedError`; the
message is the reason. Whether a refusal comes at the line or at COMMIT makes no difference, since a table changes as a
whole or not at all. Where iptables-nft and iptables-legacy disagree, the stricter of the two is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kproxy.netfilter.family import BUILTIN_CHAINS, VERDICTS
from kproxy.netfilter.iptables.rule import Counters, Rule
from kproxy.netfilter.iptables.ruleset import Chain, Table
from kproxy.netfilter.iptables.targets import OPAQUE_TARGETS, TARGETS, Jump, OpaqueTarget


class RefusedError(Exception):
    """The kernel would refuse the operation."""


class TableState:
    """A table while operations work on it."""

    def __init__(self, name: str, table: Table | None, *, flush: bool, counters: bool = False) -> None:
        self.name = name
        self.counters = counters
        self.builtin = BUILTIN_CHAINS[name]
        self.comments = () if table is None else table.comments
        self.chains: dict[str, Chain] = {chain: Chain(chain, "ACCEPT") for chain in self.builtin}
        for chain in () if table is None else table.chains:
            if not flush:
                self.chains[chain.name] = chain
            elif chain.name in self.chains:
                self.chains[chain.name] = replace(chain, rules=())
        self._rules: dict[str, list[Rule]] = {}

    def chain(self, name: str) -> Chain:
        """The chain of that name. Raises RefusedError."""
        if name not in self.chains:
            raise RefusedError(f"no chain {name}")
        return self.chains[name]

    def rules(self, name: str) -> list[Rule]:
        """The rules of a chain, to be changed in place. Raises RefusedError."""
        rules = self._rules.get(name)
        if rules is None:
            rules = self._rules[name] = list(self.chain(name).rules)
        return rules

    def place(self, name: str, number: int) -> int:
        """The index of a chain's rule by its number, from 1. Raises RefusedError."""
        if not 1 <= number <= len(self.rules(name)):
            raise RefusedError(f"no rule {number} in chain {name}")
        return number - 1

    def names(self, name: str | None) -> list[str]:
        """The chain of that name, or all chains. Raises RefusedError."""
        return list(self.chains) if name is None else [self.chain(name).name]

    def set_rules(self, name: str, rules: Iterable[Rule]) -> None:
        """Replace the rules of an existing chain."""
        self._rules[name] = list(rules)

    def referenced(self, name: str) -> bool:
        """Whether a rule of this table jumps to the chain."""
        return any(
            isinstance(rule.target, Jump) and rule.target.chain == name
            for chain in self.chains
            for rule in self._current(chain)
        )

    def _current(self, name: str) -> Iterable[Rule]:
        return self._rules.get(name, self.chains[name].rules)

    def make(self, name: str) -> None:
        """Put an empty user-defined chain into the table. Raises RefusedError."""
        if name in VERDICTS:
            raise RefusedError(f"a chain called {name}, like the verdict")
        self.chains[name] = Chain(name)

    def remove(self, name: str) -> None:
        """Take a chain out of the table."""
        del self.chains[name]
        self._rules.pop(name, None)

    def check_target(self, rule: Rule) -> None:
        """Refuse a jump to a chain that is missing or built in, and a target that iptables 1.8.9 does not have."""
        target = rule.target
        if isinstance(target, OpaqueTarget) and target.name not in TARGETS and target.name not in OPAQUE_TARGETS:
            raise RefusedError(f"no target extension {target.name}")
        if isinstance(target, Jump):
            if target.chain in self.builtin:
                raise RefusedError(f"jump to the built-in chain {target.chain}")
            if target.chain not in self.chains:
                raise RefusedError(f"no chain {target.chain}")

    def counted(self, rules: tuple[Rule, ...], counters: Counters | None) -> tuple[Rule, ...]:
        """The rules with counters in square brackets, if these are to be restored."""
        if counters is None or not self.counters:
            return rules
        return tuple(replace(rule, counters=counters) for rule in rules)

    def table(self) -> Table:
        """The result, with its chains in the order of iptables-save."""
        chains = (
            Chain(name, chain.policy, chain.counters, tuple(self._rules[name])) if name in self._rules else chain
            for name, chain in self.chains.items()
        )
        return Table(self.name, tuple(chains), self.comments).in_save_order()


@dataclass(frozen=True, slots=True)
class Operation:
    """One line of restore input.

    `command` is its short name (`-A`), or `:` for a declaration. `chain` is None for all chains. `rules` are several
    where addresses stand in lists; `number` is that of a rule, from 1 (0: none). `name` is the chain's new name after
    `-E`, the policy after `-P` and `:` (None: `-`). `counters` are those in square brackets. `line` counts from 1 and
    takes no part in comparisons.
    """

    command: str
    chain: str | None = None
    rules: tuple[Rule, ...] = ()
    number: int = 0
    name: str | None = None
    counters: Counters | None = None
    line: int = field(default=0, compare=False, kw_only=True)

    def apply(self, table: TableState) -> None:
        """Change the table. Raises RefusedError."""
        _CHANGES[self.command](table, self, self.chain or "")


def _declare(table: TableState, operation: Operation, name: str) -> None:
    """A user-defined chain is made, or emptied if it is there; a built-in chain keeps its rules and gets the policy,
    and counters of 0 unless they are to be restored. A policy of `-` changes nothing there."""
    policy = operation.name
    if name in table.builtin:
        chain = table.chain(name)
        if policy is not None:
            if policy not in ("ACCEPT", "DROP"):
                raise RefusedError(f"policy {policy}")
            counters = operation.counters if table.counters else None
            table.chains[name] = replace(chain, policy=policy, counters=counters or Counters())
    elif policy is not None:
        raise RefusedError(f"a policy for {name}, which is no built-in chain")
    elif name in table.chains:
        table.set_rules(name, ())
    else:
        table.make(name)


def _append(table: TableState, operation: Operation, name: str) -> None:
    for rule in operation.rules:
        table.check_target(rule)
    table.rules(name).extend(table.counted(operation.rules, operation.counters))


def _insert(table: TableState, operation: Operation, name: str) -> None:
    """In front of the rule of that number. Each is inserted at the same place, so the last comes to stand first."""
    rules, number = table.rules(name), operation.number or 1
    if number > len(rules) + 1:
        raise RefusedError(f"no place {number} in chain {name}")
    for rule in operation.rules:
        table.check_target(rule)
    rules[number - 1 : number - 1] = reversed(table.counted(operation.rules, operation.counters))


def _replace(table: TableState, operation: Operation, name: str) -> None:
    place = table.place(name, operation.number)
    table.check_target(operation.rules[0])
    table.rules(name)[place] = operation.rules[0]


def _delete(table: TableState, operation: Operation, name: str) -> None:
    """The rule of that number, or the first rule that is equal (counters do not count)."""
    rules = table.rules(name)
    if operation.number:
        del rules[table.place(name, operation.number)]
    for rule in operation.rules:
        if rule not in rules:
            raise RefusedError(f"no such rule in chain {name}")
        rules.remove(rule)


def _new_chain(table: TableState, _operation: Operation, name: str) -> None:
    if name in table.chains:
        raise RefusedError(f"chain {name} exists")
    table.make(name)


def _flush(table: TableState, operation: Operation, _name: str) -> None:
    for name in table.names(operation.chain):
        table.set_rules(name, ())


def _delete_chain(table: TableState, operation: Operation, name: str) -> None:
    """An empty user-defined chain that nothing jumps to, or all user-defined chains."""
    if name in table.builtin:
        raise RefusedError(f"chain {name} is built in")
    names = [name for name in table.names(operation.chain) if name not in table.builtin]
    for name in names:
        if table.rules(name):
            raise RefusedError(f"chain {name} is not empty")
        if table.referenced(name):
            raise RefusedError(f"chain {name} is in use")
    for name in names:
        table.remove(name)


def _rename(table: TableState, operation: Operation, old: str) -> None:
    """Jumps follow the chain."""
    chain, new = table.chain(old), operation.name or ""
    if old in table.builtin:
        raise RefusedError(f"chain {old} is built in")
    if new in table.chains:
        raise RefusedError(f"chain {new} exists")
    rules = table.rules(old)
    table.remove(old)
    table.chains[new] = replace(chain, name=new)
    table.set_rules(new, rules)
    for name in table.chains:
        changed = table.rules(name)
        for index, rule in enumerate(changed):
            if isinstance(rule.target, Jump) and rule.target.chain == old:
                changed[index] = replace(rule, target=Jump(new, rule.target.goto), spelling=None)


def _set_policy(table: TableState, operation: Operation, name: str) -> None:
    if name not in table.builtin or operation.name not in ("ACCEPT", "DROP"):
        raise RefusedError(f"policy {operation.name} for chain {name}")
    table.chains[name] = replace(table.chain(name), policy=operation.name)


def _zero(table: TableState, operation: Operation, _name: str) -> None:
    """The counters of one chain and its rules, or of all."""
    for name in table.names(operation.chain):
        table.set_rules(name, [replace(rule, counters=None) for rule in table.rules(name)])
        table.chains[name] = replace(table.chains[name], counters=Counters())


_CHANGES: Final[Mapping[str, Callable[[TableState, Operation, str], None]]] = {
    ":": _declare, "-A": _append, "-I": _insert, "-R": _replace, "-D": _delete, "-N": _new_chain, "-F": _flush,
    "-X": _delete_chain, "-E": _rename, "-P": _set_policy, "-Z": _zero,
}  # fmt: skip
