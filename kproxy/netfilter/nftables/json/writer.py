"""Writes objects as commands, with tables of what writes each kind of command, statement and expression."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from kproxy.netfilter.nftables.json.fields import (
    WORD,
    MalformedError,
    UnknownError,
    as_list,
    as_object,
    handle_comment,
    joined_names,
    number_field,
    quoted,
    single_item,
    text_field,
    word,
)
from kproxy.netfilter.nftables.ruleset import TABLE_FLAGS
from kproxy.netfilter.nftables.statement import OpaqueStatement

SCHEMA_VERSION: Final = 1
"""The `json_schema_version` that is read."""

_BINARY: Final = frozenset({"|", "&", "^", "<<", ">>"})


CommandWriter = Callable[["Writer", str, dict[str, Any]], str]
ItemWriter = Callable[["Writer", Any], str]


class Writer:
    """Writes objects as commands; `opaque` are the statements without words."""

    def __init__(
        self,
        commands: Mapping[str, CommandWriter],
        statements: Mapping[str, ItemWriter],
        expressions: Mapping[str, ItemWriter],
    ) -> None:
        self.opaque: list[OpaqueStatement] = []
        self._unclear: set[tuple[object, object]] = set()
        """Tables whose flags are not told: nft 1.0.6 writes what happens to be in memory, their name most often."""
        self._commands = commands
        self._statements = statements
        self._expressions = expressions

    def command(self, kind: str, body: Any) -> str:
        if kind == "metainfo":
            version = as_object(body).get("json_schema_version")
            if version != SCHEMA_VERSION:
                raise MalformedError(f"the version {SCHEMA_VERSION} expected, not {version!r}", ".json_schema_version")
            return ""
        writer = self._commands.get(kind)
        if writer is None:
            raise MalformedError("a table, chain, rule, set, map, flowtable or object expected")
        return writer(self, kind, as_object(body))

    def table(self, _kind: str, body: dict[str, Any]) -> str:
        header = f"add table {text_field(body, 'family')} {text_field(body, 'name')} {{{handle_comment(body)}"
        if "comment" in body:
            header += f"comment {quoted(body['comment'])}\n"
        given = as_list(body.get("flags"))
        flags = [flag for flag in given if flag in TABLE_FLAGS]
        if len(flags) < len(given):
            self._unclear.add((body.get("family"), body.get("name")))
        return header + (f"flags {','.join(flags)}\n" if flags else "") + "}"

    def _header(self, kind: str, body: dict[str, Any]) -> str:
        return f"add {kind} {text_field(body, 'family')} {text_field(body, 'table')}"

    def chain(self, kind: str, body: dict[str, Any]) -> str:
        text = f"{self._header(kind, body)} {text_field(body, 'name')} {{{handle_comment(body)}"
        if "hook" in body:
            devices = as_list(body.get("dev"))
            device = f" devices = {{ {', '.join(quoted(name) for name in devices)} }}" if devices else ""
            priority = body.get("prio")
            if not isinstance(priority, int):
                raise MalformedError("a number expected", ".prio")
            text += f"type {text_field(body, 'type')} hook {text_field(body, 'hook')}{device} priority {priority}\n"
            if "policy" in body:
                text += f"policy {text_field(body, 'policy')}\n"
        if "comment" in body:
            text += f"comment {quoted(body['comment'])}\n"
        if "hook" in body and (body.get("family"), body.get("table")) in self._unclear:
            unclear = self._opaque("flags", "the table's flags, of which nft's JSON has something else")
            name = f"{text_field(body, 'family')} {text_field(body, 'table')} {text_field(body, 'name')}"
            return f"{text}}}\nadd rule {name} {unclear}"
        return text + "}"

    def rule(self, kind: str, body: dict[str, Any]) -> str:
        expressions = body.get("expr")
        if not isinstance(expressions, list):
            raise MalformedError("a list of statements expected", ".expr")
        parts = [self._header(kind, body), text_field(body, "chain")]
        for index, item in enumerate(expressions):
            try:
                parts.append(self.statement(item))
            except MalformedError as error:
                raise MalformedError(error.expected, f".expr[{index}]{error.path}") from None
        if "comment" in body:
            parts.append(f"comment {quoted(body['comment'])}")
        return " ".join(parts) + handle_comment(body).rstrip("\n")

    def set(self, kind: str, body: dict[str, Any]) -> str:
        lines = [f"{self._header(kind, body)} {text_field(body, 'name')} {{{handle_comment(body)}".rstrip("\n")]
        types = self.types(body.get("type"), ".type")
        if kind == "map":
            types += " : " + self.types(body.get("map"), ".map")
        word = "typeof" if isinstance(body.get("type"), dict) else "type"
        lines.append(f"{word} {types}")
        if body.get("policy") == "memory":
            lines.append("policy memory")
        if "size" in body:
            lines.append(f"size {number_field(body, 'size')}")
        if body.get("flags"):
            lines.append(f"flags {joined_names(body['flags'])}")
        if "timeout" in body:
            lines.append(f"timeout {number_field(body, 'timeout')}s")
        if "gc-interval" in body:
            lines.append(f"gc-interval {number_field(body, 'gc-interval')}s")
        if body.get("auto-merge"):
            lines.append("auto-merge")
        if "comment" in body:
            lines.append(f"comment {quoted(body['comment'])}")
        lines += [self.statement(item) for item in as_list(body.get("stmt"))]
        if body.get("elem"):
            lines.append(f"elements = {self.elements(body['elem'])}")
        return "\n".join([*lines, "}"])

    def types(self, value: object, path: str) -> str:
        """The data types of a set's key or data, or since 1.1 the expressions that have them."""
        if isinstance(value, dict):
            try:
                return self.value(value.get("typeof"))
            except UnknownError as error:
                raise MalformedError(f"a known expression expected, not {error}", path) from None
        names = [part for item in as_list(value) for part in (item.split(" . ") if isinstance(item, str) else [""])]
        if not names or not all(names):
            raise MalformedError("data types expected", path)
        return " . ".join(map(word, names))

    def element(self, kind: str, body: dict[str, Any]) -> str:
        return f"{self._header(kind, body)} {text_field(body, 'name')} {self.elements(body.get('elem'))}"

    def elements(self, items: object) -> str:
        """A list of elements in braces; those of a map are pairs."""
        if not isinstance(items, list):
            raise MalformedError("a list of elements expected", ".elem")
        value = self.value
        if all(type(item) is str or type(item) is int for item in items):
            return "{ " + ", ".join([value(item) for item in items]) + " }"
        parts = []
        for item in items:
            if isinstance(item, list) and len(item) == 2:
                parts.append(f"{value(item[0])} : {self.data(item[1])}")
            else:
                parts.append(value(item))
        return "{ " + ", ".join(parts) + " }"

    def data(self, value: object) -> str:
        """The data of a map's element: a verdict or a constant."""
        if isinstance(value, dict) and len(value) == 1:
            kind, body = next(iter(value.items()))
            if kind in ("accept", "drop", "continue", "return"):
                return str(kind)
            if kind in ("jump", "goto"):
                return f"{kind} {text_field(as_object(body), 'target')}"
        return self.value(value)

    def value(self, value: object) -> str:
        """A constant or an expression."""
        if isinstance(value, bool):
            return "exists" if value else "missing"
        if isinstance(value, int):
            return str(value)
        if isinstance(value, str):
            if value.endswith("[invalid type]"):  # of several protocols' ports: nft does not read it either
                raise UnknownError(value)
            return value if value == "*" or (value[:1] == "@" and WORD.fullmatch(value[1:])) else word(value)
        if isinstance(value, list):
            return ",".join(self.value(item) for item in value)
        kind, body = single_item(value)
        if kind in _BINARY:
            return self._binary(kind, body)
        writer = self._expressions.get(kind)
        if writer is None:
            raise UnknownError(kind)
        return writer(self, body)

    def _binary(self, kind: str, body: object) -> str:
        parts = as_list(body)
        if len(parts) < 2:
            raise MalformedError("two operands expected", f".{kind}")
        words = [" | ".join(map(self.value, part)) if isinstance(part, list) else self.value(part) for part in parts]
        if all(isinstance(part, (str, int)) for part in parts):
            return f" {kind} ".join(words)
        return "(" + f") {kind} (".join(words) + ")"

    def statement(self, item: object) -> str:
        """A statement; one without words becomes the number of an opaque one."""
        if isinstance(item, str):
            return (
                item
                if item in ("accept", "drop", "continue", "return", "notrack", "masquerade")
                else self._opaque(item, item)
            )
        kind, body = single_item(item)
        writer = self._statements.get(kind)
        if writer is None:
            return self._opaque(kind, item)
        try:
            return writer(self, body)
        except UnknownError:
            return self._opaque(kind, item)
        except MalformedError as error:
            raise MalformedError(error.expected, f".{kind}{error.path}") from None

    def _opaque(self, kind: str, item: object) -> str:
        self.opaque.append(OpaqueStatement(kind, json.dumps(item), json=True))
        return f"json-statement {len(self.opaque) - 1}"
