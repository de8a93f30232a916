"""What keys evaluate to: what is asked of a packet, its connection or the host.

Every answer is the kernel's: the module of the kernel that a function follows is named beside it (nft_meta, nft_ct,
nft_fib, nft_numgen). What was not given is `Open`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from kproxy.dataplane.concrete.nft.payload import payload, raw_payload
from kproxy.dataplane.concrete.nft.values import (
    MAX_NUMBERS,
    MISSING,
    Drawn,
    Open,
    Uniform,
)
from kproxy.dataplane.concrete.routing import UNKNOWN, Query, Unknown, address_type, lookup
from kproxy.dataplane.concrete.state import DST, SRC, View
from kproxy.dataplane.model.conntrack import ESTABLISHED, NEW, ORIGINAL, RELATED, UNTRACKED, tuple_of
from kproxy.dataplane.model.packet import LOCAL, LOOPBACK
from kproxy.netfilter.family import Family
from kproxy.netfilter.hooks import Hook
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.nftables.expression import (
    Ct,
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
)

_CT_STATE: Final = {NEW: 8, ESTABLISHED: 2, RELATED: 4}
_SEEN_REPLY: Final = 2
_ASSURED_OR_EXPECTED: Final = 5
_CONFIRMED: Final = 8
_STATUS: Final = {"EXPECTED": 1, "SEEN_REPLY": 2, "ASSURED": 4, "CONFIRMED": 8}
_ADDRTYPE: Final = {"UNICAST": 1, "LOCAL": 2, "BROADCAST": 3, "ANYCAST": 4, "MULTICAST": 5, "UNREACHABLE": 7}


def _payload(item: Payload, view: View) -> Any:
    return payload(view.state.packet, item.protocol, item.field)


def _raw(item: RawPayload, view: View) -> Any:
    name = f"@{item.layer.value},{item.offset},{item.bits}"
    return raw_payload(view.state.packet, item.layer, item.offset, item.bits, name)


def _meta(item: Meta, view: View) -> Any:
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


def _ct(item: Ct, view: View) -> Any:
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


def _fib(item: Fib, view: View) -> Any:
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
    if packet.in_interface == LOOPBACK and view.hook in (Hook.PREROUTING, Hook.INPUT):
        # nft_fib_can_skip: newer kernels find it in INPUT, too (measured: 6.18).
        return _fib_device(item, LOOPBACK) if view.hook is Hook.PREROUTING else question
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


def _numgen(item: Numgen, view: View) -> Any:
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


def _extension(item: ExtensionField, view: View) -> Any:
    """A header that has to be looked for: a packet here has no IPv6 extension headers (besides a fragment's)."""
    if item.kind == "ip6" and not view.state.packet.fragment:
        return 0 if item.field is None else MISSING
    return _open(item, view)


def _open(item: ExtensionField | Rt | Socket | Osf | Ipsec, _view: View) -> Any:
    return Open(item, f"{_name(item)} is not known")


def _name(item: ExtensionField | Rt | Socket | Osf | Ipsec) -> str:
    words = {Rt: "rt", Socket: "socket", Osf: "osf", Ipsec: "ipsec"}
    if isinstance(item, ExtensionField):
        return f"{item.kind} {item.header} {item.field or ''}".rstrip()
    return f"{words[type(item)]} {item.key}"


KEYS: Final[dict[type, Callable[[Any, View], Any]]] = {
    Payload: _payload,
    RawPayload: _raw,
    Meta: _meta,
    Ct: _ct,
    Fib: _fib,
    Numgen: _numgen,
    ExtensionField: _extension,
    Rt: _open,
    Socket: _open,
    Osf: _open,
    Ipsec: _open,
}
"""What each key evaluates to, by its class."""
