"""What expressions evaluate to, for a packet in a state at a hook.

Every answer is the kernel's: the module of the kernel that a function follows is named beside it (nft_meta, nft_ct,
nft_fib, nft_numgen). What was not given is `Open`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final, Protocol

from kproxy.dataplane.concrete.jhash import jhash, scaled
from kproxy.dataplane.concrete.nft.payload import payload, raw_payload
from kproxy.dataplane.concrete.nft.sets import IndexedElements
from kproxy.dataplane.concrete.nft.values import (
    MAX_NUMBERS,
    MISSING,
    Drawn,
    Missing,
    Open,
    Uniform,
    Value,
    alternatives,
    bounds,
    is_known,
)
from kproxy.dataplane.concrete.routing import UNKNOWN, Query, Unknown, address_type, lookup
from kproxy.dataplane.concrete.state import DST, SRC, View
from kproxy.dataplane.model.conntrack import ESTABLISHED, NEW, ORIGINAL, RELATED, UNTRACKED, tuple_of
from kproxy.dataplane.model.packet import LOCAL, LOOPBACK
from kproxy.netfilter.family import Family
from kproxy.netfilter.hooks import Hook
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.nftables.element import Element
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
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
    Numgen,
    OpaqueExpression,
    Osf,
    Payload,
    RawPayload,
    Rt,
    SetReference,
    Socket,
    Symhash,
)
from kproxy.netfilter.nftables.typeof import type_of
from kproxy.netfilter.nftables.value import Verdict

MAX_ALTERNATIVES: Final = 64
_CT_STATE: Final = {NEW: 8, ESTABLISHED: 2, RELATED: 4}
_SEEN_REPLY: Final = 2
_ASSURED_OR_EXPECTED: Final = 5
_CONFIRMED: Final = 8
_STATUS: Final = {"EXPECTED": 1, "SEEN_REPLY": 2, "ASSURED": 4, "CONFIRMED": 8}
_NAME_BYTES: Final = 16
"""The length of an interface's name in a register (IFNAMSIZ)."""
_ADDRTYPE: Final = {"UNICAST": 1, "LOCAL": 2, "BROADCAST": 3, "ANYCAST": 4, "MULTICAST": 5, "UNREACHABLE": 7}


class Sets(Protocol):
    """The sets and maps of a table."""

    def elements(self, which: SetReference | AnonymousSet | AnonymousMap) -> IndexedElements:
        """The elements as the rules have them."""

    def changed(self, view: View, name: str) -> Mapping[object, object | None]:
        """The elements of a named set that packets have changed: present with their data (True in a set), or None if
        deleted."""


def evaluate(expression: Expression, view: View, sets: Sets) -> Any:  # a Value, or a verdict of a verdict map
    """The value of an expression."""
    action = _ACTIONS.get(type(expression))
    return expression if action is None else action(expression, view, sets)


def _payload(item: Payload, view: View, _sets: Sets) -> Any:
    return payload(view.state.packet, item.protocol, item.field)


def _raw(item: RawPayload, view: View, _sets: Sets) -> Any:
    name = f"@{item.layer.value},{item.offset},{item.bits}"
    return raw_payload(view.state.packet, item.layer, item.offset, item.bits, name)


def _meta(item: Meta, view: View, _sets: Sets) -> Any:
    """nft_meta: without an interface the name is empty, and without a socket there is no owner."""
    packet, key = view.state.packet, item.key
    if key == "mark":
        if packet.mark_known == UINT32:
            return packet.mark
        return Open("mark", "the packet's mark is not known", packet.mark, packet.mark_known)
    if key in _INTERFACES:
        field, name = _INTERFACES[key]
        found: str | None = getattr(packet, field)
        return Open(field, f"the {name} is not known") if found is None else found
    if key in ("skuid", "skgid"):
        return _owner(view, key)
    simple: int | None = {
        "l4proto": packet.protocol,
        "nfproto": 2 if packet.family is Family.IPV4 else 10,
        "protocol": 0x0800 if packet.family is Family.IPV4 else 0x86DD,
        "length": packet.length,
        "nftrace": 0,
        "pkttype": 0 if _is_unicast(view) else None,
    }.get(key)
    if simple is not None:
        return simple
    if key == "random":
        return Uniform(1 << 32)
    return Open(("meta", key), f"meta {key} is not known")


_INTERFACES: Final = {
    "iifname": ("in_interface", "input interface"), "iif": ("in_interface", "input interface"),
    "oifname": ("out_interface", "output interface"), "oif": ("out_interface", "output interface"),
}  # fmt: skip


def _owner(view: View, key: str) -> Any:
    packet = view.state.packet
    has_socket = False if packet.origin != LOCAL else True if packet.uid is not None else packet.socket
    if has_socket is False:
        return MISSING
    number = packet.uid if key == "skuid" else packet.gid
    return Open(key, f"the sender's {key[2:]} is not known") if number is None else number


def _is_unicast(view: View) -> bool:
    packet = view.state.packet
    if packet.dst is None:
        return False
    return address_type(view.host, packet.family, packet.dst) in ("LOCAL", "UNICAST")


def _ct(item: Ct, view: View, _sets: Sets) -> Any:
    """nft_ct: without a connection there is only a state."""
    state, key = view.state, item.key
    if key == "state":
        if not state.has_connection:
            return 64 if state.tracking == UNTRACKED else 1
        return _CT_STATE[state.connection.state or NEW]
    if not state.has_connection:
        return MISSING
    packet = state.packet
    entry = state.connection.known_as(packet)
    if key == "direction":
        return 0 if entry.direction == ORIGINAL else 1
    if key == "status":
        return _status(view)
    if key == "mark":
        if entry.mark_known == UINT32:
            return entry.mark
        return Open("ctmark", "the connection's mark is not known", entry.mark, entry.mark_known)
    words = key.split()
    if words[-1] in ("saddr", "daddr", "proto-src", "proto-dst"):
        if len(words) == 2 and (words[0] == "ip") != (packet.family is Family.IPV4):
            return MISSING
        original = entry.original or tuple_of(packet)
        flow = original if item.direction != "reply" else entry.reply or original.reversed()
        number = {"saddr": flow.src, "daddr": flow.dst, "proto-src": flow.sport, "proto-dst": flow.dport}[words[-1]]
        name = f"ct {item.direction} {key}"
        return Open(name, f"{name} is not known") if number is None else number
    simple = {"l3proto": 2 if packet.family is Family.IPV4 else 10, "protocol": packet.protocol, "zone": 0}
    return simple.get(key, Open(("ct", key, item.direction), f"ct {key} is not known"))


def _status(view: View) -> Any:
    state, entry = view.state, view.state.connection
    settled = entry.state == ESTABLISHED or entry.direction != ORIGINAL
    value = (16 if entry.snat else 0) | (32 if entry.dnat else 0)
    value |= (128 if state.nat_done & SRC else 0) | (256 if state.nat_done & DST else 0)
    if entry.status is not None:
        return value | sum(_STATUS.get(name, 0) for name in entry.status)
    known = UINT32
    if settled:
        value |= _SEEN_REPLY | _CONFIRMED
        known &= ~(_ASSURED_OR_EXPECTED | 128 | 256)
    elif entry.state != NEW:
        known &= ~_ASSURED_OR_EXPECTED
    elif state.looped:
        value |= _CONFIRMED
    return value if known == UINT32 else Open("ct status", "the connection's status is not known", value, known)


def _fib(item: Fib, view: View, _sets: Sets) -> Any:
    """nft_fib_ipv4, nft_fib_ipv6."""
    packet = view.state.packet
    from_source = "saddr" in item.selectors
    address = packet.src if from_source else packet.dst
    device: str | None = ""
    if "iif" in item.selectors:
        device = packet.in_interface
    elif "oif" in item.selectors:
        device = packet.out_interface
    what = f"fib {' . '.join(item.selectors)} {item.result}"
    question = Open((what, address, device), f"{what} is not known")
    if address is None or device is None:
        return question
    if item.result == "type":
        return _fib_type(view, address, device) or question
    if view.hook is Hook.PREROUTING and packet.in_interface == LOOPBACK:
        return _fib_device(item, LOOPBACK)
    other = packet.dst if from_source else packet.src
    mark, known = (packet.mark, packet.mark_known) if "mark" in item.selectors else (0, UINT32)
    route = lookup(view.host, Query(packet.family, address, other, mark, known, device))
    if isinstance(route, Unknown):
        return question
    if route is None or route.kind != "unicast":
        return _fib_device(item, "")
    if route.device is None:
        return 1 if item.check and not device else question
    return _fib_device(item, route.device if device in ("", route.device) else "")


def _fib_device(item: Fib, device: str) -> Any:
    return int(bool(device)) if item.check else device


def _fib_type(view: View, address: int, device: str) -> int | None:
    packet = view.state.packet
    if packet.family is Family.IPV6 and not device:
        route = lookup(view.host, Query(packet.family, address, None))
        if route is None:
            return _ADDRTYPE["UNREACHABLE"]
        if isinstance(route, Unknown):
            return None
        if route.kind == "local" and view.host.is_anycast(packet.family, address):
            return _ADDRTYPE["ANYCAST"]
        return _ADDRTYPE.get(route.kind.upper())
    found = address_type(view.host, packet.family, address, device or None)
    return None if found is UNKNOWN else _ADDRTYPE.get(str(found))


def _numgen(item: Numgen, view: View, _sets: Sets) -> Any:
    """nft_numgen: a rule's counter is known if the host gives how many packets the rule has numbered."""
    if item.mode == "random":
        return Uniform(item.modulus, item.offset)
    ref = (view.ref.table, view.ref.chain, view.ref.rule)
    seen = view.host.nth.get(ref)
    if seen is not None:
        return (seen + dict(view.state.nth).get(ref, 0)) % item.modulus + item.offset
    if item.modulus > MAX_NUMBERS:
        return Open(("numgen", ref), "the rule's counter is not known")
    numbers = range(item.offset, item.offset + item.modulus)
    return Drawn(tuple((number, Fraction(1, item.modulus)) for number in numbers))


def _jhash(item: Jhash, view: View, sets: Sets) -> Any:
    """nft_jhash: of the key as it stands in the registers. Without a seed in the rule the kernel chose one."""
    key = evaluate(item.key, view, sets)
    if key is MISSING:
        return MISSING
    data = key_bytes(item.key, key)
    if item.seed is None or data is None:
        return _hash(item, view, sets)
    return scaled(jhash(data, item.seed), item.modulus) + item.offset


def key_bytes(expression: Expression, value: Any) -> bytes | None:
    """A known value as the kernel keeps it in registers; None if it is open, or kept in another order of bytes."""
    if isinstance(expression, Concat):
        parts = [key_bytes(*each) for each in zip(expression.parts, value, strict=True)]
        return None if None in parts else b"".join(part + bytes(-len(part) % 4) for part in parts if part is not None)
    source = expression.left if isinstance(expression, Binary) else expression
    if isinstance(source, Meta) and source.key in ("iifname", "oifname") and isinstance(value, str):
        return value.encode().ljust(_NAME_BYTES, b"\0")
    if not isinstance(value, int):
        return None
    if isinstance(source, (Meta, Ct)) and source.key == "mark":
        return value.to_bytes(4, "little")
    ordered = isinstance(source, Payload) or (isinstance(source, Meta) and source.key == "l4proto")
    bits = type_of(source).bits
    if isinstance(source, Payload):
        bits = source.row.bits
    return value.to_bytes(bits // 8, "big") if ordered and bits % 8 == 0 else None


def _hash(item: Jhash | Symhash, _view: View, _sets: Sets) -> Any:
    name = "jhash" if isinstance(item, Jhash) else "symhash"
    why = f"{name} of the packet is not known"
    if item.modulus > MAX_ALTERNATIVES:
        return Open((name, item.modulus), why)
    if item.modulus == 1:
        return item.offset
    return Drawn(tuple((number, None) for number in range(item.offset, item.offset + item.modulus)), why)


def _binary(item: Binary, view: View, sets: Sets) -> Any:
    left, right = evaluate(item.left, view, sets), evaluate(item.right, view, sets)
    if left is MISSING or right is MISSING:
        return MISSING
    return combined([left, right], lambda parts: _operate(item.operator, parts[0], parts[1]))


def combined(values: list[Any], join: Callable[[list[Any]], Value]) -> Any:
    """`join` of values, of which some may be drawn."""
    if not any(isinstance(value, (Drawn, Uniform)) for value in values):
        return join(values)
    rows: list[tuple[list[Any], Fraction | None]] = [([], Fraction(1))]
    why = ""
    for value in values:
        drawn = alternatives(value)
        why = why or drawn.why
        rows = [
            ([*before, each], None if chance is None or share is None else chance * share)
            for before, chance in rows
            for each, share in drawn.items
        ]
        if len(rows) > MAX_NUMBERS:
            return Open(("drawn", len(rows)), "the random number is not known")
    return merged([(join(parts), chance) for parts, chance in rows], why)


def merged(items: list[tuple[Any, Fraction | None]], why: str) -> Any:
    """Alternatives with equal ones made one."""
    found: dict[Any, Fraction | None] = {}
    for value, chance in items:
        before = found.get(value, Fraction(0))
        found[value] = None if chance is None or before is None else before + chance
    if len(found) == 1:
        only: Value = next(iter(found))
        return only
    if None in found.values():
        found = dict.fromkeys(found, None)
    return Drawn(tuple(found.items()), why)


def _operate(operator: str, left: Any, right: Any) -> Any:
    one = left if isinstance(left, Open) else Open("", "", left, UINT32 if left <= UINT32 else -1)
    two = right if isinstance(right, Open) else Open("", "", right, UINT32 if right <= UINT32 else -1)
    a, b = one.value & one.known, two.value & two.known
    if operator in ("<<", ">>"):
        if isinstance(right, Open):
            return Open(("shift", left, right), right.why)
        if operator == "<<":
            value, known = a << right & UINT32, (one.known << right | (1 << right) - 1) & UINT32
        else:
            value, known = a >> right, one.known >> right | (UINT32 ^ UINT32 >> right)
    elif operator == "&":
        known = one.known & two.known | one.known & ~a | two.known & ~b
        value = a & b
    elif operator == "|":
        known = one.known & two.known | a | b
        value = a | b
    else:
        known, value = one.known & two.known, a ^ b
    if not isinstance(left, Open) and not isinstance(right, Open):
        return value
    if known & UINT32 == UINT32:
        return value & UINT32
    source = left if isinstance(left, Open) else right
    same = operator == "&" and not isinstance(right, Open)
    return Open(source.field if same else (operator, left, right), source.why, value & known, known)


def _concat(item: Concat, view: View, sets: Sets) -> Any:
    parts = [evaluate(part, view, sets) for part in item.parts]
    if MISSING in parts:
        return MISSING
    return combined(parts, lambda found: tuple(found))


def _map(item: MapLookup, view: View, sets: Sets) -> Any:
    key = evaluate(item.key, view, sets)
    if key is MISSING:
        return MISSING
    found: Value = look_up(item.map, key, view, sets)
    return found


def look_up(where: SetReference | AnonymousMap, key: Any, view: View, sets: Sets) -> Any:
    """The data that a map holds for a key: MISSING if there is none."""
    elements = sets.elements(where)
    if isinstance(key, Uniform):
        return _look_up_drawn(elements, key)
    if isinstance(key, Drawn):
        rows = [(look_up(where, value, view, sets), chance) for value, chance in key.items]
        if any(isinstance(value, Drawn) for value, _ in rows):
            return Open(("map", key), key.why)
        return merged(rows, key.why)
    changed = sets.changed(view, where.name) if isinstance(where, SetReference) else {}
    if is_known(key):
        if key in changed:
            data = changed[key]
            return MISSING if data is None else data
        element = elements.find(key)
        return MISSING if element is None else element.data
    found = [(element.data, sure) for element, sure in elements.candidates(key)]
    certain = any(sure for _, sure in found) or elements.catch_all is not None
    values: list[Any] = [data for data, _ in found]
    if elements.catch_all is not None:
        values.append(elements.catch_all.data)
    distinct = list(dict.fromkeys(values if certain else [*values, MISSING]))
    if len(distinct) == 1:
        return distinct[0]
    why = next(part.why for part in (key if isinstance(key, tuple) else (key,)) if isinstance(part, Open))
    if len(distinct) > MAX_ALTERNATIVES:
        return Open(("map", key), why)
    return Drawn(tuple((value, None) for value in distinct), why)


def _look_up_drawn(elements: IndexedElements, key: Uniform) -> Any:
    rows: list[tuple[Element, Fraction]] = []
    left = Fraction(1)
    for element, _ in elements.candidates(key):
        numbers = bounds(element.key)
        if numbers is not None:
            chance = key.chance(*numbers)
            left -= chance
            rows.append((element, chance))
    found: list[tuple[Any, Fraction | None]] = [(element.data, chance) for element, chance in rows if chance]
    if left > 0:
        rest = elements.catch_all
        found.append((MISSING if rest is None else rest.data, left))
    return merged(found, "")


def _extension(item: ExtensionField, view: View, sets: Sets) -> Any:
    """A header that has to be looked for: a packet here has no IPv6 extension headers (besides a fragment's)."""
    if item.kind == "ip6" and not view.state.packet.fragment:
        return 0 if item.field is None else MISSING
    return _open(item, view, sets)


def _open(item: ExtensionField | Rt | Socket | Osf | Ipsec | OpaqueExpression, _view: View, _sets: Sets) -> Any:
    name = item.text if isinstance(item, OpaqueExpression) else _name(item)
    return Open(item, f"{name} is not known")


def _name(item: ExtensionField | Rt | Socket | Osf | Ipsec) -> str:
    words = {Rt: "rt", Socket: "socket", Osf: "osf", Ipsec: "ipsec"}
    if isinstance(item, ExtensionField):
        return f"{item.kind} {item.header} {item.field or ''}".rstrip()
    return f"{words[type(item)]} {item.key}"


_ACTIONS: Final[dict[type, Callable[[Any, View, Sets], Any]]] = {
    Payload: _payload,
    RawPayload: _raw,
    Meta: _meta,
    Ct: _ct,
    Fib: _fib,
    Numgen: _numgen,
    Jhash: _jhash,
    Symhash: _hash,
    Binary: _binary,
    Concat: _concat,
    MapLookup: _map,
    ExtensionField: _extension,
    Rt: _open,
    Socket: _open,
    Osf: _open,
    Ipsec: _open,
    OpaqueExpression: _open,
}
__all__ = ["MAX_ALTERNATIVES", "Missing", "Sets", "Verdict", "combined", "evaluate", "look_up", "merged"]
