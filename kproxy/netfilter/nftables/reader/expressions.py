"""Reading expressions: a dispatch on the first word, then the bitwise operators, concatenation and maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from kproxy.netfilter.nftables.bitwise import combine
from kproxy.netfilter.nftables.constant import UnknownNameError, atom_reader
from kproxy.netfilter.nftables.datatype import DATATYPES, INET_SERVICE, INTEGER, DataType, Form
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    AnonymousSet,
    Concat,
    Ct,
    Expression,
    ExtensionField,
    Fib,
    Ipsec,
    Jhash,
    MapLookup,
    Meta,
    Numgen,
    Osf,
    Payload,
    RawPayload,
    Rt,
    SetReference,
    Socket,
    Symhash,
)
from kproxy.netfilter.nftables.key import CT_KEYS, FIB_RESULTS, META_KEYS, RT_KEYS, SOCKET_KEYS
from kproxy.netfilter.nftables.lexer import END
from kproxy.netfilter.nftables.protocol import EXTENSION_HEADERS, HEADERS, Layer
from kproxy.netfilter.nftables.reader.cursor import Cursor, UnexpectedError
from kproxy.netfilter.nftables.reader.elements import read_elements, read_single, read_value
from kproxy.netfilter.nftables.typeof import type_of, types_of

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
_OPERATORS: Final = {
    "&": ("&", 3), "and": ("&", 3), "^": ("^", 2), "xor": ("^", 2), "|": ("|", 1), "or": ("|", 1), "<<": ("<<", 4),
    "lshift": ("<<", 4), ">>": (">>", 4), "rshift": (">>", 4),
}  # fmt: skip
_LAYERS: Final = {f"@{layer.value}": layer for layer in Layer}
_FIB_SELECTORS: Final = ("saddr", "daddr", "mark", "iif", "oif")
_CT_FAMILIES: Final = frozenset({"ip", "ip6"})


def _unknown(cursor: Cursor) -> UnknownNameError:
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
    raise _unknown(cursor)


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
        raise _unknown(cursor)
    cursor.i += 1
    field = cursor.peek()
    if field in header.fields:
        cursor.i += 1
        return ExtensionField(kind, name, field)
    if field in ("exists", "missing", "==", "!=", "0", "1"):
        return ExtensionField(kind, name)
    raise _unknown(cursor)


def _read_extension(cursor: Cursor) -> Expression:
    name = cursor.take()
    field = cursor.peek()
    if field not in EXTENSION_HEADERS["ip6", name].fields:
        raise _unknown(cursor)
    cursor.i += 1
    return ExtensionField("ip6", name, field)


def _read_exthdr(cursor: Cursor) -> Expression:
    cursor.i += 1
    if ("ip6", cursor.peek()) not in EXTENSION_HEADERS:
        raise _unknown(cursor)
    return ExtensionField("ip6", cursor.take())


_META: Final = {key: Meta(key) for key in META_KEYS}


def _read_meta(cursor: Cursor) -> Expression:
    cursor.i += 1
    key = cursor.peek()
    key = _META_ALIASES.get(key, key)
    if key not in _META:
        raise _unknown(cursor)
    cursor.i += 1
    return _META[key]


def _read_unqualified(cursor: Cursor) -> Expression:
    return _META[cursor.take()]


def _read_ct(cursor: Cursor) -> Expression:
    cursor.i += 1
    direction = cursor.take() if cursor.peek() in ("original", "reply") else None
    key = cursor.peek()
    if key in _CT_FAMILIES:
        cursor.i += 1
        key = f"{key} {cursor.peek()}"
    if key not in CT_KEYS:
        raise _unknown(cursor)
    cursor.i += 1
    if key in ("saddr", "daddr") and cursor.family.value in _CT_FAMILIES:
        key = f"{cursor.family.value} {key}"
    return Ct(key, direction)


def _read_rt(cursor: Cursor) -> Expression:
    if cursor.tokens[cursor.i + 1] in EXTENSION_HEADERS["ip6", "rt"].fields:
        return _read_extension(cursor)
    cursor.i += 1
    key = cursor.peek()
    if key in _CT_FAMILIES:
        cursor.i += 1
        key = f"{key} {cursor.peek()}"
    if key not in RT_KEYS:
        raise _unknown(cursor)
    cursor.i += 1
    if key == "nexthop" and cursor.family.value in _CT_FAMILIES:
        key = f"{cursor.family.value} {key}"
    return Rt(key)


def _read_socket(cursor: Cursor) -> Expression:
    cursor.i += 1
    key = cursor.peek()
    if key not in SOCKET_KEYS:
        raise _unknown(cursor)
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
            raise _unknown(cursor)
        cursor.i += 1
        following = cursor.peek()
        if following in ("==", "!=", "eq", "ne"):
            following = cursor.tokens[cursor.i + 1]
        check = following in ("exists", "missing", "0")  # there is no interface 0
    return Fib(tuple(name for name in _FIB_SELECTORS if name in selectors), result, check)


def _read_offset(cursor: Cursor) -> int:
    return cursor.number() if cursor.accept("offset") else 0


def _read_numgen(cursor: Cursor) -> Expression:
    cursor.i += 1
    mode = cursor.peek()
    if mode not in ("random", "inc"):
        cursor.fail("random or inc expected")
    cursor.i += 1
    return Numgen(mode, _read_modulus(cursor), _read_offset(cursor))


def _read_modulus(cursor: Cursor) -> int:
    cursor.expect("mod")
    modulus = cursor.number()
    if not 0 < modulus <= 0xFFFFFFFF:
        cursor.fail("a modulus from 1 on expected", cursor.i - 1)
    return modulus


def _read_jhash(cursor: Cursor) -> Expression:
    cursor.i += 1
    key = read_expression(cursor)
    modulus = _read_modulus(cursor)
    seed = cursor.number() if cursor.accept("seed") else None
    return Jhash(key, modulus, seed, _read_offset(cursor))


def _read_symhash(cursor: Cursor) -> Expression:
    cursor.i += 1
    return Symhash(_read_modulus(cursor), _read_offset(cursor))


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
    key = cursor.peek()
    if key in _CT_FAMILIES:
        cursor.i += 1
        key = f"{key} {cursor.peek()}"
    if key not in ("reqid", "spi", "ip saddr", "ip daddr", "ip6 saddr", "ip6 daddr"):
        raise _unknown(cursor)
    cursor.i += 1
    return Ipsec(direction, key, spnum)


def _read_raw(cursor: Cursor) -> Expression:
    layer = _LAYERS[cursor.take()]
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


_READERS: Final[Mapping[str, Callable[[Cursor], Expression]]] = MappingProxyType(
    dict.fromkeys(HEADERS, _read_payload)
    | dict.fromkeys(_UNQUALIFIED, _read_unqualified)
    | dict.fromkeys((name for kind, name in EXTENSION_HEADERS if kind == "ip6"), _read_extension)
    | dict.fromkeys(_LAYERS, _read_raw)
    | {
        "meta": _read_meta, "ct": _read_ct, "rt": _read_rt, "socket": _read_socket, "fib": _read_fib,
        "numgen": _read_numgen, "jhash": _read_jhash, "symhash": _read_symhash, "osf": _read_osf,
        "ipsec": _read_ipsec, "exthdr": _read_exthdr,
    }
)  # fmt: skip
"""The readers of expressions by the first word."""


def is_expression(token: str) -> bool:
    """Whether an expression that is no constant starts with this word."""
    return token in _READERS


def read_expression(cursor: Cursor) -> Expression:
    """An expression: several may be joined by `.`, and `map` may follow.

    Raises:
        UnexpectedError: something else stands there.
        UnknownNameError: a name is not known to kproxy.
    """
    left = read_key(cursor)
    return read_map(cursor, left) if cursor.peek() == "map" else left


def read_key(cursor: Cursor) -> Expression:
    """An expression without `map`."""
    left = _read_bitwise(cursor, INTEGER, 0)
    if cursor.peek() != ".":
        return left
    parts = [left]
    while cursor.accept("."):
        parts.append(_read_bitwise(cursor, INTEGER, 0))
    return Concat(tuple(parts))


def read_map(cursor: Cursor, key: Expression, data_types: Sequence[DataType] | None = None) -> Expression:
    """`map @name`, `map { ... }`; `data_types` are what the statement wants. Where it wants an address, the data may
    hold a port as well."""
    cursor.expect("map")
    name = cursor.set_reference()
    if name is not None:
        return MapLookup(key, SetReference(name))
    cursor.expect("{")
    types = types_of(key)
    data = tuple(data_types) if data_types else (INTEGER,)
    if len(data) == 1 and data[0].form in (Form.IPV4, Form.IPV6) and _data_is_concatenated(cursor):
        data = (*data, INET_SERVICE)
    return MapLookup(key, AnonymousMap(read_elements(cursor, types, data), types, data))


def _data_is_concatenated(cursor: Cursor) -> bool:
    tokens, index = cursor.tokens, cursor.i
    while tokens[index] not in (":", "}", END):
        index += 1
    return tokens[index] == ":" and tokens[index + 2] == "."


def _read_bitwise(cursor: Cursor, kind: DataType, level: int) -> Expression:
    """Operators that bind tighter than `level`; `kind` is the type of constants."""
    left = _read_primary(cursor, kind)
    while (found := _OPERATORS.get(cursor.peek())) is not None and found[1] > level:
        cursor.i += 1
        operator, binding = found
        if not isinstance(left, (int, str)):
            kind = type_of(left)
        shift = operator in ("<<", ">>")
        right = _read_bitwise(cursor, INTEGER if shift else kind, binding)
        left = combine(operator, left, right, kind.bits)
    return left


def _read_primary(cursor: Cursor, kind: DataType) -> Expression:
    token = cursor.peek()
    if token == "(":
        cursor.i += 1
        inner = _read_bitwise(cursor, kind, 0)
        cursor.expect(")")
        return inner
    reader = _READERS.get(token)
    if reader is not None and (kind is INTEGER or not _is_constant(token, kind)):
        return reader(cursor)
    if kind is INTEGER and not token[:1].isdigit():
        if token[:1].isalpha():
            raise _unknown(cursor)
        cursor.fail("an expression expected")
    index = cursor.i
    if not token or token in "{},;:.\n":
        cursor.fail("a value expected")
    try:
        number = atom_reader(kind)(token)
    except UnknownNameError:
        raise
    except ValueError as error:
        raise UnexpectedError(str(error), index) from None
    cursor.i += 1
    return number


def _is_constant(token: str, kind: DataType) -> bool:
    try:
        atom_reader(kind)(token)
    except ValueError:
        return False
    return True


def read_right(cursor: Cursor, left: Expression) -> Expression:
    """What stands on the right of a comparison: a constant of the left side's type, a set, a list of flags.

    Raises:
        UnexpectedError: something else stands there.
        UnknownNameError: a name is not known to kproxy.
    """
    token = cursor.peek()
    types = types_of(left)
    if token == "{":
        cursor.i += 1
        return AnonymousSet(read_elements(cursor, types), types)
    if token not in _LAYERS:
        name = cursor.set_reference()
        if name is not None:
            return SetReference(name)
    if len(types) > 1:
        return read_value(cursor, types)
    kind = types[0]
    if kind.form is Form.FLAGS:
        return _read_flags(cursor, kind)
    if token in _READERS and not _is_constant(token, kind) and kind.form is not Form.STRING:
        return _read_bitwise(cursor, kind, 0)
    if token == "(":
        return _read_bitwise(cursor, kind, 0)
    value = read_single(cursor, kind)
    if isinstance(value, int) and cursor.peek() in _OPERATORS:
        cursor.fail("a single value expected")
    return value


def _read_flags(cursor: Cursor, kind: DataType) -> int:
    if cursor.peek() == "(":
        number = _read_bitwise(cursor, kind, 0)
        if not isinstance(number, int):
            cursor.fail("a value expected")
        return number
    total = 0
    while True:
        value = read_single(cursor, kind)
        if not isinstance(value, int):
            cursor.fail(f"a value of type {kind.name} expected", cursor.i - 1)
        total |= value
        if not cursor.accept(","):
            return total


def read_flag_list(cursor: Cursor, kind: DataType) -> int:
    """Names of bits joined by commas. Raises UnexpectedError, UnknownNameError."""
    return _read_flags(cursor, kind)


def read_argument(cursor: Cursor, kind: DataType, *extra: DataType) -> Expression:
    """A constant of a type, or any expression that yields one: what `set`, `to` and element data take; with `extra`
    types a concatenation. Raises UnexpectedError, UnknownNameError."""
    token = cursor.peek()
    kinds = (kind, *extra)
    if kind.form is Form.STRING and token not in _READERS:
        return read_single(cursor, kind)
    if token == "(" or (token in _READERS and not _is_constant(token, kind)):
        left = read_key(cursor) if token != "(" else _read_bitwise(cursor, kind, 0)
        return read_map(cursor, left, kinds) if cursor.peek() == "map" else left
    if token.startswith("@") and len(token) > 1:
        cursor.fail("a value or an expression expected")
    if kind.form is Form.FLAGS:
        return _read_flags(cursor, kind)
    value: Expression = read_single(cursor, kind)
    while isinstance(value, int) and (found := _OPERATORS.get(cursor.peek())) is not None:
        cursor.i += 1
        value = combine(found[0], value, _read_bitwise(cursor, kind, found[1]), kind.bits)
    return value


ADDRESS_TYPES: Final = {"ip": DATATYPES["ipv4_addr"], "ip6": DATATYPES["ipv6_addr"]}
