"""A host in a scratch namespace, its wires in another, and packets sent through it.

Rules are loaded once; for each packet the host is laid anew: interfaces, addresses, routes, sysctls, marks, what lists
and sets hold. Interfaces are veth pairs without ARP, whose other ends are in the namespace of the wires; nothing
answers there. What the host delivers to itself is seen by raw sockets.

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
from dataclasses import dataclass
from typing import Final

from kproxy.dataplane.model.conntrack import INVALID, NEW, RELATED, UNTRACKED, Connection
from kproxy.dataplane.model.host import Host, Route
from kproxy.dataplane.model.packet import LOCAL, LOOPBACK, PORT_PROTOCOLS, TCP, UDP, Packet
from kproxy.linux.errors import LinuxError, ToolFailedError
from kproxy.linux.iptables.binaries import find_iptables
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.programs import find_program, not_found
from kproxy.linux.sysctl import SysctlError, write_sysctl
from kproxy.linux.testbed import wire
from kproxy.linux.testbed.wire import Observed, address_text
from kproxy.netfilter.family import Family, protocol_name
from kproxy.netfilter.hooks import Variant
from kproxy.services.names import IPFamily

_TIMEOUT: Final = 300.0
_MARKER: Final = 0x88B5  # an EtherType for experiments (IEEE 802)
_ROUNDS: Final = 8
"""More than a packet, its answer and the way of both over lo wait in the queue of a processor."""
_ELSEWHERE: Final = "kpelse"
"""Stands for an interface that the host does not name."""
_OWN_TABLE: Final = "kp-testbed"
_OWN: Final = {Family.IPV4: 0xC6120001, Family.IPV6: 0x20010002 << 96 | 1}
"""What interfaces have for MASQUERADE to choose: 198.18.0.1, 2001:2::1 and those after (RFC 2544, RFC 5180)."""
_SYSCTLS: Final[dict[str, str | int]] = {
    "net.ipv4.conf.all.send_redirects": 0,
    "net.ipv4.conf.default.send_redirects": 0,
    "net.ipv4.conf.default.rp_filter": 0,
    "net.ipv4.icmp_ratemask": 0,
    "net.ipv4.icmp_ratelimit": 0,
    "net.ipv6.icmp.ratemask": "",
    "net.ipv6.icmp.ratelimit": 0,
    "net.ipv6.conf.all.accept_dad": 0,
    "net.ipv6.conf.default.accept_dad": 0,
    "net.ipv6.conf.default.router_solicitations": 0,
    "net.netfilter.nf_conntrack_tcp_be_liberal": 1,
}


class UnsendableError(LinuxError):
    """A packet, or what the host must know or remember for it, cannot be made here."""


@dataclass(frozen=True, slots=True)
class RuleText:
    """Rules as programs take them: input for iptables-restore or ip6tables-restore, or without a variant for nft -f."""

    text: str
    variant: Variant | None = None


class ScratchHost:
    """A host with rules. Use it as a context manager, or `close` it.

    Raises:
        PrivilegeError: the process is not root.
        ToolMissingError: ip, nft, iptables or conntrack is not installed.
        LinuxError: rules were refused.
    """

    def __init__(self, family: Family, rules: Sequence[RuleText]) -> None:
        self._family = family
        self._stack = ExitStack()
        self._links: dict[str, socket.socket] = {}
        self._ends: dict[str, socket.socket] = {}
        self._receivers: dict[int, socket.socket] = {}
        self._laid: Host | None = None
        self._token = 0
        self.own: dict[str, int] = {}
        try:
            self._node = self._stack.enter_context(Namespace.scratch())
            self._wires = self._stack.enter_context(Namespace.scratch())
            self._prepare()
            for item in rules:
                self._load(item)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> ScratchHost:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends everything."""
        self._stack.close()

    def send(self, host: Host, packet: Packet, connection: Connection, tries: int = 1) -> list[Observed | None]:
        """What becomes of the packet, each time as if it were the first one: None: nothing is seen of it.

        Raises:
            UnsendableError: this packet, host or connection cannot be made.
            LinuxError: the host could not be laid.
        """
        self._refuse(packet, connection)
        self._lay(host, packet, connection)
        found = []
        for _ in range(tries):
            self._remember(host, packet, connection)
            found.append(wire.what_counts(self._follow(packet, malformed=connection.state == INVALID)))
        return found

    # making the host

    def _prepare(self) -> None:
        for name, value in _SYSCTLS.items():
            with contextlib.suppress(SysctlError):
                write_sysctl(self._node, name, value)
        write_sysctl(self._wires, "net.ipv6.conf.default.disable_ipv6", 1)
        self._ip(["link set lo up"])
        for protocol in wire.PROTOCOLS[self._family]:
            found = self._node.call(wire.open_receiver, self._family, protocol)
            self._receivers[protocol] = self._opened(found)
        self._sender = self._stack.enter_context(self._node.call(wire.open_sender, self._family))
        self._where = self._wires.call(lambda: f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net")

    def _opened(self, found: socket.socket) -> socket.socket:
        found.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
        found.setblocking(False)
        return self._stack.enter_context(found)

    def _run(self, command: Sequence[str], text: str = "") -> None:
        path = find_program(command[0])
        if path is None:
            raise ToolFailedError(f"packets cannot be sent without {command[0]}: {not_found(command[0])}")
        done = run(self._node, [path, *command[1:]], text=text, timeout=_TIMEOUT)
        if done.code:
            raise ToolFailedError(f"{' '.join(command)} failed: {done.reason}")

    def _ip(self, lines: Sequence[str]) -> None:
        self._run(["ip", f"-{self._family.version}", "-batch", "-"], "\n".join(lines) + "\n")

    def _load(self, item: RuleText) -> None:
        if item.variant is None:
            self._run(["nft", "-f", "-"], item.text)
        else:
            family = IPFamily.IPV6 if self._family is Family.IPV6 else IPFamily.IPV4
            self._run([find_iptables(family, item.variant).restore, "--noflush"], item.text)

    def _refuse(self, packet: Packet, connection: Connection) -> None:
        if packet.protocol not in self._receivers:
            raise UnsendableError(f"packets of protocol {protocol_name(packet.protocol)} are not made here")
        if packet.src is None or packet.dst is None or (packet.has_ports and None in (packet.sport, packet.dport)):
            raise UnsendableError("a packet without address or port cannot be sent")
        if packet.in_interface == LOOPBACK or packet.in_port or packet.fragment:
            raise UnsendableError("fragments, and packets that arrive by lo or a bridge port, are not made here")
        if packet.uid or packet.gid or (packet.socket is False and packet.origin == LOCAL):
            raise UnsendableError("packets of other users, or without a socket, are not made here")
        if connection.state == RELATED:
            raise UnsendableError("connections that are RELATED to others are not made here")
        if connection.state == INVALID and packet.protocol not in (TCP, UDP):
            raise UnsendableError("INVALID packets are made of TCP and UDP only")
        if connection.state == NEW and connection.mark:
            raise UnsendableError("a connection that begins has no mark")

    def _lay(self, host: Host, packet: Packet, connection: Connection) -> None:
        """Make interfaces, addresses, routes, sysctls and marks those of the host."""
        if host.sets or host.nth or host.rules or host.transparent:
            raise UnsendableError("ipsets, routing policy, counters and sockets are not made here")
        named = {route.device for route in host.routes or () if route.device}
        named |= {item.name for item in (host.interfaces or {}).values()}
        if packet.origin != LOCAL and packet.in_interface:
            named.add(packet.in_interface)
        self._make_links(sorted((named | {_ELSEWHERE}) - {LOOPBACK}))
        for name, value in host.sysctls.items():
            with contextlib.suppress(SysctlError):
                write_sysctl(self._node, name, value)
        lines = [f"addr flush dev {name} scope global" for name in (LOOPBACK, *self._links)]
        lines.append("route flush table main")
        lines += self._addresses(host)
        # One address inside 127.0.0.0/8 in the main table would come before the local table's route to all of it: as
        # long as there are no rules of routing policy, the two are one trie (fib_trie_table in net/ipv4/fib_trie.c).
        routes = [route for route in host.routes or () if not self._is_own(host, route)]
        lines += [self._route(route) for route in routes]
        lines.append(f"route append default dev {_ELSEWHERE} metric 4000")
        self._ip(lines)
        self._own_rules(packet, connection)

    def _make_links(self, names: Sequence[str]) -> None:
        fresh = [name for name in names if name not in self._links]
        lines = []
        for number, name in enumerate(fresh, len(self._links)):
            lines.append(f"link add {name} type veth peer name w{number} netns {self._where}")
            lines += [f"link set {name} arp off", f"link set {name} up"]
            self.own[name] = _OWN[self._family] + number
        if not fresh:
            return
        self._ip(lines)
        ends = [f"link set w{number} up" for number in range(len(self._links), len(self._links) + len(fresh))]
        path = find_program("ip") or "ip"
        done = run(self._wires, [path, "-batch", "-"], text="\n".join(ends) + "\n", timeout=_TIMEOUT)
        if done.code:
            raise ToolFailedError(f"ip failed: {done.reason}")
        for number, name in enumerate(fresh, len(self._links)):
            self._links[name] = self._opened(self._wires.call(_packet_socket, f"w{number}", 3))  # ETH_P_ALL
            self._ends[name] = self._opened(self._node.call(_packet_socket, name, _MARKER))

    def _addresses(self, host: Host) -> list[str]:
        family, bits = self._family, self._family.bits
        nodad = " nodad" if family is Family.IPV6 else ""
        lines = [f"addr add {address_text(family, own)}/{bits} dev {name}{nodad}" for name, own in self.own.items()]
        placed = set()
        for item in (host.interfaces or {}).values():
            for address in item.addresses:
                if address.family is not family or _is_never_own(family, address.value):
                    continue
                placed.add(address.value)
                wide = "" if address.broadcast is None else f" broadcast {address_text(family, address.broadcast)}"
                lines.append(f"addr add {address} dev {item.name}{wide}{nodad}")
        for kind, value in sorted(host.local_addresses or ()):
            if kind is family and value not in placed and not _is_never_own(family, value):
                lines.append(f"addr add {address_text(family, value)}/{bits} dev {_ELSEWHERE}{nodad}")
        return lines

    def _is_own(self, host: Host, route: Route) -> bool:
        single = route.network.mask == self._family.full_mask
        return single and bool(host.is_local(self._family, route.network.address))

    def _route(self, route: Route) -> str:
        device = route.device or _ELSEWHERE
        prefix = bin(route.network.mask).count("1")
        text = "route replace"
        text += f" {'' if route.kind == 'unicast' else route.kind} {address_text(self._family, route.network.address)}"
        text += f"/{prefix}"
        if route.kind == "unicast":
            text += f" dev {_ELSEWHERE if device == LOOPBACK else device}"
            if route.gateway is not None:
                text += f" via {address_text(self._family, route.gateway)} onlink"
        return text + (f" metric {route.metric}" if route.metric else "")

    def _own_rules(self, packet: Packet, connection: Connection) -> None:
        """A table of our own: it marks what arrives, and keeps packets from being tracked."""
        lines = [f"add table netdev {_OWN_TABLE}", f"delete table netdev {_OWN_TABLE}"]
        lines += [f"add table inet {_OWN_TABLE}", f"delete table inet {_OWN_TABLE}"]
        if packet.mark and packet.origin != LOCAL:
            device = packet.in_interface or _ELSEWHERE
            hook = f'type filter hook ingress device "{device}" priority 0;'
            lines += [f"table netdev {_OWN_TABLE} {{ chain arriving {{ {hook} meta mark set {packet.mark}; }}; }}"]
        if connection.state == UNTRACKED:
            chains = " ".join(
                f"chain at-{hook} {{ type filter hook {hook} priority -201; notrack; }};"
                for hook in ("prerouting", "output")
            )
            lines += [f"table inet {_OWN_TABLE} {{ {chains} }}"]
        self._run(["nft", "-f", "-"], "\n".join(lines) + "\n")
        self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, packet.mark if packet.origin == LOCAL else 0)

    def _remember(self, host: Host, packet: Packet, connection: Connection) -> None:
        """Set what the host remembers: connections, lists, elements of sets."""
        self._run(["conntrack", "-F"])
        for name, held in (host.recent or {}).items():
            if any(any(ages) for ages in held.values()):
                raise UnsendableError(f"list {name} holds addresses of some time ago")
            self._node.call(_fill_list, name, [address_text(self._family, item) for item in held if held[item]])
        lines = []
        for (table, name), elements in host.elements.items():
            lines.append(f"flush set {table} {name}")
            for key, data in elements.items():
                if (data is not True and data is not None) or not isinstance(key, int):
                    raise UnsendableError(f"elements of {table} {name} are not made here")
                if data:
                    lines.append(f"add element {table} {name} {{ {address_text(self._family, key)} }}")
        if lines:
            self._run(["nft", "-f", "-"], "\n".join(lines) + "\n")
        if connection.state not in (NEW, INVALID, UNTRACKED):
            self._insert(packet, connection)

    def _insert(self, packet: Packet, connection: Connection) -> None:
        """Put the packet's connection into the table."""
        entry = connection.known_as(packet)
        original, reply = entry.original, entry.reply
        if original is None or reply is None or packet.protocol not in PORT_PROTOCOLS:
            raise UnsendableError("a connection without ports is not made here")
        command = ["conntrack", "-I", "-p", protocol_name(packet.protocol), "-t", "300", "-u", "SEEN_REPLY,ASSURED"]
        for flow, names in ((original, ("orig-src", "orig-dst", "orig-port-src", "orig-port-dst")),
                            (reply, ("reply-src", "reply-dst", "reply-port-src", "reply-port-dst"))):  # fmt: skip
            if flow.src is None or flow.dst is None:
                raise UnsendableError("a connection without addresses is not made here")
            values = (
                address_text(self._family, flow.src),
                address_text(self._family, flow.dst),
                flow.sport,
                flow.dport,
            )
            for name, value in zip(names, values, strict=True):
                command += [f"--{name}", str(value)]
        if packet.protocol == TCP:
            command += ["--state", "ESTABLISHED"]
        if connection.mark:
            command += ["--mark", str(connection.mark)]
        self._run(command)

    # packets

    def _follow(self, packet: Packet, *, malformed: bool) -> list[Observed]:
        """Send a packet and see what becomes of it."""
        self._token += 8  # a RST is about the number before its own
        token = self._token
        processors = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(processors)})
        try:
            self._drain(token)
            self._transmit(packet, wire.build(packet, token, malformed=malformed))
            for _ in range(_ROUNDS):
                self._pass_marker()
            return self._drain(token)
        finally:
            os.sched_setaffinity(0, processors)

    def _transmit(self, packet: Packet, data: bytes) -> None:
        if packet.origin == LOCAL:
            # EPERM: a rule dropped it; EINVAL, EHOSTUNREACH: no route
            with contextlib.suppress(OSError):
                self._sender.sendto(data, (address_text(packet.family, packet.dst or 0), 0))
            return
        kind = 0x0800 if packet.family is Family.IPV4 else 0x86DD
        self._put(packet.in_interface or _ELSEWHERE, kind, data)

    def _put(self, link: str, kind: int, data: bytes) -> None:
        """A frame to the host, from the wire."""
        self._links[link].send(self._hardware(link) + bytes(6) + struct.pack("!H", kind) + data)

    def _hardware(self, link: str) -> bytes:
        return bytes(self._ends[link].getsockname()[4])

    def _pass_marker(self) -> None:
        """Send a marker and wait until it has come; each waits its turn in the queue of this processor."""
        self._put(_ELSEWHERE, _MARKER, bytes(46))
        end = self._ends[_ELSEWHERE]
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


def _fill_list(name: str, addresses: Sequence[str]) -> None:
    """Write a list of `-m recent`; /proc/thread-self/net is the thread's own namespace."""
    path = f"/proc/thread-self/net/xt_recent/{name}"
    if not os.path.exists(path):
        return  # no rule of this side has it
    for line in ("/", *(f"+{address}" for address in addresses)):
        with open(path, "w") as file:
            file.write(line + "\n")


def _is_never_own(family: Family, value: int) -> bool:
    """Addresses that no interface takes: those of 0.0.0.0/8, and what the host has anyway."""
    if family is Family.IPV6:
        return value in (0, 1)
    return value >> 24 in (0, 127)
