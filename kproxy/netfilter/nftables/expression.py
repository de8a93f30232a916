"""Expressions: what a rule asks of the packet and of the host, and how it computes with the answer.

An expression is a frozen value; constants (numbers, names, ranges: `value.py`) are expressions as well. Sets and maps
are named (`SetReference`) or written out in the rule (`AnonymousSet`, `AnonymousMap`). A packet that has no answer (no
such header, no socket) ends the rule: nothing after it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, get_args

from kproxy.netfilter.nftables.constant import UnknownNameError
from kproxy.netfilter.nftables.cursor import Cursor
from kproxy.netfilter.nftables.datatype import BOOLEAN, DATATYPES, INTEGER, STRING, DataType
from kproxy.netfilter.nftables.element import Elements
from kproxy.netfilter.nftables.grammar import NUMBER, Codec, Grammar, Own, Row, one_of, reader_of
from kproxy.netfilter.nftables.key import (
    BARE_META,
    CT_KEYS,
    FIB_RESULTS,
    IPSEC_KEYS,
    META_ALIASES,
    META_KEYS,
    RT_KEYS,
    SHORT_META,
    SOCKET_KEYS,
)
from kproxy.netfilter.nftables.protocol import EXTENSION_HEADERS, HEADERS, HeaderField, Layer
from kproxy.netfilter.nftables.style import Scope
from kproxy.netfilter.nftables.value import Value

K = TypeVar("K")
T = TypeVar("T")

_FAMILIES: Final = frozenset({"ip", "ip6"})


def unknown_name(cursor: Cursor) -> UnknownNameError:
    """The error for the word that comes next."""
    return UnknownNameError(f"{cursor.peek()!r} is not known")


def _take(cursor: Cursor, known: Mapping[K, T], word: K) -> T:
    """What a table has for the next word, which the reader may know by another name. Raises UnknownNameError."""
    found = known.get(word)
    if found is None:
        raise unknown_name(cursor)
    cursor.i += 1
    return found


def _key_of(known: Mapping[str, DataType]) -> Codec:
    """A key of a table, which may have a family in front, `ip saddr`; in a table of one family that goes without
    saying."""

    def read(cursor: Cursor) -> str:
        key = cursor.peek()
        if key in _FAMILIES:
            cursor.i += 1
            key = f"{key} {cursor.peek()}"
        _take(cursor, known, key)
        full = f"{cursor.family} {key}"
        return full if full in known and cursor.family in _FAMILIES else key

    return Codec(read)


@dataclass(frozen=True, slots=True)
class Payload:
    """A field of a header: `ip saddr`, `tcp dport`, `th dport`, `arp saddr ip`. It also wants the packet to be of that
    protocol. `HEADERS` knows the field."""

    protocol: str
    field: str

    @property
    def layer(self) -> Layer:
        """Where the offset counts from."""
        return HEADERS[self.protocol].layer

    @property
    def row(self) -> HeaderField:
        """The field's offset, width and type."""
        return HEADERS[self.protocol].fields[self.field]


@dataclass(frozen=True, slots=True)
class RawPayload:
    """`@nh,96,32`: `bits` bits from the bit `offset` of a layer, a number in network order."""

    layer: Layer
    offset: int
    bits: int


@dataclass(frozen=True, slots=True)
class ExtensionField:
    """A field of an IPv6 extension header or of a TCP option: `tcp option maxseg size`, `frag more-fragments`; `kind`
    is `ip6` or `tcp option`. Without a field it asks whether the header is there (1) or not (0)."""

    kind: str
    header: str
    field: str | None = None

    @property
    def row(self) -> HeaderField | None:
        """The field's offset, width and type, or None without a field."""
        return None if self.field is None else EXTENSION_HEADERS[self.kind, self.header][self.field]


@dataclass(frozen=True, slots=True)
class Meta:
    """`meta KEY`, such as `meta mark` or `iifname`: what the kernel keeps beside the packet (`META_KEYS`)."""

    key: str


@dataclass(frozen=True, slots=True)
class Ct:
    """`ct [DIRECTION] KEY`: what the packet's connection has (`CT_KEYS`); `direction` is original, reply or None."""

    key: str
    direction: str | None = None

    GRAMMAR: ClassVar = Grammar(
        "ct",
        Row("", "direction", Codec(lambda cursor: cursor.take() if cursor.peek() in ("original", "reply") else None)),
        Row("", "key", _key_of(CT_KEYS)),
    )


@dataclass(frozen=True, slots=True)
class Rt:
    """`rt KEY`: what the packet's route has (`RT_KEYS`)."""

    key: str

    GRAMMAR: ClassVar = Grammar("rt", Row("", "key", _key_of(RT_KEYS)))


def _read_level(cursor: Cursor, values: dict[str, Any]) -> None:
    if values["key"] == "cgroupv2":
        cursor.expect("level")
        values["level"] = cursor.number()


def _level_text(item: Socket, _scope: Scope) -> str:
    return "" if item.level is None else f"level {item.level}"


@dataclass(frozen=True, slots=True)
class Socket:
    """`socket KEY`: what the local socket that would get the packet has (`SOCKET_KEYS`). `level` goes with
    `cgroupv2`."""

    key: str
    level: int | None = None

    GRAMMAR: ClassVar = Grammar("socket", Row("", "key", _key_of(SOCKET_KEYS)), Own(_read_level, _level_text))


_FIB_SELECTORS: Final = ("saddr", "daddr", "mark", "iif", "oif")
_FIB_SELECTOR: Final = one_of("saddr, daddr, mark, iif or oif expected", *_FIB_SELECTORS)


def _read_fib(cursor: Cursor, values: dict[str, Any]) -> None:
    selectors = [_FIB_SELECTOR.read(cursor)]
    while cursor.accept("."):
        selectors.append(_FIB_SELECTOR.read(cursor))
    if cursor.accept("check"):
        result, check = "oif", True
    else:
        result = cursor.peek()
        _take(cursor, FIB_RESULTS, result)
        following = cursor.peek()
        if following in ("==", "!=", "eq", "ne"):
            following = cursor.tokens[cursor.i + 1]
        check = following in ("exists", "missing", "0")  # there is no interface 0
    ordered = tuple(name for name in _FIB_SELECTORS if name in selectors)
    values |= {"selectors": ordered, "result": result, "check": check}


def _fib_text(item: Fib, _scope: Scope) -> str:
    return f"{' . '.join(item.selectors)} {item.result}"


@dataclass(frozen=True, slots=True)
class Fib:
    """`fib SELECTORS RESULT`: a look-up in the routing tables.

    `selectors` are some of saddr or daddr, mark, iif, oif, in nft's order. `result` is oif, oifname or type. With
    `check` the answer is only whether there is a route (1) or not (0): `fib saddr . iif oif missing`.
    """

    selectors: tuple[str, ...]
    result: str
    check: bool = False

    GRAMMAR: ClassVar = Grammar("fib", Own(_read_fib, _fib_text))


def _read_modulus(cursor: Cursor) -> int:
    modulus = cursor.number()
    if not 0 < modulus <= 0xFFFFFFFF:
        cursor.fail("a modulus from 1 on expected", cursor.i - 1)
    return modulus


_MODULUS: Final = Row("mod", "modulus", Codec(_read_modulus), required=True)
_OFFSET: Final = Row("offset", "offset", NUMBER, omit=0)
_SEED: Final = Codec(NUMBER.read, lambda value, scope: f"0x{value:x}")


@dataclass(frozen=True, slots=True)
class Numgen:
    """`numgen random mod 3`, `numgen inc mod 3 offset 1`: a number from `offset` to `offset + modulus - 1`, random or
    counting up with each packet that comes by."""

    mode: str
    modulus: int
    offset: int = 0

    GRAMMAR: ClassVar = Grammar(
        "numgen", Row("", "mode", one_of("random or inc expected", "random", "inc")), _MODULUS, _OFFSET
    )


@dataclass(frozen=True, slots=True)
class Jhash:
    """`jhash EXPRESSION mod N [seed S] [offset O]`: a hash of the expression's value, below `modulus`, plus `offset`.
    Without a seed the kernel chose one when the rule was loaded."""

    key: Expression
    modulus: int
    seed: int | None = None
    offset: int = 0

    GRAMMAR: ClassVar = Grammar("jhash", _MODULUS, Row("seed", "seed", _SEED), _OFFSET)
    """Behind the key."""


@dataclass(frozen=True, slots=True)
class Symhash:
    """`symhash mod N [offset O]`: a hash of the packet's flow, the same in both directions."""

    modulus: int
    offset: int = 0

    GRAMMAR: ClassVar = Grammar("symhash", _MODULUS, _OFFSET)


@dataclass(frozen=True, slots=True)
class Osf:
    """`osf [ttl loose|skip] name|version`: the operating system that sent the packet, guessed from its SYN."""

    key: str
    ttl: str | None = None

    GRAMMAR: ClassVar = Grammar(
        "osf",
        Row("ttl", "ttl", one_of("loose or skip expected", "loose", "skip")),
        Row("", "key", one_of("name or version expected", "name", "version")),
    )


@dataclass(frozen=True, slots=True)
class Ipsec:
    """`ipsec in|out [spnum N] KEY`: of the packet's transformation; KEY is reqid, spi, `ip saddr`, `ip6 daddr` and so
    on."""

    direction: str
    key: str
    spnum: int = 0

    GRAMMAR: ClassVar = Grammar(
        "ipsec",
        Row("", "direction", one_of("in or out expected", "in", "out")),
        Row("spnum", "spnum", NUMBER, omit=0),
        Row("", "key", _key_of(IPSEC_KEYS)),
    )


@dataclass(frozen=True, slots=True)
class Binary:
    """Two numbers joined bit by bit: `operator` is one of `&`, `|`, `^`, `<<`, `>>`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Concat:
    """`ip daddr . meta l4proto . th dport`: several values as one key. A constant concatenation is a tuple."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class SetReference:
    """`@name`: a set or map of the rule's table."""

    name: str


@dataclass(frozen=True, slots=True)
class AnonymousSet:
    """`{ 22, 80, 443 }`. `types` are the data types of the key's parts, one unless it is a concatenation."""

    elements: Elements
    types: tuple[DataType, ...] = ()


@dataclass(frozen=True, slots=True)
class AnonymousMap:
    """`{ 0 : 10.0.0.1 . 80, 1 : 10.0.0.2 . 80 }`; in a `vmap` the data are verdicts. `types` and `data_types` are those
    of the parts of key and data."""

    elements: Elements
    types: tuple[DataType, ...] = ()
    data_types: tuple[DataType, ...] = ()


@dataclass(frozen=True, slots=True)
class MapLookup:
    """`KEY map @name`, `KEY map { ... }`: the data of the element that holds the key's value. Without such an element
    the rule ends."""

    key: Expression
    map: SetReference | AnonymousMap


Expression: TypeAlias = (
    Value
    | Payload | RawPayload | ExtensionField | Meta | Ct | Rt | Socket | Fib | Numgen | Jhash | Symhash | Osf | Ipsec
    | Binary | Concat | MapLookup | SetReference | AnonymousSet | AnonymousMap
)  # fmt: skip
"""Everything that can stand in an expression."""


_UINT32: Final = INTEGER.sized(32)
_TYPES: Final[Mapping[type, Callable[[Any], DataType]]] = {
    Payload: lambda item: item.row.type,
    Meta: lambda item: META_KEYS[item.key],
    Ct: lambda item: CT_KEYS[item.key],
    ExtensionField: lambda item: BOOLEAN if item.field is None else item.row.type,
    Fib: lambda item: BOOLEAN if item.check else FIB_RESULTS[item.result],
    Rt: lambda item: RT_KEYS[item.key],
    Socket: lambda item: SOCKET_KEYS[item.key],
    RawPayload: lambda item: INTEGER.sized(item.bits),
    Numgen: lambda item: _UINT32,
    Jhash: lambda item: _UINT32,
    Symhash: lambda item: _UINT32,
    Ipsec: lambda item: IPSEC_KEYS[item.key],
    Osf: lambda item: DATATYPES["osf_name"] if item.key == "name" else STRING,
    Binary: lambda item: type_of(item.left),
    MapLookup: lambda item: next(iter(_data_types(item)), INTEGER),
}
"""What says the data type of an expression; of those that are not here the expression alone does not."""


def _data_types(item: MapLookup) -> tuple[DataType, ...]:
    return item.map.data_types if isinstance(item.map, AnonymousMap) else (INTEGER,)


def type_of(expression: Expression) -> DataType:
    """The data type of an expression that is no concatenation; `integer` where the expression alone does not say it."""
    found = _TYPES.get(type(expression))
    return INTEGER if found is None else found(expression)


def types_of(expression: Expression) -> tuple[DataType, ...]:
    """The data types of an expression's parts: one, or those of a concatenation."""
    if isinstance(expression, Concat):
        return tuple(type_of(part) for part in expression.parts)
    if isinstance(expression, MapLookup):
        return _data_types(expression)
    return (type_of(expression),)


_META: Final = {key: Meta(key) for key in META_KEYS}
_PAYLOADS: Final = {
    (header.name, name): Payload(header.name, name) for header in HEADERS.values() for name in header.fields
}
_TRANSPORT_PORTS: Final = {
    (Layer.TRANSPORT, row.offset, row.bits): Payload("th", row.name) for row in HEADERS["th"].fields.values()
}
"""What the kernel's lister shows in place of the ports' bits."""
_OPTION_ALIASES: Final = {"sack0": "sack", "sack-permitted": "sack-perm", "noop": "nop"}
LAYERS: Final = {f"@{layer.value}": layer for layer in Layer}


def _read_payload(cursor: Cursor) -> Expression:
    protocol = cursor.take()
    fields = HEADERS[protocol].fields
    field = cursor.peek()
    if protocol == "arp" and f"{field} {cursor.tokens[cursor.i + 1]}" in fields:
        cursor.i += 1
        field = f"{field} {cursor.peek()}"
    if field in fields:
        cursor.i += 1
        return _PAYLOADS[protocol, field]
    if (protocol, field) == ("tcp", "option"):
        return _read_option(cursor)
    raise unknown_name(cursor)


def _read_option(cursor: Cursor) -> Expression:
    cursor.i += 1
    name = _OPTION_ALIASES.get(cursor.peek(), cursor.peek())
    fields = _take(cursor, EXTENSION_HEADERS, ("tcp option", name))
    field = cursor.peek()
    if field in fields:
        cursor.i += 1
        return ExtensionField("tcp option", name, field)
    if field in ("exists", "missing", "==", "!=", "0", "1"):
        return ExtensionField("tcp option", name)
    raise unknown_name(cursor)


def _read_extension(cursor: Cursor) -> Expression:
    name = cursor.take()
    return ExtensionField("ip6", name, _take(cursor, EXTENSION_HEADERS["ip6", name], cursor.peek()).name)


def _read_exthdr(cursor: Cursor) -> Expression:
    cursor.i += 1
    name = cursor.peek()
    _take(cursor, EXTENSION_HEADERS, ("ip6", name))
    return ExtensionField("ip6", name)


def _extension_text(item: ExtensionField, _scope: Scope) -> str:
    if item.kind == "ip6":
        return f"exthdr {item.header}" if item.field is None else f"{item.header} {item.field}"
    return f"tcp option {item.header}{'' if item.field is None else f' {item.field}'}"


def _read_meta(cursor: Cursor) -> Expression:
    cursor.i += 1
    key = cursor.peek()
    return _take(cursor, _META, META_ALIASES.get(key, key))


def _read_rt(cursor: Cursor) -> Expression:
    if cursor.tokens[cursor.i + 1] in EXTENSION_HEADERS["ip6", "rt"]:
        return _read_extension(cursor)
    return Rt(**Rt.GRAMMAR.read(cursor))


def _read_raw(cursor: Cursor) -> Expression:
    layer = LAYERS[cursor.take()]
    cursor.expect(",")
    offset = cursor.number()
    cursor.expect(",")
    bits = cursor.number()
    if not 0 < bits <= 1024 or offset > 1 << 20:
        cursor.fail("a width from 1 to 1024 bits expected", cursor.i - 1)
    return _TRANSPORT_PORTS.get((layer, offset, bits)) or RawPayload(layer, offset, bits)


_BY_GRAMMAR: Final = tuple(kind for kind in get_args(Expression) if hasattr(kind, "GRAMMAR") and kind is not Jhash)

KEY_READERS: Final[Mapping[str, Callable[[Cursor], Expression]]] = MappingProxyType(
    dict.fromkeys(HEADERS, _read_payload)
    | dict.fromkeys(BARE_META, lambda cursor: _META[cursor.take()])
    | dict.fromkeys((name for kind, name in EXTENSION_HEADERS if kind == "ip6"), _read_extension)
    | dict.fromkeys(LAYERS, _read_raw)
    | {kind.GRAMMAR.head: reader_of(kind) for kind in _BY_GRAMMAR}
    | {"meta": _read_meta, "rt": _read_rt, "exthdr": _read_exthdr}
)
"""The readers of what is asked of a packet, its connection or the host, by the first word."""

KEY_TEXTS: Final[Mapping[type, Callable[[Any, Scope], str]]] = MappingProxyType(
    {kind: kind.GRAMMAR.text for kind in _BY_GRAMMAR}
    | {
        Payload: lambda item, scope: f"{item.protocol} {item.field}",
        RawPayload: lambda item, scope: f"@{item.layer.value},{item.offset},{item.bits}",
        ExtensionField: _extension_text,
        Meta: lambda item, scope: item.key if item.key in SHORT_META else f"meta {item.key}",
    }
)
"""What nft prints for them, by class."""
