"""Dumps as the write path needs them: the text of each rule by table and chain, split but not parsed.

`netfilter.parse_save` makes values of rules, which the write path has no use for: at 160,000 rules it takes two seconds
where splitting takes a fraction, and two rules whose texts are equal need no parsing to be equal. Chains whose text is
what was expected need not even be split: with most of a dump as expected, that takes a fifth of the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from kproxy.linux.errors import ToolFailedError
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
    """All tables of one family and variant, by name."""

    tables: Mapping[str, Mapping[str, ChainDump]]

    def chain(self, table: str, chain: str) -> ChainDump | None:
        """A chain, None if it does not exist."""
        return self.tables.get(table, {}).get(chain)


Expected = Callable[[str, str], tuple[list[str], str] | None]
"""Given table and chain, the rules that are expected in it, and the same as lines of iptables-save; None: not known."""


def parse_dump(text: str, what: str = "iptables-save", expected: Expected | None = None) -> Dump:
    """Splits what iptables-save printed, with or without counters.

    Args:
        expected: chains that hold exactly this (no counters printed) share its list of rules.

    Raises:
        ToolFailedError: it is not such text, or a table we need cannot be shown (nft rules that iptables does not
        know).
    """
    incompatible = [table for table in _INCOMPATIBLE.findall(text) if table in _OURS]
    if incompatible:
        raise ToolFailedError(
            f"{what} cannot show table {incompatible[0]}: it holds rules that only nft understands, so it cannot be "
            "told what is in it; see `nft list ruleset`"
        )
    if expected is not None:
        found = _parse_expected(text, expected)
        if found is not None:
            return found
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
                raise ToolFailedError(f"{what} printed a rule of a chain that it had not declared: {line[:200]!r}")
            chain.rules.append(rule)
            chain.counters.append(counters)
        elif line.startswith(":"):
            name, policy, _ = line[1:].split(" ", 2)
            chains[name] = ChainDump(policy, [], [])
        elif line.startswith("*"):
            chains = tables.setdefault(line[1:], {})
            if line[1:] not in BUILTIN_CHAINS:
                raise ToolFailedError(f"{what} printed a table that Linux does not have: {line[:200]!r}")
        elif line and line != "COMMIT" and not line.startswith("#"):
            raise ToolFailedError(f"{what} printed a line that is no dump: {line[:200]!r}")
    return Dump(tables)


def _parse_expected(text: str, expected: Expected) -> Dump | None:
    """Reads a dump in which each table declares its chains and then prints their rules in the same order, as both
    variants do; None if it does not look so."""
    tables: dict[str, dict[str, ChainDump]] = {}
    *parts, rest = text.split("\nCOMMIT\n")
    if not _is_comment(rest):
        return None
    for part in parts:
        head, star, table = part.partition("*")
        name, _, body = table.partition("\n")
        declarations, _, rules = body.partition("\n-")
        if not star or not _is_comment(head) or name in tables or name not in BUILTIN_CHAINS:
            return None
        rules = f"-{rules}\n" if rules else ""
        chains = tables[name] = {}
        at = 0
        for line in declarations.splitlines():
            chain, _, policy = line[1:].partition(" ")
            if line[:1] != ":" or chain in chains:
                return None
            known = expected(name, chain)
            if known is not None and rules.startswith(known[1], at):
                chains[chain] = ChainDump("-", known[0], [])
                at += len(known[1])
                if not rules.startswith(f"-A {chain} ", at):
                    continue
                at -= len(known[1])  # it goes on: more rules than expected
            own: list[str] = []
            prefix = f"-A {chain} "
            while rules.startswith(prefix, at):
                end = rules.find("\n", at)
                own.append(rules[at + len(prefix) : end])
                at = end + 1
            chains[chain] = ChainDump(policy.partition(" ")[0], own, [""] * len(own))
        if at != len(rules):
            return None
    return Dump(tables)


def _is_comment(text: str) -> bool:
    return all(not line or line.startswith("#") for line in text.split("\n"))
