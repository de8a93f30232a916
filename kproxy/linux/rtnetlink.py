"""A small rtnetlink: the dozen requests with which the CNI plugin makes a pod's links, addresses and routes.

Everything long-lived uses pyroute2. The plugin is started once per pod, and importing pyroute2 costs 110 ms of
processor time, opening its socket 7 ms more (measured here, 0.9.7); this module costs 2 ms and a request 30
microseconds. docs/decisions/0003-two-ways-to-speak-netlink.md has the figures.

A socket belongs to the network namespace that its thread was in when it was opened (network_namespaces(7)). Layouts and
numbers: rtnetlink(7), <linux/rtnetlink.h>, <linux/if_link.h>, <linux/if_addr.h>.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

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

Attributes = dict[int, bytes]


class NetlinkError(OSError):
    """The kernel refused a request; `strerror` holds its own words where it had some."""


@dataclass(frozen=True, slots=True)
class Link:
    """An interface. `master` is an index, 0 for none; `kind` is `bridge` or `veth`; `hairpin` is of a bridge's port."""

    index: int
    name: str
    mac: str
    mtu: int
    up: bool
    master: int
    kind: str
    hairpin: bool


@dataclass(frozen=True, slots=True)
class KernelRoute:
    """A route of any table; `destination` is a CIDR, `gateway` "" for none, `index` of the interface."""

    destination: str
    gateway: str
    index: int
    table: int
    priority: int
    mtu: int
    advmss: int
    scope: int


def attribute(kind: int, data: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    return struct.pack("=HH", len(data) + 4, kind) + data + b"\0" * (-len(data) % 4)


def _text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def _mac(kind: int, value: str) -> bytes:
    return attribute(kind, bytes.fromhex(value.replace(":", "")))


def attributes(data: bytes) -> Attributes:
    """Attributes by type, the flag of nested ones removed."""
    found: Attributes = {}
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
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
        OSError: it may not be entered, or is none.
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
        self._socket.setsockopt(270, 11, 1)  # SOL_NETLINK, NETLINK_EXT_ACK: reasons in words
        self._socket.bind((0, 0))
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Rtnetlink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, kind: int, flags: int, body: bytes) -> list[tuple[int, bytes]]:
        self._sequence += 1
        header = struct.pack("=IHHII", 16 + len(body), kind, flags | _REQUEST, self._sequence, 0)
        self._socket.send(header + body)
        found: list[tuple[int, bytes]] = []
        while True:
            data = self._socket.recv(1 << 18)
            offset = 0
            while offset < len(data):
                length, answer, answer_flags, sequence, _ = struct.unpack_from("=IHHII", data, offset)
                payload = data[offset + 16 : offset + length]
                offset += (length + 3) & ~3
                if sequence != self._sequence:
                    continue  # of a request given up
                if answer == _NLMSG_ERROR:
                    _raise(payload, answer_flags)
                    return found
                if answer == _NLMSG_DONE:
                    return found
                found.append((answer, payload))
                if not flags & (_DUMP | _ACK):
                    return found

    def link(self, name: str) -> Link | None:
        """An interface by its name, None if it is not there."""
        body = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + _text(3, name) + _number(29, 1 << 3)
        try:
            answers = self._ask(RTM_GETLINK, 0, body)
        except NetlinkError as error:
            if error.errno == errno.ENODEV:
                return None
            raise
        return _read_link(answers[0][1])

    def add_bridge(self, name: str, mac: str) -> None:
        """Makes a bridge, which is down. Set its MTU later: only then does it stay when ports come and go."""
        body = _link_header(0, 0) + _text(3, name) + _mac(1, mac)
        self._ask(RTM_NEWLINK, _ACK | _CREATE | _EXCLUSIVE, body + attribute(18, _text(1, "bridge")))

    def add_veth(self, name: str, mac: str, mtu: int, master: int, peer: tuple[str, str, int]) -> None:
        """Makes a veth pair, one end at a bridge, the other (name, MAC, descriptor) in a namespace.

        Both are down: an end does not come up before it knows the other (ENOTCONN of veth_open).
        """
        size = _number(4, mtu) if mtu else b""
        peer_name, peer_mac, descriptor = peer
        other = _link_header(0, 0) + _text(3, peer_name) + _mac(1, peer_mac) + size + _number(28, descriptor)
        info = attribute(18, _text(1, "veth") + attribute(2, attribute(1, other)))
        body = _link_header(0, 0) + _text(3, name) + _mac(1, mac) + size + _number(10, master) + info
        self._ask(RTM_NEWLINK, _ACK | _CREATE | _EXCLUSIVE, body)

    def set_link(self, index: int, mtu: int = 0) -> None:
        """Brings an interface up, and gives it an MTU unless that is 0."""
        self._ask(RTM_NEWLINK, _ACK, _link_header(index, _UP) + (_number(4, mtu) if mtu else b""))

    def set_hairpin(self, index: int, wanted: bool) -> None:
        """Whether a bridge sends frames back by the port they came from."""
        data = _text(4, "bridge") + attribute(5, attribute(4, bytes([wanted])))  # IFLA_BRPORT_MODE
        self._ask(RTM_NEWLINK, _ACK, struct.pack("=BxHiII", 0, 0, index, 0, 0) + attribute(18, data))

    def delete_link(self, name: str) -> bool:
        """Deletes an interface by its name; False if it was not there."""
        try:
            self._ask(RTM_DELLINK, _ACK, struct.pack("=BxHiII", 0, 0, 0, 0, 0) + _text(3, name))
        except NetlinkError as error:
            if error.errno == errno.ENODEV:
                return False
            raise
        return True

    def addresses(self, index: int) -> set[str]:
        """The addresses of an interface, with prefix lengths."""
        found = set()
        for _, body in self._ask(RTM_GETADDR, _DUMP, struct.pack("=BBBBI", 0, 0, 0, 0, 0)):
            _, prefix, _, _, owner = struct.unpack_from("=BBBBI", body)
            tags = attributes(body[8:])
            if owner == index:
                found.add(f"{ipaddress.ip_address(tags.get(2) or tags[1])}/{prefix}")
        return found

    def add_address(self, index: int, address: str) -> bool:
        """Adds an address with its prefix length, without duplicate address detection; False if it was there."""
        interface = ipaddress.ip_interface(address)
        packed = interface.ip.packed
        family = socket.AF_INET if interface.version == 4 else socket.AF_INET6
        flags = 0 if interface.version == 4 else _NODAD
        body = struct.pack("=BBBBI", family, interface.network.prefixlen, flags, 0, index)
        body += attribute(2, packed) + attribute(1, packed)
        if interface.version == 4 and interface.network.prefixlen < 31:
            body += attribute(4, interface.network.broadcast_address.packed)
        try:
            self._ask(RTM_NEWADDR, _ACK | _CREATE | _EXCLUSIVE, body)
        except NetlinkError as error:
            if error.errno == errno.EEXIST:
                return False
            raise
        return True

    def routes(self, family: int) -> list[KernelRoute]:
        """All routes of socket.AF_INET or AF_INET6."""
        header = struct.pack("=BBBBBBBBI", family, 0, 0, 0, 0, 0, 0, 0, 0)
        return [_read_route(body) for _, body in self._ask(RTM_GETROUTE, _DUMP, header)]

    def add_route(self, route: KernelRoute) -> None:
        """Adds a route, or replaces that of the same destination, table and priority."""
        network = ipaddress.ip_network(route.destination)
        family = socket.AF_INET if network.version == 4 else socket.AF_INET6
        low_table = route.table if 0 < route.table < 256 else (254 if not route.table else 0)
        body = struct.pack("=BBBBBBBBI", family, network.prefixlen, 0, 0, low_table, 3, route.scope, 1, 0)
        if network.prefixlen:
            body += attribute(1, network.network_address.packed)
        if route.gateway:
            body += attribute(5, ipaddress.ip_address(route.gateway).packed)
        body += _number(4, route.index)
        if route.table > 255:
            body += _number(15, route.table)
        if route.priority:
            body += _number(6, route.priority)
        metrics = (_number(2, route.mtu) if route.mtu else b"") + (_number(8, route.advmss) if route.advmss else b"")
        if metrics:
            body += attribute(8, metrics)
        self._ask(RTM_NEWROUTE, _ACK | _CREATE | _REPLACE, body)


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
