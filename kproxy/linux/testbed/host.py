"""A host in a scratch namespace, with rules, and packets sent through it.

Rules are loaded once; for each packet the host is laid anew: interfaces, addresses, routes, sysctls, marks, what lists
and sets hold, connections. `wires` sends the packets and sees what becomes of them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kproxy.dataplane.model.conntrack import INVALID, NEW, RELATED, UNTRACKED, Connection
from kproxy.dataplane.model.host import Host, Route
from kproxy.dataplane.model.packet import LOCAL, LOOPBACK, TCP, UDP, Packet, format_endpoint
from kproxy.linux.errors import LinuxError, ToolFailedError
from kproxy.linux.iptables.executor import find_iptables
from kproxy.linux.namespace import Namespace
from kproxy.linux.sysctl import SysctlError, write_sysctl
from kproxy.linux.testbed import wire
from kproxy.linux.testbed.wire import Observed, address_text
from kproxy.linux.testbed.wires import ELSEWHERE, Wires, run_ip, run_tool
from kproxy.netfilter.family import Family, protocol_name
from kproxy.netfilter.hooks import Variant
from kproxy.render import Rendered, RenderedIpvs, RenderedTarget
from kproxy.services.names import IPFamily

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
    "net.ipv4.vs.expire_nodest_conn": 1,
}
_LOCK_WAIT: Final = 60
"""Seconds for which legacy iptables waits for its lock, which is the whole machine's."""
_PATIENCE: Final = 60.0
_RTF_LOCAL: Final = 0x80000000
_TENTATIVE: Final = 0x40
_FLUSH: Final = struct.pack("=IHHIIBBH", 20, 1 << 8 | 2, 5, 0, 0, 0, 0, 0)
"""IPCTNL_MSG_CT_DELETE without a tuple, acknowledged (<linux/netfilter/nfnetlink_conntrack.h>)."""


class UnsendableError(LinuxError):
    """A packet, or what the host must know or remember for it, cannot be made here."""


@dataclass(frozen=True, slots=True)
class RuleText:
    """Rules as programs take them: input for iptables-restore or ip6tables-restore of a variant, or for `program`."""

    text: str
    variant: Variant | None = None
    program: tuple[str, ...] = ("nft", "-f", "-")


_IPSETS: Final = ("ipset", "restore")
_VIRTUAL_SERVERS: Final = ("ipvsadm", "-R")


def rule_texts(rendered: Rendered) -> list[RuleText]:
    """What loads kube-proxy's rules of a mode, in that order."""
    if isinstance(rendered, RenderedIpvs):
        return [
            RuleText(rendered.ipset_text, program=_IPSETS),
            RuleText(rendered.save_text, Variant.NFT),
            RuleText(rendered.ipvsadm_text, program=_VIRTUAL_SERVERS),
        ]
    if isinstance(rendered, RenderedTarget):
        return [RuleText(rendered.save_text, Variant.NFT)]
    return [RuleText(rendered.restore_text)]


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
        self._laid: tuple[Host, str] | None = None
        self._own_script = ""
        self._servers = next((each for each in rules if each.program == _VIRTUAL_SERVERS), None)
        self.own: dict[str, int] = {}
        try:
            self._node = self._stack.enter_context(Namespace.scratch())
            self._prepare()
            self._wires = Wires(self._node, family, self._stack)
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

    @property
    def namespace(self) -> Namespace:
        """Where the rules are."""
        return self._node

    def send(self, host: Host, packet: Packet, connection: Connection, tries: int = 1) -> list[Observed | None]:
        """What becomes of the packet, each time as if it were the first one: None: nothing is seen of it.

        Raises:
            UnsendableError: this packet, host or connection cannot be made.
            LinuxError: the host could not be laid.
        """
        self._refuse(packet, connection)
        self._lay(host, packet)
        self._own_rules(packet, connection)
        found = []
        for _ in range(tries):
            self._remember(host, packet, connection)
            found.append(wire.what_counts(self._wires.follow(packet, malformed=connection.state == INVALID)))
        return found

    # making the host

    def _prepare(self) -> None:
        for name, value in _SYSCTLS.items():
            with contextlib.suppress(SysctlError):
                write_sysctl(self._node, name, value)
        self._ip(["link set lo up"])
        self._conntrack = self._stack.enter_context(self._node.call(_conntrack_socket))

    def _run(self, command: Sequence[str], text: str = "") -> None:
        run_tool(self._node, command, text)

    def _ip(self, lines: Sequence[str]) -> None:
        run_ip(self._node, self._family, lines)

    def _load(self, item: RuleText) -> None:
        if item.variant is None:
            self._run(item.program, item.text)
        else:
            family = IPFamily.IPV6 if self._family is Family.IPV6 else IPFamily.IPV4
            waits = ["--wait", str(_LOCK_WAIT)] if item.variant is Variant.LEGACY else []
            self._run([find_iptables(family, item.variant).restore, "--noflush", *waits], item.text)

    def _refuse(self, packet: Packet, connection: Connection) -> None:
        if packet.protocol not in wire.PROTOCOLS[self._family]:
            raise UnsendableError(f"packets of protocol {protocol_name(packet.protocol)} are not made here")
        if packet.src is None or packet.dst is None or (packet.has_ports and None in (packet.sport, packet.dport)):
            raise UnsendableError("a packet without address or port cannot be sent")
        if packet.in_interface == LOOPBACK or packet.in_port or packet.fragment:
            raise UnsendableError("fragments, and packets that arrive by lo or a bridge port, are not made here")
        if packet.uid or packet.gid or (packet.socket is False and packet.origin == LOCAL):
            raise UnsendableError("packets of other users, or without a socket, are not made here")
        if connection.state == RELATED and packet.protocol not in wire.HELPED:
            raise UnsendableError("connections RELATED to others are made of TCP and UDP only")
        if connection.state == INVALID and packet.protocol not in (TCP, UDP):
            raise UnsendableError("INVALID packets are made of TCP and UDP only")
        if connection.state in (NEW, RELATED) and connection.mark:
            raise UnsendableError("a connection that begins has no mark")

    def _lay(self, host: Host, packet: Packet) -> None:
        """Make interfaces, addresses, routes and sysctls those of the host."""
        arrives = packet.in_interface or "" if packet.origin != LOCAL else ""
        if self._laid == (host, arrives):
            return
        if host.sets or host.nth or host.rules or host.transparent:
            raise UnsendableError("ipsets, routing policy, counters and sockets are not made here")
        self._laid = None
        named = {route.device for route in host.routes or () if route.device}
        named |= {item.name for item in (host.interfaces or {}).values()}
        if packet.origin != LOCAL and packet.in_interface:
            named.add(packet.in_interface)
        self._wires.add(sorted((named | {ELSEWHERE}) - {LOOPBACK}))
        self.own = {name: _OWN[self._family] + number for number, name in enumerate(self._wires.links)}
        for name, value in host.sysctls.items():
            with contextlib.suppress(SysctlError):
                write_sysctl(self._node, name, value)
        lines = [f"addr flush dev {name} scope global" for name in (LOOPBACK, *self._wires.links)]
        lines.append("route flush table main")
        lines += self._addresses(host)
        # One address inside 127.0.0.0/8 in the main table would come before the local table's route to all of it: as
        # long as there are no rules of routing policy, the two are one trie (fib_trie_table in net/ipv4/fib_trie.c).
        routes = [route for route in host.routes or () if not self._is_own(host, route)]
        lines += [self._route(route) for route in routes]
        lines.append(f"route append default dev {ELSEWHERE} metric 4000")
        self._ip(lines)
        if self._family is Family.IPV6:
            wanted = {line.split()[2].partition("/")[0] for line in self._addresses(host)}
            why = "IPv6 addresses of a scratch namespace did not become its own"
            self._node.call(_await, lambda: _are_ready(wanted), why)
        self._laid = host, arrives

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
        for kind, value in sorted(host.served.union(host.local_addresses or ()), key=lambda own: own[1]):
            if kind is family and value not in placed and not _is_never_own(family, value):
                # By kube-ipvs0 nothing leaves: on a link that packets leave by, MASQUERADE might choose its addresses.
                device = LOOPBACK if (kind, value) in host.served else ELSEWHERE
                lines.append(f"addr add {address_text(family, value)}/{bits} dev {device}{nodad}")
        return lines

    def _is_own(self, host: Host, route: Route) -> bool:
        single = route.network.mask == self._family.full_mask
        return single and bool(host.is_local(self._family, route.network.address))

    def _route(self, route: Route) -> str:
        device = route.device or ELSEWHERE
        prefix = bin(route.network.mask).count("1")
        text = "route replace"
        text += f" {'' if route.kind == 'unicast' else route.kind} {address_text(self._family, route.network.address)}"
        text += f"/{prefix}"
        if route.kind == "unicast":
            text += f" dev {ELSEWHERE if device == LOOPBACK else device}"
            if route.gateway is not None:
                text += f" via {address_text(self._family, route.gateway)} onlink"
        return text + (f" metric {route.metric}" if route.metric else "")

    def _own_rules(self, packet: Packet, connection: Connection) -> None:
        """A table of our own: it marks what arrives, and keeps packets from being tracked."""
        lines = [f"add table netdev {_OWN_TABLE}", f"delete table netdev {_OWN_TABLE}"]
        lines += [f"add table inet {_OWN_TABLE}", f"delete table inet {_OWN_TABLE}"]
        if packet.mark and packet.origin != LOCAL:
            device = packet.in_interface or ELSEWHERE
            hook = f'type filter hook ingress device "{device}" priority 0;'
            lines += [f"table netdev {_OWN_TABLE} {{ chain arriving {{ {hook} meta mark set {packet.mark}; }}; }}"]
        if connection.state == UNTRACKED:
            chains = " ".join(
                f"chain at-{hook} {{ type filter hook {hook} priority -201; notrack; }};"
                for hook in ("prerouting", "output")
            )
            lines += [f"table inet {_OWN_TABLE} {{ {chains} }}"]
        if connection.state == RELATED:
            lines.append(wire.helper_rules(self._family, _OWN_TABLE))
        script = "\n".join(lines) + "\n"
        if script != self._own_script:
            self._run(["nft", "-f", "-"], script)
            self._own_script = script

    def _remember(self, host: Host, packet: Packet, connection: Connection) -> None:
        """Set what the host remembers: connections, lists, elements of sets."""
        self._forget_connections()
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
        if connection.state == RELATED:
            self._expect(packet)
        elif connection.state not in (NEW, INVALID, UNTRACKED):
            self._insert(packet, connection)

    def _forget_connections(self) -> None:
        self._conntrack.send(_FLUSH)
        (code,) = struct.unpack_from("=i", self._conntrack.recv(4096), 16)
        if code:
            raise ToolFailedError(f"connections cannot be forgotten: {os.strerror(-code)}")
        if self._servers is not None and self._node.call(_knows_virtual):
            self._run(["ipvsadm", "-C"])
            why = "IPVS does not forget connections: expire_nodest_conn needs Linux 5.9"
            self._node.call(_await, lambda: not _knows_virtual(), why)
            self._load(self._servers)

    def _insert(self, packet: Packet, connection: Connection) -> None:
        """Put the packet's connection into the table."""
        entry = connection.known_as(packet)
        original, reply = entry.original, entry.reply
        if original is None or reply is None or not packet.has_ports:
            raise UnsendableError("a connection without ports is not made here")
        if self._servers is not None and (connection.dnat or connection.ipvs):
            raise UnsendableError("a connection that IPVS knows is not made here")
        command = ["conntrack", "-I", "-p", protocol_name(packet.protocol), "-t", "300", "-u", "SEEN_REPLY,ASSURED"]
        if None in (*original, *reply):
            raise UnsendableError("a connection without addresses is not made here")
        plain = original.reversed()  # the kernel translates it, and notes that it does (nf_nat_setup_info)
        for way, flow in (("orig", original), ("reply", plain)):
            for end, address, port in (("src", flow.src, flow.sport), ("dst", flow.dst, flow.dport)):
                command += [f"--{way}-{end}", address_text(self._family, address or 0)]
                command += [f"--{way}-port-{end}", str(port)]
        if reply[:2] != plain[:2]:
            command += ["--dst-nat", format_endpoint(self._family, reply.src, reply.sport)]
        if reply[2:] != plain[2:]:
            command += ["--src-nat", format_endpoint(self._family, reply.dst, reply.dport)]
        if packet.protocol == TCP:
            command += ["--state", "ESTABLISHED"]
        if connection.mark:
            command += ["--mark", str(connection.mark)]
        self._run(command)

    def _expect(self, packet: Packet) -> None:
        """Have the kernel expect the packet's connection."""
        self._wires.bring(wire.packets_before(packet))
        if not self._node.call(Path("/proc/thread-self/net/nf_conntrack_expect").read_text).strip():
            raise UnsendableError("the kernel does not expect the connection, which was to be RELATED to another")


def _await(holds: Callable[[], bool], otherwise: str) -> None:
    """Wait for what the kernel does in its own time. Raises ToolFailedError: it did not, with these words."""
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise ToolFailedError(otherwise)
        time.sleep(0.002)


def _are_ready(addresses: Collection[str]) -> bool:
    """Whether the host has its IPv6 addresses: a work queue sees to their local routes and takes away that they are
    tentative (addrconf_dad_work in net/ipv6/addrconf.c)."""
    wanted = {socket.inet_pton(socket.AF_INET6, address).hex() for address in addresses}
    routes = (line.split() for line in Path("/proc/thread-self/net/ipv6_route").read_text().splitlines())
    local = {fields[0] for fields in routes if int(fields[8], 16) & _RTF_LOCAL}
    found = (line.split() for line in Path("/proc/thread-self/net/if_inet6").read_text().splitlines())
    return wanted <= local & {fields[0] for fields in found if not int(fields[4], 16) & _TENTATIVE}


def _knows_virtual() -> bool:
    """Whether IPVS knows connections: it forgets those of real servers that are gone (expire_nodest_conn)."""
    return len(Path("/proc/thread-self/net/ip_vs_conn").read_text().splitlines()) > 1


def _conntrack_socket() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)  # NETLINK_NETFILTER


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
