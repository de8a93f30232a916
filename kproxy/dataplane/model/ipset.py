"""ipsets: their contents as text, and whether a packet's parts are in them.

Types are those of ipset(8): `hash:ip`, `hash:net`, `hash:ip,port`, `hash:ip,port,ip`, `hash:ip,port,net`,
`hash:net,port`, `hash:net,net`, `bitmap:port` and so on, whose parts after the colon say what each dimension holds.
Of entries with networks, the narrowest that fits decides, and one that is marked `nomatch` says no.

Entries are filed by shape, as the kernel does: which parts are exact, which are networks of which size. A packet whose
parts are known is looked up once for each shape, of which there are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kproxy.dataplane.model.errors import DataplaneError
from kproxy.netfilter.address import Network, parse_address
from kproxy.netfilter.condition import NEVER, All, Any, Condition, In
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import parse_protocol

_BITMAP_PROTOCOLS: Final = (6, 17)
"""bitmap:port holds ports of TCP and UDP alike, and of nothing else (ip_set_get_ip_port)."""
_KINDS: Final = frozenset({"ip", "net", "port"})


class PortPart(NamedTuple):
    """A packet's port as a set compares it: the protocol, and the port or ICMP type and code; None: open."""

    protocol: int
    port: int | None


class _Addresses(NamedTuple):
    family: Family
    first: int
    last: int

    @property
    def width(self) -> int:
        return self.family.bits - (self.last - self.first).bit_length()


class _Ports(NamedTuple):
    protocol: int | None  # None: bitmap:port
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One element: a range for each dimension."""

    parts: tuple[_Addresses | _Ports, ...]
    nomatch: bool = False

    @property
    def begins(self) -> tuple[int, ...]:
        """The first address or port of each dimension: the only one, of what is no network and no range."""
        return tuple(part.first for part in self.parts)

    @property
    def width(self) -> tuple[int, ...]:
        """How narrow its networks are: prefix lengths, of which the first counts most (mtype_test_cidrs)."""
        return tuple(part.width for part in self.parts if isinstance(part, _Addresses))


_Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IpSet:
    """A set: what its dimensions hold (`ip`, `net`, `port`), its family, and its elements."""

    dimensions: tuple[str, ...]
    family: Family | None
    entries: tuple[Entry, ...]
    _filed: dict[_Shape, dict[tuple[int, ...], list[Entry]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Entries by shape, and those of a shape by their parts; those with other ranges, which only people write, have no
    shape and are all tried."""

    @classmethod
    def parse(cls, kind: str, entries: Iterable[str], family: Family | None = None) -> IpSet:
        """Read a set from its type, such as `hash:ip,port`, and its elements as `ipset save` prints them.

        Without `family` the addresses say which it is.

        Raises:
            DataplaneError: the type is not one of those with addresses and ports, or an element does not fit it.
        """
        method, colon, listed = kind.partition(":")
        dimensions = tuple(listed.split(","))
        if not colon or method not in ("hash", "bitmap") or not all(item in _KINDS for item in dimensions):
            raise DataplaneError(f"a set type with ip, net and port expected, not {kind!r}")
        found = tuple(_parse_entry(dimensions, text) for text in entries)
        if family is None:
            families = {part.family for entry in found for part in entry.parts if isinstance(part, _Addresses)}
            if len(families) > 1:
                raise DataplaneError("addresses of one family expected in a set")
            family = next(iter(families), None)
        return cls(dimensions, family, found)

    def contains(self, family: Family, parts: Sequence[int | PortPart | None]) -> bool | None:
        """Whether an element fits the packet's parts, one per dimension; None if an open part decides."""
        if self.family is not None and self.family is not family:
            return False
        if len(parts) < len(self.dimensions):
            return False
        known = all(part is not None and not (isinstance(part, PortPart) and part.port is None) for part in parts)
        best: Entry | None = None
        unsure = False
        for entry in self._candidates(parts) if known else self.entries:
            fits = _fits(entry, parts)
            if fits is None:
                unsure = True
            elif fits and (best is None or entry.width > best.width):
                best = entry
        if unsure:
            return None
        return best is not None and not best.nomatch

    def condition(self, directions: Sequence[str]) -> Condition | None:
        """What a match asks that looks up these parts of a packet, `src` or `dst` each; None where it cannot be said:
        some elements say no."""
        if any(each.nomatch for each in self.entries):
            return None
        if len(directions) < len(self.dimensions):
            return NEVER
        return Any(tuple(_asks(each, directions) for each in self.entries))

    def _candidates(self, parts: Sequence[int | PortPart | None]) -> Iterator[Entry]:
        """The entries that may hold these parts, which are known."""
        if not self._filed:
            for entry in self.entries:
                shape = tuple(size for size in map(_size, entry.parts) if size is not None)
                shape = shape if len(shape) == len(entry.parts) else ()
                key = tuple(part.first >> size for part, size in zip(entry.parts, shape, strict=False))
                self._filed.setdefault(shape, {}).setdefault(key, []).append(entry)
        values = [(part.port if isinstance(part, PortPart) else part) or 0 for part in parts]
        for shape, filed in self._filed.items():
            yield from filed.get(tuple(value >> size for value, size in zip(values, shape, strict=False)), ())


def _asks(entry: Entry, directions: Sequence[str]) -> Condition:
    parts: list[Condition] = []
    for part, direction in zip(entry.parts, directions, strict=False):
        if isinstance(part, _Addresses):
            parts.append(In(direction, ((part.first, part.last),)))
            continue
        protocols = _BITMAP_PROTOCOLS if part.protocol is None else (part.protocol,)
        parts.append(In("protocol", tuple((each, each) for each in protocols)))
        parts.append(In("sport" if direction == "src" else "dport", ((part.first, part.last),)))
    return All(tuple(parts))


def _size(part: _Addresses | _Ports) -> int | None:
    """The size of a network in bits, 0 of a single address or port; None of another range."""
    span = part.last - part.first
    return span.bit_length() if span & (span + 1) == 0 and part.first & span == 0 else None


def _fits(entry: Entry, parts: Sequence[int | PortPart | None]) -> bool | None:
    unsure = False
    for wanted, part in zip(entry.parts, parts, strict=False):
        fits = _part_fits(wanted, part)
        if fits is False:
            return False
        unsure = unsure or fits is None
    return None if unsure else True


def _part_fits(wanted: _Addresses | _Ports, part: int | PortPart | None) -> bool | None:
    if part is None:
        return None
    if isinstance(wanted, _Ports):
        if not isinstance(part, PortPart):
            return False
        if part.protocol not in (_BITMAP_PROTOCOLS if wanted.protocol is None else (wanted.protocol,)):
            return False
        return None if part.port is None else wanted.first <= part.port <= wanted.last
    return isinstance(part, int) and wanted.first <= part <= wanted.last


def _parse_entry(dimensions: Sequence[str], text: str) -> Entry:
    words = text.split()
    items = words[0].split(",") if words else []
    if len(items) != len(dimensions):
        raise DataplaneError(f"an element of {len(dimensions)} parts expected, not {text!r}")
    try:
        parts = tuple(
            _parse_ports(item, alone=len(dimensions) == 1) if kind == "port" else _parse_addresses(item)
            for kind, item in zip(dimensions, items, strict=True)
        )
    except ValueError as error:
        raise DataplaneError(f"an element of a set expected, not {text!r}: {error}") from error
    return Entry(parts, "nomatch" in words[1:])


def _parse_addresses(text: str) -> _Addresses:
    family = Family.IPV6 if ":" in text else Family.IPV4
    first, dash, last = text.partition("-")
    if dash:
        return _Addresses(family, parse_address(first, family), parse_address(last, family))
    network = Network.parse(text, family)
    return _Addresses(family, network.address, network.address | (network.mask ^ family.full_mask))


def _parse_ports(text: str, *, alone: bool) -> _Ports:
    protocol, colon, ports = text.rpartition(":")
    first, dash, last = ports.partition("-")
    number = parse_protocol(protocol) if colon else None if alone else 6
    if number in (1, 58) and "/" in first:
        kind, _, code = first.partition("/")
        first = str(int(kind) << 8 | int(code))
    low = int(first)
    return _Ports(number, low, int(last) if dash else low)
