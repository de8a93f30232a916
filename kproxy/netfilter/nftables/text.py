"""The ways in and out: text to a rule set, scripts applied to one, and a rule set as `nft list` prints it, which
`nft -f` takes back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kproxy.netfilter.nftables.apply import apply_commands
from kproxy.netfilter.nftables.blocks import CHAIN_ROWS, TABLE_ROWS
from kproxy.netfilter.nftables.objects import NamedObject
from kproxy.netfilter.nftables.rule import RulePrinter
from kproxy.netfilter.nftables.ruleset import NftRuleset, Table
from kproxy.netfilter.nftables.script import read_script
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.style import BOOKWORM, Style

EMPTY: Final = NftRuleset()
"""No tables."""


def parse_nft(text: str, source: str = "", base: NftRuleset = EMPTY) -> NftRuleset:
    """Read what `nft list ruleset` printed (with or without `-a`, `-s`, `-n`) or a script of `nft -f`.

    `source` is what messages call the text. A script is applied to `base`; a listing is a script that adds everything.

    Raises:
        NftSyntaxError: it is not nft's language, or it is cut off.
        NftApplyError: the kernel would refuse one of its commands.
    """
    return apply_commands(base, read_script(text, source, base), source)


def print_nft(ruleset: NftRuleset, style: Style = BOOKWORM) -> str:
    """A rule set as `nft list ruleset` prints it."""
    return "".join(print_table(table, style) for table in ruleset.tables)


def print_table(table: Table, style: Style = BOOKWORM) -> str:
    """A table as `nft list table` prints it."""
    family = table.family.value
    lines: list[str] = []
    if table.managed_by is not None:
        lines.append(f"# Warning: table {family} {table.name} is managed by {table.managed_by}, do not touch!")
    owner = f" # progname {table.owner}" if table.owner is not None else ""
    lines.append(f"table {family} {table.name} {{{owner}{_handle(table.handle, style)}")
    printer = RulePrinter(table.family, style, {item.name: item for item in table.sets})
    lines += [f"\t{line}" for line in TABLE_ROWS.parts(table, printer)]
    blocks = ["\n".join(block) for block in _blocks(table, printer)]
    if table.flags and blocks:
        lines.append("")
    lines += ["\n\n".join(blocks)] if blocks else []
    return "\n".join([*lines, "}\n"])


def _blocks(table: Table, printer: RulePrinter) -> Iterator[list[str]]:
    flowtables = [item for item in table.objects if item.kind == "flowtable"]
    yield from (_object(item, printer) for item in table.objects if item not in flowtables)
    for found in table.sets:
        kind = "map" if found.is_map else "set"
        yield _block(f"{kind} {found.name}", found.handle, Set.ROWS.parts(found, printer), printer)
    yield from (_object(item, printer) for item in flowtables)
    for chain in table.chains:
        lines = [*CHAIN_ROWS.parts(chain, printer), *map(printer.rule, chain.rules)]
        yield _block(f"chain {chain.name}", chain.handle, lines, printer)


def _object(item: NamedObject, printer: RulePrinter) -> list[str]:
    comment = [] if item.comment is None else [f'comment "{item.comment}"']
    lines = item.body if isinstance(item.body, tuple) else [item.body.GRAMMAR.rows_text(item.body, printer)]
    return _block(f"{item.kind} {item.name}", item.handle, filter(None, [*comment, *lines]), printer)


def _block(words: str, handle: int | None, lines: Iterable[str], printer: RulePrinter) -> list[str]:
    return [f"\t{words} {{{_handle(handle, printer.style)}", *(f"\t\t{line}" for line in lines), "\t}"]


def _handle(handle: int | None, style: Style) -> str:
    return f" # handle {handle}" if style.handles and handle is not None else ""
