"""A node in a namespace and, at the other ends of its links, a namespace without any address: the wires.

    wire namespace            node namespace
      o0  ------------------- eth0   192.0.2.10/28, 2001:db8:1::10/64; the rest of the world lies behind it
      p1  ------------------- vp1 \\
      p2  ------------------- vp2 -- cni0   10.244.0.1/24, fd00:244::1/64
      p3  ------------------- vp3 /         behind vp3: any number of pods that only receive
      c1  ------------------- cali1  10.245.0.1/32, fd00:245::1/128; pod 10.245.0.5, fd00:245::5

Nothing answers on the wires: packets are put on them and read from them through AF_PACKET sockets, so that all that is
seen is the node's doing. What the node delivers to itself is seen by raw sockets inside it. A packet is recognised
wherever it turns up by a number that it carries: the sequence number of a TCP SYN, the initiate tag of an SCTP INIT,
the payload of UDP and ICMP.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kproxy.dataplane import Host, Packet
from kproxy.dataplane.model.hostfile import parse_host
from kproxy.linux.testbed.wire import (
    PROTOCOLS,
    Observed,
    address_text,
    build,
    open_receiver,
    open_sender,
    read_delivered,
    read_frame,
)
from kproxy.netfilter import Family
from tests.support.kernel.namespaces import run

NODE_V4, NODE_V6 = "192.0.2.10", "2001:db8:1::10"
GATEWAY_V4, GATEWAY_V6 = "192.0.2.1", "2001:db8:1::1"
LINKS = {"o0": "eth0", "p1": "vp1", "p2": "vp2", "p3": "vp3", "c1": "cali1"}
POD_LINK = {
    "10.244.0.11": "p1", "10.244.0.12": "p2", "fd00:244::11": "p1", "fd00:244::12": "p2",
    "10.245.0.5": "c1", "fd00:245::5": "c1",
}  # fmt: skip
ON_LINK = {GATEWAY_V4, "192.0.2.2", GATEWAY_V6, "2001:db8:1::2"}

HOST: dict[str, Any] = {
    "interfaces": [
        {"name": "lo", "addresses": ["127.0.0.1/8", "::1/128"]},
        {"name": "eth0", "addresses": [f"{NODE_V4}/28", f"{NODE_V6}/64"]},
        {"name": "cni0", "addresses": ["10.244.0.1/24", "fd00:244::1/64"]},
        {"name": "cali1", "addresses": ["10.245.0.1/32", "fd00:245::1/128"]},
        {"name": "vp1", "bridge": "cni0", "hairpin": True},
        {"name": "vp2", "bridge": "cni0", "hairpin": False},
        {"name": "vp3", "bridge": "cni0", "hairpin": False},
    ],
    "routes": [
        {"to": "default", "via": GATEWAY_V4, "dev": "eth0"},
        {"to": "default", "via": GATEWAY_V6, "dev": "eth0"},
        {"to": "10.245.0.5/32", "dev": "cali1"},
        {"to": "fd00:245::5/128", "dev": "cali1"},
        {"to": "203.0.113.0/24", "type": "blackhole"},
    ],
    "sysctls": {
        "ip_forward": 1, "ip6_forward": 1, "route_localnet": 0, "rp_filter": 0, "accept_local": 0,
        "bridge-nf-call-iptables": 1, "bridge-nf-call-ip6tables": 1,
    },
}  # fmt: skip
"""The node as a host file describes it."""


def mac(link: str, side: str) -> str:
    """The fixed address of a link's end: side `node` or `wire`; cni0 has one too."""
    number = [*LINKS, "cni0"].index(link)
    return f"02:00:00:00:0{int(side == 'wire')}:0{number}"


@dataclass(frozen=True)
class Probe:
    """A packet to send: the model's view, and where it is sent from: a link, or `node`."""

    packet: Packet
    link: str
    token: int
    ack: int = 0


def _commands(extra: Sequence[str]) -> tuple[str, str]:
    node = ["link set lo up", "link add cni0 type bridge forward_delay 0"]
    node.append(f"link set cni0 address {mac('cni0', 'node')}")
    for link, name in LINKS.items():
        node.append(f"link set {name} address {mac(link, 'node')}")
        if name.startswith("vp"):
            node.append(f"link set {name} master cni0")
        node.append(f"link set {name} up")
    node.append("link set cni0 up")
    own = [(address, item["name"]) for item in HOST["interfaces"][1:] for address in item.get("addresses", ())]
    node += [f"addr add {address} dev {device}" + (" nodad" if ":" in address else "") for address, device in own]
    node += [f"addr add {item} dev eth0" + (" nodad preferred_lft 0" if ":" in item else "") for item in extra]
    node += [f"neigh add {item} lladdr {mac('o0', 'wire')} dev eth0 nud permanent" for item in sorted(ON_LINK)]
    for address, link in POD_LINK.items():
        device = "cali1" if link == "c1" else "cni0"
        node.append(f"neigh add {address} lladdr {mac(link, 'wire')} dev {device} nud permanent")
    for route in HOST["routes"]:
        to = route["to"]
        if to == "default":
            to = "::/0" if ":" in route["via"] else "0.0.0.0/0"
        text = f"{route.get('type', '')} {to}"
        for key in ("via", "dev"):
            if key in route:
                text += f" {key} {route[key]}"
        node.append(f"route add {text}")
    wire = []
    for link in LINKS:
        wire += [f"link set {link} address {mac(link, 'wire')}", f"link set {link} up"]
    return "\n".join(node), "\n".join(wire)


_SYSCTLS = {
    "net.ipv4.ip_forward": 1,
    "net.ipv6.conf.all.forwarding": 1,
    "net.ipv4.conf.all.send_redirects": 0,
    "net.ipv4.conf.default.send_redirects": 0,
    "net.ipv4.conf.all.rp_filter": 0,
    "net.ipv4.conf.default.rp_filter": 0,
    "net.ipv4.icmp_ratemask": 0,
    "net.ipv4.icmp_ratelimit": 0,
    "net.ipv6.icmp.ratelimit": 0,
    "net.ipv6.conf.all.accept_dad": 0,
    "net.ipv6.conf.default.accept_dad": 0,
    "net.netfilter.nf_conntrack_max": 2_000_000,
}
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Run this thread inside a network namespace: sockets opened here belong to it."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    away = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        _enter(away)
        try:
            yield
        finally:
            _enter(home)
    finally:
        os.close(home)
        os.close(away)


def _enter(descriptor: int) -> None:
    if _LIBC.setns(descriptor, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")


class Node:
    """The node and its wires."""

    def __init__(self, name: str, extra: Sequence[str] = (), links: Mapping[str, str] = LINKS) -> None:
        self.name = name
        self.wires = f"{name}w"
        self.ends = dict(links)
        self._extra = tuple(extra)
        self._links: dict[str, socket.socket] = {}
        self._local: dict[tuple[Family, int], socket.socket] = {}
        self._send: dict[Family, socket.socket] = {}
        self.pods = dict(POD_LINK)

    def make(self) -> None:
        """Build the namespaces and open the sockets."""
        self._add_namespaces()
        for link, name in LINKS.items():
            run("ip", "-n", self.name, "link", "add", name, "type", "veth", "peer", "name", link, "netns", self.wires)
        node, wire = _commands(self._extra)
        run("ip", "-n", self.name, "-batch", "-", text=node)
        run("ip", "-n", self.wires, "-batch", "-", text=wire)
        for link, name in LINKS.items():
            if name.startswith("vp"):
                run("bridge", "-n", self.name, "fdb", "replace", mac(link, "wire"), "dev", name, "master", "static")
        run("ip", "-n", self.name, "link", "set", "vp1", "type", "bridge_slave", "hairpin", "on")
        self._open()

    def _add_namespaces(self) -> None:
        run("ip", "netns", "add", self.name)
        run("ip", "netns", "add", self.wires)
        with inside(self.wires):
            Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        with inside(self.name):
            for key, value in _SYSCTLS.items():
                path = Path("/proc/sys", *key.split("."))
                if path.exists() and os.access(path, os.W_OK):
                    try:
                        path.write_text(str(value))
                    except OSError:
                        assert "conntrack" in key
            Path("/proc/sys/net/ipv6/icmp/ratemask").write_text("\n")

    def _open(self) -> None:
        with inside(self.wires):
            for link in self.ends:
                found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
                found.bind((link, 3))
                found.setsockopt(263, 23, 1)  # SOL_PACKET, PACKET_IGNORE_OUTGOING
                self._links[link] = found
        with inside(self.name):
            for family, protocols in PROTOCOLS.items():
                self._local.update({(family, protocol): open_receiver(family, protocol) for protocol in protocols})
                self._send[family] = open_sender(family)
        for found in [*self._links.values(), *self._local.values()]:
            found.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
            found.setblocking(False)

    def close(self) -> None:
        """Take everything away."""
        for found in [*self._links.values(), *self._local.values(), *self._send.values()]:
            found.close()
        for name in (self.name, self.wires):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def run(self, *command: str, text: str | None = None) -> str:
        """Run a command inside the node."""
        return run(*command, namespace=self.name, text=text)

    def sysctl(self, name: str, value: int) -> None:
        """Set a sysctl of the node."""
        with inside(self.name):
            Path("/proc/sys", *name.split(".")).write_text(str(value))

    def settle(self, addresses: Sequence[str]) -> None:
        """Put pods with these addresses of cni0's network behind vp3."""
        fresh = [item for item in addresses if item not in self.pods]
        lines = [f"neigh replace {item} lladdr {mac('p3', 'wire')} dev cni0 nud permanent" for item in fresh]
        run("ip", "-n", self.name, "-batch", "-", text="\n".join(lines))
        self.pods.update(dict.fromkeys(fresh, "p3"))

    def forget(self) -> None:
        """Drop all conntrack entries."""
        subprocess.run(["ip", "netns", "exec", self.name, "conntrack", "-F"], capture_output=True, check=False)

    def exchange(self, probes: Sequence[Probe]) -> dict[int, list[Observed]]:
        """Send packets and collect what becomes of them."""
        self._drain(0)
        for probe in probes:
            self._transmit(probe)
        return self._drain(0.03)

    def _transmit(self, probe: Probe) -> None:
        packet = probe.packet
        data = build(packet, probe.token, ack=probe.ack)
        if probe.link == "node":
            target = address_text(packet.family, packet.dst or 0)
            try:
                self._send[packet.family].sendto(data, (target, 0))
            except OSError:
                return  # EPERM: a rule dropped it; EINVAL or EHOSTUNREACH: no route
            return
        frame = bytes.fromhex("".join(self.addresses_of_frame(packet, probe.link)).replace(":", ""))
        frame += struct.pack("!H", 0x0800 if packet.family is Family.IPV4 else 0x86DD) + data
        self._links[probe.link].send(frame)

    def addresses_of_frame(self, packet: Packet, link: str) -> tuple[str, str]:
        """The Ethernet destination and source that a sender on the link uses."""
        return next_hop(packet, link), mac(link, "wire")

    def _drain(self, patience: float) -> dict[int, list[Observed]]:
        found: dict[int, list[Observed]] = {}
        names = {item.fileno(): link for link, item in self._links.items()}
        families = {item.fileno(): key for key, item in self._local.items()}
        sockets = {item.fileno(): item for item in [*self._links.values(), *self._local.values()]}
        poll = select.poll()
        for number in sockets:
            poll.register(number, select.POLLIN)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            ready = poll.poll(patience * 1000)
            if not ready:
                break
            for number, _ in ready:
                for _ in range(1000):
                    try:
                        if number in names:
                            seen = read_frame(names[number], sockets[number].recv(65535))
                        else:
                            seen = read_delivered(*families[number], sockets[number])
                    except BlockingIOError:
                        break
                    if seen is not None:
                        found.setdefault(seen[0], []).append(seen[1])
        return found


def next_hop(packet: Packet, link: str) -> str:
    """The Ethernet destination that a sender on the link uses: a neighbour on the same network, else the node."""
    if link in ("p1", "p2"):
        other = POD_LINK.get(address_text(packet.family, packet.dst or 0), "")
        return mac(other, "wire") if other in ("p1", "p2") and other != link else mac("cni0", "node")
    return mac(link, "node")


@contextmanager
def fresh_node(tag: str, extra: Sequence[str] = ()) -> Iterator[Node]:
    """A new node; `extra` are further addresses of eth0, with prefix lengths."""
    node = Node(f"kp-{tag}{os.getpid() % 100000}", extra)
    try:
        node.make()
        yield node
    finally:
        node.close()


def node_host(extra: Sequence[str] = (), **sysctls: int) -> Host:
    """The model's view of the node."""
    document = dict(HOST)
    document["interfaces"] = [
        {**item, "addresses": [*item["addresses"], *extra]} if item["name"] == "eth0" else item
        for item in HOST["interfaces"]
    ]
    document["sysctls"] = {**HOST["sysctls"], **sysctls}
    return parse_host(document)
