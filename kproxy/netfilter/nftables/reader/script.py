"""Reading a whole text: what `nft list ruleset` printed, or what `nft -f` takes. A listing is a script, too.

The text becomes commands (`command.py`). The elements of a set are read by the set's type, so the reader remembers the
sets that the text has declared and those of the rule set that it will be applied to.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from kproxy.netfilter.nftables.command import Command, Item
from kproxy.netfilter.nftables.constant import UnknownNameError
from kproxy.netfilter.nftables.element import Elements
from kproxy.netfilter.nftables.errors import NftSyntaxError
from kproxy.netfilter.nftables.lexer import END, Source
from kproxy.netfilter.nftables.objects import OBJECT_WORDS, NamedObject
from kproxy.netfilter.nftables.reader.blocks import (
    block_lines,
    end_line,
    read_chain,
    read_flags,
    read_set,
)
from kproxy.netfilter.nftables.reader.cursor import Cursor, UnexpectedError
from kproxy.netfilter.nftables.reader.elements import read_elements
from kproxy.netfilter.nftables.reader.objects import read_body, read_flowtable, read_object
from kproxy.netfilter.nftables.reader.statements import read_rule
from kproxy.netfilter.nftables.reader.variables import substitute
from kproxy.netfilter.nftables.ruleset import TABLE_FLAGS, Chain, NftRuleset, Table, TableFamily
from kproxy.netfilter.nftables.sets import Set

FAMILIES: Final = MappingProxyType({family.value: family for family in TableFamily})
_VERBS: Final = frozenset({"add", "create", "insert", "replace", "delete", "destroy", "flush", "rename", "reset"})
_MANAGED: Final = re.compile(r"# Warning: table (\S+) (\S+) is managed by ([^,]+), do not touch!")
_ONLY_SHOWING: Final = frozenset({"list", "monitor", "describe", "export", "get"})


def read_script(text: str, source: str = "", base: NftRuleset | None = None) -> list[Command]:
    """Read a listing or a script.

    `source` is what messages call the text; `base` the rule set that the script will be applied to, for the types of
    its sets.

    Raises:
        NftSyntaxError: nft would not take it, or it is cut off.
    """
    lexed = Source(text, source)
    try:
        substitute(lexed)
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
    """The reader of one text."""

    def __init__(self, cursor: Cursor, base: NftRuleset | None) -> None:
        self.cursor = cursor
        self.commands: list[Command] = []
        self.sets: dict[tuple[TableFamily, str], dict[str, Set]] = {}
        for table in base.tables if base is not None else ():
            self.sets[table.family, table.name] = {item.name: item for item in table.sets}
        self.managed: dict[tuple[str, str], str] = {}

    def read(self) -> list[Command]:
        cursor = self.cursor
        while True:
            token = cursor.peek()
            if token in ("\n", ";"):
                cursor.i += 1
            elif token == END:
                return self.commands
            elif token[0] == "#":
                self._warning(cursor.take())
            else:
                try:
                    self._command()
                except RecursionError:
                    cursor.fail("fewer levels of nesting expected")
                token = cursor.peek()
                if token not in ("\n", ";", END) and token[0] != "#":
                    cursor.fail("the end of the command expected")

    def _warning(self, token: str) -> None:
        found = _MANAGED.match(token)
        if found is not None:
            self.managed[found[1], found[2]] = found[3]

    def _command(self) -> None:
        cursor = self.cursor
        token = cursor.peek()
        verb = "add"
        if token in _VERBS:
            verb = cursor.take()
        elif token in _ONLY_SHOWING:
            cursor.fail("a command that changes rules expected")
        kind = cursor.peek()
        if kind == "ct":
            cursor.i += 1
            kind = f"ct {cursor.peek()}"
        if verb == "flush" and kind == "ruleset":
            cursor.i += 1
            family = FAMILIES[cursor.take()] if cursor.peek() in FAMILIES else None
            self.commands.append(Command("flush", "ruleset", family, line=cursor.line_here()))
            return
        reader = _KINDS.get(kind)
        if reader is None:
            if verb in ("add", "insert", "replace") and (kind in FAMILIES or kind[:1].isalpha()):
                _read_rule(self, verb, "rule")  # `add t c ...` is a rule, too
                return
            cursor.fail("a command expected")
        cursor.i += 1
        reader(self, verb, kind)

    def header(self, what: str) -> tuple[TableFamily, str]:
        """`[FAMILY] TABLE`."""
        cursor = self.cursor
        family = TableFamily.IP
        if cursor.peek() in FAMILIES and cursor.tokens[cursor.i + 1] not in ("{", "\n", ";", END):
            family = FAMILIES[cursor.take()]
        table = cursor.name(f"the name of {what}")
        cursor.family = family
        sets = self.sets.setdefault((family, table), {})
        cursor.find_set = sets.get
        return family, table

    def emit(self, command: Command) -> None:
        """One more command."""
        self.commands.append(command)


def _read_table(script: _Script, verb: str, kind: str) -> None:
    cursor = script.cursor
    line = cursor.line_here()
    if verb in ("delete", "destroy") and _is_handle(cursor):
        _fail_handle(cursor)
    family, name = script.header("a table")
    if verb not in ("add", "create"):
        if verb in ("delete", "destroy"):
            script.sets.pop((family, name), None)
        script.emit(Command(verb, kind, family, name, line=line))
        return
    managed = script.managed.get((family.value, name))
    table = Table(family, name, managed_by=managed, line=line)
    index = len(script.commands)
    script.emit(Command(verb, kind, family, name, item=table, line=line))
    if cursor.peek() != "{":
        return
    cursor.expect("{")
    owner = cursor.program()
    handle = cursor.handle()
    flags: frozenset[str] = frozenset()
    comment: str | None = None
    while block_lines(cursor):
        token = cursor.peek()
        if token == "flags":
            cursor.i += 1
            flags = read_flags(cursor, TABLE_FLAGS, "a flag")
        elif token == "comment":
            cursor.i += 1
            comment = cursor.string("a comment")
        else:
            _read_member(script, family, name)
        end_line(cursor)
    table = Table(family, name, flags=flags, comment=comment, managed_by=managed, owner=owner, handle=handle, line=line)
    script.commands[index] = dataclasses.replace(script.commands[index], item=table)


def _read_member(script: _Script, family: TableFamily, table: str) -> None:
    """A chain, set, map, flowtable or object inside a table's block."""
    cursor = script.cursor
    line = cursor.line_here()
    kind = cursor.take()
    if kind == "ct":
        kind = f"ct {cursor.take()}"
    name = cursor.name("a name")
    item: Item
    if kind == "chain":
        item = read_chain(cursor, name)
    elif kind in ("set", "map"):
        item = _read_set(script, family, table, name, is_map=kind == "map")
    elif kind == "flowtable":
        item = read_flowtable(cursor, name)
    elif kind in OBJECT_WORDS:
        item = read_object(cursor, kind, name)
    else:
        cursor.fail("chain, set, map, flowtable or an object expected", cursor.i - 2)
    script.emit(Command("add", kind, family, table, name, item, line=line))


def _read_set(script: _Script, family: TableFamily, table: str, name: str, *, is_map: bool) -> Set:
    cursor = script.cursor
    try:
        item = read_set(cursor, name, is_map=is_map)
    except UnknownNameError as error:
        raise UnexpectedError(str(error), cursor.i - 1) from None
    script.sets.setdefault((family, table), {})[name] = item
    return item


def _is_handle(cursor: Cursor) -> bool:
    return "handle" in (cursor.peek(), cursor.tokens[min(cursor.i + 1, len(cursor.tokens) - 1)])


def _fail_handle(cursor: Cursor) -> None:
    cursor.fail("a name expected: handles are the kernel's, so kproxy takes them for rules only")


def _read_chain(script: _Script, verb: str, kind: str) -> None:
    cursor = script.cursor
    line = cursor.line_here()
    family, table = script.header("a table")
    if cursor.peek() == "handle":
        _fail_handle(cursor)
    name = cursor.name("the name of a chain")
    if verb == "rename":
        script.emit(Command(verb, kind, family, table, name, new_name=cursor.name("the new name"), line=line))
        return
    item: Chain | None = None
    if verb in ("add", "create"):
        item = read_chain(cursor, name) if cursor.peek() == "{" else Chain(name, line=line)
    elif verb in ("delete", "destroy") and cursor.peek() == "{":
        read_chain(cursor, name)
    script.emit(Command(verb, kind, family, table, name, item, line=line))


def _read_rule(script: _Script, verb: str, kind: str) -> None:
    cursor = script.cursor
    line = cursor.line_here()
    family, table = script.header("a table")
    name = cursor.name("the name of a chain")
    handle = index = None
    after = verb != "insert"
    if cursor.peek() in ("handle", "position") and cursor.tokens[cursor.i + 1].isdigit():
        cursor.i += 1
        handle = cursor.number()
    elif cursor.peek() == "index":
        cursor.i += 1
        index = cursor.number()
    if verb in ("delete", "destroy", "reset"):
        if handle is None:
            cursor.fail("handle and a number expected")
        script.emit(Command(verb, kind, family, table, name, handle=handle, line=line))
        return
    if verb == "replace" and handle is None:
        cursor.fail("handle and a number expected")
    rule = read_rule(cursor)
    script.emit(Command(verb, kind, family, table, name, rule, handle, index, after, line=line))


def _read_set_command(script: _Script, verb: str, kind: str) -> None:
    cursor = script.cursor
    line = cursor.line_here()
    family, table = script.header("a table")
    if cursor.peek() == "handle":
        _fail_handle(cursor)
    name = cursor.name(f"the name of a {kind}")
    item: Set | None = None
    if verb in ("add", "create"):
        item = _read_set(script, family, table, name, is_map=kind == "map")
    script.emit(Command(verb, kind, family, table, name, item, line=line))


def _read_element(script: _Script, verb: str, kind: str) -> None:
    cursor = script.cursor
    line = cursor.line_here()
    family, table = script.header("a table")
    start = cursor.i
    name = cursor.name("the name of a set")
    found = cursor.find_set(name)
    if found is None:
        cursor.fail(f"a set of the table {family.value} {table} expected", start)
    cursor.expect("{")
    try:
        elements = _elements_of(cursor, found, optional_data=verb in ("delete", "destroy"))
    except UnknownNameError as error:
        raise UnexpectedError(str(error), cursor.i - 1) from None
    script.emit(Command(verb, kind, family, table, name, elements, line=line))


def _elements_of(cursor: Cursor, found: Set, *, optional_data: bool) -> Elements:
    objects = found.object_kind is not None
    start = cursor.i
    try:
        return read_elements(cursor, found.types, found.data_types, objects=objects)
    except UnexpectedError:
        if not optional_data or not found.is_map:
            raise
    cursor.i = start  # an element of a map is deleted by its key alone, too
    return read_elements(cursor, found.types)


def _read_flowtable(script: _Script, verb: str, kind: str) -> None:
    cursor = script.cursor
    line = cursor.line_here()
    family, table = script.header("a table")
    name = cursor.name("the name of a flowtable")
    item = read_flowtable(cursor, name) if verb in ("add", "create") and cursor.peek() == "{" else None
    script.emit(Command(verb, kind, family, table, name, item, line=line))


def _read_object(script: _Script, verb: str, kind: str) -> None:
    cursor = script.cursor
    line = cursor.line_here()
    family, table = script.header("a table")
    name = cursor.name(f"the name of a {kind}")
    item: NamedObject | None = None
    if verb in ("add", "create"):
        if cursor.peek() == "{":
            item = read_object(cursor, kind, name)
        else:
            item = NamedObject(kind, name, read_body(cursor, kind, None), line=line)
    script.emit(Command(verb, kind, family, table, name, item, line=line))


_KINDS: Final[Mapping[str, Callable[[_Script, str, str], None]]] = MappingProxyType(
    {
        "table": _read_table, "chain": _read_chain, "rule": _read_rule, "set": _read_set_command,
        "map": _read_set_command, "element": _read_element, "flowtable": _read_flowtable,
    }
    | dict.fromkeys(OBJECT_WORDS, _read_object)
)  # fmt: skip
"""The readers of commands by what they are about."""
