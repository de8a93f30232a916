"""One side of a comparison: all rules of a host, reduced, and its base chains in the order of the hooks.

Theory: docs/symbolic.md, "Normalized rules".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kproxy.dataplane.model.ipset import IpSet
from kproxy.dataplane.model.ipvs import Ipvs
from kproxy.dataplane.model.pipeline import (
    BaseChain,
    IptablesRules,
    Pipeline,
    Source,
    StageKind,
    evaluated_tables,
    make_pipeline,
    native_chains,
)
from kproxy.dataplane.model.tracking import tracks
from kproxy.dataplane.symbolic.members import with_members
from kproxy.dataplane.symbolic.nftables.structure import NftSide, table_name
from kproxy.dataplane.symbolic.normalize import Side
from kproxy.netfilter.family import Family
from kproxy.netfilter.hooks import HOOKS_IN_ORDER
from kproxy.netfilter.iptables.ruleset import Ruleset
from kproxy.netfilter.nftables.ruleset import NftRuleset, Table


@dataclass(frozen=True, slots=True)
class SideRules:
    """The rules of a host: those of iptables, at most one rule set of each variant, and those of native nftables.

    Attributes:
        ipvs: the virtual servers of the family that is compared.
        own: addresses that the host has for them.
        sets: the ipsets whose members are known.
    """

    iptables: tuple[IptablesRules, ...] = ()
    nftables: NftRuleset = field(default_factory=NftRuleset)
    ipvs: Ipvs | None = None
    own: frozenset[int] = frozenset()
    sets: Mapping[str, IpSet] = field(default_factory=dict)

    @classmethod
    def of(cls, rules: Ruleset | SideRules) -> SideRules:
        """A rule set of iptables as a host's."""
        return rules if isinstance(rules, SideRules) else cls((IptablesRules.of(rules),))

    @classmethod
    def together(cls, rules: Sequence[SideRules]) -> SideRules:
        """All rules of a host, of both families, to be counted and printed."""
        tables: list[Table] = []
        for each in rules:
            tables += (table for table in each.nftables.tables if table not in tables)
        return cls(tuple(item for each in rules for item in each.iptables), NftRuleset(tuple(tables)))

    def with_members(self) -> SideRules:
        """The same with known sets as conditions."""
        return replace(self, iptables=tuple(with_members(each, self.sets) for each in self.iptables))

    @property
    def rulesets(self) -> tuple[Ruleset, ...]:
        """The rule sets of iptables."""
        return tuple(item.ruleset for item in self.iptables)

    @property
    def family(self) -> Family | None:
        """The family, if the rules tell; tables of nftables can hold both."""
        return next((ruleset.family for ruleset in self.rulesets if ruleset.family is not None), None)

    @property
    def rule_count(self) -> int:
        """How many rules there are."""
        return sum(ruleset.rule_count for ruleset in self.rulesets) + sum(1 for _ in self.nftables.rules())

    def tables(self, family: Family) -> tuple[Table, ...]:
        """The native tables that packets of a family come through."""
        return tuple(evaluated_tables(self.nftables, family))


class HostSide:
    """A side's rules, reduced. `lists` renames lists and sets that are state."""

    def __init__(
        self, rules: SideRules, family: Family, iptables: Sequence[Side], native: NftSide, lists: Mapping[str, str]
    ) -> None:
        self.rules = rules
        self.lists = lists
        self.native = native
        self._iptables = {item.source: side for item, side in zip(rules.iptables, iptables, strict=True)}
        tracked = tracks(rules.rulesets, rules.nftables.tables, family)
        self.pipeline: Pipeline = make_pipeline(
            rules.iptables, native_chains(native.tables), tracked=tracked, ipvs=rules.ipvs is not None
        )

    def chain(self, base: BaseChain) -> tuple[int, str]:
        """The number and the policy of a base chain."""
        if base.source is Source.NFTABLES:
            return self.native.base_chains[base.table, base.chain]
        return self._iptables[base.source].hooks[base.table, base.chain]

    @property
    def state_sets(self) -> dict[tuple[str, str], tuple[str, int | None]]:
        """The sets that are state, by table and name: the name that they are given, and how many milliseconds elements
        stay in them, None for ever."""
        sets = ((table_name(table), item) for table in self.native.tables for item in table.sets)
        named = ((self.native.lists.get((table, item.name)), table, item) for table, item in sets)
        return {(table, item.name): (alias, item.timeout) for alias, table, item in named if alias is not None}

    def key(self, empty: int) -> tuple[object, ...]:
        """Equal for two sides of one structure that treat every packet alike for this reason alone. `empty` is the
        number of the chain of iptables without rules."""
        beside = (self.rules.ipvs and self.rules.ipvs.key, self.rules.own)
        return beside, *(
            (hook, variant, stage.kind, self._called(stage.chains, empty), stage.orders)
            for hook in HOOKS_IN_ORDER
            for variant in (self.pipeline.variants(hook) if len(self.pipeline.variants(hook)) > 1 else (None,))
            for stage in self.pipeline.stages(hook, variant)
            if stage.kind is StageKind.CONNTRACK or self._called(stage.chains, empty)
        )

    def _called(self, chains: Iterable[BaseChain], empty: int) -> tuple[object, ...]:
        called: list[object] = []
        for base in chains:
            number, policy = self.chain(base)
            native = base.source is Source.NFTABLES
            if native or (number, policy) != (empty, "ACCEPT"):
                called.append((native, base.type if native else base.table, number, policy, base.devices))
        return tuple(called)
