"""MetaProxier: what comes early, what enables the proxiers, and the Node that is followed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from kproxy.agent.proxy.node import MetaProxier, NodeFamily
from kproxy.agent.proxy.proxier import FamilyProxier
from kproxy.agent.proxy.runner import BoundedFrequencyRunner
from kproxy.agent.status.health import TO_BE_DELETED_TAINT, node_eligible
from kproxy.api import KubeProxyConfiguration, LoadBalancerIngress, Node, NodeAddress, ObjectMeta
from kproxy.api.kubeproxyconfig.types import DetectLocal
from kproxy.linux.iptables.executor import Iptables
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.iptables.backend import HostFamily, Syncer
from kproxy.netfilter.hooks import Variant
from kproxy.render import Features, Renderer
from kproxy.services import IPFamily, ServiceState
from tests.support.linux.fake import MemoryExecutor
from tests.support.services.builders import make_endpoint, make_service, make_slice

NODE_CIDR = KubeProxyConfiguration(detect_local_mode="NodeCIDR")


DETECTORS = {
    "ClusterCIDR": KubeProxyConfiguration(cluster_cidr="10.244.0.0/16"),
    "NodeCIDR": NODE_CIDR,
    "BridgeInterface": KubeProxyConfiguration(
        detect_local_mode="BridgeInterface", detect_local=DetectLocal(bridge_interface="cni0")
    ),
    "InterfaceNamePrefix": KubeProxyConfiguration(
        detect_local_mode="InterfaceNamePrefix", detect_local=DetectLocal(interface_name_prefix="veth")
    ),
}
LOCAL = {
    "ClusterCIDR": "-s 10.244.0.0/16",
    "NodeCIDR": "-s 10.244.0.0/24",
    "BridgeInterface": "-i cni0",
    "InterfaceNamePrefix": "-i veth+",
}


def make_node(
    cidr: str = "10.244.0.0/24", zone: str = "a", address: str = "192.168.0.2", uid: str = "1", **meta: Any
) -> Node:
    labels = {"topology.kubernetes.io/zone": zone} if zone else {}
    addresses = (NodeAddress("InternalIP", address),) if address else ()
    return Node(ObjectMeta("node-0", labels=labels, uid=uid, **meta), (cidr,) if cidr else (), addresses)


class Subject:
    def __init__(self, config: KubeProxyConfiguration = NODE_CIDR) -> None:
        self.now = 0.0
        self.meta_proxier = MetaProxier(config, "node-0")
        self.kernels = {family: MemoryExecutor(family) for family in IPFamily}
        self.members = [self._member(config, family) for family in IPFamily]

    def _member(self, config: KubeProxyConfiguration, family: IPFamily) -> NodeFamily:
        iptables = Iptables(family, Variant.NFT, "", "", (1, 8, 9))
        host = HostFamily(family, Namespace.current(), iptables, Features(), None, ("nat", "filter"), False, 5.0)
        state, renderer = ServiceState(family, "node-0"), Renderer(host.options(config, self.meta_proxier.target))
        runner = BoundedFrequencyRunner(1.0, 30.0, lambda: 0.0)
        syncer = Syncer(self.kernels[family], state, renderer)
        return NodeFamily(host, FamilyProxier(family, syncer, lambda: None, runner, lambda: self.now))

    def sync(self) -> bool:
        """Whether both families have been programmed."""
        self.now += 10.0
        for member in self.members:
            while member.proxier.step() == 0.0:
                pass
        return all(member.proxier.has_synced for member in self.members)

    def nat(self) -> str:
        return self.kernels[IPFamily.IPV4].save(counters=False)


@pytest.mark.parametrize("last", ["source", "members", "node"])
def test_all_of_source_members_and_node_are_needed(last: str) -> None:
    subject = Subject()
    steps: dict[str, Callable[[], None]] = {
        "source": subject.meta_proxier.source_synced,
        "members": lambda: subject.meta_proxier.attach(subject.members),
        "node": lambda: subject.meta_proxier.put_node(make_node()),
    }
    subject.meta_proxier.put_node(make_node(cidr=""))
    for name, step in steps.items():
        if name != last:
            step()
            assert not subject.sync()
    assert subject.meta_proxier.waits_for_node == (last == "node")
    steps[last]()
    assert subject.sync()


def test_without_node_cidr_the_node_is_not_waited_for() -> None:
    subject = Subject(KubeProxyConfiguration())
    subject.meta_proxier.attach(subject.members)
    subject.meta_proxier.source_synced()
    assert subject.sync()


class Life(NamedTuple):
    """What a Node goes through after the first sync, and what rules must then say.

    `cidr` counts in mode NodeCIDR; `zone` is that of the endpoint in use; `ip` is the node's own.
    """

    steps: tuple[Node | None, ...]
    cidr: str = "10.244.0.0/24"
    zone: str = "a"
    ip: str = "192.168.0.2"


LIVES = {
    "deleted": Life((None,)),
    "deleted, told twice": Life((None, None)),
    "back as it was": Life((None, make_node(uid="2"))),
    "back with other podCIDRs": Life((None, make_node("10.244.9.0/24", uid="2")), "10.244.9.0/24"),
    "back without podCIDRs": Life((None, make_node("", uid="2"))),
    "back without podCIDRs, which come": Life((None, make_node("", uid="2"), make_node("10.244.9.0/24", uid="2")),
                                              "10.244.9.0/24"),
    "back without podCIDRs, gone again": Life((None, make_node("", uid="2"), None)),
    "back without addresses": Life((None, make_node(address="", uid="2"))),
    "back without anything": Life((None, Node(ObjectMeta("node-0", uid="2"))), zone=""),
    "back in another zone": Life((None, make_node(zone="b", uid="2")), zone="b"),
    "other podCIDRs": Life((make_node("10.244.9.0/24"),), "10.244.9.0/24"),
    "podCIDRs lost": Life((make_node(""),)),
    "podCIDRs lost, other zone": Life((make_node("", zone="b"),), zone="b"),
    "addresses changed": Life((make_node(address="192.168.0.9"),), ip="192.168.0.9"),
    "addresses lost": Life((make_node(address=""),)),
    "addresses lost, then others": Life((make_node(address=""), make_node(address="192.168.0.9")), ip="192.168.0.9"),
    "other zone": Life((make_node(zone="b"),), zone="b"),
    "no zone": Life((make_node(zone=""),), zone=""),
    "other uid": Life((make_node(uid="2"),)),
}  # fmt: skip


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("mode", DETECTORS)
def test_whatever_becomes_of_the_node_rules_are_kept(mode: str, life: str) -> None:
    """With what it says that is new, and what it says no more as it was; also of endpoints that change afterwards."""
    subject = Subject(DETECTORS[mode])
    subject.meta_proxier.attach(subject.members)
    subject.meta_proxier.put_node(make_node())
    subject.meta_proxier.put_service("shop/web", make_service("web"))
    # The node's own IP is inside of the range, so the load balancer's is allowed as a source.
    balancer = make_service(
        "lb", cluster_ips=("10.96.0.2",), type="LoadBalancer", ingress=(LoadBalancerIngress("192.0.2.1"),),
        source_ranges=("192.168.0.2/32",),
    )  # fmt: skip
    subject.meta_proxier.put_service("shop/lb", balancer)
    subject.meta_proxier.put_slice("shop/lb-1", make_slice(make_endpoint("10.244.1.1"), name="lb-1", service="lb"))

    def put_endpoints(last: int) -> None:
        endpoints = [make_endpoint(f"10.244.{at}.{last}", zones=(zone,)) for at, zone in ((0, "a"), (1, "b"))]
        subject.meta_proxier.put_slice("shop/web-1", make_slice(*endpoints))

    put_endpoints(5)
    subject.meta_proxier.source_synced()
    assert subject.sync()
    expected = LIVES[life]
    for step in expected.steps:
        subject.meta_proxier.put_node(step)
    put_endpoints(6)
    subject.sync()
    rules = subject.nat()
    used = {address for address in ("10.244.0.5", "10.244.1.5", "10.244.0.6", "10.244.1.6") if f"{address}/32" in rules}
    assert used == {"a": {"10.244.0.6"}, "b": {"10.244.1.6"}, "": {"10.244.0.6", "10.244.1.6"}}[expected.zone]
    local = f"-s {expected.cidr}" if mode == "NodeCIDR" else LOCAL[mode]
    assert any(f"! {local} " in rule and "-d 10.96.0.1/32 " in rule for rule in rules.splitlines())
    allowed = "-s 192.0.2.1/32" in rules
    assert allowed == (expected.ip == "192.168.0.2")
    assert not subject.meta_proxier.waits_for_node


def test_a_node_that_is_gone_is_as_eligible_as_it_was() -> None:
    subject = Subject()

    def eligible() -> bool:
        return node_eligible(subject.meta_proxier.node)

    assert eligible(), "nobody knows it"
    subject.meta_proxier.put_node(make_node())
    subject.meta_proxier.put_node(None)
    assert eligible()
    subject.meta_proxier.put_node(make_node(deletion_timestamp="2026-11-22T00:00:00Z"))
    assert not eligible()
    subject.meta_proxier.put_node(None)
    assert not eligible(), "kube-proxy keeps the Node that it saw last"
    subject.meta_proxier.put_node(make_node("", uid="2"))
    assert eligible()
    subject.meta_proxier.put_node(msgspec.structs.replace(make_node(), taints=(TO_BE_DELETED_TAINT,)))
    assert not eligible()


def test_a_node_that_never_came_is_waited_for_and_one_that_left_is_not() -> None:
    subject = Subject()
    subject.meta_proxier.attach(subject.members)
    subject.meta_proxier.source_synced()
    subject.meta_proxier.put_node(None)
    subject.meta_proxier.put_node(make_node(""))
    subject.meta_proxier.put_node(None)
    assert subject.meta_proxier.waits_for_node
    assert not subject.sync()
    subject.meta_proxier.put_node(make_node())
    subject.meta_proxier.put_node(None)
    assert not subject.meta_proxier.waits_for_node
    assert subject.sync()


def test_what_a_node_has_lost_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not with every heartbeat, and again when it had come back meanwhile."""
    subject = Subject()

    def told(*nodes: Node) -> int:
        caplog.clear()
        for node in nodes:
            subject.meta_proxier.put_node(node)
        return len([record for record in caplog.records if "has lost" in record.getMessage()])

    assert told(make_node()) == 0
    assert told(make_node(cidr=""), make_node(cidr="", resource_version="2")) == 1
    assert told(make_node(cidr="", address=""), make_node(cidr="", address="")) == 1
    assert told(make_node()) == 0
    assert told(make_node(address="")) == 1
