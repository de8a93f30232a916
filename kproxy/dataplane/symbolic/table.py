"""The variables of a packet: one table, in the order of their levels.

Theory: docs/symbolic.md, "The order of variables".

A row says how wide a variable is and how it is cut into levels, what people call it, what an example of it
looks like, and which field of a packet it is. `variables.Variables` makes levels of the table and conditions on them;
`compare.witness_search` takes examples from it, `compare.describe` the words, `compare.witness` the packet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum, auto
from typing import Final, overload

from kproxy.dataplane.model.packet import ICMP, ICMP_ECHO, ICMPV6, SYN, TCP
from kproxy.netfilter.family import Family
from kproxy.netfilter.field import PORT_PROTOCOLS


class Shape(Enum):
    """What the values of a variable are, which says how a region of it is put into words."""

    FLAG = auto()
    NUMBER = auto()
    ADDRESS = auto()
    PORT = auto()
    INTERFACE = auto()
    ADDRESS_KIND = auto()
    MARK = auto()
    DESTINATION = auto()


class Widen(Enum):
    """When a region is widened by a variable (`compare.describe`), in this order; `NEVER` for those that select a
    service, by which regions are told apart anyway."""

    NEVER = auto()
    FIRST = auto()
    TOGETHER = auto()
    """One decision with the other variables of this kind: which packets of a translated connection."""
    NEXT = auto()
    LAST = auto()


@dataclass(eq=False)
class Row:
    """One row of the table.

    Attributes:
        shape: what its values are.
        words: what it is called in a sentence.
        bits: its width; 0 where the rules decide how many values there are, or the family.
        chunk: the width of one of its levels; 0 for that of all.
        example: a value that reads well; of an address, the number of a documentation network.
        varied: whether the second and third example are the following numbers.
        field: the field of `model.packet.Packet` that it is, if any, for packets of `protocols` (empty: all).
        widen: see `Widen`.
        name: also the attribute of `Variables`.
    """

    shape: Shape
    words: str = ""
    bits: int = 0
    _: KW_ONLY
    chunk: int = 0
    example: int | Mapping[Family, int] | None = None
    varied: bool = False
    field: str = ""
    protocols: frozenset[int] = frozenset()
    widen: Widen = Widen.NEXT
    name: str = ""

    def __post_init__(self) -> None:
        self.chunk = self.chunk or self.bits

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def sizes(self, family: Family, interfaces: int, destinations: int) -> list[int]:
        """The number of values of each of its levels."""
        given = {Shape.INTERFACE: interfaces, Shape.DESTINATION: max(destinations, 1)}.get(self.shape)
        if given is not None:
            return [given]
        return [1 << self.chunk] * ((self.bits or family.bits) // self.chunk)


class Variable(Row):
    """A row that reads, as an attribute of `Variables`, as the number of its first level."""

    @overload
    def __get__(self, instance: None, owner: type) -> Variable: ...
    @overload
    def __get__(self, instance: PacketVariables, owner: type) -> int: ...
    def __get__(self, instance: PacketVariables | None, owner: type) -> Variable | int:
        return self if instance is None else instance.levels[self.name][0]


def _flag(*, widen: Widen = Widen.NEVER) -> Variable:
    return Variable(Shape.FLAG, "", 1, widen=widen)


def _address(words: str, *, example: int | None = None, field: str = "", widen: Widen = Widen.NEVER) -> Variable:
    return Variable(Shape.ADDRESS, words, chunk=16, example=example, field=field, widen=widen)


def _port(words: str, example: int, *, field: str = "", widen: Widen = Widen.NEVER) -> Variable:
    protocols = PORT_PROTOCOLS if field else frozenset[int]()
    return Variable(
        Shape.PORT, words, 16, chunk=8, example=example, varied=True, field=field, protocols=protocols, widen=widen
    )


def _kind(words: str) -> Variable:
    return Variable(Shape.ADDRESS_KIND, words, 2, widen=Widen.FIRST)


def _interface(words: str) -> Variable:
    return Variable(Shape.INTERFACE, words, example=2)


_ICMPS: Final = frozenset({ICMP, ICMPV6})


class PacketVariables:
    """The table. What selects a service comes first, then the translated destination, then the rest: that order is
    what keeps diagrams small. `levels` has the levels of each by name."""

    levels: dict[str, Sequence[int]]

    untracked = _flag()
    assigned = _flag()
    dst = _address("the destination", example=1, field="dst")
    translated_dst = _address("the new destination", example=2)
    protocol = Variable(Shape.NUMBER, "protocol", 8, example=TCP, field="protocol", widen=Widen.NEVER)
    dport = _port("destination port", 8000, field="dport")
    translated_dport = _port("new destination port", 9000)
    destination = Variable(Shape.DESTINATION, "the translated destination", widen=Widen.NEVER)
    src = _address("the source", example=0, field="src", widen=Widen.NEXT)
    translated_src = _address("rewritten source", widen=Widen.LAST)
    sport = _port("source port", 40000, field="sport", widen=Widen.NEXT)
    translated_sport = _port("rewritten source port", 50000, widen=Widen.LAST)
    in_interface = _interface("in by")
    out_interface = _interface("out by")
    translated_out = _interface("out by")
    dst_kind = _kind("the destination")
    translated_kind = _kind("the new destination")
    src_kind = _kind("the source")
    translated_src_kind = _kind("the rewritten source")
    reply = _flag(widen=Widen.TOGETHER)
    dnat = _flag(widen=Widen.TOGETHER)
    snat = _flag(widen=Widen.TOGETHER)
    icmp_type = Variable(Shape.NUMBER, "ICMP type", 8, example=ICMP_ECHO, field="icmp_type", protocols=_ICMPS)
    icmp_code = Variable(Shape.NUMBER, "ICMP code", 8, field="icmp_code", protocols=_ICMPS)
    tcp_flags = Variable(Shape.NUMBER, "TCP flags", 8, example=SYN, field="tcp_flags", protocols=frozenset({TCP}))
    fragment = Variable(Shape.FLAG, "a later fragment", 1, field="fragment")
    length = Variable(Shape.NUMBER, "length", 16, example=60, field="length")
    ttl = Variable(Shape.NUMBER, "TTL", 8, example=64, field="ttl")
    tos = Variable(Shape.NUMBER, "TOS", 8, field="tos")
    mark = Variable(Shape.MARK, "mark", 32, chunk=1, field="mark", widen=Widen.LAST)
    connmark = Variable(Shape.MARK, "connection mark", 32, chunk=1, widen=Widen.LAST)


TABLE: Final[tuple[Row, ...]] = tuple(value for value in vars(PacketVariables).values() if isinstance(value, Variable))
"""All rows in the order of their levels."""
