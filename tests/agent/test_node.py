"""The hub: what comes early, what enables the proxiers, and the Node that is followed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from kproxy.agent.canary import KernelWatch
from kproxy.agent.host import HostFamily
from kproxy.agent.node import Member, NodeHub, describe_changes
from kproxy.agent.proxier import FamilyProxier
from kproxy.agent.runner import BoundedFrequencyRunner
from kproxy.api import KubeProxyConfiguration, Node, NodeAddress, ObjectMeta
from kproxy.linux.applier import Applier
from kproxy.linux.binaries import Iptables, Variant
from kproxy.linux.namespace import Namespace
from kproxy.render import Features, Renderer
from kproxy.services import IPFamily, ServiceState
from tests.linux.fake import MemoryExecutor
from tests.services.builders import make_endpoint, make_service, make_slice

NODE_CIDR = KubeProxyConfiguration(detect_local_mode="NodeCIDR")


def make_node(cidr: str = "10.244.0.0/24", zone: str = "a", address: str = "192.168.0.2") -> Node:
    meta = ObjectMeta("node-0", labels={"topology.kubernetes.io/zone": zone})
    return Node(meta, (cidr,) if cidr else (), (NodeAddress("InternalIP", address),))


class Subject:
    def __init__(self, config: KubeProxyConfiguration = NODE_CIDR) -> None:
        self.now = 0.0
        self.hub = NodeHub(config, "node-0")
        self.kernels = {family: MemoryExecutor(family) for family in IPFamily}
        self.members = [self._member(config, family) for family in IPFamily]

    def _member(self, config: KubeProxyConfiguration, family: IPFamily) -> Member:
        iptables = Iptables(family, Variant.NFT, "", "", (1, 8, 9))
        host = HostFamily(family, Namespace.current(), iptables, Features(), None, ("nat", "filter"), False, 5.0)
        state, renderer = ServiceState(family, "node-0"), Renderer(host.options(config, self.hub.target))
        runner = BoundedFrequencyRunner(1.0, 30.0, lambda: 0.0)
        applier = Applier(self.kernels[family], state, renderer)
        return Member(host, FamilyProxier(family, applier, KernelWatch(lambda: None), runner, lambda: self.now))

    def sync(self) -> bool:
        """Whether both families have been programmed."""
        self.now += 10.0
        for member in self.members:
            while member.proxier.step() == 0.0:
                pass
        return all(member.proxier.has_synced for member in self.members)

    def nat(self) -> str:
        return self.kernels[IPFamily.IPV4].save(counters=False)


def test_what_comes_before_the_proxiers_waits_for_them() -> None:
    subject = Subject()
    subject.hub.put_service("shop/web", make_service("web"))
    subject.hub.put_slice("shop/web-1", make_slice(make_endpoint("10.244.0.5")))
    subject.hub.put_service("shop/gone", make_service("gone"))
    subject.hub.put_service("shop/gone", None)
    subject.hub.put_node(make_node())
    subject.hub.source_synced()
    assert not subject.sync()
    subject.hub.attach(subject.members)
    assert subject.sync()
    assert "10.244.0.5" in subject.nat()
    assert "gone" not in subject.nat()
    assert "-s 10.244.0.0/24" in subject.nat(), "the pod CIDR"


@pytest.mark.parametrize("last", ["source", "members", "node"])
def test_all_of_source_members_and_node_are_needed(last: str) -> None:
    subject = Subject()
    steps: dict[str, Callable[[], None]] = {
        "source": subject.hub.source_synced,
        "members": lambda: subject.hub.attach(subject.members),
        "node": lambda: subject.hub.put_node(make_node()),
    }
    subject.hub.put_node(make_node(cidr=""))
    for name, step in steps.items():
        if name != last:
            step()
            assert not subject.sync()
    assert subject.hub.waits_for_node == (last == "node")
    steps[last]()
    assert subject.sync()


def test_without_node_cidr_the_node_is_not_waited_for() -> None:
    subject = Subject(KubeProxyConfiguration())
    subject.hub.attach(subject.members)
    subject.hub.source_synced()
    assert subject.sync()


def test_pod_cidr_zone_and_addresses_are_followed_and_a_deleted_node_changes_nothing() -> None:
    subject = Subject()
    subject.hub.attach(subject.members)
    subject.hub.put_node(make_node())
    subject.hub.put_service("shop/web", make_service("web"))
    endpoints = [make_endpoint(f"10.244.0.{index}", zones=(zone,)) for index, zone in ((5, "a"), (6, "b"))]
    subject.hub.put_slice("shop/web-1", make_slice(*endpoints))
    subject.hub.source_synced()
    subject.sync()
    assert "10.244.0.5" in subject.nat()
    assert "10.244.0.6" not in subject.nat()
    subject.hub.put_node(make_node(cidr="10.244.7.0/24", zone="b"))
    subject.sync()
    assert "10.244.0.5" not in subject.nat()
    assert "10.244.0.6" in subject.nat()
    assert "-s 10.244.7.0/24" in subject.nat()
    before = subject.nat()
    subject.hub.put_node(None)
    subject.sync()
    assert subject.nat() == before
    assert subject.hub.node is not None


def test_what_of_a_node_is_told() -> None:
    node = make_node()
    assert describe_changes(None, node) == {
        "labels": "topology.kubernetes.io/zone=a",
        "podCIDRs": "10.244.0.0/24",
        "addresses": "192.168.0.2",
    }
    assert describe_changes(node, msgspec.structs.replace(node, unschedulable=True)) == {}
    assert describe_changes(node, make_node(cidr="")) == {"podCIDRs": "(none)"}
