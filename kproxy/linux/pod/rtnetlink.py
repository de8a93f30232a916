"""A small rtnetlink: the dozen requests with which the CNI plugin makes a pod's links, addresses and routes.

Everything long-lived uses pyroute2. The plugin is started once per pod, and importing pyroute2 costs 110 ms of
processor time, opening its socket 7 ms more (measured here, 0.9.7); this module costs 2 ms and a request 30
microseconds. docs/decisions/0003-two-ways-to-speak-netlink.md has the figures.

A socket belongs to the network namespace that its thread was in when it was opened (network_namespaces(7)). Requests
that do not need one another's answers go to the kernel in one message, which carries them out in their order
(`Rtnetlink.carry_out`). Layouts and numbers: rtnetlink(7), <linux/rtnetlink.h>, <linux/if_link.h>, <linux/if_addr.h>.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)

RTM_NEWLINK: Final = 16
RTM_DELLINK: Final = 17
RTM_GETLINK: Final = 18
RTM_NEWADDR: Final = 20
RTM_GETADDR: Final = 22
RTM_NEWROUTE: Final = 24
RTM_GETROUTE: Final = 26
_REQUEST: Final = 0x1
_ACK: Final = 0x4
_DUMP: Final = 0x300
_CREATE: Final = 0x400
_EXCLUSIVE: Final = 0x200
_REPLACE: Final = 0x100
_NLMSG_ERROR: Final = 2
_NLMSG_DONE: Final = 3
_UP: Final = 1
_NODAD: Final = 0x02
_NESTED: Final = 0x8000
_TYPE_MASK: Final = 0x3FFF
_NEWNET: Final = 0x40000000

_SOL_NETLINK: Final = 270

_header = struct.Struct("=IHHII").pack
_read_header = struct.Struct("=IHHII").unpack_from
_read_attribute = struct.Struct("=HH").unpack_from

Attributes = dict[int, bytes]


class NetlinkError(OSError):
    """The kernel refused a request; `strerror` holds its own words where it had some.

    `index` is the number of the request among those carried out together, from 0.
    """

    index = 0


class Request(NamedTuple):
    """A request that is answered with an acknowledgement."""

    kind: int
    flags: int
    body: bytes


class Link(NamedTuple):
    """An interface. `master` is an ifindex, 0 for none; `kind` is `bridge` or `veth`; `hairpin` is a port's."""

    ifindex: int
    name: str
    mac: str
    mtu: int
    up: bool
    master: int
    kind: str
    hairpin: bool


class KernelRoute(NamedTuple):
    """A route of any table; `destination` is a CIDR, `gateway` "" for none, `ifindex` of its interface."""

    destination: str
    gateway: str
    ifindex: int
    table: int
    priority: int
    mtu: int
    advmss: int
    scope: int


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def attribute(kind: int, data: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    return struct.pack("=HH", len(data) + 4, kind) + _padded(data)


def _text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def _mac(kind: int, value: str) -> bytes:
    return attribute(kind, bytes.fromhex(value.replace(":", "")))


def attributes(data: bytes) -> Attributes:
    """Attributes by type, the flag of nested ones removed."""
    found: Attributes = {}
    offset, end = 0, len(data) - 4
    while offset <= end:
        length, kind = _read_attribute(data, offset)
        if length < 4:
            break
        found[kind & _TYPE_MASK] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def _integer(data: bytes | None) -> int:
    return int.from_bytes(data, "little") if data else 0  # every machine this runs on is little-endian


@contextlib.contextmanager
def inside(descriptor: int) -> Iterator[None]:
    """The calling thread is in the namespace of an open file, and back in its own afterwards.

    Raises:
        OSError: it is not a network namespace, or may not be entered.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(descriptor)
        try:
            yield
        finally:
            _setns(home)
    finally:
        os.close(home)


def _setns(descriptor: int) -> None:
    if _libc.setns(descriptor, _NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class Rtnetlink:
    """An rtnetlink socket of the namespace that the calling thread is in. Every method raises NetlinkError."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.setsockopt(_SOL_NETLINK, 11, 1)  # NETLINK_EXT_ACK: reasons in words
        with contextlib.suppress(OSError):
            # Dumps of one interface's addresses; a kernel before 4.20 sends those of all.
            self._socket.setsockopt(_SOL_NETLINK, 12, 1)  # NETLINK_GET_STRICT_CHK
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Rtnetlink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def carry_out(self, asks: Sequence[Request]) -> None:
        """Sends requests in one message. The kernel goes on after one that it refuses; the first such is raised."""
        first, error = self._sequence + 1, None
        parts = []
        for kind, flags, body in asks:
            self._sequence += 1
            parts.append(_header(16 + len(body), kind, flags | _REQUEST | _ACK, self._sequence, 0) + _padded(body))
        self._socket.send(b"".join(parts))
        answered = first - 1
        while answered < self._sequence:
            for answer, flags, sequence, payload in self._receive():
                if answer == _NLMSG_ERROR and sequence > answered:
                    answered = sequence
                    try:
                        _raise(payload, flags)
                    except NetlinkError as refused:
                        refused.index = sequence - first
                        error = error or refused
        if error is not None:
            raise error

    def _read(self, kind: int, flags: int, body: bytes) -> list[bytes]:
        """Sends a request whose answer is data."""
        self._sequence += 1
        self._socket.send(_header(16 + len(body), kind, flags | _REQUEST, self._sequence, 0) + body)
        found: list[bytes] = []
        while True:
            for answer, answer_flags, sequence, payload in self._receive():
                if sequence != self._sequence:
                    continue  # of a request given up
                if answer == _NLMSG_ERROR:
                    _raise(payload, answer_flags)
                if answer in (_NLMSG_ERROR, _NLMSG_DONE):
                    return found
                found.append(payload)
                if not flags & _DUMP:
                    return found

    def _receive(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Type, flags, sequence number and payload of the messages of one datagram."""
        data = self._socket.recv(1 << 16)  # the kernel's are up to 32 KiB
        offset = 0
        while offset < len(data):
            length, answer, flags, sequence, _ = _read_header(data, offset)
            yield answer, flags, sequence, data[offset + 16 : offset + length]
            offset += (length + 3) & ~3

    def link(self, name: str) -> Link | None:
        """An interface by its name, None if it is not there."""
        body = _link_header(0, 0) + _text(3, name) + _number(29, 1 << 3)  # without its counters
        try:
            answers = self._read(RTM_GETLINK, 0, body)
        except NetlinkError as error:
            if error.errno == errno.ENODEV:
                return None
            raise
        return _read_link(answers[0])

    def add_bridge(self, name: str, mac: str) -> None:
        """Makes a bridge, which is down. Set its MTU later: only then does it stay when ports come and go."""
        body = _link_header(0, 0) + _text(3, name) + _mac(1, mac)
        self.carry_out([Request(RTM_NEWLINK, _CREATE | _EXCLUSIVE, body + attribute(18, _text(1, "bridge")))])

    def set_link(self, name: str, mtu: int = 0) -> None:
        """Brings an interface up, and gives it an MTU unless that is 0."""
        self.carry_out([set_link(name, mtu)])

    def delete_link(self, name: str) -> bool:
        """Deletes an interface by its name; False if it was not there."""
        try:
            self.carry_out([Request(RTM_DELLINK, 0, _link_header(0, 0) + _text(3, name))])
        except NetlinkError as error:
            if error.errno == errno.ENODEV:
                return False
            raise
        return True

    def addresses(self, index: int) -> set[str]:
        """The addresses of an interface, with prefix lengths."""
        found = set()
        for body in self._read(RTM_GETADDR, _DUMP, struct.pack("=BBBBI", 0, 0, 0, 0, index)):
            _, prefix, _, _, owner = struct.unpack_from("=BBBBI", body)
            tags = attributes(body[8:])
            if owner == index:
                found.add(f"{ipaddress.ip_address(tags.get(2) or tags[1])}/{prefix}")
        return found

    def add_address(self, index: int, address: str) -> bool:
        """Adds an address as `add_address` says; False if it was there."""
        try:
            self.carry_out([add_address(index, address)])
        except NetlinkError as error:
            if error.errno == errno.EEXIST:
                return False
            raise
        return True

    def routes(self, family: int) -> list[KernelRoute]:
        """All routes of socket.AF_INET or AF_INET6."""
        header = struct.pack("=BBBBBBBBI", family, 0, 0, 0, 0, 0, 0, 0, 0)
        return [_read_route(body) for body in self._read(RTM_GETROUTE, _DUMP, header)]


def add_veth(name: str, mac: str, mtu: int, master: int, peer: tuple[str, str, int]) -> Request:
    """Makes a veth pair, one end at a bridge, the other (name, MAC, descriptor) in a namespace.

    Both are down: an end does not come up before it knows the other (ENOTCONN of veth_open).
    """
    size = _number(4, mtu) if mtu else b""
    peer_name, peer_mac, descriptor = peer
    other = _link_header(0, 0) + _text(3, peer_name) + _mac(1, peer_mac) + size + _number(28, descriptor)
    info = attribute(18, _text(1, "veth") + attribute(2, attribute(1, other)))
    body = _link_header(0, 0) + _text(3, name) + _mac(1, mac) + size + _number(10, master) + info
    return Request(RTM_NEWLINK, _CREATE | _EXCLUSIVE, body)


def set_link(name: str, mtu: int = 0) -> Request:
    """Brings an interface up, and gives it an MTU unless that is 0."""
    return Request(RTM_NEWLINK, 0, _link_header(0, _UP) + _text(3, name) + (_number(4, mtu) if mtu else b""))


def set_port(name: str, hairpin: bool) -> Request:
    """Brings a bridge's port up; `hairpin` is whether the bridge sends frames back by the port they came from."""
    data = _text(4, "bridge") + attribute(5, attribute(4, bytes([hairpin])))  # IFLA_BRPORT_MODE
    return Request(RTM_NEWLINK, 0, _link_header(0, _UP) + _text(3, name) + attribute(18, data))


def add_address(index: int, address: str) -> Request:
    """Adds an address with its prefix length, without duplicate address detection."""
    interface = ipaddress.ip_interface(address)
    packed = interface.ip.packed
    family = socket.AF_INET if interface.version == 4 else socket.AF_INET6
    flags = 0 if interface.version == 4 else _NODAD
    body = struct.pack("=BBBBI", family, interface.network.prefixlen, flags, 0, index)
    body += attribute(2, packed) + attribute(1, packed)
    if interface.version == 4 and interface.network.prefixlen < 31:
        body += attribute(4, interface.network.broadcast_address.packed)
    return Request(RTM_NEWADDR, _CREATE | _EXCLUSIVE, body)


def add_route(route: KernelRoute) -> Request:
    """Adds a route, or replaces that of the same destination, table and priority."""
    network = ipaddress.ip_network(route.destination)
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    low_table = route.table if 0 < route.table < 256 else (254 if not route.table else 0)
    body = struct.pack("=BBBBBBBBI", family, network.prefixlen, 0, 0, low_table, 3, route.scope, 1, 0)
    if network.prefixlen:
        body += attribute(1, network.network_address.packed)
    if route.gateway:
        body += attribute(5, ipaddress.ip_address(route.gateway).packed)
    body += _number(4, route.ifindex)
    if route.table > 255:
        body += _number(15, route.table)
    if route.priority:
        body += _number(6, route.priority)
    metrics = (_number(2, route.mtu) if route.mtu else b"") + (_number(8, route.advmss) if route.advmss else b"")
    if metrics:
        body += attribute(8, metrics)
    return Request(RTM_NEWROUTE, _CREATE | _REPLACE, body)


def _link_header(index: int, flags: int) -> bytes:
    return struct.pack("=BxHiII", 0, 0, index, flags, flags)


def _raise(payload: bytes, flags: int) -> None:
    code = -struct.unpack_from("=i", payload)[0]
    if code == 0:
        return
    reason = ""
    if flags & 0x200:  # NLM_F_ACK_TLVS
        # With NLM_F_CAPPED only the header of the request is repeated before the attributes.
        length = 16 if flags & 0x100 else struct.unpack_from("=I", payload, 4)[0]
        words = attributes(payload[4 + ((length + 3) & ~3) :]).get(1)
        reason = words.rstrip(b"\0").decode(errors="replace") if words else ""
    text = os.strerror(code)
    raise NetlinkError(code, f"{text} ({reason})" if reason else text)


def _read_link(body: bytes) -> Link:
    _, _, index, flags, _ = struct.unpack_from("=BxHiII", body)
    tags = attributes(body[16:])
    info = attributes(tags.get(18, b""))
    port = attributes(info.get(5, b"")) if info.get(4, b"").rstrip(b"\0") == b"bridge" else {}
    return Link(
        index,
        tags.get(3, b"").rstrip(b"\0").decode(errors="replace"),
        tags.get(1, b"").hex(":"),
        _integer(tags.get(4)),
        bool(flags & _UP),
        _integer(tags.get(10)),
        info.get(1, b"").rstrip(b"\0").decode(errors="replace"),
        bool(_integer(port.get(4))),
    )


def _read_route(body: bytes) -> KernelRoute:
    family, prefix, _, _, table, _, scope, _, _ = struct.unpack_from("=BBBBBBBBI", body)
    tags = attributes(body[12:])
    zero = b"\0" * (4 if family == socket.AF_INET else 16)
    metrics = attributes(tags.get(8, b""))
    gateway = tags.get(5)
    return KernelRoute(
        f"{ipaddress.ip_address(tags.get(1) or zero)}/{prefix}",
        str(ipaddress.ip_address(gateway)) if gateway else "",
        _integer(tags.get(4)),
        _integer(tags.get(15)) or table,
        _integer(tags.get(6)),
        _integer(metrics.get(2)),
        _integer(metrics.get(8)),
        scope,
    )
