"""Restore input: what kube-proxy writes for iptables-restore, read into operations and applied to a rule set.

`parse_restore` reads the text into a `TableRestore` per `*table` ... `COMMIT`; `apply_restore` does to a `Ruleset` what
the kernel would do; `canonical_ruleset` does both from nothing, which gives the rule set in the form in which
iptables-save would print it once loaded. Of iptables' commands these are `-A`, `-D`, `-F`, `-I` and `-X`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kproxy.netfilter.family import BUILTIN_CHAINS, Family
from kproxy.netfilter.iptables.check import find_loop
from kproxy.netfilter.iptables.errors import RestoreError
from kproxy.netfilter.iptables.operation import Operation, RefusedError, TableState
from kproxy.netfilter.iptables.reader import RuleReader
from kproxy.netfilter.iptables.ruleset import Ruleset, Table
from kproxy.netfilter.iptables.save import TableParser, collector_paused, detect_family, parse_declaration

_COMMAND: Final = re.compile(
    r"(?:\[[0-9]{1,20}:[0-9]{1,20}\][ \t]*)?(-[ADFIX])[ \t]+([^\s\"!-]\S*)(?:[ \t]+([1-9][0-9]{0,8})(?![^ \t]))?(.*)"
)
_MAX_CHAIN_NAME: Final = 28


@dataclass(frozen=True, slots=True)
class TableRestore:
    """The operations on one table, committed together."""

    table: str
    operations: tuple[Operation, ...]
    line: int = 0


def parse_restore(text: str, source: str = "-", *, family: Family | None = None) -> tuple[TableRestore, ...]:
    """Read restore input.

    Without `family` the text decides, and IPv4 if it does not. The same table may come several times. Empty input
    gives an empty result. Counters in square brackets are ignored.

    Raises:
        RuleSyntaxError: a line is not restore input, a table is unknown, or a COMMIT is missing.
    """
    parser = _RestoreParser(source, RuleReader(family or detect_family(text) or Family.IPV4))
    with collector_paused():
        return parser.parse(text)


def apply_restore(ruleset: Ruleset, operations: Sequence[TableRestore], *, source: str = "-") -> Ruleset:
    """Do to a rule set what `iptables-restore --noflush` does to the kernel's.

    A table that is not there yet starts with its built-in chains and the policy ACCEPT. Tables that are named come out
    in the order of iptables-save inside; the others stay as they are.

    Raises:
        RestoreError: the kernel would refuse a table: a chain that is missing or is in use, a rule to delete that is
            not there, a loop of jumps. Tables before it have been applied, see the error's `applied`.
    """
    current = ruleset
    for part in operations:
        state = TableState(current.table(part.table) or Table(part.table))
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
        tables = {table.name: table for table in current.tables} | {part.table: changed}
        current = Ruleset(current.family, tuple(tables.values()), current.comments)
    return current


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
        loaded = apply_restore(Ruleset(family), operations, source=source)
    return Ruleset(family, tuple(table for name in BUILTIN_CHAINS if (table := loaded.table(name)) is not None))


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
            if line.startswith("-") and self._table:
                self._operations.append(self._command(line))
            elif line.strip() and not line.startswith("#"):
                self._read(line)
        self._text = ""
        self._check_committed()
        return tuple(self._parts)

    def _read(self, line: str) -> None:
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
            name, policy, _ = parse_declaration(line, self._fail)
            if not 0 < len(name.encode("utf-8", "surrogateescape")) <= _MAX_CHAIN_NAME or name[0] in "-!":
                self._fail(f"a chain name of at most {_MAX_CHAIN_NAME} bytes expected, not {name!r}")
            self._operations.append(Operation(":", name, policy=policy, line=self._line))
        else:
            self._operations.append(self._command(line))

    def _command(self, line: str) -> Operation:
        found = _COMMAND.fullmatch(line)
        if found is None:
            self._fail("a chain declaration, a command (-A, -D, -F, -I or -X) with its chain, or COMMIT expected")
        command, chain, number, text = found.groups()
        alone = command in ("-F", "-X") or (command == "-D" and number is not None)
        if (number is not None and command not in ("-D", "-I")) or (alone and text.strip()):
            self._fail(f"{command} CHAIN {'' if alone else 'and a rule '}expected")
        try:
            rule = None if alone else self._reader.read(text)
        except ValueError as error:
            self._fail(str(error))
        return Operation(command, chain, rule, int(number or 0), line=self._line)
