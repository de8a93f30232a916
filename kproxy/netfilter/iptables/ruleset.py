"""Chains, tables, and the rule set of one family. All frozen, compared by value, and indexed by name.

Equality leaves out what does not change how packets are treated: counters and the comment lines of a dump.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kproxy.netfilter.family import BUILTIN_CHAINS, Family
from kproxy.netfilter.iptables.rule import Counters, Rule


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain: `policy` is the verdict of a built-in chain, None for a user-defined one."""

    name: str
    policy: str | None = None
    counters: Counters = field(default=Counters(), compare=False)
    rules: tuple[Rule, ...] = ()

    def to_save(self) -> str:
        """The declaration, as iptables-save prints it: `:NAME POLICY [packets:bytes]`."""
        return f":{self.name} {self.policy or '-'} {self.counters}"


@dataclass(frozen=True, slots=True)
class Table:
    """A table and its chains in the order of the dump. `comments` are the lines that stood before it, as they were.

    Raises:
        ValueError: two chains have the same name.
    """

    name: str
    chains: tuple[Chain, ...] = ()
    comments: tuple[str, ...] = field(default=(), compare=False)
    _index: dict[str, Chain] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = {chain.name: chain for chain in self.chains}
        if len(index) != len(self.chains):
            raise ValueError(f"table {self.name}: chain names are not unique")
        object.__setattr__(self, "_index", index)

    def chain(self, name: str) -> Chain | None:
        """The chain of that name, or None."""
        return self._index.get(name)

    def in_save_order(self) -> Table:
        """The table with its chains in the order in which iptables-save prints them: built-in chains in hook order,
        then the others by name (compared as bytes)."""
        hooks = {name: index for index, name in enumerate(BUILTIN_CHAINS.get(self.name, ()))}
        chains = sorted(self.chains, key=lambda chain: (hooks.get(chain.name, len(hooks)), chain.name))
        return Table(self.name, tuple(chains), self.comments)


@dataclass(frozen=True, slots=True)
class Ruleset:
    """What iptables-save (or ip6tables-save) holds: tables in order.

    `family` is None if neither the reader nor the text says which it is. `comments` are the lines after the last table.

    Raises:
        ValueError: two tables have the same name.
    """

    family: Family | None = None
    tables: tuple[Table, ...] = ()
    comments: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if len({table.name for table in self.tables}) != len(self.tables):
            raise ValueError("table names are not unique")

    def table(self, name: str) -> Table | None:
        """The table of that name, or None."""
        return next((table for table in self.tables if table.name == name), None)

    def chain(self, table: str, name: str) -> Chain | None:
        """A chain by the names of its table and itself, or None."""
        found = self.table(table)
        return None if found is None else found.chain(name)

    def rules(self) -> Iterator[tuple[Table, Chain, int, Rule]]:
        """Every rule with its table, its chain, and its number in the chain, counted from 1 as iptables does."""
        for table in self.tables:
            for chain in table.chains:
                for number, rule in enumerate(chain.rules, 1):
                    yield table, chain, number, rule

    @property
    def rule_count(self) -> int:
        """The number of rules; 0 means that the dump was empty in substance."""
        return sum(len(chain.rules) for table in self.tables for chain in table.chains)

    @property
    def has_effect(self) -> bool:
        """Whether it does anything to packets: there are rules, or a policy is not ACCEPT."""
        policies = {chain.policy for table in self.tables for chain in table.chains}
        return self.rule_count > 0 or not policies <= {None, "ACCEPT"}

    def in_save_order(self) -> Ruleset:
        """The rule set as iptables-nft-save orders it: tables mangle, security, raw, filter, nat, chains as
        `Table.in_save_order`. Tables of other names keep their order at the end."""
        order = {name: index for index, name in enumerate(BUILTIN_CHAINS)}
        tables = sorted(self.tables, key=lambda table: order.get(table.name, len(order)))
        return Ruleset(self.family, tuple(table.in_save_order() for table in tables), self.comments)
