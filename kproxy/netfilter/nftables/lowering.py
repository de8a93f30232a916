"""What comparisons of nftables ask, as conditions (`netfilter.condition`).

Most expressions are bits of one field of the packet: their `Key` says which, so that a comparison is a condition, and
an engine reads the value of the expression, for maps and the like, as it reads the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from kproxy.netfilter.condition import (
    ALWAYS,
    NEVER,
    TRACKED,
    V4,
    V6,
    Among,
    Any,
    Condition,
    In,
    Not,
    Open,
    Under,
    all_of,
    equals,
    fields_of,
)
from kproxy.netfilter.field import FIELDS, NAMES, UINT32
from kproxy.netfilter.nftables.bitwise import MASK_AND_XOR
from kproxy.netfilter.nftables.expression import (
    AnonymousSet,
    Binary,
    Concat,
    Ct,
    Expression,
    ExtensionField,
    Fib,
    Ipsec,
    Jhash,
    MapLookup,
    Meta,
    Osf,
    Payload,
    Rt,
    Socket,
)
from kproxy.netfilter.nftables.protocol import HEADERS, Layer
from kproxy.netfilter.nftables.statement import Match, Operator
from kproxy.netfilter.nftables.value import CatchAll, InterfacePrefix, Prefix, Range, Single, bounds

_ADDRESS: Final = (1 << 128) - 1

TRANSPORT: Final = equals("transport")(1)
"""The packet has a header after that of IP: it is no later fragment."""
_FAMILIES: Final = {"ip": V4, "ip6": V6}


@dataclass(frozen=True, slots=True)
class Key:
    """Bits of a field as a number, `((field >> shift) & mask) ^ flip`, or a name; a negative shift is one to the left.

    `present` is the condition that the packet has it; else the rule ends. Without a field it is the constant `flip`.
    """

    field: str
    mask: int = UINT32
    shift: int = 0
    flip: int = 0
    present: Condition = ALWAYS

    def moved(self, number: int) -> int:
        """A value of the field, its bits moved to their places."""
        return number >> self.shift if self.shift >= 0 else number << -self.shift

    def of(self, number: int) -> int:
        """The number that these bits of the field's value are."""
        return (self.moved(number) & self.mask) ^ self.flip

    def written(self, old: int, number: int) -> int:
        """The field's value with these bits written, if they are not moved to the left."""
        return old & ~(self.mask << self.shift) | (number & self.mask) << self.shift

    def computed(self, operator: str, number: int) -> Key:
        """The key after an operation with a constant, in registers of 32 bits if it shifts."""
        shift, mask, flip = self.shift, self.mask, self.flip
        if operator in MASK_AND_XOR:
            mask, flip = MASK_AND_XOR[operator](mask, flip, number)
            return replace(self, mask=mask, flip=flip)
        if operator == "<<":
            return replace(self, shift=shift - number, mask=mask << number & UINT32, flip=flip << number & UINT32)
        return replace(self, shift=shift + number, mask=mask >> number, flip=flip >> number)


def _bits(field: str, present: Condition = ALWAYS) -> Key:
    """A whole field."""
    bits = FIELDS[field].bits
    return Key(field, _ADDRESS if bits == 0 else (1 << bits) - 1, 0, 0, present)


_IP: Final[dict[str, Key]] = {
    "saddr": _bits("src"), "daddr": _bits("dst"), "protocol": _bits("protocol"), "nexthdr": _bits("protocol"),
    "ttl": _bits("ttl"), "hoplimit": _bits("ttl"), "dscp": Key("tos", 0x3F, 2), "ecn": Key("tos", 3),
}  # fmt: skip
_PAYLOAD: Final[dict[tuple[str, str], Key]] = {
    **{("ip", name): key for name, key in _IP.items()},
    **{("ip6", name): key for name, key in _IP.items()},
    ("ip", "version"): Key("", 0, 0, 4), ("ip6", "version"): Key("", 0, 0, 6), ("ip", "hdrlength"): Key("", 0, 0, 5),
    ("ip", "length"): _bits("length"),
    **{(header, port): _bits(port) for header in ("tcp", "udp", "udplite", "sctp", "dccp", "th")
       for port in ("sport", "dport")},
    ("tcp", "flags"): _bits("tcp_flags"),
    **{(header, name): _bits(f"icmp_{name}") for header in ("icmp", "icmpv6") for name in ("type", "code")},
}  # fmt: skip
"""What fields of headers are, by header and field."""
_META: Final[dict[str, Key]] = {
    "l4proto": _bits("protocol"), "nfproto": Key("family"), "protocol": Key("ethertype"), "mark": _bits("mark"),
    "length": _bits("length"), "iif": Key("in_interface"), "iifname": Key("in_interface"),
    "oif": Key("out_interface"), "oifname": Key("out_interface"), "pkttype": _bits("pkttype"),
    "skuid": _bits("uid", equals("sender")(1)), "skgid": _bits("gid", equals("sender")(1)),
}  # fmt: skip
"""What the kernel keeps beside a packet."""
CT_STATES: Final = {1: "INVALID", 2: "ESTABLISHED", 4: "RELATED", 8: "NEW", 64: "UNTRACKED"}
_CT_STATUS: Final = {1: "EXPECTED", 2: "SEEN_REPLY", 4: "ASSURED", 8: "CONFIRMED", 16: "SNAT", 32: "DNAT"}
_SIDES: Final = {"saddr": "src", "daddr": "dst", "proto-src": "srcport", "proto-dst": "dstport"}
_CT: Final[dict[str, Key]] = {
    "state": Key("ctstate", sum(CT_STATES)), "status": Key("ctstatus"), "direction": Key("reply"),
    "mark": _bits("connmark"), "protocol": _bits("protocol"), "l3proto": Key("family"),
}  # fmt: skip
"""What a connection has; only the state has a packet without one."""


def header_present(target: object) -> Condition:
    """The packet has the header that this is a field of."""
    if isinstance(target, ExtensionField):
        return all_of((equals("protocol")(6), TRANSPORT)) if target.kind == "tcp option" else ALWAYS
    if not isinstance(target, Payload):
        return ALWAYS
    header = HEADERS[target.protocol]
    if header.layer is Layer.NETWORK:
        return _FAMILIES.get(target.protocol, NEVER)
    if header.layer is Layer.TRANSPORT:
        return all_of((equals("ports")(1) if header.number is None else equals("protocol")(header.number), TRANSPORT))
    return ALWAYS


def key_of(expression: object) -> Key | None:
    """The bits of a field that an expression is; None if it is something else."""
    if isinstance(expression, int):
        return Key("", 0, 0, expression)
    return _key_of(expression) if isinstance(expression, _KEYED) else None


_KEYED: Final = (Payload, Meta, Ct, Fib, Binary, Rt, Socket, Osf, Ipsec)


@lru_cache(1024)
def _key_of(expression: object) -> Key | None:
    match expression:
        case Payload(protocol, field):
            found = _PAYLOAD.get((protocol, field))
            return None if found is None else replace(found, present=header_present(expression))
        case Meta(name) if name != "random":
            return _META.get(name) or Key(f"meta {name}")
        case Ct(name, direction):
            return _connection(name, direction)
        case Fib(selectors, "type", False):
            side, *devices = (item for item in selectors if item != "mark")
            return Key(" ".join(("dst_kind" if side == "daddr" else "src_kind", *devices)))
        case Binary(operator, left, int(right)):
            key = key_of(left)
            return None if key is None or _holds_names(key) else key.computed(operator, right)
        case Rt(name) | Socket(name) | Osf(name) | Ipsec(_, name):
            return Key(f"{type(expression).__name__.lower()} {name}")
    return None


def _connection(key: str, direction: str | None) -> Key:
    family, _, name = key.rpartition(" ")
    if name in _SIDES and direction is not None:
        field = f"ct{direction.removesuffix('inal').removesuffix('y')}{_SIDES[name]}"
        present = all_of((TRACKED, _FAMILIES.get(family, ALWAYS)))
        return Key(field, 0xFFFF if "port" in field else _ADDRESS, 0, 0, present)
    found = _CT.get(key) or Key(f"ct {key}")
    return found if key == "state" else replace(found, present=TRACKED)


def keys_of(expression: Expression) -> tuple[Key, ...] | None:
    """The keys of an expression's parts; None if one is something else."""
    parts = expression.parts if isinstance(expression, Concat) else (expression,)
    found = [key_of(part) for part in parts]
    return tuple(key for key in found if key is not None) if None not in found else None


def fields_in(expression: object) -> Iterator[tuple[str, int]]:
    """The fields that an expression reads, each with the bits of it that matter."""
    key = key_of(expression)
    if key is not None:
        yield key.field, key.mask << key.shift if key.shift >= 0 else key.mask >> -key.shift
        yield from fields_of(key.present)
        return
    inside: Iterable[object] = ()
    match expression:
        case Binary(_, left, right):
            inside = left, right
        case Concat(parts) | (*parts,):
            inside = parts
        case MapLookup(inner) | Jhash(inner):
            inside = (inner,)
    for part in inside:
        yield from fields_in(part)


def _holds_names(key: Key) -> bool:
    row = FIELDS.get(key.field)
    return row is not None and row.bits == NAMES


def among(key: Key, values: Iterable[Single]) -> Condition:
    """The key is one of these constants, or in one of them."""
    if _holds_names(key):
        names = (f"{each.prefix}+" if isinstance(each, InterfacePrefix) else each for each in values)
        return Among(key.field, frozenset(name for name in names if isinstance(name, str)))
    intervals = [found for each in values if (found := bounds(each)) is not None]
    if not key.field:
        return ALWAYS if any(first <= key.flip <= last for first, last in intervals) else NEVER
    if key.flip == 0 and key.shift >= 0 and _is_top(key):
        low = (1 << key.shift) - 1
        clipped = ((first, min(last, key.mask)) for first, last in intervals if first <= min(last, key.mask))
        return In(key.field, tuple((first << key.shift, last << key.shift | low) for first, last in clipped))
    parts = [_under(key, *block) for each in intervals for block in _blocks(*each, key.mask | key.flip)]
    return parts[0] if len(parts) == 1 else Any(tuple(parts))


def _is_top(key: Key) -> bool:
    """Whether a key has the upper bits of its field, all of them, which then is no mark and not several flags."""
    if key.field in ("mark", "connmark", "ctstate", "ctstatus"):
        return False
    row = FIELDS.get(key.field)
    bits = key.mask.bit_length() if row is None else row.bits or 128
    return not key.mask & key.mask + 1 and (key.mask + 1) << key.shift >= 1 << bits


def _blocks(first: int, last: int, bits: int) -> Iterator[tuple[int, int]]:
    """The numbers from first to last as values under masks; bits that no number can have are left out."""
    last = min(last, (1 << bits.bit_length()) - 1)
    while first <= last:
        size = first & -first or 1 << last.bit_length()
        while size > last - first + 1:
            size >>= 1
        yield first, ~(size - 1)
        first += size


def _under(key: Key, value: int, mask: int) -> Condition:
    """The key has a value under a mask."""
    wanted, asked = (value ^ key.flip) & mask, key.mask & mask
    if wanted & ~asked:
        return NEVER
    if key.shift >= 0:
        wanted, asked = wanted << key.shift, asked << key.shift
    else:
        wanted, asked = wanted >> -key.shift, asked >> -key.shift
    if key.field == "ctstate":
        names = frozenset(name for bit, name in CT_STATES.items() if (wanted or asked) & bit)
        return Not(Among("ctstate", names)) if not wanted else NEVER if wanted & wanted - 1 else Among("ctstate", names)
    if key.field == "ctstatus":
        return all_of(_status(1 << bit, wanted) for bit in range(asked.bit_length()) if asked >> bit & 1)
    return Under(key.field, wanted, asked) if asked else ALWAYS


def _status(bit: int, wanted: int) -> Condition:
    name = _CT_STATUS.get(bit)
    if name is None:
        held: Condition = Open("conntrack", f"ct status {bit:#x}", "the connection's status")
    else:
        held = Among("ctstate" if name in ("SNAT", "DNAT") else "ctstatus", frozenset({name}))
    return held if wanted & bit else Not(held)


_NEGATED: Final = frozenset({Operator.NE, Operator.NONE})


def condition_of(match: Match) -> Condition | None:
    """What a comparison asks of a packet; None if it takes more than bits of fields and constants."""
    keys = keys_of(match.left)
    inside = None if keys is None else _compared(keys, match)
    if keys is None or inside is None:
        return None
    return all_of((*(key.present for key in keys), Not(inside) if match.operator in _NEGATED else inside))


def _compared(keys: tuple[Key, ...], match: Match) -> Condition | None:
    right, key = match.right, keys[0]
    if match.operator in (Operator.EQ, Operator.NE):
        if isinstance(right, AnonymousSet):
            values = [element.key for element in right.elements]
            if len(keys) > 1 or any(isinstance(value, (tuple, CatchAll)) for value in values):
                return None
            return among(key, values)  # type: ignore[arg-type]
        parts = right if isinstance(right, tuple) else (right,)
        if not all(isinstance(part, (int, str, Prefix, Range, InterfacePrefix)) for part in parts):
            return None
        return all_of(among(each, (part,)) for each, part in zip(keys, parts, strict=True))  # type: ignore[arg-type]
    if len(keys) > 1 or not isinstance(right, int) or _holds_names(key):
        return None
    if match.operator in (Operator.ANY, Operator.NONE):
        return Not(among(key.computed("&", right), (0,)))
    first, last = {
        Operator.LT: (0, right - 1),
        Operator.LE: (0, right),
        Operator.GT: (right + 1, _ADDRESS),
        Operator.GE: (right, _ADDRESS),
    }[match.operator]
    return among(key, (Range(first, last),))
