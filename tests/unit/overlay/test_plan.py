"""The plan from Node objects, as values."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.api.types.core import Node, NodeAddress
from kproxy.api.types.meta import ObjectMeta
from kproxy.overlay.nodes import OverlayNode, read_node, vtep_mac
from kproxy.overlay.plan import Backend, FdbEntry, NodeRoute, VxlanLink, difference, plan_overlay
from tests.support.overlay.network import node_object


def nodes(*numbers: int) -> list[OverlayNode]:
    return [read_node(node_object(number)) for number in numbers]


def test_the_whole_plan_of_one_node() -> None:
    plan = plan_overlay([read_node(node_object(number, (4,))) for number in (1, 2)], "node-1")
    mac = vtep_mac("node-2", 4)
    assert [str(item) for item in plan.items] == [
        "sysctl net.ipv4.ip_forward = 1",
        f"link kproxy.1 vxlan id 1 local 192.168.9.1 dstport 8472 nolearning address {vtep_mac('node-1', 4)} mtu 1450",
        "address 10.244.1.0/32 dev kproxy.1",
        f"fdb {mac} dst 192.168.9.2 dev kproxy.1",
        f"neighbour 10.244.2.0 lladdr {mac} dev kproxy.1",
        "route 10.244.2.0/24 via 10.244.2.0 dev kproxy.1 onlink",
    ]
    assert plan.problems == ()


def test_each_family_has_its_device_and_mtu() -> None:
    plan = plan_overlay(nodes(1, 2), "node-1", underlay_mtus={4: 9000, 6: 1500})
    found = {item.name: (item.local, item.mtu) for item in plan.items if isinstance(item, VxlanLink)}
    assert found == {"kproxy.1": ("192.168.9.1", 8950), "kproxy-v6.1": ("fd00:9::1", 1430)}
    assert plan.mtu == 1430, "a pod's interface has one MTU, so both families must fit"


def test_routes_alone_take_nothing_of_the_mtu_and_a_given_one_is_taken_as_it_is() -> None:
    assert plan_overlay(nodes(1, 2), "node-1", Backend.HOST_GW, {4: 9000, 6: 9000}).mtu == 9000
    plan = plan_overlay(nodes(1, 2), "node-1", underlay_mtus={4: 9000}, mtu=1400)
    assert {item.mtu for item in plan.items if isinstance(item, VxlanLink)} == {1400}


def test_ipv6_is_left_out_where_its_least_mtu_does_not_fit() -> None:
    plan = plan_overlay(nodes(1, 2), "node-1", underlay_mtus={4: 1349, 6: 1349})
    assert [item.name for item in plan.items if isinstance(item, VxlanLink)] == ["kproxy.1"]
    assert plan.problems == ("node node-1 has no IPv6 overlay: an MTU of 1279 bytes is below 1280",)


def test_host_gateway_is_one_route_a_node_and_family() -> None:
    plan = plan_overlay(nodes(1, 2, 3), "node-1", Backend.HOST_GW)
    routes = [item for item in plan.items if isinstance(item, NodeRoute)]
    assert [(item.destination, item.gateway) for item in routes] == [
        ("10.244.2.0/24", "192.168.9.2"),
        ("10.244.3.0/24", "192.168.9.3"),
        ("fd00:10:244:2::/64", "fd00:9::2"),
        ("fd00:10:244:3::/64", "fd00:9::3"),
    ]


@given(st.permutations([1, 2, 3, 4]))
def test_the_order_of_nodes_does_not_matter(order: list[int]) -> None:
    assert plan_overlay(nodes(*order), "node-2") == plan_overlay(nodes(1, 2, 3, 4), "node-2")


@given(st.sets(st.integers(1, 6)), st.sets(st.integers(1, 6)))
def test_mending_the_difference_leads_from_any_plan_to_any_other(before: set[int], after: set[int]) -> None:
    old = plan_overlay(nodes(1, *before), "node-1").items
    new = plan_overlay(nodes(1, *after), "node-1").items
    there = set(old)
    for change in difference(new, old):
        if change.found is not None:
            there.discard(change.found)
        if change.desired is not None:
            there.add(change.desired)
    assert there == set(new)
    assert difference(new, new) == []
    # Routes go before what they need, and come after it.
    kinds = [change.found.key[0] for change in difference(new, old) if change.desired is None and change.found]
    assert kinds == sorted(kinds, key=("route", "neighbour", "fdb").index)


def test_every_remote_node_costs_three_entries() -> None:
    sizes = [len(plan_overlay(nodes(*range(1, count + 1)), "node-1").items) for count in (2, 3, 4)]
    assert [later - earlier for earlier, later in itertools.pairwise(sizes)] == [6, 6], "three in each family"


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (Node(ObjectMeta("z"), ("10.244.9.0/24",)), "no IPv4 address"),
        (Node(ObjectMeta("z"), ("10.244.1.128/25",), (NodeAddress("InternalIP", "192.168.9.9"),)), "overlaps"),
        (Node(ObjectMeta("z"), ("10.244.9.0/24",), (NodeAddress("InternalIP", "192.168.9.1"),)), "this node's own"),
    ],
    ids=["address", "overlap", "same"],
)
def test_nodes_that_cannot_take_part_are_named(other: Node, told: str) -> None:
    plan = plan_overlay([*nodes(1, 2), read_node(other)], "node-1")
    assert len(plan.problems) == 1
    assert plan.problems[0].startswith("node z is left out")
    assert told in plan.problems[0]
    assert plan.items == plan_overlay(nodes(1, 2), "node-1").items


def test_an_unknown_or_unready_own_node_plans_nothing() -> None:
    assert plan_overlay(nodes(2), "node-1").items == ()
    unready = plan_overlay([read_node(Node(ObjectMeta("node-1")))], "node-1")
    assert unready.items == ()
    assert "no podCIDR" in unready.problems[0]


def test_flannels_annotations_are_believed() -> None:
    prefix = "flannel.alpha.coreos.com/"
    annotations = {
        f"{prefix}backend-type": "vxlan",
        f"{prefix}backend-data": '{"VNI":1,"VtepMAC":"AA:BB:CC:00:11:22"}',
        f"{prefix}public-ip": "203.0.113.9",
    }
    flannel = Node(
        ObjectMeta("f", annotations=annotations), ("10.244.8.0/24",), (NodeAddress("InternalIP", "192.168.9.8"),)
    )
    plan = plan_overlay([*nodes(1), read_node(flannel)], "node-1")
    assert FdbEntry("kproxy.1", "aa:bb:cc:00:11:22", "203.0.113.9") in plan.items


@given(st.text(max_size=30), st.sampled_from([4, 6]))
def test_vtep_macs_are_local_and_unicast(name: str, version: int) -> None:
    first = int(vtep_mac(name, version)[:2], 16)
    assert first & 3 == 2
