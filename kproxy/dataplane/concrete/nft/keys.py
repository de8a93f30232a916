"""What keys evaluate to: what is asked of a packet, its connection or the host.

Bits of a field are read as conditions read them (`fields`); here is what is more. Every answer is the kernel's: the
module of the kernel that a function follows is named beside it (nft_fib, nft_numgen). What was not given is `Open`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, NamedTuple

from kproxy.dataplane.concrete.answer import answer
from kproxy.dataplane.concrete.fields import read_field
from kproxy.dataplane.concrete.nft.values import MAX_NUMBERS, MISSING, Drawn, Missing, Open, Uniform
from kproxy.dataplane.concrete.routing import Query, Unknown, lookup
from kproxy.dataplane.concrete.state import View
from kproxy.dataplane.model.packet import ICMP, ICMPV6, LOOPBACK, SCTP, TCP, UDP, Packet
from kproxy.netfilter.condition import ALWAYS
from kproxy.netfilter.family import Family
from kproxy.netfilter.field import word_of
from kproxy.netfilter.hooks import Hook
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.nftables.effects import FAMILIES
from kproxy.netfilter.nftables.expression import ExtensionField, Fib, Meta, Numgen, Payload, RawPayload
from kproxy.netfilter.nftables.lowering import Key
from kproxy.netfilter.nftables.protocol import HEADERS, Layer

_WORDS = 5
"""The length of an IPv4 header without options, in words."""
_ICMP_PROTOCOLS = (ICMP, ICMPV6)


def value_of(key: Key, view: View) -> Any:
    """The number or name that a key is for the packet; MISSING if it has none, which ends the rule."""
    if key.present != ALWAYS and answer(key.present, view) is False:
        return MISSING
    if not key.field:
        return key.flip
    if key.field in ("mark", "connmark"):
        holder = view.state.packet if key.field == "mark" else view.state.connection
        known = key.moved(holder.mark_known) & key.mask | ~key.mask & UINT32
        if known != UINT32:
            return Open(key.field, f"{word_of(key.field)} is not known", key.of(holder.mark) & known, known)
        return key.of(holder.mark)
    value = read_field(key.field, view)
    if value is None:
        return Open(key.field, f"{word_of(key.field)} is not known")
    return key.of(value) if isinstance(value, int) else value


def payload(packet: Packet, protocol: str, field: str) -> int | Open | Missing:
    """A field of a header, `ip saddr`; MISSING if the packet has no such header."""
    header = HEADERS[protocol]
    row = header.fields[field]
    if header.layer is Layer.NETWORK:
        family = FAMILIES.get(protocol)
        if family is not packet.family:
            return MISSING
    elif header.layer is Layer.TRANSPORT and header.number not in (None, packet.protocol):
        return MISSING
    return raw_payload(packet, header.layer, row.offset, row.bits, f"{protocol} {field}")


def raw_payload(packet: Packet, layer: Layer, offset: int, count: int, name: str) -> int | Open | Missing:
    """Bits of a layer, counted from its start."""
    if layer is Layer.NETWORK:
        bits = network_header(packet)
    elif layer is Layer.TRANSPORT:
        found = transport_header(packet)
        if found is None:
            return MISSING
        bits = found
    else:
        bits = Bits(0, 0, 0)
    part = bits.slice(offset, count)
    if part.known == (1 << count) - 1:
        return part.value
    return Open(name, f"{name} is not known", part.value, part.known)


def _payload(item: Payload, view: View) -> Any:
    return payload(view.state.packet, item.protocol, item.field)


def _raw(item: RawPayload, view: View) -> Any:
    name = f"@{item.layer.value},{item.offset},{item.bits}"
    return raw_payload(view.state.packet, item.layer, item.offset, item.bits, name)


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
    return Open(item, f"{item.kind} {item.header} {item.field or ''}".rstrip() + " is not known")


KEYS: Final[dict[type, Callable[[Any, View], Any]]] = {
    Payload: _payload,
    RawPayload: _raw,
    Meta: lambda _item, _view: Uniform(1 << 32),
    Fib: _fib,
    Numgen: _numgen,
    ExtensionField: _extension,
}
"""What the keys evaluate to that are not bits of a field, by class; of `meta` that is `random`."""


class Bits(NamedTuple):
    """Bits in a row, the first the most significant one; `known` says which of `value` count."""

    value: int
    known: int
    width: int

    def slice(self, offset: int, count: int) -> Bits:
        """Some of them; those beyond the end are not known."""
        missing = max(offset + count - self.width, 0)
        shift = max(self.width - offset - count, 0)
        mask = (1 << count) - 1
        value, known = self.value << missing, self.known << missing
        return Bits(value >> shift & mask, known >> shift & mask, count)


def _joined(*fields: tuple[int | None, int]) -> Bits:
    """Fields of so many bits each, in a row; None: not known."""
    value = known = count = 0
    for number, bits in fields:
        value = value << bits | (0 if number is None else number & (1 << bits) - 1)
        known = known << bits | (0 if number is None else (1 << bits) - 1)
        count += bits
    return Bits(value, known, count)


def network_header(packet: Packet) -> Bits:
    """The IP header; packets here have neither IPv4 options nor, but for fragments, IPv6 extension headers."""
    length = packet.length
    if packet.family is Family.IPV4:
        fragment = None if packet.fragment else 0
        return _joined(
            (4, 4), (_WORDS, 4), (packet.tos, 8), (length, 16),
            (None, 16), (0, 1), (None, 1), (fragment, 14),
            (packet.ttl, 8), (packet.protocol, 8), (None, 16),
            (packet.src, 32), (packet.dst, 32),
        )  # fmt: skip
    return _joined(
        (6, 4), (packet.tos, 8), (None, 20), (None if length is None else length - 40, 16),
        (packet.protocol, 8), (packet.ttl, 8), (packet.src, 128), (packet.dst, 128),
    )  # fmt: skip


def transport_header(packet: Packet) -> Bits | None:
    """The header after the IP header; None if the packet is a later fragment and has none."""
    if packet.fragment:
        return None
    if packet.protocol in _ICMP_PROTOCOLS:
        return _joined((packet.icmp_type, 8), (packet.icmp_code, 8))
    if packet.protocol == TCP:
        return _joined((packet.sport, 16), (packet.dport, 16), (None, 72), (packet.tcp_flags, 8))
    if packet.has_ports or packet.protocol in (UDP, SCTP):
        return _joined((packet.sport, 16), (packet.dport, 16))
    return Bits(0, 0, 0)
