"""Reading a whole text: what `nft list ruleset` printed, or what `nft -f` takes. A listing is a script, too.

The text becomes commands (`command.py`). The elements of a set are read by the set's type, so the reader remembers the
sets that the text has declared and those of the rule set that it will be applied to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from kproxy.netfilter.nftables.blocks import TABLE_ROWS, read_chain
from kproxy.netfilter.nftables.command import DELETING, Command, Item
from kproxy.netfilter.nftables.constant import UnknownNameError
from kproxy.netfilter.nftables.cursor import Cursor, UnexpectedError
from kproxy.netfilter.nftables.element import Elements
from kproxy.netfilter.nftables.elements import read_elements
from kproxy.netfilter.nftables.errors import NftSyntaxError
from kproxy.netfilter.nftables.grammar import read_block
from kproxy.netfilter.nftables.lexer import END, Source
from kproxy.netfilter.nftables.objects import OBJECTS, read_object
from kproxy.netfilter.nftables.rule import read_rule
from kproxy.netfilter.nftables.ruleset import Chain, NftRuleset, Table, TableFamily
from kproxy.netfilter.nftables.sets import Set, read_set

_FAMILIES: Final = MappingProxyType({family.value: family for family in TableFamily})
_VERBS: Final = frozenset({"add", "insert", "delete", "destroy", "flush"})
_MANAGED: Final = re.compile(r"# Warning: table (\S+) (\S+) is managed by ([^,]+), do not touch!")
_REFUSED: Final = {
    ("list", "monitor", "describe", "export", "get"): "a command that changes rules expected",
    ("replace", "rename", "create", "reset"): "a command that adds or deletes expected",
    (
        "define",
        "redefine",
        "undefine",
        "include",
    ): "rules as nft lists them expected, without variables",
}
"""Commands that are not read, by their first word."""


def read_script(text: str, source: str = "", base: NftRuleset | None = None) -> list[Command]:
    """Read a listing or a script.

    `source` is what messages call the text; `base` the rule set that the script will be applied to, for the types of
    its sets.

    Raises:
        NftSyntaxError: nft would not take it, or it is cut off.
    """
    lexed = Source(text, source)
    try:
        return _Script(Cursor(lexed), base).read()
    except UnexpectedError as error:
        token = lexed.tokens[min(error.index, len(lexed.tokens) - 1)]
        where = (
            "at the end of the text" if token == END else "at the end of the line" if token == "\n" else f"at {token!r}"
        )
        raise NftSyntaxError(
            f"{error.expected}, {where}",
            text=lexed.line_text(error.index),
            source=source,
            line=lexed.line_of(error.index),
        ) from None


class _Script:
    """The reader of one text. `sets` are those of all tables, `known` those of the table that is being read."""

    def __init__(self, cursor: Cursor, base: NftRuleset | None) -> None:
        self.cursor = cursor
        self.commands: list[Command] = []
        self.sets: dict[tuple[TableFamily, str], dict[str, Set]] = {}
        for table in base.tables if base is not None else ():
            self.sets[table.family, table.name] = {item.name: item for item in table.sets}
        self.known: dict[str, Set] = {}
        self.managed: dict[tuple[str, str], str] = {}
        cursor.data_types = lambda name: self.known[name].data_types if name in self.known else ()

    def read(self) -> list[Command]:
        cursor = self.cursor
        while (token := cursor.peek()) != END:
            if token in ("\n", ";"):
                cursor.i += 1
            elif token[0] == "#":
                found = _MANAGED.match(cursor.take())
                if found is not None:
                    self.managed[found[1], found[2]] = found[3]
            else:
                try:
                    self._command()
                except RecursionError:
                    cursor.fail("fewer levels of nesting expected")
                except UnknownNameError as error:
                    cursor.fail(str(error), cursor.i - 1)
                token = cursor.peek()
                if token not in ("\n", ";", END) and token[0] != "#":
                    cursor.fail("the end of the command expected")
        return self.commands

    def _command(self) -> None:
        cursor = self.cursor
        token = cursor.peek()
        verb = cursor.take() if token in _VERBS else "add"
        for words, expected in _REFUSED.items():
            if token in words:
                cursor.fail(expected)
        kind = cursor.peek()
        if kind == "ct":
            cursor.i += 1
            kind = f"ct {cursor.peek()}"
        if verb == "flush" and kind == "ruleset":
            cursor.i += 1
            family = _FAMILIES[cursor.take()] if cursor.peek() in _FAMILIES else None
            self.commands.append(Command("flush", "ruleset", family, line=cursor.line_here()))
            return
        reader = _KINDS.get(kind)
        if reader is None:
            if verb in ("add", "insert") and (kind in _FAMILIES or kind[:1].isalpha()):
                _read_rule(self, verb, "rule")  # `add t c ...` is a rule, too
                return
            cursor.fail("a command expected")
        cursor.i += 1
        reader(self, verb, kind)

    def header(self) -> tuple[TableFamily, str]:
        """`[FAMILY] TABLE`."""
        cursor = self.cursor
        family = TableFamily.IP
        if cursor.peek() in _FAMILIES and cursor.tokens[cursor.i + 1] not in ("{", "\n", ";", END):
            family = _FAMILIES[cursor.take()]
        table = cursor.name("the name of a table")
        cursor.family = family.value
        self.known = self.sets.setdefault((family, table), {})
        return family, table

    def item(self, kind: str, name: str) -> Item:
        """A chain, set, map or object, behind its name. Raises UnexpectedError, UnknownNameError."""
        cursor = self.cursor
        if kind == "chain":
            return read_chain(cursor, name)
        if kind in OBJECTS:
            return read_object(cursor, kind, name)
        found = self.known[name] = read_set(cursor, name, is_map=kind == "map")
        return found


def _read_table(script: _Script, verb: str, kind: str) -> None:
    cursor = script.cursor
    line = cursor.line_here()
    if verb in DELETING and "handle" in cursor.tokens[cursor.i : cursor.i + 2]:
        _fail_handle(cursor)
    family, name = script.header()
    if verb != "add":
        if verb in DELETING:
            script.sets.pop((family, name), None)
        script.commands.append(Command(verb, kind, family, name, line=line))
        return
    index = len(script.commands)
    values: dict[str, Any] = {"line": line}
    if cursor.peek() == "{":

        def member(_cursor: Cursor) -> bool:
            _read_member(script, family, name)
            return True

        values |= read_block(cursor, TABLE_ROWS, "", member) | values
    table = Table(family, name, managed_by=script.managed.get((family.value, name)), **values)
    script.commands.insert(index, Command(verb, kind, family, name, item=table, line=line))


def _read_member(script: _Script, family: TableFamily, table: str) -> None:
    """A chain, set, map or object inside a table's block."""
    cursor = script.cursor
    line = cursor.line_here()
    kind = cursor.take()
    if kind == "ct":
        kind = f"ct {cursor.take()}"
    name = cursor.name("a name")
    if kind not in _NAMED:
        cursor.fail("chain, set, map or an object expected", cursor.i - 2)
    if cursor.peek() != "{":
        cursor.fail("{ expected")
    script.commands.append(Command("add", kind, family, table, name, script.item(kind, name), line=line))


def _fail_handle(cursor: Cursor) -> None:
    cursor.fail("a name expected: handles are the kernel's")


def _read_named(script: _Script, verb: str, kind: str) -> None:
    cursor = script.cursor
    line = cursor.line_here()
    family, table = script.header()
    if cursor.peek() == "handle":
        _fail_handle(cursor)
    name = cursor.name(f"the name of a {kind}")
    item: Item | None = None
    if verb == "add":
        if cursor.peek() == "{" or kind != "chain":
            item = script.item(kind, name)
        else:
            item = Chain(name, line=line)
    elif verb in DELETING and kind == "chain" and cursor.peek() == "{":
        read_chain(cursor, name)
    script.commands.append(Command(verb, kind, family, table, name, item, line))


def _read_rule(script: _Script, verb: str, kind: str) -> None:
    cursor = script.cursor
    line = cursor.line_here()
    family, table = script.header()
    name = cursor.name("the name of a chain")
    if verb in DELETING or (cursor.peek() in ("handle", "position", "index") and cursor.tokens[cursor.i + 1].isdigit()):
        cursor.fail("a new rule expected: handles and places of rules are the kernel's")
    script.commands.append(Command(verb, kind, family, table, name, read_rule(cursor), line))


def _read_element(script: _Script, verb: str, kind: str) -> None:
    cursor = script.cursor
    line = cursor.line_here()
    family, table = script.header()
    start = cursor.i
    name = cursor.name("the name of a set")
    found = script.known.get(name)
    if found is None:
        cursor.fail(f"a set of the table {family.value} {table} expected", start)
    cursor.expect("{")
    elements = _elements_of(cursor, found, optional_data=verb in DELETING)
    script.commands.append(Command(verb, kind, family, table, name, elements, line=line))


def _elements_of(cursor: Cursor, found: Set, *, optional_data: bool) -> Elements:
    start = cursor.i
    try:
        return read_elements(cursor, found.types, found.data_types)
    except UnexpectedError:
        if not optional_data or not found.is_map:
            raise
    cursor.i = start  # an element of a map is deleted by its key alone, too
    return read_elements(cursor, found.types)


_NAMED: Final = ("chain", "set", "map", *OBJECTS)
_KINDS: Final[Mapping[str, Callable[[_Script, str, str], None]]] = MappingProxyType(
    {"table": _read_table, "rule": _read_rule, "element": _read_element, **dict.fromkeys(_NAMED, _read_named)}
)
"""The readers of commands by what they are about."""
