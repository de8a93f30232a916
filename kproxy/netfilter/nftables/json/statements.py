"""What writes each kind of statement; one without an entry here or in `stateful` stays opaque."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from kproxy.netfilter.nftables.json.fields import (
    WORD,
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
from kproxy.netfilter.nftables.json.stateful import STATEFUL, reference
from kproxy.netfilter.nftables.json.writer import Writer


def _match(writer: Writer, body: Any) -> str:
    body = as_object(body)
    operator, right = body.get("op"), body.get("right")
    if operator not in ("==", "!=", "<", ">", "<=", ">=", "in", "!"):
        raise MalformedError("an operator expected", ".op")
    for key in ("left", "right"):
        if key not in body:
            raise MalformedError(f"{key} expected")
    sign = "" if operator == "in" else f"{operator} "
    return f"{writer.value(body['left'])} {sign}{writer.value(right)}"


def _mangle(writer: Writer, body: Any) -> str:
    body = as_object(body)
    return f"{writer.value(body.get('key'))} set {writer.value(body.get('value'))}"


def _vmap(writer: Writer, body: Any) -> str:
    body = as_object(body)
    return f"{writer.value(body.get('key'))} vmap {writer.value(body.get('data'))}"


def _verdict(kind: str) -> Callable[[Writer, Any], str]:
    return lambda writer, body: kind


def _jump(kind: str) -> Callable[[Writer, Any], str]:
    return lambda writer, body: f"{kind} {text_field(as_object(body), 'target')}"


def _log(writer: Writer, body: Any) -> str:
    body = as_object(body or {})
    text = "log"
    if "prefix" in body:
        text += f" prefix {quoted(body['prefix'])}"
    for key in ("group", "snaplen", "queue-threshold"):
        if key in body:
            text += f" {key} {number_field(body, key)}"
    if "level" in body:
        text += f" level {text_field(body, 'level')}"
    for flag in as_list(body.get("flags")):
        text += f" flags {' '.join(word(part) for part in str(flag).split())}"
    return text


def _nat(kind: str) -> Callable[[Writer, Any], str]:
    def write(writer: Writer, body: Any) -> str:
        body = as_object(body or {})
        family = body.get("family")
        parts = [kind]
        if family is not None:
            parts.append(text_field(body, "family"))
        types = as_list(body.get("type_flags"))
        flags = as_list(body.get("flags"))
        if "prefix" in types:
            parts.append("prefix")
            flags = [flag for flag in flags if flag != "netmap"]
        elif "interval" in types and "addr" in body:
            parts.append("interval")
        target = _target(writer, body)
        if target:
            parts += ["to", target]
        if flags:
            parts.append(joined_names(flags))
        return " ".join(parts)

    return write


def _target(writer: Writer, body: Mapping[str, Any]) -> str:
    text = ""
    address = body.get("addr")
    if address is not None:
        text = writer.value(address)
        if ":" in text and not (isinstance(address, dict) and "range" not in address):
            text = "-".join(f"[{part}]" for part in text.split("-"))
    if "port" in body:
        text += f"{' ' if text.endswith(('}', ']')) else ''}:{writer.value(body['port'])}"
    return text


def _reject(writer: Writer, body: Any) -> str:
    if not body:
        return "reject"
    body = as_object(body)
    code = f" {writer.value(body['expr'])}" if "expr" in body else ""
    return f"reject with {body.get('type', '')}{code}" if body.get("type") in _REJECTS else "reject"


_REJECTS: Final = frozenset({"tcp reset", "icmp", "icmpv6", "icmpx"})


def _queue(writer: Writer, body: Any) -> str:
    body = as_object(body or {})
    flags = f" flags {joined_names(body['flags'])}" if body.get("flags") else ""
    return f"queue{flags}" + (f" to {writer.value(body['num'])}" if "num" in body else "")


def _set_update(writer: Writer, body: Any) -> str:
    body = as_object(body)
    name = body.get("set", body.get("map"))
    if not isinstance(name, str) or name[:1] != "@" or not WORD.fullmatch(name[1:]):
        raise MalformedError("@ and the name of a set expected", ".set")
    if body.get("op") not in ("add", "update", "delete"):
        raise MalformedError("add, update or delete expected", ".op")
    text = f"{body['op']} {name} {{ {writer.value(body.get('elem'))}"
    for item in as_list(body.get("stmt")):
        text += " " + writer.statement(item)
    if "data" in body:
        text += f" : {writer.value(body['data'])}"
    return text + " }"


def _tproxy(writer: Writer, body: Any) -> str:
    body = as_object(body)
    family = f" {text_field(body, 'family')}" if "family" in body else ""
    return f"tproxy{family} to {_target(writer, body)}"


def _dup(writer: Writer, body: Any) -> str:
    body = as_object(body)
    if "addr" not in body:
        return f"dup to {quoted(body.get('dev'))}"
    device = f" device {writer.value(body['dev'])}" if "dev" in body else ""
    return f"dup to {writer.value(body['addr'])}{device}"


def _fwd(writer: Writer, body: Any) -> str:
    body = as_object(body)
    device = writer.value(body.get("dev"))
    if "addr" not in body:
        return f"fwd to {device}"
    return f"fwd {text_field(body, 'family')} to {writer.value(body['addr'])} device {device}"


def _flow(writer: Writer, body: Any) -> str:
    name = as_object(body).get("flowtable")
    if not isinstance(name, str) or not WORD.fullmatch(name[1:]):
        raise MalformedError("@ and the name of a flowtable expected", ".flowtable")
    return f"flow add {name}"


def _reset(writer: Writer, body: Any) -> str:
    option = as_object(as_object(body).get("tcp option"))
    if "base" in option:
        raise UnknownError("tcp option")
    return f"reset tcp option {text_field(option, 'name')}"


def _xt(writer: Writer, body: Any) -> str:
    body = as_object(body)
    if body.get("type") not in ("match", "target", "watcher"):
        raise MalformedError("match or target expected", ".type")
    return f"xt {body['type']} {text_field(body, 'name')}"


STATEMENTS: Final[Mapping[str, Callable[[Writer, Any], str]]] = MappingProxyType(
    {kind: _verdict(kind) for kind in ("accept", "drop", "continue", "return", "notrack")}
    | {kind: _jump(kind) for kind in ("jump", "goto")}
    | {kind: _nat(kind) for kind in ("snat", "dnat", "masquerade", "redirect")}
    | {
        "match": _match, "mangle": _mangle, "vmap": _vmap, "ct helper": reference("ct helper set", None),
        "ct timeout": reference("ct timeout set", None), "ct expectation": reference("ct expectation set", None),
        "log": _log, "reject": _reject, "queue": _queue, "set": _set_update, "map": _set_update,
        "tproxy": _tproxy, "dup": _dup, "fwd": _fwd, "flow": _flow, "reset": _reset, "xt": _xt,
    }
    | dict(STATEFUL)
)  # fmt: skip
