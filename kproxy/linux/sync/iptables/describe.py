"""Drift in iptables mode: every difference between the wanted chains and jump rules and those that the kernel holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kproxy.linux.iptables.canonical import ChainRef, same_rule
from kproxy.linux.iptables.ownership import TABLES, is_owned, services_of_chains
from kproxy.linux.sync.finding import Compared, Drift, faulty_jump_means, missing_chain_means, rule_findings
from kproxy.linux.sync.iptables.desired import DesiredRules, Difference, find_difference
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.text import SaveText, reachable, service_of, target_of
from kproxy.render.iptables.chains import CANARY, NAT
from kproxy.services import IPFamily, ServicePort

if TYPE_CHECKING:
    from kproxy.dataplane.symbolic.host_rules import SideRules


Rules = Mapping[str, Mapping[str, tuple[str, Sequence[str]]]]
"""By table and chain: the policy and the rules."""


def compare_rules(desired: DesiredRules, found: SaveText, variant: Variant) -> Compared:
    """Compares the rules of one family with those that were found."""
    difference = find_difference(desired, found)
    return Compared(
        family_findings(desired, found, difference, variant),
        partial(rule_sides, desired, found, difference),
    )


def family_findings(desired: DesiredRules, dump: SaveText, difference: Difference, variant: Variant) -> list[Drift]:
    """All findings of one family, in the order of tables and chains."""
    if not difference and not difference.faults:
        return []
    return list(_Finder(desired, dump, difference, variant).findings())


class _Finder:
    def __init__(self, desired: DesiredRules, dump: SaveText, difference: Difference, variant: Variant) -> None:
        self._desired = desired
        self._dump = dump
        self._difference = difference
        self._make = partial(Drift, desired.family.value, variant.value)
        self._origins = desired.origins()
        self._old_owners: dict[str, str] | None = None

    def findings(self) -> Iterator[Drift]:
        for table in self._difference.dormant:
            yield self._make("table-dormant", table, "", f"the kernel calls none of its chains: {_undone(table)}")
        yield from self._flushed()
        for ref in self._difference.writes:
            yield from self._missing(ref) if ref in self._difference.missing else self._differing(ref)
        for table, chain in self._difference.deletions:
            what = "no rule of kube-proxy's leads to it, so it does nothing until one does"
            yield self._make("chain-extra", table, chain, what, self._owner(chain))
        for fault in self._difference.faults:
            text = faulty_jump_means(fault.chain, fault.kind, target_of(fault.rule))
            rules = ("", fault.rule) if fault.kind == "extra" else (fault.rule, "")
            yield self._make(f"jump-{fault.kind}", fault.table, fault.chain, text, "", 0, *rules)

    def _flushed(self) -> Iterator[Drift]:
        for table in TABLES:
            refs = [ref for ref in self._desired.chains if ref[0] == table]
            full = [ref for ref in refs if self._desired.chains[ref]] or refs
            if full and all(self._is_empty(ref) for ref in full):
                text = f"kube-proxy's chains in it are gone or empty: {_undone(table)}"
                yield self._make("table-flushed", table, "", text)

    def _is_empty(self, ref: ChainRef) -> bool:
        chain = self._dump.chain(*ref)
        return chain is None or (bool(self._desired.chains[ref]) and not chain.rules)

    def _missing(self, ref: ChainRef) -> Iterator[Drift]:
        owner = self._desired.owners.get(ref[1])
        service = str(owner) if owner is not None and ref[0] == NAT else ""
        kind = "canary-missing" if ref[1] == CANARY else "chain-missing"
        yield self._make(kind, *ref, missing_chain_means(*ref, service), service)
        yield from self._rules(ref, ())

    def _rules(self, ref: ChainRef, found: Sequence[str]) -> Iterator[Drift]:
        origins, chain = self._origins.get(ref, ()), ref[1]
        wanted = self._desired.rules(ref)
        return rule_findings(
            self._make, ref, wanted, found, origins, lambda rule: service_of(rule) or self._owner(chain)
        )

    def _owner(self, chain: str) -> str:
        known = self._desired.owners.get(chain)
        if known is not None:
            return str(known)
        if self._old_owners is None:
            self._old_owners = services_of_chains(self._dump)
        return self._old_owners.get(chain, "")

    def _differing(self, ref: ChainRef) -> Iterator[Drift]:
        chain = self._dump.chain(*ref)
        found = list(chain.rules) if chain else []
        yield from self._rules(ref, _spelled_alike(self._desired.rules(ref), found, self._desired.family))


def _undone(table: str) -> str:
    return "no Service works" if table == NAT else "what they do is not done"


def _spelled_alike(desired: list[str], real: list[str], family: IPFamily) -> list[str]:
    """The real rules; those that mean the same as a desired one are spelled as that one."""
    known = set(desired)
    unknown = [rule for rule in desired if rule not in set(real)]
    if not unknown:
        return real
    return [
        rule if rule in known else next((other for other in unknown if same_rule(rule, other, family)), rule)
        for rule in real
    ]


def rule_sides(
    desired: DesiredRules, found: SaveText, difference: Difference, asked: Sequence[ServicePort]
) -> tuple[SideRules, SideRules]:
    """The rules as they are once the difference is mended, and as found; of chains of ServicePorts only those of some,
    and those that a rule too many leads to.

    Raises:
        InputError: they cannot be read.
    """
    from kproxy.dataplane.symbolic.host_rules import SideRules
    from kproxy.netfilter import parse_save

    real: Rules = {
        table: {name: (chain.policy, chain.rules) for name, chain in chains.items()}
        for table, chains in found.tables.items()
        if table not in difference.dormant
    }
    wanted = mended(desired, found, difference)
    names = {port.name for port in asked}
    nat = real.get(NAT, {})
    extra = (set(nat.get(ref[1], ("", ()))[1]) - set(desired.rules(ref)) for ref in difference.writes if ref[0] == NAT)
    sides = (nat, wanted.get(NAT, {}))
    met = reachable(
        (target_of(rule) for rules in extra for rule in rules),
        lambda chain: [target_of(rule) for side in sides for rule in side.get(chain, ("", ()))[1]],
    )
    left = {chain for chain, owner in desired.owners.items() if owner not in names} - met
    one, other = (
        SideRules.of(parse_save(_save_text(rules, left), what, family=desired.family))
        for rules, what in ((wanted, "the wanted rules"), (real, "the rules as found"))
    )
    return one, other


def mended(desired: DesiredRules, found: SaveText, difference: Difference) -> Rules:
    """The rules as they would be once the difference is mended."""
    tables: dict[str, dict[str, tuple[str, Sequence[str]]]] = {
        table: {
            name: (chain.policy, chain.rules)
            for name, chain in chains.items()
            if not is_owned(table, name) or (table, name) in desired.chains or (table, name) in difference.kept
        }
        for table, chains in found.tables.items()
    }
    for ref in difference.writes:
        tables.setdefault(ref[0], {})[ref[1]] = ("-", desired.rules(ref))
    for edit in difference.edits:
        chains = tables.setdefault(edit.table, {})
        policy, old = chains.get(edit.chain, ("ACCEPT", ()))
        rules = list(old)
        for rule in edit.deletions:
            rules.remove(rule)
        for number, _, rule in edit.insertions:
            rules.insert(number - 1, rule)
        chains[edit.chain] = (policy, rules)
    return tables


def _save_text(rules: Rules, left: Collection[str]) -> str:
    """iptables-save text; of the nat chains that are left out only the declarations, and nothing that leads there."""
    parts = []
    for table, chains in rules.items():
        out = left if table == NAT else ()
        parts.append(f"*{table}\n")
        parts += [f":{name} {policy} [0:0]\n" for name, (policy, _) in chains.items()]
        for name, (_, lines) in chains.items():
            if name not in out:
                kept = (line for line in lines if not out or target_of(line) not in out)
                parts += [f"-A {name} {line}\n" if line else f"-A {name}\n" for line in kept]
        parts.append("COMMIT\n")
    return "".join(parts)
