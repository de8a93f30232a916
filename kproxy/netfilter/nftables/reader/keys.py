"""Reading what is asked of a packet, its connection or the host: fields of headers, keys of meta, ct and the like."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final

from kproxy.netfilter.nftables.constant import UnknownNameError
from kproxy.netfilter.nftables.expression import (
    Ct,
    Expression,
    ExtensionField,
    Fib,
    Ipsec,
    Meta,
    Numgen,
    Osf,
    Payload,
    RawPayload,
    Rt,
    Socket,
    Symhash,
)
from kproxy.netfilter.nftables.key import CT_KEYS, FIB_RESULTS, IPSEC_KEYS, META_KEYS, RT_KEYS, SOCKET_KEYS
from kproxy.netfilter.nftables.protocol import EXTENSION_HEADERS, HEADERS, Layer
from kproxy.netfilter.nftables.reader.cursor import Cursor

_UNQUALIFIED: Final = frozenset(
    {
        "mark", "iif", "iifname", "iiftype", "oif", "oifname", "oiftype", "skuid", "skgid", "nftrace", "rtclassid",
        "pkttype", "cpu", "iifgroup", "oifgroup", "cgroup", "ibrname", "obrname", "time", "day", "hour",
    }
)  # fmt: skip
"""Keys of meta that may stand without `meta`."""

_META_ALIASES: Final = {
    "ibriport": "ibrname", "obriport": "obrname", "ibriifname": "ibrname", "obrifname": "obrname",
    "ibridgename": "ibrname", "secpath": "ipsec", "iftype": "iiftype",
}  # fmt: skip
LAYERS: Final = {f"@{layer.value}": layer for layer in Layer}
_FIB_SELECTORS: Final = ("saddr", "daddr", "mark", "iif", "oif")
_FAMILIES: Final = frozenset({"ip", "ip6"})


def unknown_name(cursor: Cursor) -> UnknownNameError:
    """The error for the word that comes next."""
    return UnknownNameError(f"{cursor.peek()!r} is not known")


def _read_payload(cursor: Cursor) -> Expression:
    protocol = cursor.take()
    fields = HEADERS[protocol].fields
    field = cursor.peek()
    if protocol == "arp" and f"{field} {cursor.tokens[cursor.i + 1]}" in fields:
        cursor.i += 1
        field = f"{field} {cursor.peek()}"
    if field in fields:
        cursor.i += 1
        return _payload(protocol, field)
    if protocol == "ip" and field == "option":
        return _read_option(cursor, "ip")
    if protocol == "tcp" and field == "option":
        return _read_option(cursor, "tcp")
    if protocol == "sctp" and field == "chunk":
        return _read_option(cursor, "sctp")
    raise unknown_name(cursor)


_PAYLOADS: Final = {
    (header.name, name): Payload(header.name, name) for header in HEADERS.values() for name in header.fields
}


def _payload(protocol: str, field: str) -> Payload:
    return _PAYLOADS[protocol, field]


_OPTION_ALIASES: Final = {"sack0": "sack", "sack-permitted": "sack-perm", "noop": "nop"}


def _read_option(cursor: Cursor, kind: str) -> Expression:
    cursor.i += 1
    name = cursor.peek()
    name = _OPTION_ALIASES.get(name, name) if kind == "tcp" else name
    header = EXTENSION_HEADERS.get((kind, name))
    if header is None:
        raise unknown_name(cursor)
    cursor.i += 1
    field = cursor.peek()
    if field in header.fields:
        cursor.i += 1
        return ExtensionField(kind, name, field)
    if field in ("exists", "missing", "==", "!=", "0", "1"):
        return ExtensionField(kind, name)
    raise unknown_name(cursor)


def _read_extension(cursor: Cursor) -> Expression:
    name = cursor.take()
    field = cursor.peek()
    if field not in EXTENSION_HEADERS["ip6", name].fields:
        raise unknown_name(cursor)
    cursor.i += 1
    return ExtensionField("ip6", name, field)


def _read_exthdr(cursor: Cursor) -> Expression:
    cursor.i += 1
    if ("ip6", cursor.peek()) not in EXTENSION_HEADERS:
        raise unknown_name(cursor)
    return ExtensionField("ip6", cursor.take())


_META: Final = {key: Meta(key) for key in META_KEYS}


def _read_meta(cursor: Cursor) -> Expression:
    cursor.i += 1
    key = cursor.peek()
    key = _META_ALIASES.get(key, key)
    if key not in _META:
        raise unknown_name(cursor)
    cursor.i += 1
    return _META[key]


def _read_unqualified(cursor: Cursor) -> Expression:
    return _META[cursor.take()]


def _take_key(cursor: Cursor, known: Collection[str]) -> str:
    """A key, which may have a family in front: `ip saddr`."""
    key = cursor.peek()
    if key in _FAMILIES:
        cursor.i += 1
        key = f"{key} {cursor.peek()}"
    if key not in known:
        raise unknown_name(cursor)
    cursor.i += 1
    return key


def _read_ct(cursor: Cursor) -> Expression:
    cursor.i += 1
    direction = cursor.take() if cursor.peek() in ("original", "reply") else None
    key = _take_key(cursor, CT_KEYS)
    if key in ("saddr", "daddr") and cursor.family.value in _FAMILIES:
        key = f"{cursor.family.value} {key}"
    return Ct(key, direction)


def _read_rt(cursor: Cursor) -> Expression:
    if cursor.tokens[cursor.i + 1] in EXTENSION_HEADERS["ip6", "rt"].fields:
        return _read_extension(cursor)
    cursor.i += 1
    key = _take_key(cursor, RT_KEYS)
    if key == "nexthop" and cursor.family.value in _FAMILIES:
        key = f"{cursor.family.value} {key}"
    return Rt(key)


def _read_socket(cursor: Cursor) -> Expression:
    cursor.i += 1
    key = cursor.peek()
    if key not in SOCKET_KEYS:
        raise unknown_name(cursor)
    cursor.i += 1
    if key == "cgroupv2":
        cursor.expect("level")
        return Socket(key, cursor.number())
    return Socket(key)


def _read_fib(cursor: Cursor) -> Expression:
    cursor.i += 1
    selectors = []
    while True:
        if cursor.peek() not in _FIB_SELECTORS:
            cursor.fail("saddr, daddr, mark, iif or oif expected")
        selectors.append(cursor.take())
        if not cursor.accept("."):
            break
    result = cursor.peek()
    if result == "check":
        cursor.i += 1
        result, check = "oif", True
    else:
        if result not in FIB_RESULTS:
            raise unknown_name(cursor)
        cursor.i += 1
        following = cursor.peek()
        if following in ("==", "!=", "eq", "ne"):
            following = cursor.tokens[cursor.i + 1]
        check = following in ("exists", "missing", "0")  # there is no interface 0
    return Fib(tuple(name for name in _FIB_SELECTORS if name in selectors), result, check)


def read_offset(cursor: Cursor) -> int:
    """`[offset N]`, of a random number or a hash."""
    return cursor.number() if cursor.accept("offset") else 0


def _read_numgen(cursor: Cursor) -> Expression:
    cursor.i += 1
    mode = cursor.peek()
    if mode not in ("random", "inc"):
        cursor.fail("random or inc expected")
    cursor.i += 1
    return Numgen(mode, read_modulus(cursor), read_offset(cursor))


def read_modulus(cursor: Cursor) -> int:
    """`mod N`. Raises UnexpectedError."""
    cursor.expect("mod")
    modulus = cursor.number()
    if not 0 < modulus <= 0xFFFFFFFF:
        cursor.fail("a modulus from 1 on expected", cursor.i - 1)
    return modulus


def _read_symhash(cursor: Cursor) -> Expression:
    cursor.i += 1
    return Symhash(read_modulus(cursor), read_offset(cursor))


def _read_osf(cursor: Cursor) -> Expression:
    cursor.i += 1
    ttl = None
    if cursor.accept("ttl"):
        if cursor.peek() not in ("loose", "skip"):
            cursor.fail("loose or skip expected")
        ttl = cursor.take()
    if cursor.peek() not in ("name", "version"):
        cursor.fail("name or version expected")
    return Osf(cursor.take(), ttl)


def _read_ipsec(cursor: Cursor) -> Expression:
    cursor.i += 1
    if cursor.peek() not in ("in", "out"):
        cursor.fail("in or out expected")
    direction = cursor.take()
    spnum = cursor.number() if cursor.accept("spnum") else 0
    return Ipsec(direction, _take_key(cursor, IPSEC_KEYS), spnum)


def _read_raw(cursor: Cursor) -> Expression:
    layer = LAYERS[cursor.take()]
    cursor.expect(",")
    offset = cursor.number()
    cursor.expect(",")
    bits = cursor.number()
    if not 0 < bits <= 1024 or offset > 1 << 20:
        cursor.fail("a width from 1 to 1024 bits expected", cursor.i - 1)
    return _TRANSPORT_PORTS.get((layer, offset, bits)) or RawPayload(layer, offset, bits)


_TRANSPORT_PORTS: Final = {
    (Layer.TRANSPORT, row.offset, row.bits): Payload("th", row.name) for row in HEADERS["th"].fields.values()
}
"""What the kernel's lister shows in place of the ports' bits."""


KEYS: Final[Mapping[str, Callable[[Cursor], Expression]]] = MappingProxyType(
    dict.fromkeys(HEADERS, _read_payload)
    | dict.fromkeys(_UNQUALIFIED, _read_unqualified)
    | dict.fromkeys((name for kind, name in EXTENSION_HEADERS if kind == "ip6"), _read_extension)
    | dict.fromkeys(LAYERS, _read_raw)
    | {
        "meta": _read_meta, "ct": _read_ct, "rt": _read_rt, "socket": _read_socket, "fib": _read_fib,
        "numgen": _read_numgen, "symhash": _read_symhash, "osf": _read_osf,
        "ipsec": _read_ipsec, "exthdr": _read_exthdr,
    }
)  # fmt: skip
"""The readers of keys by the first word."""
