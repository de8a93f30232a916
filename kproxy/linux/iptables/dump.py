"""Dumps as the write path needs them: the text of each rule by table and chain, split but not parsed.

`netfilter.parse_save` makes values of rules, which the write path has no use for: at 160,000 rules it takes two seconds
where splitting takes a fraction, and two rules whose texts are equal need no parsing to be equal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from kproxy.linux.errors import UnreadableDumpError
from kproxy.netfilter import BUILTIN_CHAINS

_INCOMPATIBLE: Final = re.compile(r"^# Table `(\w+)' is incompatible", re.MULTILINE)
_OURS: Final = ("filter", "nat", "mangle")


class ChainDump(msgspec.Struct, frozen=True):
    """One chain.

    Attributes:
        policy: of a built-in chain, "-" for others.
        rules: the arguments of each rule (`-A CHAIN` left out), as iptables-save prints them.
        counters: `[packets:bytes]` of each rule, "" where they were not read.
    """

    policy: str
    rules: list[str]
    counters: list[str]

    @property
    def is_builtin(self) -> bool:
        return self.policy != "-"


class Dump(msgspec.Struct, frozen=True):
    """All tables of one family and variant, by name; `dormant` are those whose chains the kernel does not call, as far
    as it was asked."""

    tables: Mapping[str, Mapping[str, ChainDump]]
    dormant: frozenset[str] = frozenset()

    def chain(self, table: str, chain: str) -> ChainDump | None:
        """A chain, None if it does not exist."""
        return self.tables.get(table, {}).get(chain)


def parse_dump(text: str, what: str = "iptables-save") -> Dump:
    """Splits what iptables-save printed, with or without counters.

    Raises:
        UnreadableDumpError: it is not such text, or a table we need cannot be shown (nft rules that iptables does not
        know).
    """
    incompatible = [table for table in _INCOMPATIBLE.findall(text) if table in _OURS]
    if incompatible:
        raise UnreadableDumpError(
            f"{what} cannot show table {incompatible[0]}: it holds rules that only nft understands, so it cannot be "
            "told what is in it; see `nft list ruleset`"
        )
    tables: dict[str, dict[str, ChainDump]] = {}
    chains: dict[str, ChainDump] = {}
    for line in text.split("\n"):
        counters = ""
        if line.startswith("["):
            counters, _, line = line.partition(" ")
        if line.startswith("-A "):
            name, _, rule = line[3:].partition(" ")
            chain = chains.get(name)
            if chain is None:
                raise UnreadableDumpError(f"{what} printed a rule of a chain that it had not declared: {line[:200]!r}")
            chain.rules.append(rule)
            chain.counters.append(counters)
        elif line.startswith(":"):
            name, _, declared = line[1:].partition(" ")
            policy, _, counted = declared.partition(" ")
            if not counted:
                raise UnreadableDumpError(f"{what} printed an invalid declaration: {line[:200]!r}")
            chains[name] = ChainDump(policy, [], [])
        elif line.startswith("*"):
            chains = tables.setdefault(line[1:], {})
            if line[1:] not in BUILTIN_CHAINS:
                raise UnreadableDumpError(f"{what} printed a table that Linux does not have: {line[:200]!r}")
        elif line and line != "COMMIT" and not line.startswith("#"):
            raise UnreadableDumpError(f"{what} printed a line that does not belong to a dump: {line[:200]!r}")
    return Dump(tables)


def is_comment(text: str) -> bool:
    """Whether a text holds nothing but comments."""
    return all(not line or line.startswith("#") for line in text.split("\n"))
