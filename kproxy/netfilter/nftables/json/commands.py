"""What writes each kind of object as a command that makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from kproxy.netfilter.nftables.json.fields import (
    as_integer,
    as_list,
    as_object,
    handle_comment,
    number_field,
    quoted,
    text_field,
    word,
)
from kproxy.netfilter.nftables.json.stateful import counter, limit, synproxy
from kproxy.netfilter.nftables.json.writer import Writer


def _header(kind: str, body: dict[str, Any]) -> str:
    name = " ".join(text_field(body, key) for key in ("family", "table", "name"))
    return f"add {kind} {name} {{{handle_comment(body)}"


def _named_object(writer: Writer, kind: str, body: dict[str, Any]) -> str:
    header = _header(kind, body)
    if "comment" in body:
        header += f"comment {quoted(body['comment'])}\n"
    return f"{header}{_OBJECT_BODIES[kind](writer, body)}\n}}"


def _quota_body(writer: Writer, body: dict[str, Any]) -> str:
    over = "over " if body.get("inv") else ""
    return f"{over}{number_field(body, 'bytes')} bytes used {number_field(body, 'used', 0)} bytes"


def _helper_body(writer: Writer, body: dict[str, Any]) -> str:
    return f"type {quoted(body.get('type'))} protocol {text_field(body, 'protocol')}\n{_l3proto(body)}"


def _timeout_body(writer: Writer, body: dict[str, Any]) -> str:
    policy = ", ".join(
        f"{word(state)} : {as_integer(time)}s" for state, time in as_object(body.get("policy", {})).items()
    )
    return f"protocol {text_field(body, 'protocol')}\n{_l3proto(body)}\npolicy = {{ {policy} }}"


def _expectation_body(writer: Writer, body: dict[str, Any]) -> str:
    lines = [f"protocol {text_field(body, 'protocol')}", f"dport {number_field(body, 'dport')}"]
    return "\n".join(
        [*lines, f"timeout {number_field(body, 'timeout')}ms", f"size {number_field(body, 'size')}", _l3proto(body)]
    )


def _l3proto(body: Mapping[str, Any]) -> str:
    return f"l3proto {text_field(body, 'l3proto')}" if "l3proto" in body else ""


_OBJECT_BODIES: Final[Mapping[str, Callable[[Writer, dict[str, Any]], str]]] = MappingProxyType(
    {
        "counter": lambda writer, body: counter(writer, body).removeprefix("counter "), "quota": _quota_body,
        "limit": lambda writer, body: limit(writer, body).removeprefix("limit "), "ct helper": _helper_body,
        "ct timeout": _timeout_body, "ct expectation": _expectation_body,
        "synproxy": lambda writer, body: synproxy(writer, body).removeprefix("synproxy").strip(),
        "secmark": lambda writer, body: quoted(body.get("context")),
    }
)  # fmt: skip


def _flowtable(writer: Writer, kind: str, body: dict[str, Any]) -> str:
    devices = ", ".join(quoted(name) for name in as_list(body.get("dev")))
    header = _header(kind, body)
    priority = as_integer(body.get("prio", 0))
    return f"{header}hook {text_field(body, 'hook')} priority {priority}\n" + (
        f"devices = {{ {devices} }}\n}}" if devices else "}"
    )


COMMANDS: Final[Mapping[str, Callable[[Writer, str, dict[str, Any]], str]]] = MappingProxyType(
    {
        "table": Writer.table, "chain": Writer.chain, "rule": Writer.rule, "set": Writer.set, "map": Writer.set,
        "element": Writer.element, "flowtable": _flowtable,
    }
    | dict.fromkeys(_OBJECT_BODIES, _named_object)
)  # fmt: skip
