"""The question that a trace answers: a packet, what conntrack knows of it, and what went before it.

A question is written as a mapping, which is what command-line options, lines of JSON, golden packets and the records of
earlier traces have in common:

    >>> read_question({"src": "10.244.0.9:40000", "dst": "10.96.0.10:53", "proto": "udp", "in": "cni0"}).packet.dport
    53

`write_question` is the reverse. Errors name the field.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NoReturn

from kproxy.dataplane.model.conntrack import ESTABLISHED, INVALID, NEW, RELATED, UNTRACKED, Connection
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.host import Host
from kproxy.dataplane.model.packet import (
    ARRIVING,
    CWR,
    ECE,
    ICMP,
    ICMPV6,
    LOCAL,
    TCP,
    Endpoint,
    Packet,
    packet_between,
    parse_endpoint,
)
from kproxy.netfilter.family import protocol_name
from kproxy.netfilter.iptables.codec import UINT32, parse_protocol
from kproxy.netfilter.iptables.matches import TCP_FLAGS

OPEN: Final = "open"
_STATES: Final = (NEW, ESTABLISHED, RELATED, INVALID, UNTRACKED)
_NAT: Final = ("DNAT", "SNAT")
_PROTOCOLS: Final = {"icmpv6": "icmp", "ipv6-icmp": "icmp"}
_FLAGS: Final = {**TCP_FLAGS, "ECE": ECE, "CWR": CWR}
_MAX_INTERFACE: Final = 15
_INTERFACE: Final = re.compile(r"[^\s/]+")


class PacketError(DataplaneError):
    """A description of a packet cannot be used. `field` names what is at fault, empty for the description as a whole;
    `expected` says what should have stood there."""

    def __init__(self, field: str, expected: str) -> None:
        super().__init__(f"{field}: {expected}" if field else expected)
        self.field = field
        self.expected = expected


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: what becomes of `packet`, if conntrack knows `connection`, and the lists of `-m recent` that
    `recent` names have just seen its source. `name` is the asker's own."""

    packet: Packet
    connection: Connection = dataclasses.field(default_factory=Connection)
    recent: tuple[str, ...] = ()
    name: str = ""

    def on(self, host: Host) -> Host:
        """The host as this packet finds it."""
        source = self.packet.src
        if not self.recent or source is None:
            return host
        lists = dict(host.recent or {})
        for name in self.recent:
            lists[name] = MappingProxyType({**lists.get(name, {}), source: (1,)})
        return dataclasses.replace(host, recent=MappingProxyType(lists))


def read_question(fields: Mapping[str, object]) -> Question:
    """Read a question. A field that is None counts as absent; src and dst may be `Endpoint`s instead of text.

    Raises:
        PacketError: a field is unknown, missing or wrong.
    """
    for name in fields:
        if name not in FIELDS:
            raise PacketError(str(name), f"unknown field (known: {', '.join(FIELDS)})")
    given = {field: value for field, value in fields.items() if value is not None}
    if "dst" not in given:
        raise PacketError("dst", "this field is required")
    connection = _connection(given.get("ctstate", NEW), given.get("ctmark"))
    extra = {"origin": ARRIVING} | {
        attribute: read(field, given[field]) for field, (attribute, read) in _PACKET.items() if field in given
    }
    if extra["origin"] == LOCAL and "in" in given:
        raise PacketError("in", "a packet of origin local comes in by no interface")
    if "mark" in given:
        extra["mark"], extra["mark_known"] = _mark("mark", given["mark"])
    proto = _protocol(given.get("proto", "tcp"))
    source = _endpoint("src", given["src"]) if "src" in given else None
    destination = _endpoint("dst", given["dst"])
    if source is not None and source.family is not destination.family:
        text = f"source and destination of one family expected, not {given['src']} and {given['dst']}"
        raise PacketError("src, dst", text)
    try:
        packet = packet_between(source, destination, proto, new=connection.state == NEW, **extra)
    except DataplaneError as error:
        raise PacketError("", str(error)) from error
    if packet.has_ports and packet.dport is None and not packet.fragment:
        raise PacketError("dst", f"IP:PORT expected for protocol {protocol_name(packet.protocol)}, not {given['dst']}")
    recent = _names("recent", given.get("recent", ()))
    return Question(packet, connection, recent, _text("name", given.get("name", "")))


def write_question(question: Question) -> dict[str, object]:
    """The mapping that `read_question` reads; what is open or usual is left out, except for what every reader expects:
    src (if known), dst, proto, origin, mark and ctstate."""
    packet, entry = question.packet, question.connection
    proto = "icmp" if packet.protocol in (ICMP, ICMPV6) else protocol_name(packet.protocol)
    ctmark = _mark_text(entry.mark, entry.mark_known)
    bits = packet.tcp_flags if packet.protocol == TCP else None
    flags = None if bits is None else ",".join(name for name, bit in _FLAGS.items() if bits & bit) or "NONE"
    found = {
        "name": question.name or None,
        "src": None if packet.src is None else packet.source,
        "dst": packet.destination,
        "proto": proto,
        "in": packet.in_interface or None,
        "inPort": packet.in_port or None,
        "origin": packet.origin,
        "mark": _mark_text(packet.mark, packet.mark_known),
        "ctstate": ",".join([entry.state or OPEN, *["DNAT"] * entry.dnat, *["SNAT"] * entry.snat]),
        "ctmark": None if ctmark == (0 if entry.state in (NEW, INVALID, UNTRACKED) else OPEN) else ctmark,
        "recent": list(question.recent) or None,
        "tcpFlags": flags,
        **{field: getattr(packet, attribute) for field, (attribute, most) in _NUMBERS.items()},
        "fragment": packet.fragment or None,
    }
    return {field: value for field, value in found.items() if value is not None}


def _wrong(field: str, expected: str, value: object) -> NoReturn:
    shown = repr(value)
    raise PacketError(field, f"{expected} expected, not {shown if len(shown) <= 100 else shown[:100] + '...'}")


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        _wrong(field, "a text", value)
    return value


def _names(field: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value):
        _wrong(field, "a list of names", value)
    return tuple(value)


def _origin(field: str, value: object) -> str:
    if value not in (ARRIVING, LOCAL):
        _wrong(field, f"{LOCAL} or {ARRIVING}", value)
    return str(value)


def _endpoint(field: str, value: object) -> Endpoint:
    if isinstance(value, Endpoint):
        return value
    text = _text(field, value)
    try:
        return parse_endpoint(text)
    except DataplaneError as error:
        raise PacketError(field, str(error)) from error


def _interface(field: str, value: object) -> str:
    text = _text(field, value)
    if len(text) > _MAX_INTERFACE or not _INTERFACE.fullmatch(text):
        _wrong(field, f"an interface name of at most {_MAX_INTERFACE} characters", value)
    return text


def _protocol(value: object) -> str | int:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        _wrong("proto", "tcp, udp, sctp, icmp, or another protocol's name or number", value)
    if isinstance(value, int):
        if not 0 < value <= 255:
            _wrong("proto", "a number from 1 to 255", value)
        return value
    name = value.strip().lower()
    if name in ("", "all", "ip", "0"):
        _wrong("proto", "one protocol", value)
    try:
        parse_protocol(_PROTOCOLS.get(name, name))
    except ValueError:
        _wrong("proto", "tcp, udp, sctp, icmp, or another protocol's name or number", value)
    return _PROTOCOLS.get(name, name)


def _number(field: str, value: object, maximum: int) -> int:
    if isinstance(value, str):
        try:
            value = int(value, 0)
        except ValueError:
            _wrong(field, "a number", value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        _wrong(field, f"a number from 0 to {maximum}", value)
    return value


def _mark(field: str, value: object) -> tuple[int, int]:
    """A mark and which of its bits are known: `0x4000`, `0x4000/0x4000`, `open`."""
    if value == OPEN:
        return 0, 0
    if isinstance(value, str) and "/" in value:
        mark, _, known = value.partition("/")
        bits = _number(field, known, UINT32)
        return _number(field, mark, UINT32) & bits, bits
    return _number(field, value, UINT32), UINT32


def _mark_text(mark: int, known: int) -> int | str:
    return mark if known == UINT32 else f"0x{mark:x}/0x{known:x}" if known else OPEN


def _connection(value: object, mark: object) -> Connection:
    """The connection as it is given. The mark of a new one is 0; that of another one is open unless it is given, as a
    rule may have set it for an earlier packet."""
    names = value.split(",") if isinstance(value, str) else _names("ctstate", value)
    words = [name.strip() for name in names]
    words = [OPEN if word.lower() == OPEN else word.upper() for word in words]
    states = [word for word in words if word not in _NAT]
    if len(states) > 1 or any(word not in (*_STATES, *_NAT, OPEN) for word in words):
        _wrong("ctstate", f"one of {', '.join(_STATES)} or {OPEN}, with {' or '.join(_NAT)} where it applies", value)
    if not states:
        state: str | None = ESTABLISHED
    else:
        state = None if states[0] == OPEN else states[0]
    if mark is None and state in (NEW, INVALID, UNTRACKED):
        marked = (0, UINT32)
    else:
        marked = _mark("ctmark", OPEN if mark is None else mark)
    return Connection(state, dnat="DNAT" in words, snat="SNAT" in words, mark=marked[0], mark_known=marked[1])


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        _wrong(field, "true or false", value)
    return value


def _tcp_flags(field: str, value: object) -> int:
    bits = 0
    for word in _text(field, value).split(","):
        name = word.strip().upper()
        if name not in _FLAGS and name != "NONE":
            _wrong(field, f"flags of {', '.join(_FLAGS)}, or NONE,", value)
        bits |= _FLAGS.get(name, 0)
    return bits


_NUMBERS: Final = {
    "icmpType": ("icmp_type", 255), "icmpCode": ("icmp_code", 255), "ttl": ("ttl", 255), "tos": ("tos", 255),
    "length": ("length", 65535),
}  # fmt: skip
"""Fields that are numbers: the packet's attribute, and the greatest."""
_PACKET: Final[Mapping[str, tuple[str, Callable[[str, Any], Any]]]] = {
    "origin": ("origin", _origin),
    "in": ("in_interface", _interface),
    "inPort": ("in_port", _interface),
    "tcpFlags": ("tcp_flags", _tcp_flags),
    **{field: (attribute, partial(_number, maximum=most)) for field, (attribute, most) in _NUMBERS.items()},
    "fragment": ("fragment", _flag),
}
"""Fields that are one attribute of a packet, and what reads each."""
FIELDS: Final = ("name", "src", "dst", "proto", "mark", "ctstate", "ctmark", "recent", *_PACKET)
