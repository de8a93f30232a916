"""The rules that /debug/trace asks: the kernel's or those of the last sync, each of kproxy's with its provenance.

In iptables mode the kernel's rules are what iptables-save of the variant in use prints; in nftables mode they are all
rules of the namespace, since native nftables stands beside those of iptables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kproxy.cluster.rules import HostRules
from kproxy.dataplane import Index, index_ruleset
from kproxy.netfilter import Ruleset
from kproxy.netfilter.family import Family
from kproxy.netfilter.nftables.rule import RulePrinter
from kproxy.netfilter.nftables.ruleset import Chain, NftRuleset, Table
from kproxy.netfilter.nftables.style import BOOKWORM
from kproxy.render import RenderedTable, RenderedTarget
from kproxy.render.iptables.save import saved_ruleset
from kproxy.render.nftables.save import nft_ruleset

Rendered = RenderedTarget | RenderedTable
Notes = Mapping[tuple[str, str], Mapping[str, str]]
"""The provenance of rules by table, chain, and text, so that it also serves rules read from the kernel."""


def debug_index(rendered: Rendered, family: Family, kernel: HostRules | None) -> Index:
    """The rules of a family ready for traces: the kernel's, or without those the rendered ones."""
    if isinstance(rendered, RenderedTable):
        return _table_index(rendered, family, kernel)
    desired = saved_ruleset(rendered.restore_text, family)
    notes = _notes(desired, rendered)
    rulesets = [desired] if kernel is None else [each.ruleset for each in kernel.iptables(family)]

    def note(table: str, chain: str, number: int) -> str | None:
        known = notes.get((table, chain))
        found = next((each for ruleset in rulesets if (each := ruleset.chain(table, chain)) is not None), None)
        return known.get(found.rules[number - 1].to_save(chain)) if known and found is not None else None

    return index_ruleset(desired if kernel is None else kernel.iptables(family), note, family=family)


def _table_index(rendered: RenderedTable, family: Family, kernel: HostRules | None) -> Index:
    desired = nft_ruleset(rendered.restore_text)
    notes = _table_notes(desired, rendered)
    nftables = desired if kernel is None else kernel.nftables
    printers = {name: (table, _printer(table)) for name, table in _tables(nftables)}

    def note(table: str, chain: str, number: int) -> str | None:
        known = notes.get((table, chain))
        if not known or table not in printers:
            return None
        native, printer = printers[table]
        found = native.chain(chain)
        return known.get(printer.rule(found.rules[number - 1])) if found is not None else None

    iptables = () if kernel is None else kernel.iptables(family)
    return index_ruleset(iptables, note, nftables=nftables, family=family)


def _notes(desired: Ruleset, rendered: RenderedTarget) -> Notes:
    origins = rendered.rule_origins()
    found: dict[tuple[str, str], dict[str, str]] = {}
    for table in desired.tables:
        for chain in table.chains:
            texts = (rule.to_save(chain.name) for rule in chain.rules)
            reasons = origins.get((table.name, chain.name), ())
            found[(table.name, chain.name)] = dict(zip(texts, map(str, reasons), strict=False))
    return found


def _table_notes(desired: NftRuleset, rendered: RenderedTable) -> Notes:
    origins = rendered.rule_origins()
    return {
        (name, chain.name): dict(zip(_texts(table, chain), map(str, origins.get((name, chain.name), ())), strict=False))
        for name, table in _tables(desired)
        for chain in table.chains
    }


def _texts(table: Table, chain: Chain) -> Iterator[str]:
    return map(_printer(table).rule, chain.rules)


def _printer(table: Table) -> RulePrinter:
    return RulePrinter(table.family, BOOKWORM, {item.name: item for item in table.sets})


def _tables(ruleset: NftRuleset | None) -> Iterator[tuple[str, Table]]:
    """Tables by family and name, as traces name them."""
    for table in ruleset.tables if ruleset is not None else ():
        yield f"{table.family.value} {table.name}", table
