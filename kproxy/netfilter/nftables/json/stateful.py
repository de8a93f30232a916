"""What writes stateful statements: counters, quotas, limits and their like, in rules, elements and named objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from kproxy.netfilter.nftables.json.fields import MalformedError, as_list, as_object, number_field, quoted, word
from kproxy.netfilter.nftables.json.writer import Writer

_UNITS: Final = frozenset({"bytes", "kbytes", "mbytes"})


def reference(name: str, anonymous: Callable[[Writer, dict[str, Any]], str] | None) -> Callable[[Writer, Any], str]:
    """A statement that is itself, or the name of an object, or a map of names."""

    def write(writer: Writer, body: Any) -> str:
        if isinstance(body, str):
            return f"{name} {quoted(body)}"
        if body is None:
            body = {}
        if isinstance(body, dict) and ("map" in body or anonymous is None):
            return f"{name} {writer.value(body)}"
        assert anonymous is not None
        return anonymous(writer, as_object(body))

    return write


def counter(writer: Writer, body: dict[str, Any]) -> str:
    return f"counter packets {number_field(body, 'packets', 0)} bytes {number_field(body, 'bytes', 0)}"


def _quota(writer: Writer, body: dict[str, Any]) -> str:
    over = "over " if body.get("inv") else ""
    text = f"quota {over}{number_field(body, 'val')} {_unit(body, 'val_unit')}"
    if "used" in body:
        text += f" used {number_field(body, 'used')} {_unit(body, 'used_unit')}"
    return text


def _unit(body: Mapping[str, Any], key: str) -> str:
    unit = body.get(key, "bytes")
    if unit not in _UNITS:
        raise MalformedError("bytes, kbytes or mbytes expected", f".{key}")
    return str(unit)


def limit(writer: Writer, body: dict[str, Any]) -> str:
    over = "over " if body.get("inv") else ""
    per = body.get("per", "second")
    rate = number_field(body, "rate")
    if body.get("rate_unit", "packets") == "packets":
        burst = f" burst {number_field(body, 'burst')} packets" if "burst" in body else ""
        return f"limit rate {over}{rate}/{word(str(per))}{burst}"
    burst = f" burst {number_field(body, 'burst')} {_unit(body, 'burst_unit')}" if "burst" in body else ""
    return f"limit rate {over}{rate} {_unit(body, 'rate_unit')}/{word(str(per))}{burst}"


def _ct_count(writer: Writer, body: Any) -> str:
    body = as_object(body)
    return f"ct count {'over ' if body.get('inv') else ''}{number_field(body, 'val')}"


def synproxy(writer: Writer, body: dict[str, Any]) -> str:
    text = "synproxy"
    for key in ("mss", "wscale"):
        if key in body:
            text += f" {key} {number_field(body, key)}"
    return " ".join([text, *(flag for flag in as_list(body.get("flags")) if flag in ("timestamp", "sack-perm"))])


def _last(writer: Writer, body: Any) -> str:
    used = body.get("used") if isinstance(body, dict) else None
    return f"last used {used}ms" if isinstance(used, int) and not isinstance(used, bool) and used >= 0 else "last"


STATEFUL: Final[Mapping[str, Callable[[Writer, Any], str]]] = MappingProxyType(
    {
        "counter": reference("counter name", counter), "quota": reference("quota name", _quota),
        "limit": reference("limit name", limit), "ct count": _ct_count, "last": _last,
        "synproxy": reference("synproxy name", synproxy),
    }
)  # fmt: skip
"""What rules hold; elements hold all but synproxies."""
