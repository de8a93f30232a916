"""The pipeline: everything that the kernel calls at each hook, in order, whoever wrote the rules.

A host's rules are base chains at hooks, ordered by priority. iptables' tables are base chains, too, at their variant's
priorities; native nftables chains stand beside them. `make_pipeline` puts them in order, hook by hook, as *stages*:

* a stage of kind CHAINS: base chains of one priority. Each lets the packet pass or ends it; that one accepts it
  says nothing about the next.
* the stage CONNTRACK (PREROUTING and OUTPUT, priority -200): connection tracking looks the packet up. A chain before
  it sees no connection, and may say that there shall be none (notrack).
* the stage NAT (all hooks but FORWARD; -100 or 100): all chains of type nat, called in order of their priorities, but
  only for the first packet of a connection, and only until one of them has chosen a translation.

The hooks INGRESS and EGRESS belong to single devices: a chain there has `devices`, and meets only packets that come in
or leave by one of them (nf_hook_ingress, nf_hook_egress).

Chains of equal priority: the one that was registered last is called first (nf_hook_entries_grow). A dump shows chains
of one writer in the order of their registration. What it does not show is the order between writers: iptables-legacy,
iptables-nft, native nftables. Then a stage has several `orders`, and an outcome that depends on the choice is
indeterminate. Nor does a dump show a native chain that was added to a table later than tables that follow it in
the dump; the order of the dump is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, NamedTuple

from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.variant import detect_variant
from kproxy.netfilter.family import Family
from kproxy.netfilter.hooks import (
    CONNTRACK,
    CONNTRACK_HOOKS,
    HOOKS_IN_ORDER,
    IPTABLES_PRIORITIES,
    NAT_PRIORITIES,
    ChainType,
    Hook,
    Table,
    Variant,
)
from kproxy.netfilter.iptables.ruleset import Ruleset
from kproxy.netfilter.nftables.ruleset import NftRuleset, TableFamily
from kproxy.netfilter.nftables.ruleset import Table as NftTable


class Source(StrEnum):
    """Who wrote a base chain; `IPTABLES` if the variant is not known."""

    IPTABLES = "iptables"
    LEGACY = "iptables-legacy"
    NFT = "iptables-nft"
    NFTABLES = "nftables"

    @classmethod
    def of_variant(cls, variant: Variant | None) -> Source:
        """The source of a variant's rules."""
        return {Variant.LEGACY: cls.LEGACY, Variant.NFT: cls.NFT, None: cls.IPTABLES}[variant]


@dataclass(frozen=True, slots=True)
class IptablesRules:
    """The rule set of one variant; `variant` None if it is not known which."""

    ruleset: Ruleset
    variant: Variant | None = None

    @classmethod
    def of(cls, ruleset: Ruleset, variant: str | None = None) -> IptablesRules:
        """With the variant that the rule set's comments tell, unless it is given."""
        return cls(ruleset, Variant(variant) if variant else detect_variant(ruleset))

    @property
    def source(self) -> Source:
        """As what its chains are named."""
        return Source.of_variant(self.variant)


@dataclass(frozen=True, slots=True)
class BaseChain:
    """A chain that hangs on a hook. `table` and `chain` name it among the rules of its source; `devices` are those of
    an ingress or egress chain, a name that ends in `*` standing for all that begin so."""

    source: Source
    table: str
    chain: str
    type: ChainType
    hook: Hook
    priority: int
    devices: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.source} {self.table} {self.chain}"


def pattern_of(device: str) -> str:
    """A device of a chain as iptables writes names and patterns: `eth+` for `eth*`."""
    return f"{device[:-1]}+" if device.endswith("*") else device


class StageKind(Enum):
    """What happens in a stage."""

    CHAINS = "chains"
    CONNTRACK = "conntrack"
    NAT = "nat"


class Stage(NamedTuple):
    """One thing that happens at a hook. `orders` are the orders in which the chains may be called, as indexes;
    more than one if it is not known."""

    kind: StageKind
    priority: int
    chains: tuple[BaseChain, ...] = ()
    orders: tuple[tuple[int, ...], ...] = ((),)


Stages = Mapping[Hook, tuple[Stage, ...]]

MAX_ORDERS: Final = 120
"""So many possible orders of a stage's chains are looked at; a host with more of them is refused."""


class Pipeline:
    """The stages of each hook.

    Where an iptables dump does not tell its variant, and the variants differ, `variants(hook)` are both: then each
    has stages of its own.
    """

    def __init__(self, stages: Mapping[Variant, Stages], variant: Variant | None) -> None:
        self._stages = stages
        self._variants = {hook: _variants(stages, hook, variant) for hook in HOOKS_IN_ORDER}

    def variants(self, hook: Hook) -> tuple[Variant, ...]:
        """For which variants of iptables the hook has to be looked at: one, or both if that makes a difference."""
        return self._variants[hook]

    def stages(self, hook: Hook, variant: Variant | None = None) -> tuple[Stage, ...]:
        """What happens at a hook, in order."""
        return self._stages[variant or self._variants[hook][0]][hook]

    def nat_stage(self, hook: Hook, variant: Variant | None = None) -> int:
        """The index of the NAT stage at a hook that has one."""
        return next(index for index, stage in enumerate(self.stages(hook, variant)) if stage.kind is StageKind.NAT)

    def describe(self, hook: Hook) -> tuple[str, ...]:
        """What is called at a hook, in order, with priorities: `-100 nat: nftables ip kube-proxy nat-prerouting`."""
        lines = []
        for stage in self.stages(hook):
            if stage.kind is StageKind.CONNTRACK:
                lines.append(f"{stage.priority} conntrack")
            elif stage.chains:
                names = ", ".join(_described(stage.chains[index]) for index in stage.orders[0])
                nat = "nat: " if stage.kind is StageKind.NAT else ""
                unsure = " (or in another order)" if len(stage.orders) > 1 else ""
                lines.append(f"{stage.priority} {nat}{names}{unsure}")
        return tuple(lines)

    def base_chains(self) -> tuple[BaseChain, ...]:
        """All chains of all hooks, in the order in which a packet would meet them."""
        return tuple(chain for hook in HOOKS_IN_ORDER for stage in self.stages(hook) for chain in stage.chains)


def _described(chain: BaseChain) -> str:
    return f"{chain} on {', '.join(chain.devices)}" if chain.devices else str(chain)


def _variants(stages: Mapping[Variant, Stages], hook: Hook, known: Variant | None) -> tuple[Variant, ...]:
    if known is not None:
        return (known,)
    legacy, nft = (_sequence(stages[variant][hook]) for variant in (Variant.LEGACY, Variant.NFT))
    return (Variant.LEGACY,) if legacy == nft else (Variant.LEGACY, Variant.NFT)


def _sequence(stages: Iterable[Stage]) -> list[tuple[StageKind, tuple[tuple[str, str], ...]]]:
    """What tells two orders apart: not the priorities. A NAT stage without chains does nothing here."""
    return [
        (stage.kind, tuple((chain.table, chain.chain) for chain in stage.chains))
        for stage in stages
        if stage.chains or stage.kind is StageKind.CONNTRACK
    ]


def make_pipeline(
    iptables: Sequence[IptablesRules], native: Sequence[BaseChain] = (), *, tracked: bool = True
) -> Pipeline:
    """Put a host's base chains in order.

    Args:
        tracked: whether connections are tracked (`tracking.tracks`): else chains of type nat are not called.
        iptables: rule sets of iptables, at most one of each variant.
        native: the base chains of native nftables, in the order of the dump.
    """
    unknown = any(rules.variant is None for rules in iptables)
    stages = {}
    for variant in Variant:
        chains = [*(chain for rules in iptables for chain in iptables_chains(rules, variant)), *native]
        called = [chain for chain in chains if tracked or chain.type is not ChainType.NAT]
        stages[variant] = {hook: _stages(hook, called) for hook in HOOKS_IN_ORDER}
    return Pipeline(stages, None if unknown else Variant.LEGACY)


def iptables_chains(rules: IptablesRules, otherwise: Variant) -> list[BaseChain]:
    """The built-in chains that can do anything to a packet, at the priorities of their variant, or of `otherwise`."""
    found = []
    for table in rules.ruleset.tables:
        if table.name not in set(Table):
            continue
        kind = ChainType.NAT if table.name == Table.NAT else ChainType.FILTER
        for name, priority in IPTABLES_PRIORITIES[rules.variant or otherwise][Table(table.name)].items():
            chain = table.chain(name)
            if chain is not None and (chain.rules or chain.policy not in (None, "ACCEPT")):
                routed = table.name == Table.MANGLE and name is Hook.OUTPUT
                chosen = ChainType.ROUTE if routed else kind
                found.append(BaseChain(rules.source, table.name, name.value, chosen, name, priority))
    return found


OWN_TABLES: Final = {Family.IPV4: TableFamily.IP, Family.IPV6: TableFamily.IP6}
"""The tables that only packets of one family come to, iptables-nft's among them."""
TABLE_FAMILIES: Final[Mapping[Family | None, tuple[TableFamily, ...]]] = {
    None: (*OWN_TABLES.values(), TableFamily.INET, TableFamily.NETDEV),
    **{family: (own, TableFamily.INET, TableFamily.NETDEV) for family, own in OWN_TABLES.items()},
}
"""The tables that packets of a family come to; of any family, where that is not known."""


def evaluated_tables(ruleset: NftRuleset | None, family: Family | None) -> list[NftTable]:
    """The native tables that packets of a family come through, in the order of the dump. Dormant ones are not called;
    those that iptables-nft wrote are iptables' rules, which nft does not show (give iptables-save's output, too)."""
    return [
        table
        for table in (() if ruleset is None else ruleset.tables)
        if table.family in TABLE_FAMILIES[family] and "dormant" not in table.flags and table.managed_by is None
    ]


def native_chains(tables: Iterable[NftTable]) -> list[BaseChain]:
    """The base chains of tables that can do anything to a packet, in their order."""
    return [
        BaseChain(
            Source.NFTABLES, f"{table.family.value} {table.name}", chain.name, ChainType(chain.base.type),
            Hook.of_nft(chain.base.hook), chain.base.priority, chain.base.devices,
        )
        for table in tables
        for chain in table.chains
        if chain.base is not None and (chain.rules or chain.base.policy == "drop")
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class BridgeChain:
    """A base chain of the family bridge, which frames on a bridge meet; it is not evaluated."""

    table: str
    chain: str
    hook: Hook

    def __str__(self) -> str:
        return f"bridge {self.table} {self.chain}"


def bridge_chains(ruleset: NftRuleset | None) -> tuple[BridgeChain, ...]:
    """The base chains of the family bridge that may stop a packet."""
    return tuple(
        BridgeChain(table.name, chain.name, Hook.of_nft(chain.base.hook))
        for table in (() if ruleset is None else ruleset.tables)
        if table.family is TableFamily.BRIDGE and "dormant" not in table.flags
        for chain in table.chains
        if chain.base is not None and (chain.rules or chain.base.policy == "drop")
    )


def unevaluated(ruleset: NftRuleset) -> list[str]:
    """The base chains that are not evaluated, of the families bridge and arp, as phrases."""
    found = [
        f"table bridge {each.table}: chain {each.chain} at hook {each.hook.nft_name} (frames on a bridge)"
        for each in bridge_chains(ruleset)
    ]
    found += [
        f"table arp {table.name}: chain {chain.name} (neighbours are taken to answer)"
        for table in ruleset.tables
        if table.family is TableFamily.ARP
        for chain in table.chains
        if chain.base is not None and chain.rules
    ]
    return found


def _stages(hook: Hook, chains: Sequence[BaseChain]) -> tuple[Stage, ...]:
    here = [chain for chain in chains if chain.hook is hook]
    nat = [chain for chain in here if chain.type is ChainType.NAT]
    by_priority: dict[int, list[BaseChain]] = {}
    for chain in here:
        if chain.type is not ChainType.NAT:
            by_priority.setdefault(chain.priority, []).append(chain)
    found = [
        Stage(StageKind.CHAINS, priority, tuple(members), _orders(members)) for priority, members in by_priority.items()
    ]
    if hook in CONNTRACK_HOOKS:
        found.append(Stage(StageKind.CONNTRACK, CONNTRACK))
    if hook in NAT_PRIORITIES:
        found.append(Stage(StageKind.NAT, NAT_PRIORITIES[hook], tuple(nat), _orders(nat) if nat else ((),)))
    return tuple(sorted(found, key=lambda stage: (stage.priority, stage.kind is not StageKind.CHAINS)))


def _orders(chains: Sequence[BaseChain]) -> tuple[tuple[int, ...], ...]:
    """In which orders the chains may be called: by priority, then, of one source, the one registered last first."""
    groups: dict[int, dict[Source, list[int]]] = {}
    for index, chain in reversed(list(enumerate(chains))):
        groups.setdefault(chain.priority, {}).setdefault(chain.source, []).append(index)
    found: list[tuple[int, ...]] = [()]
    for priority in sorted(groups):
        rows = list(groups[priority].values())
        found = [before + after for before in found for after in _interleaved(rows)]
        if len(found) > MAX_ORDERS:
            raise DataplaneError(f"more than {MAX_ORDERS} possible orders of chains at priority {priority}")
    return tuple(found)


def _interleaved(rows: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """All sequences that keep the order of each row."""
    if not any(rows):
        yield ()
    for number, row in enumerate(rows):
        if row:
            rest = [*rows[:number], row[1:], *rows[number + 1 :]]
            yield from ((row[0], *others) for others in _interleaved(rest))


def family_of(iptables: Iterable[IptablesRules]) -> Family | None:
    """The family of the rule sets, None if none of them tells."""
    return next((rules.ruleset.family for rules in iptables if rules.ruleset.family is not None), None)
