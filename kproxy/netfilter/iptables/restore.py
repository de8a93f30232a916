"""Restore input: what one writes for iptables-restore, read into operations and applied to a rule set.

`parse_restore` reads the text into a `TableRestore` per `*table` ... `COMMIT`; `apply_restore` does to a `Ruleset` what
the kernel would do; `canonical_ruleset` does both from nothing, which gives the rule set in the form in which
iptables-save would print it once loaded.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kproxy.netfilter.family import BUILTIN_CHAINS, POLICIES, Family
from kproxy.netfilter.iptables.check import find_loop
from kproxy.netfilter.iptables.errors import RestoreError
from kproxy.netfilter.iptables.lexer import split_words, unquote
from kproxy.netfilter.iptables.operation import Operation, RefusedError, TableState
from kproxy.netfilter.iptables.option_owner import OtherFamilyError
from kproxy.netfilter.iptables.reader import RuleReader
from kproxy.netfilter.iptables.rule import Counters
from kproxy.netfilter.iptables.ruleset import Ruleset, Table
from kproxy.netfilter.iptables.save import TableParser, collector_paused, detect_family, parse_declaration

_COUNTED: Final = re.compile(r"\[([0-9]{1,20}):([0-9]{1,20})\] *(-.*)", re.DOTALL)
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_MAX_CHAIN_NAME: Final = 28

_COMMANDS: Final = {
    "-A": "-A", "--append": "-A", "-I": "-I", "--insert": "-I", "-R": "-R", "--replace": "-R",
    "-D": "-D", "--delete": "-D", "-N": "-N", "--new-chain": "-N", "--new": "-N", "-F": "-F", "--flush": "-F",
    "-X": "-X", "--delete-chain": "-X", "-E": "-E", "--rename-chain": "-E", "-P": "-P", "--policy": "-P",
    "-Z": "-Z", "--zero": "-Z",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableRestore:
    """The operations on one table, committed together."""

    table: str
    operations: tuple[Operation, ...]
    line: int = 0


def parse_restore(text: str, source: str = "-", *, family: Family | None = None) -> tuple[TableRestore, ...]:
    """Read restore input.

    Without `family` the text decides, and IPv4 if it does not. The same table may come several times. Empty input
    gives an empty result.

    Raises:
        RuleSyntaxError: a line is not restore input, a table is unknown, or a COMMIT is missing.
    """
    parser = _RestoreParser(source, RuleReader(family or detect_family(text) or Family.IPV4))
    with collector_paused():
        return parser.parse(text)


def apply_restore(
    ruleset: Ruleset,
    operations: Sequence[TableRestore],
    *,
    noflush: bool = True,
    counters: bool = False,
    source: str = "-",
) -> Ruleset:
    """Do to a rule set what `iptables-restore [--noflush] [--counters]` does to the kernel's.

    Without `noflush`, each named table is emptied first. Without `counters`, those in square brackets are ignored. A
    table that is not there yet starts with its built-in chains and the policy ACCEPT. Tables that are named come out
    in the order of iptables-save inside; the others stay as they are.

    Raises:
        RestoreError: the kernel would refuse a table: a chain that is missing, exists already or is in use, a rule to
            delete that is not there, a loop of jumps. Tables before it have been applied, see the error's `applied`.
    """
    current = ruleset
    for part in operations:
        state = TableState(part.table, current.table(part.table), flush=not noflush, counters=counters)
        line = part.line
        try:
            for operation in part.operations:
                line = operation.line
                operation.apply(state)
            changed = state.table()
            loop = find_loop(changed, hooked=True)
            if loop:
                raise RefusedError(f"a loop of jumps: {' → '.join(loop)}")
        except RefusedError as error:
            raise RestoreError(str(error), table=part.table, line=line, source=source, applied=current) from error
        current = _with_table(current, changed)
    return current


def _with_table(ruleset: Ruleset, table: Table) -> Ruleset:
    tables = [table if old.name == table.name else old for old in ruleset.tables]
    if ruleset.table(table.name) is None:
        tables.append(table)
    return Ruleset(ruleset.family, tuple(tables), ruleset.comments)


def canonical_ruleset(text: str, family: Family, source: str = "-") -> Ruleset:
    """The rule set that restore input makes on an empty machine, as iptables-nft-save would print it.

    Give it to `print_save`. Tables are in the order mangle, security, raw, filter, nat; only tables that the text names
    are there, each with all of its built-in chains.

    Raises:
        RuleSyntaxError: see `parse_restore`.
        RestoreError: see `apply_restore`.
    """
    operations = parse_restore(text, source, family=family)
    with collector_paused():
        loaded = apply_restore(Ruleset(family), operations, noflush=True, source=source)
    tables = [table for name in BUILTIN_CHAINS for table in loaded.tables if table.name == name]
    return Ruleset(family, tuple(tables))


class _RestoreParser(TableParser):
    """The state while restore input is read."""

    def __init__(self, source: str, reader: RuleReader) -> None:
        super().__init__(source, reader)
        self._parts: list[TableRestore] = []
        self._started = 0
        self._operations: list[Operation] = []

    def parse(self, text: str) -> tuple[TableRestore, ...]:
        for self._line, line in enumerate(text.split("\n"), 1):
            self._text = line
            if not line.startswith("-A ") or not self._table:
                self._other(line)
                continue
            _, chain, *rest = line.split(" ", 2)
            spec = rest[0] if rest else ""
            if '"' in chain or not chain or "\t" in chain or "," in spec or spec[:1] == " ":
                self._command(line, None)
                continue
            try:
                rule = self._reader.read(spec)
            except ValueError as error:
                self._fail(str(error))
            except OtherFamilyError:
                continue
            self._operations.append(Operation("-A", chain, (rule,), line=self._line))
        self._text = ""
        self._check_committed()
        return tuple(self._parts)

    def _other(self, line: str) -> None:
        if not line.strip() or line.startswith("#"):
            return
        if line.startswith("*"):
            name = line[1:].strip()
            self._check_opened(name)
            self._table, self._started = name, self._line
        elif not self._table:
            self._fail("*TABLE expected")
        elif line.rstrip() == "COMMIT":
            self._parts.append(TableRestore(self._table, tuple(self._operations), self._started))
            self._table, self._operations = "", []
        elif line.startswith(":"):
            name, policy, counters = parse_declaration(line, self._fail)
            self._check_name(name)
            self._operations.append(Operation(":", name, name=policy, counters=counters, line=self._line))
        else:
            counted = _COUNTED.fullmatch(line)
            if counted is None:
                self._command(line, None)
            else:
                self._command(counted[3], Counters(int(counted[1]), int(counted[2])))

    def _check_name(self, name: str) -> None:
        if not 0 < len(name.encode("utf-8", "surrogateescape")) <= _MAX_CHAIN_NAME or name[0] in "-!":
            self._fail(f"a chain name of at most {_MAX_CHAIN_NAME} bytes expected, not {name!r}")

    def _command(self, line: str, counters: Counters | None) -> None:
        try:
            words = split_words(line)
            operation = self._operation(words, counters)
        except ValueError as error:
            self._fail(str(error))
        except OtherFamilyError:
            return
        self._operations.append(operation)

    def _operation(self, words: list[str], counters: Counters | None) -> Operation:
        command = _COMMANDS.get(words[0])
        if command is None:
            raise ValueError("a chain declaration, a command (-A, -D, -I, ...) or COMMIT expected")
        names = list(map(unquote, itertools.takewhile(lambda word: word[0] not in "-!", words[1:])))
        rest = words[1 + len(names) :]
        chain = names[0] if names else ""
        line = self._line
        if command in ("-F", "-X", "-Z") and len(names) <= 1 and not rest:
            return Operation(command, chain or None, line=line)
        if not chain:
            raise ValueError(f"a chain expected after {command}")
        if command == "-N" and len(names) == 1 and not rest:
            self._check_name(chain)
            return Operation(command, chain, line=line)
        if command in ("-E", "-P") and len(names) == 2 and not rest:
            if command == "-E":
                self._check_name(names[1])
            elif names[1] not in POLICIES:
                raise ValueError(f"a policy expected, not {names[1]}")
            return Operation(command, chain, name=names[1], line=line)
        number = 0
        if len(names) == 2 and command in ("-I", "-R", "-D") and _NUMBER.fullmatch(names[1]):
            number = int(names[1])
            if number == 0:
                raise ValueError("a rule number from 1 expected")
        elif len(names) != 1:
            raise ValueError(f"an option expected, not {names[1]}")
        by_number = command == "-D" and number > 0 and not rest
        rules = () if by_number else tuple(self._reader.read(" ".join(words)) for words in expand_addresses(rest))
        one_rule = command == "-R" and number > 0 and len(rules) == 1
        if not (by_number or one_rule or command in ("-A", "-I") or (command == "-D" and not number)):
            raise ValueError(f"{command} CHAIN {'NUMBER ' if command == '-R' else ''}and one rule expected")
        return Operation(command, chain, rules, number, counters=counters, line=line)


def expand_addresses(words: list[str]) -> list[list[str]]:
    """`-s A,B -d C,D` as the rules that iptables makes of it: one per pair, sources outermost. Raises ValueError."""
    lists: list[tuple[int, list[str]]] = []
    for index, word in enumerate(words[:-1]):
        if word in ("-s", "--source", "--src", "-d", "--destination", "--dst") and "," in words[index + 1]:
            if index and words[index - 1] == "!":
                raise ValueError("one address expected after !")
            lists.append((index + 1, unquote(words[index + 1]).split(",")))
    if not lists:
        return [words]
    lists.sort(key=lambda item: words[item[0] - 1] in ("-d", "--destination", "--dst"))
    expanded = []
    for choice in itertools.product(*(addresses for _, addresses in lists)):
        copy = list(words)
        for (index, _), address in zip(lists, choice, strict=True):
            copy[index] = address
        expanded.append(copy)
    return expanded
