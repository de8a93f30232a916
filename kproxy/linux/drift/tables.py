"""Drift in nftables mode: every difference between the desired table and the one that the kernel holds.

As in iptables mode each difference comes with its Service and with what it means for packets, and what others have in
kube-proxy's table is no drift; it is noted. Rules of others inside kube-proxy's own chains are drift.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kproxy.errors import InputError
from kproxy.linux.drift import explain
from kproxy.linux.drift.finding import Compared, Drift, rule_changes
from kproxy.linux.errors import LinuxError
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.change import TableDifference
from kproxy.linux.nftables.readback import read_table
from kproxy.linux.nftables.table import TableText
from kproxy.linux.sync.nftables.desired import DesiredTable, ElementOwners
from kproxy.linux.sync.nftables.reconcile import MODE, find_table_difference
from kproxy.linux.sync.nftables_host import PreparedTable
from kproxy.render.nftables.serviceport import ElementRef, ElementValue
from kproxy.render.nftables.table import element_text
from kproxy.render.origin import Origin


def compare_table(family: PreparedTable, namespace: Namespace) -> Compared:
    """Reads and compares. Raises LinuxError: it cannot be read."""
    desired = family.desired
    difference = find_table_difference(desired.text, read_table(family.executor, desired.text))

    def packets(services: Iterable[str]) -> list[str]:
        # Imported here: it costs as much as all else, and most often there is no drift.
        from kproxy.linux.drift.table_samples import table_packet_effects

        try:
            return table_packet_effects(family, namespace, difference.kept, services)
        except (InputError, LinuxError) as error:
            return [f"the model cannot read the rules as found: {error}"]

    findings, notes = table_findings(desired, difference), tuple(foreign_notes(desired.text.name, difference))
    return Compared(bool(difference), findings, packets, notes)


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
            yield self._make(kind, explain.faulty_set(name, owner), owner, set=name, wanted=desired, found=found)
        for name in change.stale_sets:
            what = "no rule of kube-proxy's looks into it"
            yield self._make("set-extra", what, self._desired.owner_of_chain(name), set=name)
        yield from self._elements()

    def _make(
        self,
        kind: str,
        explanation: str,
        service: str,
        *,
        chain: str = "",
        set: str = "",
        rule: int = 0,
        wanted: str = "",
        found: str = "",
    ) -> Drift:
        table = self._desired.text.name
        family = self._desired.family.value
        return Drift(family, MODE, kind, table, chain, explanation, service, rule, wanted, found, set)

    def _chain(self, chain: str) -> Iterator[Drift]:
        change, service = self._change, self._desired.owner_of_chain(chain)
        if chain in change.replaced_chains:
            desired, found = change.chains[chain], self._before.chains[chain]
            what = "packets meet its rules elsewhere than they should, or not at all"
            yield self._make("chain-altered", what, service, chain=chain, wanted=desired, found=found)
        elif chain in change.chains:
            what = explain.missing_chain(self._desired.text.name, chain, service)
            yield self._make("chain-missing", what, service, chain=chain)
        yield from self._rules(chain, service)

    def _rules(self, chain: str, service: str) -> Iterator[Drift]:
        desired = self._desired.text.rules.get(chain, ())
        origins: Sequence[Origin | None] = self._origins.rules.get(chain, ())
        if len(origins) != len(desired):
            origins = [None] * len(desired)
        for change in rule_changes(desired, self._before.rules.get(chain, ())):
            if change.kind == "rules-reordered":
                what = explain.reordered_rules(chain, service)
            elif change.kind == "rule-extra":
                what = explain.extra_nft_rule(chain, change.found, service)
            else:
                what = (explain.altered_rule if change.found else explain.missing_rule)(origins[change.at])
            number = change.at + 1
            yield self._make(
                change.kind, what, service, chain=chain, rule=number, wanted=change.wanted, found=change.found
            )

    def _elements(self) -> Iterator[Drift]:
        change, before = self._change, self._before
        for ref, value in change.elements.items():
            if ref[0] in change.sets:
                continue  # reported with the set
            old = before.elements.get(ref)
            service = self._service(ref, value)
            origin = self._origins.elements.get(ref)
            kind = "element-missing" if old is None else "element-altered"
            what = explain.missing_element(ref[0], origin, service)
            if old is not None:
                what = f"packets are treated as another element says; as far as it differs, {what}"
            found = "" if old is None else element_text(ref[1], old)
            yield self._make(kind, what, service, set=ref[0], wanted=element_text(ref[1], value), found=found)
        for ref in change.stale_elements:
            if ref in change.elements:
                continue
            service = self._service(ref, before.elements[ref])
            what = explain.extra_element(ref[0], service)
            yield self._make(
                "element-extra", what, service, set=ref[0], found=element_text(ref[1], before.elements[ref])
            )

    def _service(self, ref: ElementRef, value: ElementValue) -> str:
        origin = self._origins.elements.get(ref)
        if origin is not None and origin.service_port is not None:
            return str(origin.service_port)
        return self._owners.owner(ref, value)
