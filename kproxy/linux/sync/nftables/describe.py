"""Drift in nftables mode: every difference between the desired table and the one that the kernel holds.

As in iptables mode each difference comes with its Service and with what it means for packets, and what others have in
kube-proxy's table is no drift; it is noted. Rules of others inside kube-proxy's own chains are drift.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kproxy.dataplane.model.packet import parse_ip
from kproxy.linux.nftables.executor import NftExecutor
from kproxy.linux.nftables.ownership import is_our_chain, is_our_set, targets_of
from kproxy.linux.nftables.readback import read_table
from kproxy.linux.nftables.table import TableDifference, TableText
from kproxy.linux.sync.finding import (
    Compared,
    Drift,
    altered_means,
    extra_means,
    missing_chain_means,
    missing_means,
    rule_findings,
)
from kproxy.linux.sync.nftables.desired import DesiredTable, ElementOwners
from kproxy.linux.sync.nftables.reconcile import MODE, find_table_difference
from kproxy.netfilter.nftables.element import Element, Elements
from kproxy.netfilter.text import reachable
from kproxy.render import RenderedTable
from kproxy.render.nftables.names import NODEPORT_IPS
from kproxy.render.nftables.serviceport import ElementRef, ElementValue
from kproxy.render.nftables.table import element_text
from kproxy.services import ServicePort

if TYPE_CHECKING:
    from kproxy.cluster.rules import HostRules
    from kproxy.dataplane.symbolic.host_rules import SideRules
    from kproxy.netfilter.nftables.ruleset import NftRuleset, Table


def compare_table(
    rendered: RenderedTable, desired: DesiredTable, executor: NftExecutor, read: Callable[[], HostRules]
) -> Compared:
    """Reads and compares. `read` gives all rules of the namespace. Raises LinuxError: it cannot be read."""
    difference = find_table_difference(desired.text, read_table(executor, desired.text))
    return Compared(
        table_findings(desired, difference),
        lambda asked: table_sides(rendered, read(), difference, asked),
        tuple(foreign_notes(desired.text.name, difference)),
    )


def table_findings(desired: DesiredTable, difference: TableDifference) -> list[Drift]:
    """All findings of one family: chains and their rules, then sets and maps, then elements."""
    return list(_Finder(desired, difference).findings()) if difference else []


def foreign_notes(table: str, difference: TableDifference) -> Iterator[str]:
    """What the user should know of what others have in the table."""
    if difference.foreign:
        yield f"table {table} also holds what kube-proxy does not make, which stays: {', '.join(difference.foreign)}"
    for chain in difference.kept:
        yield f"chain {chain} of table {table} should go, and stays since a rule of another program leads to it"


class _Finder:
    def __init__(self, desired: DesiredTable, difference: TableDifference) -> None:
        self._desired = desired
        self._change = difference.change
        self._before = difference.before or TableText(desired.text.name)
        self._origins = desired.origins()
        self._owners = ElementOwners(desired, (desired.text, self._before))

    def findings(self) -> Iterator[Drift]:
        change = self._change
        if change.create is not None:
            yield self._make("table-missing", "there is no table, so no Service works", "")
            return
        if change.wake:
            yield self._make("table-dormant", "the kernel calls none of its chains, so no Service works", "")
            return
        for chain in dict.fromkeys((*change.chains, *change.rules)):
            yield from self._chain(chain)
        for chain in change.stale_chains:
            what = "nothing of kube-proxy's leads to it, so it does nothing until something does"
            yield self._make("chain-extra", what, self._desired.owner_of_chain(chain), chain=chain)
        for name in change.sets:
            kind = "set-altered" if name in change.replaced_sets else "set-missing"
            found = self._before.sets[name].definition if name in change.replaced_sets else ""
            desired = change.sets[name].definition
            owner = self._desired.owner_of_chain(name)
            what = f"what rules look for in {name} is not found"
            yield self._make(kind, what, owner, set=name, wanted=desired, found=found)
        for name in change.stale_sets:
            what = "no rule of kube-proxy's looks into it"
            yield self._make("set-extra", what, self._desired.owner_of_chain(name), set=name)
        yield from self._elements()

    def _make(
        self, kind: str, text: str, service: str, *, chain: str = "", set: str = "", wanted: str = "", found: str = ""
    ) -> Drift:
        table, family = self._desired.text.name, self._desired.family.value
        return Drift(family, MODE, kind, table, chain, text, service, 0, wanted, found, set)

    def _chain(self, chain: str) -> Iterator[Drift]:
        change, service = self._change, self._desired.owner_of_chain(chain)
        if chain in change.replaced_chains:
            desired, found = change.chains[chain], self._before.chains[chain]
            what = "packets meet its rules elsewhere than they should, or not at all"
            yield self._make("chain-altered", what, service, chain=chain, wanted=desired, found=found)
        elif chain in change.chains:
            what = missing_chain_means(self._desired.text.name, chain, service)
            yield self._make("chain-missing", what, service, chain=chain)
        yield from self._rules(chain, service)

    def _rules(self, chain: str, service: str) -> Iterator[Drift]:
        desired, found = (table.rules.get(chain, ()) for table in (self._desired.text, self._before))
        make = partial(Drift, self._desired.family.value, MODE)
        ref = (self._desired.text.name, chain)
        return rule_findings(make, ref, desired, found, self._origins.rules.get(chain, ()), lambda _rule: service)

    def _elements(self) -> Iterator[Drift]:
        change, before = self._change, self._before
        for ref, value in change.elements.items():
            if ref[0] in change.sets:
                continue  # reported with the set
            old = before.elements.get(ref)
            service = self._service(ref, value)
            origin = self._origins.elements.get(ref)
            kind = "element-missing" if old is None else "element-altered"
            what = (missing_means if old is None else altered_means)(origin)
            found = "" if old is None else element_text(ref[1], old)
            yield self._make(kind, what, service, set=ref[0], wanted=element_text(ref[1], value), found=found)
        for ref in change.stale_elements:
            if ref in change.elements:
                continue
            service = self._service(ref, before.elements[ref])
            what = extra_means(element_text(ref[1], before.elements[ref]), ref[0], service)
            yield self._make(
                "element-extra", what, service, set=ref[0], found=element_text(ref[1], before.elements[ref])
            )

    def _service(self, ref: ElementRef, value: ElementValue) -> str:
        origin = self._origins.elements.get(ref)
        if origin is not None and origin.service_port is not None:
            return str(origin.service_port)
        return self._owners.owner(ref, value)


def table_sides(
    rendered: RenderedTable, found: HostRules, difference: TableDifference, asked: Sequence[ServicePort]
) -> tuple[SideRules, SideRules]:
    """All rules of the namespace as they are once kube-proxy's table is mended, and as found. What others have in that
    table stays in it. Of the ServicePorts' chains and elements only those of some are there, and what rules and
    elements too many lead to.

    Raises:
        InputError: they cannot be read.
    """
    from kproxy.dataplane.symbolic.host_rules import SideRules
    from kproxy.netfilter.nftables.ruleset import NftRuleset
    from kproxy.render.nftables.save import nft_ruleset

    family = rendered.options.family
    own = nft_ruleset(rendered.restore_text).tables[0]
    real = found.nftables or NftRuleset()
    cut = _Cut.of(rendered, difference, asked)
    wanted, actual = (
        SideRules(found.iptables(family), cut.ruleset(each, own))
        for each in (mended_table(real, own, difference.kept), real)
    )
    return wanted, actual


def mended_table(found: NftRuleset, desired: Table, kept: Collection[str] = ()) -> NftRuleset:
    """The rules as they would be once kube-proxy's table is as it should be. `kept`: its chains that stay all the
    same."""
    old = found.table(desired.family, desired.name)
    others = tuple(each for each in found.tables if each is not old)
    if old is not None:
        chains = (each for each in old.chains if each.name in kept or not is_our_chain(each.name))
        sets = (each for each in old.sets if not is_our_set(each.name))
        desired = dataclasses.replace(
            desired, chains=(*desired.chains, *chains), sets=(*desired.sets, *sets), objects=old.objects
        )
    return dataclasses.replace(found, tables=(*others, desired))


class _Cut(NamedTuple):
    """What of ServicePorts is left out of both sides: the rules of these chains, elements that lead there, and those of
    these addresses."""

    chains: Collection[str]
    addresses: Collection[int]

    @classmethod
    def of(cls, rendered: RenderedTable, difference: TableDifference, asked: Sequence[ServicePort]) -> _Cut:
        """Leaves out all that no other is asked for."""
        state, renderer = rendered.state, rendered.renderer
        names = {port.name for port in asked}
        chains: set[str] = set()
        addresses: dict[bool, set[str]] = {True: set(), False: set()}
        for name, port in state.service_ports.items():
            if name not in names:
                chains.update(renderer.chains_of(name))
            addresses[name in names].update((port.cluster_ip, *port.external_ips, *port.load_balancer_vips))
            addresses[name in names].update(each.ip for each in state.endpoints.get(name, ()))
        left = {parse_ip(address)[1] for address in addresses[False] - addresses[True]}
        return cls(chains - _met(difference), left)

    def ruleset(self, found: NftRuleset, own: Table) -> NftRuleset:
        """Rules with kube-proxy's table cut."""
        tables = (
            self._table(each) if (each.family, each.name) == (own.family, own.name) else each for each in found.tables
        )
        return dataclasses.replace(found, tables=tuple(tables))

    def _table(self, table: Table) -> Table:
        chains = (dataclasses.replace(each, rules=()) if each.name in self.chains else each for each in table.chains)
        sets = (
            dataclasses.replace(each, elements=Elements(filter(self._keeps, each.elements)))
            if each.elements and each.name != NODEPORT_IPS
            else each
            for each in table.sets
        )
        return dataclasses.replace(table, chains=tuple(chains), sets=tuple(sets))

    def _keeps(self, element: Element) -> bool:
        key = element.key[0] if isinstance(element.key, tuple) else element.key
        return key not in self.addresses and getattr(element.data, "chain", None) not in self.chains


def _met(difference: TableDifference) -> set[str]:
    """The chains that rules and elements too many lead to."""
    before, change = difference.before, difference.change
    if before is None:
        return set()
    extra = [rule for chain, rules in change.rules.items() for rule in before.rules.get(chain, ()) if rule not in rules]
    extra += [before.elements[ref].value for ref in change.stale_elements]
    return reachable(
        (target for text in extra for target in targets_of(text)),
        lambda chain: [target for rule in before.rules.get(chain, ()) for target in targets_of(rule)],
    )
