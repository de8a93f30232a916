"""The operations of restore input: each reads itself from one line and does itself to a table.

A `TableState` is a table that operations may change. It refuses what the kernel refuses, with a `RefusedError`; the
message is the reason. Whether a refusal comes at the line or at COMMIT makes no difference, since a table changes as a
whole or not at all. Where iptables-nft and iptables-legacy disagree, the stricter of the two is followed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

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
    """One line of restore input. `line` counts from 1 and takes no part in comparisons."""

    line: int = field(default=0, compare=False, kw_only=True)

    def apply(self, table: TableState) -> None:
        """Change the table. Raises RefusedError."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class DeclareChain(Operation):
    """`:NAME POLICY [packets:bytes]`: a user-defined chain is made, or emptied if it is there; a built-in chain keeps
    its rules and gets the policy, and counters of 0 unless they are to be restored. A policy of None (`-`) changes
    nothing there."""

    chain: str
    policy: str | None = None
    counters: Counters | None = None

    def apply(self, table: TableState) -> None:
        if self.chain in table.builtin:
            chain = table.chain(self.chain)
            if self.policy is not None:
                if self.policy not in ("ACCEPT", "DROP"):
                    raise RefusedError(f"policy {self.policy}")
                counters = self.counters if table.counters else None
                chain = replace(chain, policy=self.policy, counters=counters or Counters())
            table.chains[self.chain] = chain
            return
        if self.policy is not None:
            raise RefusedError(f"a policy for {self.chain}, which is no built-in chain")
        if self.chain in table.chains:
            table.set_rules(self.chain, ())
        else:
            table.make(self.chain)


@dataclass(frozen=True, slots=True)
class Append(Operation):
    """`-A CHAIN rule`. Addresses in lists make several rules, hence `rules`. `counters` are those in front."""

    chain: str
    rules: tuple[Rule, ...]
    counters: Counters | None = None

    def apply(self, table: TableState) -> None:
        for rule in self.rules:
            table.check_target(rule)
        table.rules(self.chain).extend(table.counted(self.rules, self.counters))


@dataclass(frozen=True, slots=True)
class Insert(Operation):
    """`-I CHAIN [number] rule`: in front of that rule, counted from 1."""

    chain: str
    rules: tuple[Rule, ...]
    number: int = 1
    counters: Counters | None = None

    def apply(self, table: TableState) -> None:
        rules = table.rules(self.chain)
        if not 1 <= self.number <= len(rules) + 1:
            raise RefusedError(f"no place {self.number} in chain {self.chain}")
        for rule in self.rules:
            table.check_target(rule)
        # Each is inserted at the same place, so the last comes to stand first.
        rules[self.number - 1 : self.number - 1] = reversed(table.counted(self.rules, self.counters))


@dataclass(frozen=True, slots=True)
class Replace(Operation):
    """`-R CHAIN number rule`."""

    chain: str
    number: int
    rule: Rule

    def apply(self, table: TableState) -> None:
        place = table.place(self.chain, self.number)
        table.check_target(self.rule)
        table.rules(self.chain)[place] = self.rule


@dataclass(frozen=True, slots=True)
class Delete(Operation):
    """`-D CHAIN rule`: the first rule that is equal (counters do not count)."""

    chain: str
    rules: tuple[Rule, ...]

    def apply(self, table: TableState) -> None:
        rules = table.rules(self.chain)
        for rule in self.rules:
            if rule not in rules:
                raise RefusedError(f"no such rule in chain {self.chain}")
            rules.remove(rule)


@dataclass(frozen=True, slots=True)
class DeleteNumber(Operation):
    """`-D CHAIN number`, counted from 1."""

    chain: str
    number: int

    def apply(self, table: TableState) -> None:
        del table.rules(self.chain)[table.place(self.chain, self.number)]


@dataclass(frozen=True, slots=True)
class NewChain(Operation):
    """`-N CHAIN`: it must not exist."""

    chain: str

    def apply(self, table: TableState) -> None:
        if self.chain in table.chains:
            raise RefusedError(f"chain {self.chain} exists")
        table.make(self.chain)


@dataclass(frozen=True, slots=True)
class FlushChain(Operation):
    """`-F [CHAIN]`: remove the rules of one chain or of all."""

    chain: str | None = None

    def apply(self, table: TableState) -> None:
        for name in table.names(self.chain):
            table.set_rules(name, ())


@dataclass(frozen=True, slots=True)
class DeleteChain(Operation):
    """`-X [CHAIN]`: remove an empty user-defined chain that nothing jumps to, or all user-defined chains."""

    chain: str | None = None

    def apply(self, table: TableState) -> None:
        if self.chain in table.builtin:
            raise RefusedError(f"chain {self.chain} is built in")
        names = [name for name in table.names(self.chain) if name not in table.builtin]
        for name in names:
            if table.rules(name):
                raise RefusedError(f"chain {name} is not empty")
            if table.referenced(name):
                raise RefusedError(f"chain {name} is in use")
        for name in names:
            table.remove(name)


@dataclass(frozen=True, slots=True)
class RenameChain(Operation):
    """`-E OLD NEW`: jumps follow the chain."""

    chain: str
    name: str

    def apply(self, table: TableState) -> None:
        chain = table.chain(self.chain)
        if self.chain in table.builtin:
            raise RefusedError(f"chain {self.chain} is built in")
        if self.name in table.chains:
            raise RefusedError(f"chain {self.name} exists")
        rules = table.rules(self.chain)
        table.remove(self.chain)
        table.chains[self.name] = replace(chain, name=self.name)
        table.set_rules(self.name, rules)
        for name in table.chains:
            changed = table.rules(name)
            for index, rule in enumerate(changed):
                if isinstance(rule.target, Jump) and rule.target.chain == self.chain:
                    changed[index] = replace(rule, target=Jump(self.name, rule.target.goto), spelling=None)


@dataclass(frozen=True, slots=True)
class SetPolicy(Operation):
    """`-P CHAIN POLICY`, for a built-in chain."""

    chain: str
    policy: str

    def apply(self, table: TableState) -> None:
        if self.chain not in table.builtin or self.policy not in ("ACCEPT", "DROP"):
            raise RefusedError(f"policy {self.policy} for chain {self.chain}")
        table.chains[self.chain] = replace(table.chain(self.chain), policy=self.policy)


@dataclass(frozen=True, slots=True)
class ZeroCounters(Operation):
    """`-Z [CHAIN]`: set the counters of one chain and its rules, or of all, to 0."""

    chain: str | None = None

    def apply(self, table: TableState) -> None:
        for name in table.names(self.chain):
            table.set_rules(name, [replace(rule, counters=None) for rule in table.rules(name)])
            table.chains[name] = replace(table.chains[name], counters=Counters())
