"""The network around a node, as nameless network namespaces: they vanish when closed, or with this process.

    pod ------ veth --\\
    pod ------ veth --- cni0   node   eth0 ---- fabric --- veth ------ another node, its pods, clients outside
    pod ------ veth --/

Every address but the node's own is a host of its own with one interface, whose default route leads to the node. So
whatever goes from one to another passes the node's rules, and comes back through them.
"""

from __future__ import annotations

import ipaddress
import os
import subprocess
import threading
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType

from kproxy.linux.namespace import Namespace
from kproxy.linux.sysctl import write_sysctl

POD_SIDE, OUTSIDE = "cni0", "eth0"
# The node's own addresses on cni0, which no golden packet uses.
_GATEWAYS = {4: "10.244.0.254", 6: "fd00:10:244::fffe"}
_TIME_LIMIT = 60.0


class Network:
    """The node and its surroundings. `node_addresses`: the node's own; further hosts are added as they are needed."""

    def __init__(self, node_addresses: Sequence[str], *, route_localnet: bool) -> None:
        self._stack = ExitStack()
        self._hosts: dict[str, Namespace] = {}
        self._own = frozenset(node_addresses)
        try:
            self.node, self._fabric = self._namespace(), self._namespace()
            self._build(route_localnet)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Network:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _namespace(self) -> Namespace:
        space = self._stack.enter_context(Namespace.scratch())
        # An IPv6 address that is still being checked for duplicates answers nobody, and so loses the first packets.
        write_sysctl(space, "net.ipv6.conf.default.accept_dad", 0)
        write_sysctl(space, "net.ipv6.conf.all.accept_dad", 0)
        return space

    def _build(self, route_localnet: bool) -> None:
        ip(
            self._fabric,
            ["link set lo up", "link add fabric type bridge forward_delay 0 mcast_snooping 0", "link set fabric up"],
        )
        commands = ["link set lo up", "link add cni0 type bridge forward_delay 0 mcast_snooping 0", "link set cni0 up"]
        commands.append(f"link add eth0 type veth peer name node netns {path_of(self._fabric)}")
        commands += [f"addr add {with_length(address)} dev eth0 nodad" for address in sorted(self._own)]
        commands += [f"addr add {with_length(address)} dev cni0 nodad" for address in _GATEWAYS.values()]
        commands.append("link set eth0 up")
        # Without a route to a ClusterIP the node itself would not even get as far as the rules.
        commands += [f"route add {everything} dev eth0" for everything in ("0.0.0.0/0", "::/0")]
        ip(self.node, commands)
        ip(self._fabric, ["link set node master fabric", "link set node up"])
        settings = {
            "net.ipv4.ip_forward": 1,
            "net.ipv6.conf.all.forwarding": 1,
            "net.ipv4.conf.all.rp_filter": 0,
            "net.ipv4.conf.default.rp_filter": 0,
            "net.ipv4.conf.eth0.rp_filter": 0,
            "net.ipv4.conf.cni0.rp_filter": 0,
            # A pod behind the bridge reaches another through a ClusterIP only if bridged replies pass the rules too.
            "net.bridge.bridge-nf-call-iptables": 1,
            "net.bridge.bridge-nf-call-ip6tables": 1,
            # Every REJECT is to be told, not one a second.
            "net.ipv4.icmp_ratelimit": 0,
            "net.ipv6.icmp.ratelimit": 0,
            "net.ipv4.conf.all.send_redirects": 0,
            "net.ipv4.conf.eth0.send_redirects": 0,
            "net.ipv4.conf.cni0.send_redirects": 0,
            "net.ipv4.conf.all.route_localnet": int(route_localnet),
        }
        for name, value in settings.items():
            write_sysctl(self.node, name, value)

    def host(self, address: str, side: str) -> Namespace:
        """The namespace that owns an address; it is made when it is first asked for, on `side` of the node."""
        if address in self._own or ipaddress.ip_address(address).is_loopback:
            return self.node
        if address not in self._hosts:
            self._hosts[address] = self._add_host(address, side, f"h{len(self._hosts)}")
        return self._hosts[address]

    def _add_host(self, address: str, side: str, name: str) -> Namespace:
        space = self._namespace()
        switch, bridge = (self.node, "cni0") if side == POD_SIDE else (self._fabric, "fabric")
        ip(switch, [
            f"link add {name} type veth peer name eth0 netns {path_of(space)}",
            f"link set {name} master {bridge}",
            # A pod may get itself as its Service's endpoint.
            f"link set {name} type bridge_slave hairpin on",
            f"link set {name} up",
        ])  # fmt: skip
        version = ipaddress.ip_address(address).version
        gateway = _GATEWAYS[version]
        if side == OUTSIDE:
            gateway = next(item for item in sorted(self._own) if ipaddress.ip_address(item).version == version)
        ip(space, [
            "link set lo up",
            f"addr add {with_length(address)} dev eth0 nodad",
            "link set eth0 up",
            f"route add default via {gateway} dev eth0 onlink",
        ])  # fmt: skip
        ip(self.node, [f"route add {with_length(address)} dev {side}"])
        return space


def with_length(address: str) -> str:
    """An address as the prefix that holds only it."""
    return str(ipaddress.ip_interface(address))


def path_of(space: Namespace) -> str:
    """A path by which other processes can name a namespace: that of the thread which is in it."""
    return f"/proc/{os.getpid()}/task/{space.call(threading.get_native_id)}/ns/net"


def ip(space: Namespace, commands: Iterable[str]) -> None:
    """Run `ip` commands in a namespace, all by one process; those that hold an IPv6 address go to `ip -6`.

    Raises:
        NetworkError: one failed.
    """
    lines = list(commands)
    for options, chosen in (
        (["-4"], [line for line in lines if not _is_ipv6(line)]),
        (["-6"], [line for line in lines if _is_ipv6(line)]),
    ):
        if chosen:
            in_namespace(space, ["ip", *options, "-batch", "-"], "\n".join(chosen))


def _is_ipv6(line: str) -> bool:
    return any(":" in word for word in line.split()) and not line.startswith("link")


class NetworkError(Exception):
    """The network could not be made; the message is what the tool said."""


def in_namespace(space: Namespace, command: Sequence[str], text: str = "") -> str:
    """Run a command in a namespace and return its output.

    Raises:
        NetworkError: it failed.
    """

    def start() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=_TIME_LIMIT)

    done = space.call(start)
    if done.returncode:
        raise NetworkError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout
