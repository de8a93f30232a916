"""Expressions: what a rule asks of the packet and of the host, and how it computes with the answer.

An expression is a frozen value; constants (numbers, names, ranges: `value.py`) are expressions as well. Sets and maps
are named (`SetReference`) or written out in the rule (`AnonymousSet`, `AnonymousMap`). A packet that has no answer (no
such header, no socket) ends the rule: nothing after it is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kproxy.netfilter.nftables.datatype import DataType
from kproxy.netfilter.nftables.element import Elements
from kproxy.netfilter.nftables.protocol import EXTENSION_HEADERS, HEADERS, HeaderField, Layer
from kproxy.netfilter.nftables.value import Value


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
    """A field of an IPv6 extension header or of a TCP, IP or SCTP option: `tcp option maxseg size`, `frag
    more-fragments`.

    Without a field it asks whether the header is there (1) or not (0).
    """

    kind: str
    header: str
    field: str | None = None

    @property
    def row(self) -> HeaderField | None:
        """The field's offset, width and type, or None without a field."""
        return None if self.field is None else EXTENSION_HEADERS[self.kind, self.header].fields[self.field]


@dataclass(frozen=True, slots=True)
class Meta:
    """`meta KEY`, such as `meta mark` or `iifname`: what the kernel keeps beside the packet (`META_KEYS`)."""

    key: str


@dataclass(frozen=True, slots=True)
class Ct:
    """`ct [DIRECTION] KEY`: what the packet's connection has (`CT_KEYS`); `direction` is original, reply or None."""

    key: str
    direction: str | None = None


@dataclass(frozen=True, slots=True)
class Rt:
    """`rt KEY`: what the packet's route has (`RT_KEYS`)."""

    key: str


@dataclass(frozen=True, slots=True)
class Socket:
    """`socket KEY`: what the local socket that would get the packet has (`SOCKET_KEYS`). `level` goes with
    `cgroupv2`."""

    key: str
    level: int | None = None


@dataclass(frozen=True, slots=True)
class Fib:
    """`fib SELECTORS RESULT`: a look-up in the routing tables.

    `selectors` are some of saddr or daddr, mark, iif, oif, in nft's order. `result` is oif, oifname or type. With
    `check` the answer is only whether there is a route (1) or not (0): `fib saddr . iif oif missing`.
    """

    selectors: tuple[str, ...]
    result: str
    check: bool = False


@dataclass(frozen=True, slots=True)
class Numgen:
    """`numgen random mod 3`, `numgen inc mod 3 offset 1`: a number from `offset` to `offset + modulus - 1`, random or
    counting up with each packet that comes by."""

    mode: str
    modulus: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Jhash:
    """`jhash EXPRESSION mod N [seed S] [offset O]`: a hash of the expression's value, below `modulus`, plus `offset`.
    Without a seed the kernel chose one when the rule was loaded."""

    key: Expression
    modulus: int
    seed: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Symhash:
    """`symhash mod N [offset O]`: a hash of the packet's flow, the same in both directions."""

    modulus: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Osf:
    """`osf [ttl loose|skip] name|version`: the operating system that sent the packet, guessed from its SYN."""

    key: str
    ttl: str | None = None


@dataclass(frozen=True, slots=True)
class Ipsec:
    """`ipsec in|out [spnum N] KEY`: of the packet's transformation; KEY is reqid, spi, `ip saddr`, `ip6 daddr` and so
    on."""

    direction: str
    key: str
    spnum: int = 0


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


@dataclass(frozen=True, slots=True)
class OpaqueExpression:
    """An expression that kproxy does not know. `name` is its first word (or JSON key), `text` the whole as it was;
    `json` says that the text is JSON."""

    name: str
    text: str
    json: bool = False


Expression: TypeAlias = (
    Value
    | Payload | RawPayload | ExtensionField | Meta | Ct | Rt | Socket | Fib | Numgen | Jhash | Symhash | Osf | Ipsec
    | Binary | Concat | MapLookup | SetReference | AnonymousSet | AnonymousMap | OpaqueExpression
)  # fmt: skip
"""Everything that can stand in an expression."""
