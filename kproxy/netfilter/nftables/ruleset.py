"""Rules, chains, tables, and the rule set of a host: what `nft list ruleset` shows. All frozen, compared by value.

Handles, counters, the lines of the text and the order of elements do not take part in comparisons: they do not change
what happens to a packet. The order of rules does, and so does that of chains, since the kernel calls base chains of
equal hook and priority by their age (`kproxy.netfilter.hooks` says how).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a trace of iptables' rules needs the families of tables, and nothing of what stands in rules
    from kproxy.netfilter.nftables.objects import NamedObject
    from kproxy.netfilter.nftables.sets import Set
    from kproxy.netfilter.nftables.statement import Statement


class TableFamily(enum.Enum):
    """The families of tables; the values are nft's names. kproxy evaluates ip, ip6, inet and netdev."""

    IP = "ip"
    IP6 = "ip6"
    INET = "inet"
    ARP = "arp"
    BRIDGE = "bridge"
    NETDEV = "netdev"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its statements in order. `handle` and `line`, the line of the text it was read from (0: none), do not
    count."""

    statements: tuple[Statement, ...] = ()
    comment: str | None = None
    handle: int | None = field(default=None, compare=False)
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class BaseChain:
    """Where a base chain is hooked in.

    `type` is filter, nat or route; `hook` prerouting, input, forward, output, postrouting, ingress or egress;
    `priority` a number, lower first; `policy` accept or drop; None, in a command, leaves it as it is, which for a
    new chain is accept.
    `devices` are the interfaces of netdev and ingress chains.
    """

    type: str
    hook: str
    priority: int
    policy: str | None = None
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain; `base` is None for a regular chain, which is only reached by jump and goto."""

    name: str
    base: BaseChain | None = None
    rules: tuple[Rule, ...] = ()
    comment: str | None = None
    flags: frozenset[str] = frozenset()
    handle: int | None = field(default=None, compare=False)
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `flags` are dormant (its base chains are not called), owner, persist. `managed_by` is the program that
    the dump's warning names, `iptables-nft` for tables that iptables-save has to show instead; `owner` is the program
    that holds the table open (flag owner).

    Raises:
        ValueError: two chains or sets have the same name.
    """

    family: TableFamily
    name: str
    chains: tuple[Chain, ...] = ()
    sets: tuple[Set, ...] = ()
    objects: tuple[NamedObject, ...] = ()
    flags: frozenset[str] = frozenset()
    comment: str | None = None
    managed_by: str | None = field(default=None, compare=False)
    owner: str | None = field(default=None, compare=False)
    handle: int | None = field(default=None, compare=False)
    line: int = field(default=0, compare=False)
    _chains: dict[str, Chain] = field(init=False, repr=False, compare=False)
    _sets: dict[str, Set] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        chains = {chain.name: chain for chain in self.chains}
        sets = {item.name: item for item in self.sets}
        for what, names, items in (("chain", chains, self.chains), ("set", sets, self.sets)):
            if len(names) != len(items):
                raise ValueError(f"table {self.family.value} {self.name}: {what} names are not unique")
        object.__setattr__(self, "_chains", chains)
        object.__setattr__(self, "_sets", sets)

    def chain(self, name: str) -> Chain | None:
        """The chain of that name, or None."""
        return self._chains.get(name)

    def set(self, name: str) -> Set | None:
        """The set or map of that name, or None."""
        return self._sets.get(name)


@dataclass(frozen=True, slots=True)
class NftRuleset:
    """All tables of a host, in the order of the dump.

    Raises:
        ValueError: two tables of a family have the same name.
    """

    tables: tuple[Table, ...] = ()
    _index: dict[tuple[TableFamily, str], Table] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = {(table.family, table.name): table for table in self.tables}
        if len(index) != len(self.tables):
            raise ValueError("table names are not unique")
        object.__setattr__(self, "_index", index)

    def table(self, family: TableFamily, name: str) -> Table | None:
        """The table of that family and name, or None."""
        return self._index.get((family, name))

    def rules(self) -> Iterator[tuple[Table, Chain, int, Rule]]:
        """Every rule with its table, its chain, and its number in the chain, counted from 1."""
        for table in self.tables:
            for chain in table.chains:
                for number, rule in enumerate(chain.rules, 1):
                    yield table, chain, number, rule

    @property
    def has_effect(self) -> bool:
        """Whether it does anything to packets: there are rules, or a policy is drop."""
        policies = (chain.base.policy for table in self.tables for chain in table.chains if chain.base is not None)
        return "drop" in policies or any(True for _ in self.rules())
