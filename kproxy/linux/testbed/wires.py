"""The links of a scratch host, and what is sent and seen on them.

Each interface is one end of a veth pair without ARP; the other end is in the namespace of the wires, where nothing
answers. What the host delivers to itself is seen by raw sockets.

Packets are followed to their end without a clock. A packet that arrives by a veth pair waits in the queue of one
processor, and so does what is made of it, so after each packet a few marker frames go the same way, one when the one
before it has come: when the last one is there, everything the packet led to is over, or has been seen.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from kproxy.dataplane.model.packet import LOCAL, Packet
from kproxy.linux.errors import ToolFailedError
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.programs import find_program, not_found
from kproxy.linux.sysctl import write_sysctl
from kproxy.linux.testbed import wire
from kproxy.linux.testbed.wire import Observed, address_text
from kproxy.netfilter.family import Family

ELSEWHERE: Final = "kpelse"
"""Stands for an interface that the host does not name."""

_TIMEOUT: Final = 300.0
_MARKER: Final = 0x88B5  # an EtherType for experiments (IEEE 802)
_ROUNDS: Final = 8
"""More than a packet, its answer and the way of both over lo wait in the queue of a processor."""


class Wires:
    """The wires of the host in a namespace, of one family; `stack` closes its sockets."""

    def __init__(self, node: Namespace, family: Family, stack: ExitStack) -> None:
        self._node = node
        self._family = family
        self._stack = stack
        self._far = stack.enter_context(Namespace.scratch())
        self._links: dict[str, socket.socket] = {}
        self._ends: dict[str, socket.socket] = {}
        self._receivers: dict[int, socket.socket] = {}
        self._token = 0
        write_sysctl(self._far, "net.ipv6.conf.default.disable_ipv6", 1)
        for protocol in wire.PROTOCOLS[family]:
            self._receivers[protocol] = self._opened(node.call(wire.open_receiver, family, protocol))
        self._sender = stack.enter_context(node.call(wire.open_sender, family))
        self._where = self._far.call(lambda: f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net")

    @property
    def links(self) -> Sequence[str]:
        """The interfaces in the order in which they were made."""
        return tuple(self._links)

    def _opened(self, found: socket.socket) -> socket.socket:
        found.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
        found.setblocking(False)
        return self._stack.enter_context(found)

    def add(self, names: Sequence[str]) -> None:
        """Make interfaces, those that are not there."""
        fresh = {name: f"w{number}" for number, name in enumerate(
            (name for name in names if name not in self._links), len(self._links))}  # fmt: skip
        if not fresh:
            return
        lines = []
        for name, end in fresh.items():
            lines.append(f"link add {name} type veth peer name {end} netns {self._where}")
            lines += [f"link set {name} arp off", f"link set {name} up"]
        run_ip(self._node, self._family, lines)
        run_ip(self._far, self._family, [f"link set {end} up" for end in fresh.values()])
        for name, end in fresh.items():
            self._links[name] = self._opened(self._far.call(_packet_socket, end, 3))  # ETH_P_ALL
            self._ends[name] = self._opened(self._node.call(_packet_socket, name, _MARKER))

    def follow(self, packet: Packet, *, malformed: bool = False) -> list[Observed]:
        """Send a packet, and see what becomes of it.

        Raises:
            ToolFailedError: frames do not get through.
        """
        self._token += 8  # a RST is about the number before its own
        token = self._token
        with _one_processor():
            self._drain(token)
            self._transmit(packet, wire.build(packet, token, malformed=malformed))
            self._pass_markers()
            return self._drain(token)

    def bring(self, packets: Sequence[bytes]) -> None:
        """Have packets arrive from elsewhere, each when the one before is through. Raises as `follow`."""
        with _one_processor():
            for data in packets:
                self._arrive(ELSEWHERE, data)
                self._pass_markers()

    def _transmit(self, packet: Packet, data: bytes) -> None:
        if packet.origin != LOCAL:
            self._arrive(packet.in_interface or ELSEWHERE, data)
            return
        self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, struct.pack("=I", packet.mark))
        # EPERM: a rule dropped it; EINVAL, EHOSTUNREACH: no route
        with contextlib.suppress(OSError):
            self._sender.sendto(data, (address_text(packet.family, packet.dst or 0), 0))

    def _arrive(self, link: str, data: bytes) -> None:
        self._put(link, 0x0800 if self._family is Family.IPV4 else 0x86DD, data)

    def _put(self, link: str, kind: int, data: bytes) -> None:
        """A frame to the host, from the wire."""
        hardware = bytes(self._ends[link].getsockname()[4])
        self._links[link].send(hardware + bytes(6) + struct.pack("!H", kind) + data)

    def _pass_markers(self) -> None:
        """Send markers, each when the one before has come; each waits its turn in the queue of this processor."""
        end = self._ends[ELSEWHERE]
        for _ in range(_ROUNDS):
            self._put(ELSEWHERE, _MARKER, bytes(46))
            ready, _, _ = select.select([end], [], [], _TIMEOUT)
            if not ready:
                raise ToolFailedError("a frame did not come through a veth pair of a scratch namespace")
            end.recv(100)

    def _drain(self, token: int) -> list[Observed]:
        found = []
        for link, item in self._links.items():
            for frame in _received(item):
                seen = wire.read_frame(link, frame)
                if seen is not None and seen[0] == token:
                    found.append(seen[1])
        for protocol, item in self._receivers.items():
            while True:
                try:
                    delivered = wire.read_delivered(self._family, protocol, item)
                except BlockingIOError:
                    break
                if delivered is not None and delivered[0] == token:
                    found.append(delivered[1])
        return found


def run_tool(namespace: Namespace, command: Sequence[str], text: str = "") -> None:
    """Run a program.

    Raises:
        ToolFailedError: it is not installed, or failed.
    """
    path = find_program(command[0])
    if path is None:
        raise ToolFailedError(f"packets cannot be sent without {command[0]}: {not_found(command[0])}")
    done = run(namespace, [path, *command[1:]], text=text, timeout=_TIMEOUT)
    if done.code:
        raise ToolFailedError(f"{' '.join(command)} failed: {done.reason}")


def run_ip(namespace: Namespace, family: Family, lines: Sequence[str]) -> None:
    """Have ip carry out lines. Raises as `run_tool`."""
    run_tool(namespace, ["ip", f"-{family.version}", "-batch", "-"], "\n".join(lines) + "\n")


@contextlib.contextmanager
def _one_processor() -> Iterator[None]:
    """The calling thread stays on one processor."""
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, processors)


def _received(item: socket.socket) -> Iterator[bytes]:
    while True:
        try:
            yield item.recv(65535)
        except BlockingIOError:
            return


def _packet_socket(link: str, protocol: int) -> socket.socket:
    found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
    found.bind((link, protocol))
    found.setsockopt(263, 23, 1)  # SOL_PACKET, PACKET_IGNORE_OUTGOING
    return found
