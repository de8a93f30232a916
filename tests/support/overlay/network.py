"""Three nodes on one link, each with a pod that the CNI plugin attached, and sockets in them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kproxy.api.types.core import Node, NodeAddress
from kproxy.api.types.meta import ObjectMeta
from kproxy.cni.plugin import serve
from kproxy.linux.namespace import Namespace
from kproxy.linux.pod.overlay_rules import CurrentRules, OverlayRules
from kproxy.linux.pod.vxlan import OverlayError, OverlayKernel
from kproxy.linux.sysctl import write_sysctl
from kproxy.netfilter.hooks import Variant
from kproxy.overlay.nodes import read_node
from kproxy.overlay.plan import Backend, Change, difference, plan_overlay
from kproxy.overlay.rules import RuleChain, RuleSettings, plan_rules
from tests.support.cni.client import configuration, ip, namespaces

ALL = [1, 2, 3]
NODES = {4: "192.168.9.1", 6: "fd00:9::1"}
"""Node 1's addresses by family."""
VTEPS = {4: "10.244.1.0", 6: "fd00:10:244:1::"}
COMMANDS = {4: "iptables", 6: "ip6tables"}
MASQ = RuleSettings(ip_masq=True)
WAYS = {"nft": (MASQ, Variant.NFT), "legacy": (MASQ, Variant.LEGACY)}
"""The ways to write the overlay's rules: what `keep_rules` takes."""


def node_object(number: int, families: tuple[int, ...] = (4, 6)) -> Node:
    """node-N: 192.168.9.N, fd00:9::N, pods in 10.244.N.0/24 and fd00:10:244:N::/64."""
    addresses = {4: f"192.168.9.{number}", 6: f"fd00:9::{number}"}
    cidrs = {4: f"10.244.{number}.0/24", 6: f"fd00:10:244:{number}::/64"}
    return Node(
        ObjectMeta(f"node-{number}"),
        tuple(cidrs[family] for family in families),
        tuple(NodeAddress("InternalIP", addresses[family]) for family in families),
    )


@dataclass
class Network:
    """The namespaces by number: `node`, `pod`; `fabric` is the switch's name."""

    fabric: str
    names: dict[str, str]
    node: dict[int, Namespace] = field(default_factory=dict)
    pod: dict[int, Namespace] = field(default_factory=dict)

    def join(
        self, number: int, members: list[int], backend: Backend = Backend.VXLAN, mtu: int | None = None
    ) -> tuple[list[Change], list[OverlayError]]:
        """Brings a node to the plan for these members."""
        nodes = [read_node(node_object(member)) for member in members]
        plan = plan_overlay(nodes, f"node-{number}", backend, mtu=mtu)
        assert not plan.problems
        with OverlayKernel(self.node[number]) as kernel:
            return kernel.apply(plan.items)

    def drift(self, number: int, members: list[int], backend: Backend = Backend.VXLAN) -> list[Change]:
        plan = plan_overlay([read_node(node_object(member)) for member in members], f"node-{number}", backend)
        with OverlayKernel(self.node[number]) as kernel:
            return kernel.compare(plan.items)

    def keep_rules(
        self, number: int, settings: RuleSettings, variant: Variant | None = None, members: Sequence[int] = (1, 2, 3)
    ) -> list[Change]:
        """Brings a node's rules to the plan; what was different."""
        rules = OverlayRules(self.node[number], variant)
        seen = rules.read()
        changes, problems = rules.apply(self._plan_rules(number, settings, members, seen), seen)
        assert [str(item) for item in problems] == []
        return changes

    def rule_drift(
        self, number: int, settings: RuleSettings, variant: Variant | None = None, members: Sequence[int] = (1, 2, 3)
    ) -> list[Change]:
        """What differs from the plan of the rules."""
        seen = OverlayRules(self.node[number], variant).read()
        return difference(self._plan_rules(number, settings, members, seen), seen.chains)

    def _plan_rules(
        self, number: int, settings: RuleSettings, members: Sequence[int], seen: CurrentRules
    ) -> tuple[RuleChain, ...]:
        nodes = [read_node(node_object(member)) for member in members]
        return plan_rules(read_node(node_object(number)), nodes, settings, seen.firewall)


@contextmanager
def three_joined_nodes(data: Path) -> Iterator[Network]:
    """The network with its overlay."""
    with three_nodes(data) as made:
        for number in ALL:
            made.join(number, ALL)
        yield made


@contextmanager
def outside_host(network: Network) -> Iterator[Namespace]:
    """A host on the nodes' link, 192.168.9.200 and fd00:9::200, that knows no way to pods."""
    with namespaces("out") as names, Namespace.named(names["out"]) as outside:
        write_sysctl(outside, "net.ipv6.conf.default.accept_dad", 0)
        name = names["out"]
        ip("-n", network.fabric, "link", "add", "out", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("-n", network.fabric, "link", "set", "out", "master", "br0", "up")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "address", "add", "192.168.9.200/24", "dev", "eth0")
        ip("-n", name, "address", "add", "fd00:9::200/64", "dev", "eth0", "nodad")
        yield outside


OUTSIDE = {4: "192.168.9.200", 6: "fd00:9::200"}


def ask(
    source: Namespace, here: str, target: Namespace, there: str, family: int, bind: bool = False, wait: float = 10
) -> str | None:
    """Sends a datagram and awaits its answer; the source address that the target saw, None without an answer.

    With `bind` the sender uses the address `here`; otherwise it may be "". `wait` is in seconds, as in `reaches`.
    """
    with udp(target, family, there, 9) as answerer, udp(source, family) as asker:
        answerer.settimeout(wait)
        asker.settimeout(wait)
        if bind:
            asker.bind((here, 0))
        try:
            asker.sendto(b"question", (there, 9))
            data, sender = answerer.recvfrom(100)
            answerer.sendto(data, sender)
            asker.recv(100)
        except OSError:
            return None
        return str(sender[0])


@contextmanager
def three_nodes(data: Path, mtu: int = 1430) -> Iterator[Network]:
    """The network, without an overlay yet."""
    labels = ["fabric", *(f"{kind}{number}" for number in (1, 2, 3) for kind in ("n", "p"))]
    with ExitStack() as stack:
        names = stack.enter_context(namespaces(*labels))
        fabric = names["fabric"]
        ip("-n", fabric, "link", "add", "br0", "type", "bridge")
        ip("-n", fabric, "link", "set", "br0", "up")
        network = Network(fabric, names)
        for number in (1, 2, 3):
            node = names[f"n{number}"]
            network.node[number] = stack.enter_context(Namespace.named(node))
            # A real node's link-local addresses are long past duplicate address detection.
            for name in ("all", "default"):
                write_sysctl(network.node[number], f"net.ipv6.conf.{name}.accept_dad", 0)
            ip("-n", fabric, "link", "add", f"n{number}", "type", "veth", "peer", "name", "eth0", "netns", node)
            ip("-n", fabric, "link", "set", f"n{number}", "master", "br0", "up")
            ip("-n", node, "link", "set", "eth0", "up")
            ip("-n", node, "address", "add", f"192.168.9.{number}/24", "dev", "eth0")
            ip("-n", node, "address", "add", f"fd00:9::{number}/64", "dev", "eth0", "nodad")
            network.pod[number] = stack.enter_context(Namespace.named(names[f"p{number}"]))
            ranges = [[{"subnet": f"10.244.{number}.0/24"}], [{"subnet": f"fd00:10:244:{number}::/64"}]]
            conf = configuration(dataDir=str(data / node), mtu=mtu, ipam={"ranges": ranges})
            environment = {
                "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "pod", "CNI_IFNAME": "eth0", "CNI_PATH": "/",
                "CNI_NETNS": f"/run/netns/{names[f'p{number}']}",
            }  # fmt: skip
            code, output = network.node[number].call(serve, environment, json.dumps(conf).encode())
            assert code == 0, output
        yield network


def udp(namespace: Namespace, family: int, address: str = "", port: int = 0) -> socket.socket:
    """A UDP socket of a namespace, bound if an address is given."""
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    made = namespace.call(socket.socket, kind, socket.SOCK_DGRAM)
    made.settimeout(3)
    if address:
        made.bind((address, port))
    return made


def pod_ip(number: int, family: int) -> str:
    return f"10.244.{number}.2" if family == 4 else f"fd00:10:244:{number}::2"


def reaches(network: Network, source: int, target: int, family: int, size: int = 100, wait: float = 10) -> bool:
    """Whether a datagram from one pod arrives whole at another, and its answer comes back to the sender.

    `wait` is in seconds: little where no answer is expected, much where a busy machine may be slow.
    """
    data = bytes(index % 251 for index in range(size))
    with udp(network.pod[target], family, pod_ip(target, family), 9) as there, udp(network.pod[source], family) as here:
        there.settimeout(wait)
        here.settimeout(wait)
        try:
            here.sendto(data, (pod_ip(target, family), 9))
            got, sender = there.recvfrom(65535)
            assert got == data
            assert sender[0] == pod_ip(source, family)
            there.sendto(got[::-1], sender)
            return here.recv(65535) == data[::-1]
        except OSError:
            return False
