"""Reading `nft -j list ruleset`: JSON into the words of a script, which the reader of scripts then reads.

nft's JSON and its language say the same in other punctuation, and what a constant means depends in both on the
expression beside it. So each object becomes one command, and there is one reader for both. What nft has no JSON for (in
1.0.6: comments of tables and chains, devices of ingress chains, `typeof`, `auto-merge`) is not in the rule set.
Statements that kproxy does not know stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from kproxy.netfilter.nftables.errors import NftSyntaxError
from kproxy.netfilter.nftables.statement import OpaqueStatement

SCHEMA_VERSION: Final = 1
"""The `json_schema_version` that is read."""

_WORD: Final = re.compile(r'[^\s{}(),;=!<>&|^"#\[\]@$\\]+')
_BINARY: Final = frozenset({"|", "&", "^", "<<", ">>"})
_UNITS: Final = frozenset({"bytes", "kbytes", "mbytes"})


class _MalformedError(Exception):
    """Something else was expected; `path` leads from the object to it."""

    def __init__(self, expected: str, path: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.path = path


class _UnknownError(Exception):
    """A statement or expression without words for it."""


def json_commands(text: str, source: str = "") -> tuple[list[str], list[str], list[OpaqueStatement]]:
    """The commands that a JSON document stands for.

    Returns: The commands, one of them a line or several; for each the path of its object; and the statements that have
    no words, which the commands name by their number (`json-statement 0`).

    Raises:
        NftSyntaxError: it is not nft's JSON, or of another schema version.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise NftSyntaxError(f"JSON expected: {error}", source=source) from None
    except RecursionError:
        raise NftSyntaxError("JSON of less depth expected", source=source) from None
    objects = document.get("nftables") if isinstance(document, dict) else None
    if not isinstance(objects, list):
        raise NftSyntaxError("an object with the list nftables expected", source=source)
    writer = _Writer()
    commands: list[str] = []
    paths: list[str] = []
    for place, item in enumerate(objects):
        path = f"nftables[{place}]"
        try:
            kind, body = _only(item)
            path += f".{kind}"
            line = writer.command(kind, body)
        except _UnknownError as error:
            raise NftSyntaxError(f"a known expression expected, not {error}", source=source, path=path) from None
        except _MalformedError as error:
            raise NftSyntaxError(error.expected, source=source, path=path + error.path) from None
        except RecursionError:
            raise NftSyntaxError("JSON of less depth expected", source=source, path=path) from None
        if line:
            commands.append(line)
            paths.append(path)
    return commands, paths, writer.opaque


def _only(item: object) -> tuple[str, Any]:
    if not isinstance(item, dict) or len(item) != 1:
        raise _MalformedError("an object with one key expected")
    return cast(tuple[str, Any], next(iter(item.items())))


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _MalformedError("an object expected")
    return value


def _text(body: Mapping[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise _MalformedError("a name expected", f".{key}")
    return _word(value)


def _number(body: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = body.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _MalformedError("a number expected", f".{key}")
    return value


def _word(value: str) -> str:
    if _WORD.fullmatch(value):
        return value
    return _quoted(value)


def _quoted(value: object) -> str:
    if not isinstance(value, str) or '"' in value or "\n" in value:
        raise _MalformedError("a string without quotes and line breaks expected")
    return f'"{value}"'


def _list(value: object) -> list[Any]:
    """nft leaves out the brackets around a single item."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _names(value: object, separator: str = ",") -> str:
    return separator.join(_word(item) if isinstance(item, str) else str(_integer(item)) for item in _list(value))


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _MalformedError("a number expected")
    return value


def _handle(body: Mapping[str, Any]) -> str:
    handle = body.get("handle")
    return f" # handle {handle}\n" if isinstance(handle, int) and handle >= 0 else "\n"


class _Writer:
    """Writes objects as commands; `opaque` are the statements without words."""

    def __init__(self) -> None:
        self.opaque: list[OpaqueStatement] = []

    def command(self, kind: str, body: Any) -> str:
        if kind == "metainfo":
            version = _object(body).get("json_schema_version")
            if version != SCHEMA_VERSION:
                raise _MalformedError(f"the version {SCHEMA_VERSION} expected, not {version!r}", ".json_schema_version")
            return ""
        writer = _COMMANDS.get(kind)
        if writer is None:
            raise _MalformedError("a table, chain, rule, set, map, flowtable or object expected")
        return writer(self, kind, _object(body))

    def table(self, _kind: str, body: dict[str, Any]) -> str:
        header = f"add table {_text(body, 'family')} {_text(body, 'name')} {{{_handle(body)}"
        if "comment" in body:
            header += f"comment {_quoted(body['comment'])}\n"
        flags = [flag for flag in _list(body.get("flags")) if flag in ("dormant", "owner", "persist")]
        return header + (f"flags {','.join(flags)}\n" if flags else "") + "}"

    def _header(self, kind: str, body: dict[str, Any]) -> str:
        return f"add {kind} {_text(body, 'family')} {_text(body, 'table')}"

    def chain(self, kind: str, body: dict[str, Any]) -> str:
        text = f"{self._header(kind, body)} {_text(body, 'name')} {{{_handle(body)}"
        if "hook" in body:
            devices = _list(body.get("dev"))
            device = f" devices = {{ {', '.join(_quoted(name) for name in devices)} }}" if devices else ""
            priority = body.get("prio")
            if not isinstance(priority, int):
                raise _MalformedError("a number expected", ".prio")
            text += f"type {_text(body, 'type')} hook {_text(body, 'hook')}{device} priority {priority}\n"
            if "policy" in body:
                text += f"policy {_text(body, 'policy')}\n"
        if "comment" in body:
            text += f"comment {_quoted(body['comment'])}\n"
        return text + "}"

    def rule(self, kind: str, body: dict[str, Any]) -> str:
        expressions = body.get("expr")
        if not isinstance(expressions, list):
            raise _MalformedError("a list of statements expected", ".expr")
        parts = [self._header(kind, body), _text(body, "chain")]
        for place, item in enumerate(expressions):
            try:
                parts.append(self.statement(item))
            except _MalformedError as error:
                raise _MalformedError(error.expected, f".expr[{place}]{error.path}") from None
        if "comment" in body:
            parts.append(f"comment {_quoted(body['comment'])}")
        return " ".join(parts) + _handle(body).rstrip("\n")

    def set(self, kind: str, body: dict[str, Any]) -> str:
        lines = [f"{self._header(kind, body)} {_text(body, 'name')} {{{_handle(body)}".rstrip("\n")]
        types = self.types(body.get("type"), ".type")
        if kind == "map":
            types += " : " + self.types(body.get("map"), ".map")
        word = "typeof" if isinstance(body.get("type"), dict) else "type"
        lines.append(f"{word} {types}")
        if body.get("policy") == "memory":
            lines.append("policy memory")
        if "size" in body:
            lines.append(f"size {_number(body, 'size')}")
        if body.get("flags"):
            lines.append(f"flags {_names(body['flags'])}")
        if "timeout" in body:
            lines.append(f"timeout {_number(body, 'timeout')}s")
        if "gc-interval" in body:
            lines.append(f"gc-interval {_number(body, 'gc-interval')}s")
        if body.get("auto-merge"):
            lines.append("auto-merge")
        if "comment" in body:
            lines.append(f"comment {_quoted(body['comment'])}")
        lines += [self.statement(item) for item in _list(body.get("stmt"))]
        if body.get("elem"):
            lines.append(f"elements = {self.elements(body['elem'])}")
        return "\n".join([*lines, "}"])

    def types(self, value: object, path: str) -> str:
        """The data types of a set's key or data, or since 1.1 the expressions that have them."""
        if isinstance(value, dict):
            try:
                return self.value(value.get("typeof"))
            except _UnknownError as error:
                raise _MalformedError(f"a known expression expected, not {error}", path) from None
        names = [part for item in _list(value) for part in (item.split(" . ") if isinstance(item, str) else [""])]
        if not names or not all(names):
            raise _MalformedError("data types expected", path)
        return " . ".join(map(_word, names))

    def element(self, kind: str, body: dict[str, Any]) -> str:
        return f"{self._header(kind, body)} {_text(body, 'name')} {self.elements(body.get('elem'))}"

    def elements(self, items: object) -> str:
        """A list of elements in braces; those of a map are pairs."""
        if not isinstance(items, list):
            raise _MalformedError("a list of elements expected", ".elem")
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
                return f"{kind} {_text(_object(body), 'target')}"
        return self.value(value)

    def value(self, value: object) -> str:
        """A constant or an expression."""
        if isinstance(value, bool):
            return "exists" if value else "missing"
        if isinstance(value, int):
            return str(value)
        if isinstance(value, str):
            return value if value == "*" or (value[:1] == "@" and _WORD.fullmatch(value[1:])) else _word(value)
        if isinstance(value, list):
            return ",".join(self.value(item) for item in value)
        kind, body = _only(value)
        if kind in _BINARY:
            return self._binary(kind, body)
        writer = _EXPRESSIONS.get(kind)
        if writer is None:
            raise _UnknownError(kind)
        return writer(self, body)

    def _binary(self, kind: str, body: object) -> str:
        parts = _list(body)
        if len(parts) < 2:
            raise _MalformedError("two operands expected", f".{kind}")
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
        kind, body = _only(item)
        writer = _STATEMENTS.get(kind)
        if writer is None:
            return self._opaque(kind, item)
        try:
            return writer(self, body)
        except _UnknownError:
            return self._opaque(kind, item)
        except _MalformedError as error:
            raise _MalformedError(error.expected, f".{kind}{error.path}") from None

    def _opaque(self, kind: str, item: object) -> str:
        self.opaque.append(OpaqueStatement(kind, json.dumps(item), json=True))
        return f"json-statement {len(self.opaque) - 1}"


# Expressions


def _payload(writer: _Writer, body: Any) -> str:
    body = _object(body)
    if "base" in body:
        return f"@{_text(body, 'base')},{_number(body, 'offset')},{_number(body, 'len')}"
    return f"{_text(body, 'protocol')} {' '.join(_word(part) for part in str(body.get('field', '')).split())}"


def _keyed(word: str) -> Callable[[_Writer, Any], str]:
    """`WORD [DIRECTION] [FAMILY] KEY`."""

    def write(writer: _Writer, body: Any) -> str:
        body = _object(body)
        parts = [word, *(_word(str(body[name])) for name in ("dir", "family") if name in body)]
        parts += [_word(part) for part in str(body.get("key", "")).split()]
        return " ".join(parts) + (f" level {_number(body, 'level')}" if "level" in body else "")

    return write


def _named(word: str) -> Callable[[_Writer, Any], str]:
    """`tcp option NAME FIELD` and its like."""

    def write(writer: _Writer, body: Any) -> str:
        body = _object(body)
        if "base" in body:
            raise _UnknownError(word)
        field = f" {_text(body, 'field')}" if "field" in body else ""
        prefix = "exthdr " if word == "exthdr" and not field else "" if word == "exthdr" else f"{word} "
        return f"{prefix}{_text(body, 'name')}{field}"

    return write


def _fib(writer: _Writer, body: Any) -> str:
    body = _object(body)
    return f"fib {_names(body.get('flags'), ' . ')} {_text(body, 'result')}"


def _offset(body: Mapping[str, Any]) -> str:
    offset = _number(body, "offset", 0)
    return f" offset {offset}" if offset else ""


def _numgen(writer: _Writer, body: Any) -> str:
    body = _object(body)
    return f"numgen {_text(body, 'mode')} mod {_number(body, 'mod')}{_offset(body)}"


def _jhash(writer: _Writer, body: Any) -> str:
    body = _object(body)
    seed = f" seed {_number(body, 'seed')}" if "seed" in body else ""
    return f"jhash {writer.value(body.get('expr'))} mod {_number(body, 'mod')}{seed}{_offset(body)}"


def _symhash(writer: _Writer, body: Any) -> str:
    body = _object(body)
    return f"symhash mod {_number(body, 'mod')}{_offset(body)}"


def _concat(writer: _Writer, body: Any) -> str:
    return " . ".join(map(writer.value, _list(body)))


def _set(writer: _Writer, body: Any) -> str:
    return writer.elements(_list(body))


def _map(writer: _Writer, body: Any) -> str:
    body = _object(body)
    return f"{writer.value(body.get('key'))} map {writer.value(body.get('data'))}"


def _prefix(writer: _Writer, body: Any) -> str:
    body = _object(body)
    return f"{writer.value(body.get('addr'))}/{_number(body, 'len')}"


def _range(writer: _Writer, body: Any) -> str:
    ends = _list(body)
    if len(ends) != 2:
        raise _MalformedError("the two ends of a range expected", ".range")
    return "-".join(map(writer.value, ends))


def _elem(writer: _Writer, body: Any) -> str:
    body = _object(body)
    text = writer.value(body.get("val"))
    for key in ("timeout", "expires"):
        if key in body:
            text += f" {key} {_number(body, key)}s"
    if "comment" in body:
        text += f" comment {_quoted(body['comment'])}"
    for key in ("counter", "limit", "quota", "last", "ct count"):
        if key in body:
            text += " " + _STATEMENTS[key](writer, body[key])
    return text


def _osf(writer: _Writer, body: Any) -> str:
    body = _object(body)
    ttl = f"ttl {_text(body, 'ttl')} " if "ttl" in body else ""
    return f"osf {ttl}{_text(body, 'key')}"


def _ipsec(writer: _Writer, body: Any) -> str:
    body = _object(body)
    family = f"{_text(body, 'family')} " if "family" in body else ""
    return f"ipsec {_text(body, 'dir')} spnum {_number(body, 'spnum', 0)} {family}{_text(body, 'key')}"


_EXPRESSIONS: Final[Mapping[str, Callable[[_Writer, Any], str]]] = MappingProxyType(
    {
        "payload": _payload, "meta": _keyed("meta"), "ct": _keyed("ct"), "rt": _keyed("rt"), "socket": _keyed("socket"),
        "exthdr": _named("exthdr"), "tcp option": _named("tcp option"), "ip option": _named("ip option"),
        "sctp chunk": _named("sctp chunk"), "fib": _fib, "numgen": _numgen, "jhash": _jhash, "symhash": _symhash,
        "concat": _concat, "set": _set, "map": _map, "prefix": _prefix, "range": _range, "elem": _elem, "osf": _osf,
        "ipsec": _ipsec,
    }
)  # fmt: skip


# Statements


def _match(writer: _Writer, body: Any) -> str:
    body = _object(body)
    operator, right = body.get("op"), body.get("right")
    if operator not in ("==", "!=", "<", ">", "<=", ">=", "in", "!"):
        raise _MalformedError("an operator expected", ".op")
    for key in ("left", "right"):
        if key not in body:
            raise _MalformedError(f"{key} expected")
    sign = "" if operator == "in" else f"{operator} "
    return f"{writer.value(body['left'])} {sign}{writer.value(right)}"


def _mangle(writer: _Writer, body: Any) -> str:
    body = _object(body)
    return f"{writer.value(body.get('key'))} set {writer.value(body.get('value'))}"


def _vmap(writer: _Writer, body: Any) -> str:
    body = _object(body)
    return f"{writer.value(body.get('key'))} vmap {writer.value(body.get('data'))}"


def _verdict(kind: str) -> Callable[[_Writer, Any], str]:
    return lambda writer, body: kind


def _jump(kind: str) -> Callable[[_Writer, Any], str]:
    return lambda writer, body: f"{kind} {_text(_object(body), 'target')}"


def _reference(word: str, anonymous: Callable[[_Writer, dict[str, Any]], str] | None) -> Callable[[_Writer, Any], str]:
    """A statement that is itself, or the name of an object, or a map of names."""

    def write(writer: _Writer, body: Any) -> str:
        if isinstance(body, str):
            return f"{word} {_quoted(body)}"
        if body is None:
            body = {}
        if isinstance(body, dict) and ("map" in body or anonymous is None):
            return f"{word} {writer.value(body)}"
        assert anonymous is not None
        return anonymous(writer, _object(body))

    return write


def _counter(writer: _Writer, body: dict[str, Any]) -> str:
    return f"counter packets {_number(body, 'packets', 0)} bytes {_number(body, 'bytes', 0)}"


def _quota(writer: _Writer, body: dict[str, Any]) -> str:
    over = "over " if body.get("inv") else ""
    text = f"quota {over}{_number(body, 'val')} {_unit(body, 'val_unit')}"
    if "used" in body:
        text += f" used {_number(body, 'used')} {_unit(body, 'used_unit')}"
    return text


def _unit(body: Mapping[str, Any], key: str) -> str:
    unit = body.get(key, "bytes")
    if unit not in _UNITS:
        raise _MalformedError("bytes, kbytes or mbytes expected", f".{key}")
    return str(unit)


def _limit(writer: _Writer, body: dict[str, Any]) -> str:
    over = "over " if body.get("inv") else ""
    per = body.get("per", "second")
    rate = _number(body, "rate")
    if body.get("rate_unit", "packets") == "packets":
        burst = f" burst {_number(body, 'burst')} packets" if "burst" in body else ""
        return f"limit rate {over}{rate}/{_word(str(per))}{burst}"
    burst = f" burst {_number(body, 'burst')} {_unit(body, 'burst_unit')}" if "burst" in body else ""
    return f"limit rate {over}{rate} {_unit(body, 'rate_unit')}/{_word(str(per))}{burst}"


def _ct_count(writer: _Writer, body: Any) -> str:
    body = _object(body)
    return f"ct count {'over ' if body.get('inv') else ''}{_number(body, 'val')}"


def _log(writer: _Writer, body: Any) -> str:
    body = _object(body or {})
    text = "log"
    if "prefix" in body:
        text += f" prefix {_quoted(body['prefix'])}"
    for key in ("group", "snaplen", "queue-threshold"):
        if key in body:
            text += f" {key} {_number(body, key)}"
    if "level" in body:
        text += f" level {_text(body, 'level')}"
    for flag in _list(body.get("flags")):
        text += f" flags {' '.join(_word(part) for part in str(flag).split())}"
    return text


def _nat(kind: str) -> Callable[[_Writer, Any], str]:
    def write(writer: _Writer, body: Any) -> str:
        body = _object(body or {})
        family = body.get("family")
        parts = [kind]
        if family is not None:
            parts.append(_text(body, "family"))
        types = _list(body.get("type_flags"))
        flags = _list(body.get("flags"))
        if "prefix" in types:
            parts.append("prefix")
            flags = [flag for flag in flags if flag != "netmap"]
        elif "interval" in types and "addr" in body:
            parts.append("interval")
        target = _target(writer, body)
        if target:
            parts += ["to", target]
        if flags:
            parts.append(_names(flags))
        return " ".join(parts)

    return write


def _target(writer: _Writer, body: Mapping[str, Any]) -> str:
    text = ""
    address = body.get("addr")
    if address is not None:
        text = writer.value(address)
        if ":" in text and not (isinstance(address, dict) and "range" not in address):
            text = "-".join(f"[{part}]" for part in text.split("-"))
    if "port" in body:
        text += f"{' ' if text.endswith(('}', ']')) else ''}:{writer.value(body['port'])}"
    return text


def _reject(writer: _Writer, body: Any) -> str:
    if not body:
        return "reject"
    body = _object(body)
    code = f" {writer.value(body['expr'])}" if "expr" in body else ""
    return f"reject with {body.get('type', '')}{code}" if body.get("type") in _REJECTS else "reject"


_REJECTS: Final = frozenset({"tcp reset", "icmp", "icmpv6", "icmpx"})


def _queue(writer: _Writer, body: Any) -> str:
    body = _object(body or {})
    flags = f" flags {_names(body['flags'])}" if body.get("flags") else ""
    return f"queue{flags}" + (f" to {writer.value(body['num'])}" if "num" in body else "")


def _set_update(writer: _Writer, body: Any) -> str:
    body = _object(body)
    name = body.get("set", body.get("map"))
    if not isinstance(name, str) or name[:1] != "@" or not _WORD.fullmatch(name[1:]):
        raise _MalformedError("@ and the name of a set expected", ".set")
    if body.get("op") not in ("add", "update", "delete"):
        raise _MalformedError("add, update or delete expected", ".op")
    text = f"{body['op']} {name} {{ {writer.value(body.get('elem'))}"
    for item in _list(body.get("stmt")):
        text += " " + writer.statement(item)
    if "data" in body:
        text += f" : {writer.value(body['data'])}"
    return text + " }"


def _tproxy(writer: _Writer, body: Any) -> str:
    body = _object(body)
    family = f" {_text(body, 'family')}" if "family" in body else ""
    return f"tproxy{family} to {_target(writer, body)}"


def _dup(writer: _Writer, body: Any) -> str:
    body = _object(body)
    if "addr" not in body:
        return f"dup to {_quoted(body.get('dev'))}"
    device = f" device {writer.value(body['dev'])}" if "dev" in body else ""
    return f"dup to {writer.value(body['addr'])}{device}"


def _fwd(writer: _Writer, body: Any) -> str:
    body = _object(body)
    device = writer.value(body.get("dev"))
    if "addr" not in body:
        return f"fwd to {device}"
    return f"fwd {_text(body, 'family')} to {writer.value(body['addr'])} device {device}"


def _synproxy(writer: _Writer, body: dict[str, Any]) -> str:
    text = "synproxy"
    for key in ("mss", "wscale"):
        if key in body:
            text += f" {key} {_number(body, key)}"
    return " ".join([text, *(flag for flag in _list(body.get("flags")) if flag in ("timestamp", "sack-perm"))])


def _flow(writer: _Writer, body: Any) -> str:
    name = _object(body).get("flowtable")
    if not isinstance(name, str) or not _WORD.fullmatch(name[1:]):
        raise _MalformedError("@ and the name of a flowtable expected", ".flowtable")
    return f"flow add {name}"


def _reset(writer: _Writer, body: Any) -> str:
    option = _object(body).get("tcp option")
    return f"reset tcp option {_text(_object(option), 'name')}"


def _xt(writer: _Writer, body: Any) -> str:
    body = _object(body)
    if body.get("type") not in ("match", "target", "watcher"):
        raise _MalformedError("match or target expected", ".type")
    return f"xt {body['type']} {_text(body, 'name')}"


def _last(writer: _Writer, body: Any) -> str:
    used = body.get("used") if isinstance(body, dict) else None
    return f"last used {used}ms" if isinstance(used, int) and not isinstance(used, bool) and used >= 0 else "last"


_STATEMENTS: Final[Mapping[str, Callable[[_Writer, Any], str]]] = MappingProxyType(
    {kind: _verdict(kind) for kind in ("accept", "drop", "continue", "return", "notrack")}
    | {kind: _jump(kind) for kind in ("jump", "goto")}
    | {kind: _nat(kind) for kind in ("snat", "dnat", "masquerade", "redirect")}
    | {
        "match": _match, "mangle": _mangle, "vmap": _vmap, "counter": _reference("counter name", _counter),
        "quota": _reference("quota name", _quota), "limit": _reference("limit name", _limit),
        "synproxy": _reference("synproxy name", _synproxy), "ct helper": _reference("ct helper set", None),
        "ct timeout": _reference("ct timeout set", None), "ct expectation": _reference("ct expectation set", None),
        "ct count": _ct_count, "log": _log, "reject": _reject, "queue": _queue, "set": _set_update, "map": _set_update,
        "tproxy": _tproxy, "dup": _dup, "fwd": _fwd, "flow": _flow, "reset": _reset, "xt": _xt, "last": _last,
    }
)  # fmt: skip


# Objects


def _named_object(writer: _Writer, kind: str, body: dict[str, Any]) -> str:
    header = f"add {kind} {_text(body, 'family')} {_text(body, 'table')} {_text(body, 'name')} {{{_handle(body)}"
    if "comment" in body:
        header += f"comment {_quoted(body['comment'])}\n"
    return f"{header}{_OBJECT_BODIES[kind](writer, body)}\n}}"


def _quota_body(writer: _Writer, body: dict[str, Any]) -> str:
    over = "over " if body.get("inv") else ""
    return f"{over}{_number(body, 'bytes')} bytes used {_number(body, 'used', 0)} bytes"


def _helper_body(writer: _Writer, body: dict[str, Any]) -> str:
    return f"type {_quoted(body.get('type'))} protocol {_text(body, 'protocol')}\n{_l3proto(body)}"


def _timeout_body(writer: _Writer, body: dict[str, Any]) -> str:
    policy = ", ".join(f"{_word(state)} : {_integer(time)}s" for state, time in _object(body.get("policy", {})).items())
    return f"protocol {_text(body, 'protocol')}\n{_l3proto(body)}\npolicy = {{ {policy} }}"


def _expectation_body(writer: _Writer, body: dict[str, Any]) -> str:
    lines = [f"protocol {_text(body, 'protocol')}", f"dport {_number(body, 'dport')}"]
    return "\n".join([*lines, f"timeout {_number(body, 'timeout')}ms", f"size {_number(body, 'size')}", _l3proto(body)])


def _l3proto(body: Mapping[str, Any]) -> str:
    return f"l3proto {_text(body, 'l3proto')}" if "l3proto" in body else ""


_OBJECT_BODIES: Final[Mapping[str, Callable[[_Writer, dict[str, Any]], str]]] = MappingProxyType(
    {
        "counter": lambda writer, body: _counter(writer, body).removeprefix("counter "), "quota": _quota_body,
        "limit": lambda writer, body: _limit(writer, body).removeprefix("limit "), "ct helper": _helper_body,
        "ct timeout": _timeout_body, "ct expectation": _expectation_body,
        "synproxy": lambda writer, body: _synproxy(writer, body).removeprefix("synproxy").strip(),
        "secmark": lambda writer, body: _quoted(body.get("context")),
    }
)  # fmt: skip


def _flowtable(writer: _Writer, kind: str, body: dict[str, Any]) -> str:
    devices = ", ".join(_quoted(name) for name in _list(body.get("dev")))
    header = f"add {kind} {_text(body, 'family')} {_text(body, 'table')} {_text(body, 'name')} {{{_handle(body)}"
    priority = _integer(body.get("prio", 0))
    return f"{header}hook {_text(body, 'hook')} priority {priority}\n" + (
        f"devices = {{ {devices} }}\n}}" if devices else "}"
    )


_COMMANDS: Final[Mapping[str, Callable[[_Writer, str, dict[str, Any]], str]]] = MappingProxyType(
    {
        "table": _Writer.table, "chain": _Writer.chain, "rule": _Writer.rule, "set": _Writer.set, "map": _Writer.set,
        "element": _Writer.element, "flowtable": _flowtable,
    }
    | dict.fromkeys(_OBJECT_BODIES, _named_object)
)  # fmt: skip
