"""What writes each kind of expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from kproxy.netfilter.nftables.json.fields import (
    MalformedError,
    UnknownError,
    as_list,
    as_object,
    joined_names,
    number_field,
    quoted,
    text_field,
    word,
)
from kproxy.netfilter.nftables.json.stateful import STATEFUL
from kproxy.netfilter.nftables.json.writer import Writer


def _payload(writer: Writer, body: Any) -> str:
    body = as_object(body)
    if "base" in body:
        return f"@{text_field(body, 'base')},{number_field(body, 'offset')},{number_field(body, 'len')}"
    return f"{text_field(body, 'protocol')} {' '.join(word(part) for part in str(body.get('field', '')).split())}"


def _keyed(expression: str) -> Callable[[Writer, Any], str]:
    """`EXPRESSION [DIRECTION] [FAMILY] KEY`."""

    def write(writer: Writer, body: Any) -> str:
        body = as_object(body)
        parts = [expression, *(word(str(body[name])) for name in ("dir", "family") if name in body)]
        parts += [word(part) for part in str(body.get("key", "")).split()]
        return " ".join(parts) + (f" level {number_field(body, 'level')}" if "level" in body else "")

    return write


def _named(expression: str) -> Callable[[Writer, Any], str]:
    """`tcp option NAME FIELD` and its like."""

    def write(writer: Writer, body: Any) -> str:
        body = as_object(body)
        if "base" in body:
            raise UnknownError(expression)
        field = f" {text_field(body, 'field')}" if "field" in body else ""
        if expression == "exthdr":
            prefix = "" if field else "exthdr "
        else:
            prefix = f"{expression} "
        return f"{prefix}{text_field(body, 'name')}{field}"

    return write


def _fib(writer: Writer, body: Any) -> str:
    body = as_object(body)
    return f"fib {joined_names(body.get('flags'), ' . ')} {text_field(body, 'result')}"


def _offset(body: Mapping[str, Any]) -> str:
    offset = number_field(body, "offset", 0)
    return f" offset {offset}" if offset else ""


def _numgen(writer: Writer, body: Any) -> str:
    body = as_object(body)
    return f"numgen {text_field(body, 'mode')} mod {number_field(body, 'mod')}{_offset(body)}"


def _jhash(writer: Writer, body: Any) -> str:
    body = as_object(body)
    seed = f" seed {number_field(body, 'seed')}" if "seed" in body else ""
    return f"jhash {writer.value(body.get('expr'))} mod {number_field(body, 'mod')}{seed}{_offset(body)}"


def _symhash(writer: Writer, body: Any) -> str:
    body = as_object(body)
    return f"symhash mod {number_field(body, 'mod')}{_offset(body)}"


def _concat(writer: Writer, body: Any) -> str:
    return " . ".join(map(writer.value, as_list(body)))


def _set(writer: Writer, body: Any) -> str:
    return writer.elements(as_list(body))


def _map(writer: Writer, body: Any) -> str:
    body = as_object(body)
    return f"{writer.value(body.get('key'))} map {writer.value(body.get('data'))}"


def _prefix(writer: Writer, body: Any) -> str:
    body = as_object(body)
    return f"{writer.value(body.get('addr'))}/{number_field(body, 'len')}"


def _range(writer: Writer, body: Any) -> str:
    ends = as_list(body)
    if len(ends) != 2:
        raise MalformedError("the two ends of a range expected", ".range")
    return "-".join(map(writer.value, ends))


def _elem(writer: Writer, body: Any) -> str:
    body = as_object(body)
    text = writer.value(body.get("val"))
    for key in ("timeout", "expires"):
        if key in body:
            text += f" {key} {number_field(body, key)}s"
    if "comment" in body:
        text += f" comment {quoted(body['comment'])}"
    for key in ("counter", "limit", "quota", "last", "ct count"):
        if key in body:
            text += " " + STATEFUL[key](writer, body[key])
    return text


def _osf(writer: Writer, body: Any) -> str:
    body = as_object(body)
    ttl = f"ttl {text_field(body, 'ttl')} " if "ttl" in body else ""
    return f"osf {ttl}{text_field(body, 'key')}"


def _ipsec(writer: Writer, body: Any) -> str:
    body = as_object(body)
    family = f"{text_field(body, 'family')} " if "family" in body else ""
    return f"ipsec {text_field(body, 'dir')} spnum {number_field(body, 'spnum', 0)} {family}{text_field(body, 'key')}"


EXPRESSIONS: Final[Mapping[str, Callable[[Writer, Any], str]]] = MappingProxyType(
    {
        "payload": _payload, "meta": _keyed("meta"), "ct": _keyed("ct"), "rt": _keyed("rt"), "socket": _keyed("socket"),
        "exthdr": _named("exthdr"), "tcp option": _named("tcp option"), "ip option": _named("ip option"),
        "sctp chunk": _named("sctp chunk"), "fib": _fib, "numgen": _numgen, "jhash": _jhash, "symhash": _symhash,
        "concat": _concat, "set": _set, "map": _map, "prefix": _prefix, "range": _range, "elem": _elem, "osf": _osf,
        "ipsec": _ipsec,
    }
)  # fmt: skip
