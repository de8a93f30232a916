"""A dump of iptables cut into chains, without being read.

The rules of 2000 Services are megabytes, nearly the same on every node. Cutting is quick; which chains are as they
should be is told by comparing text; and only those that matter are read as rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from kproxy.cluster.audit.blocks import NO_BLOCKS, Blocks, cut_blocks
from kproxy.netfilter import Family, parse_save
from kproxy.render.iptables.chains import SERVICE_PORT_CHAIN_PREFIXES

ChainKey = tuple[str, str]
"""Table and chain."""

_TABLE: Final = re.compile(r"(?:#.*\n|\n)*\*(\S+)\n")
_END: Final = "\nCOMMIT\n"
_DECLARED: Final = re.compile(r":(\S+) (\S+) \[\d+:\d+\]\n")
_COUNTERS: Final = re.compile(r"^\[\d+:\d+\] (?=-A )", re.MULTILINE)
_SERVICE_JUMPS: Final = tuple(f"-{flag} {prefix}" for flag in "jg" for prefix in SERVICE_PORT_CHAIN_PREFIXES)
_JUMP: Final = re.compile(r" -[jg] (\S+)")


class Dump:
    """One dump.

    Attributes:
        text: as it was given; lines that are named are lines of it.
        chains: the lines of each chain that has rules, canonical but for how a rule is spelled.
        policies: of built-in chains, `ACCEPT` or `DROP`.
    """

    def __init__(self, label: str, text: str, family: Family | None = None, like: Dump | None = None) -> None:
        """
        Args:
            like: a dump that has nearly the same rules: only what differs is cut.

        Raises:
            InputError: it is no dump; it names the line.
        """
        self.label = label
        self.text = text
        self._family = family
        self.chains: dict[ChainKey, str] = {}
        self.policies: dict[ChainKey, str] = {}
        self._declared: dict[str, dict[str, None]] = {}
        self._blocks: dict[str, Blocks] = {}
        self._head = "".join(line for line in text[:500].splitlines(keepends=True) if line.startswith("#"))
        plain = text.replace("\r\n", "\n")
        plain = _COUNTERS.sub("", plain) if "\n[" in plain else plain
        if not plain.endswith("\n"):
            plain += "\n"
        if not self._cut(plain, {} if like is None else like._blocks):
            self._cut_slowly(text)

    def _cut(self, text: str, like: Mapping[str, Blocks]) -> bool:
        """Cuts it, if it is as iptables-save prints it."""
        at = 0
        while head := _TABLE.match(text, at):
            end = text.find(_END, head.end() - 1)
            if end < 0:
                return False
            table, body, at = head[1], text[head.end() : end + 1], end + len(_END)
            if table in self._declared:
                return False
            declared = self._declared.setdefault(table, {})
            length = 0
            rules = 0 if body.startswith("-A ") else body.find("\n-A ") + 1 or len(body)
            for found in _DECLARED.finditer(body, 0, rules):
                declared[found[1]] = None
                length += len(found[0])
                if found[2] != "-":
                    self.policies[table, found[1]] = found[2]
            blocks = cut_blocks(body[rules:], like.get(table, NO_BLOCKS))
            if length != rules or blocks is None or not declared.keys() >= set(blocks.chains):
                return False
            self._blocks[table] = blocks
            for chain, lines in zip(blocks.chains, blocks.rules, strict=True):
                key = table, chain
                self.chains[key] = self.chains.get(key, "") + lines
        return all(not line or line.startswith("#") for line in text[at:].split("\n"))

    def _cut_slowly(self, text: str) -> None:
        """Reads it, which says what is wrong with it, or orders it."""
        ruleset = parse_save(text, self.label, family=self._family)
        self.chains, self.policies, self._declared = {}, {}, {}
        for table in ruleset.tables:
            self._declared[table.name] = dict.fromkeys(chain.name for chain in table.chains)
            for chain in table.chains:
                if chain.policy is not None:
                    self.policies[table.name, chain.name] = chain.policy
                if chain.rules:
                    self.chains[table.name, chain.name] = "".join(
                        f"{rule.to_save(chain.name)}\n" for rule in chain.rules
                    )

    def declare(self, key: ChainKey, rules: str) -> None:
        """Adds a chain, or takes other rules for it."""
        self._declared.setdefault(key[0], {})[key[1]] = None
        self.chains.pop(key, None)
        if rules:
            self.chains[key] = rules

    def without_services(self) -> str:
        """The dump without chains of ServicePorts, and those that lead there."""
        return self._text_of(
            lambda key: not is_service_chain(key),
            lambda key: not is_service_chain(key) and not any(name in self.chains[key] for name in _SERVICE_JUMPS),
        )

    def reduced(self, chosen: Callable[[ChainKey], bool]) -> str:
        """The dump with all chains, and the rules of some."""
        return self._text_of(lambda _key: True, chosen)

    def _text_of(self, declared: Callable[[ChainKey], bool], chosen: Callable[[ChainKey], bool]) -> str:
        parts = [self._head]
        for table, names in self._declared.items():
            parts.append(f"*{table}\n")
            parts += [
                f":{name} {self.policies.get((table, name), '-')} [0:0]\n" for name in names if declared((table, name))
            ]
            parts += [block for key, block in self.chains.items() if key[0] == table and chosen(key)]
            parts.append("COMMIT\n")
        return "".join(parts)

    @property
    def has_effect(self) -> bool:
        """Whether it does anything to packets."""
        return bool(self.chains) or any(policy != "ACCEPT" for policy in self.policies.values())

    @property
    def is_legacy(self) -> bool:
        """Whether it is iptables-legacy's."""
        return "(legacy)" in self._head or (
            "legacy" in self.label.rpartition("/")[2] and "(nf_tables)" not in self._head
        )

    def declares(self, key: ChainKey) -> bool:
        """Whether a chain is there."""
        return key[1] in self._declared.get(key[0], ())

    def reachable(self, table: str, start: set[str]) -> set[str]:
        """The chains that are come to from some, themselves included."""
        found: set[str] = set()
        left = list(start)
        while left:
            name = left.pop()
            block = self.chains.get((table, name))
            if name not in found:
                found.add(name)
                left += _JUMP.findall(block) if block is not None else ()
        return found

    def number_of(self, key: ChainKey, rule: str) -> int:
        """The number of a rule with this text in its chain, from 1; 0 if there is none."""
        lines = self.chains.get(key, "").splitlines()
        return lines.index(rule) + 1 if rule in lines else 0

    def line_of(self, rule: str) -> int:
        """The line of a rule with this text, from 1; 0 if there is none."""
        at = f"\n{self.text}".find(f"\n{rule}\n")
        return 0 if at < 0 else self.text.count("\n", 0, at) + 1


def is_service_chain(key: ChainKey) -> bool:
    """Whether it is one of a ServicePort's, or of an endpoint's."""
    return key[0] == "nat" and key[1].startswith(SERVICE_PORT_CHAIN_PREFIXES)


def line_of_policy(text: str, table: str, chain: str) -> int:
    """The line of a dump that declares a chain, from 1; 0 if none does."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("*"):
            current = line[1:].strip()
        elif current == table and line.startswith(f":{chain} "):
            return number
    return 0


def line_of_nft(text: str, table: str, chain: str, rule: int) -> int:
    """The line of what `nft list ruleset` prints in which a chain's rule of this number stands, from 1, or the chain
    itself for number 0; 0 if it is not there, as in JSON, and in a text that has several rules on a line."""
    current = inside = ""
    count = 0
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split() if line.lstrip().startswith(("table ", "chain ", "#")) else line.split()
        if words[:1] == ["table"] and words[-1] == "{":
            current, inside = " ".join(words[1:-1]), ""
        elif words[:1] == ["chain"] and words[-1] == "{":
            inside, count = words[1], 0
            if (current, inside, rule) == (table, chain, 0):
                return number
        elif words == ["}"]:
            inside = ""
        elif (
            words
            and (current, inside) == (table, chain)
            and words[0] not in ("type", "comment", "policy", "flags", "#")
        ):
            count += 1
            if count == rule:
                return number
    return 0
