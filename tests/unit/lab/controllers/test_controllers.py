"""Controllers: where pods go, how long they stay there, what DaemonSets replace, addresses of load balancers."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.lab.controllers.daemonset import outdated, wants_node
from kproxy.lab.controllers.loadbalancer import addresses_of, is_balanced
from kproxy.lab.controllers.nodes import eviction_seconds
from kproxy.lab.controllers.scheduler import choose_node, why_not
from kproxy.lab.errors import LabError
from kproxy.lab.spec import BALANCER_RANGES
from tests.support.lab.controlled import pod_of


def node(name: str, *, ready: bool = True, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": {"conditions": [condition]}}


def test_pods_of_one_owner_are_spread_before_nodes_are_filled() -> None:
    nodes = [node("node-1"), node("node-2"), node("node-10")]
    assert choose_node(pod_of("a"), nodes, {}) == "node-1"
    assert choose_node(pod_of("a"), nodes, {("a", "node-1"): 1, ("", "node-1"): 1, ("", "node-2"): 5}) == "node-10"
    assert choose_node(pod_of("a"), nodes, {("", "node-1"): 2, ("", "node-2"): 1, ("", "node-10"): 1}) == "node-2"


def test_nodes_that_will_not_do() -> None:
    nodes = [node("node-1", ready=False), node("node-2", unschedulable=True), node("node-3", labels={"disk": "ssd"})]
    assert choose_node(pod_of("a"), nodes, {}) == "node-3"
    assert choose_node(pod_of("a", nodeSelector={"disk": "ssd"}), nodes, {}) == "node-3"
    assert choose_node(pod_of("a", nodeSelector={"disk": "hdd"}), nodes, {}) is None


def test_taints_keep_pods_away_that_do_not_tolerate_them() -> None:
    gpu = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    nodes = [node("node-1", taints=[gpu]), node("node-2", taints=[{"key": "old", "effect": "PreferNoSchedule"}])]
    assert choose_node(pod_of("a"), nodes, {("a", "node-2"): 9}) == "node-2"
    assert choose_node(pod_of("a"), nodes[:1], {}) is None
    assert "1 node(s) had untolerated taint(s)" in why_not(pod_of("a"), nodes[:1])
    for toleration in (
        {"key": "gpu", "operator": "Exists"},
        {"operator": "Exists"},
        {"key": "gpu", "value": "yes"},
        {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
    ):
        assert choose_node(pod_of("a", tolerations=[toleration]), nodes, {}) == "node-1", toleration
    for toleration in (
        {"key": "gpu", "value": "no"},
        {"key": "gpu"},
        {"key": "cpu", "operator": "Exists"},
        {"operator": "Exists", "effect": "NoExecute"},
    ):
        assert choose_node(pod_of("a", tolerations=[toleration]), nodes, {}) == "node-2", toleration
    assert choose_node(pod_of("a"), [node("node-3", taints=[{"key": "x", "effect": "NoExecute"}])], {}) is None


def test_why_no_node_will_do() -> None:
    """The words of kube-scheduler v1.36."""
    picky = pod_of(nodeSelector={"disk": "ssd"})
    assert why_not(picky, []) == "no nodes available to schedule pods"
    assert why_not(picky, [node("a"), node("b"), node("c", ready=False), node("d", unschedulable=True)]) == (
        "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, "
        "2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, "
        "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
    )


def test_how_long_a_pod_stays_on_an_unreachable_node() -> None:
    unreachable = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    assert eviction_seconds(pod_of("a")) == 300
    assert eviction_seconds(pod_of("a", tolerations=[{**unreachable, "tolerationSeconds": 5}])) == 5
    assert eviction_seconds(pod_of("a", tolerations=[unreachable])) is None
    assert eviction_seconds(pod_of("a", tolerations=[{"operator": "Exists"}])) is None
    assert eviction_seconds(pod_of("a", tolerations=[{**unreachable, "key": "other"}])) == 300
    assert eviction_seconds(pod_of("a", tolerations=[{**unreachable, "effect": "NoSchedule"}])) == 300
    daemon = pod_of("a")
    daemon["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    assert eviction_seconds(daemon) is None


def test_a_daemon_set_replaces_as_many_as_may_be_unavailable() -> None:
    def made(name: str, digest: str, ready: bool) -> dict[str, Any]:
        condition = {"type": "Ready", "status": str(ready)}
        meta = {"name": name, "namespace": "x", "labels": {"controller-revision-hash": digest}}
        return {"metadata": meta, "status": {"conditions": [condition]}}

    def names(pods: list[dict[str, Any]], most: int) -> list[str]:
        return [item["metadata"]["name"] for item in outdated(pods, "new", 3, most)]

    assert names([made("a", "old", True), made("b", "old", True), made("c", "old", True)], 1) == ["a"]
    assert names([made("a", "new", False), made("b", "old", True), made("c", "old", True)], 1) == []
    assert names([made("a", "new", True), made("b", "old", False), made("c", "old", True)], 1) == ["b"]
    assert names([made("a", "old", True), made("b", "old", True), made("c", "old", True)], 2) == ["a", "b"]
    assert names([made("a", "new", True), made("b", "new", True), made("c", "new", True)], 3) == []


def test_taints_and_the_pods_of_a_daemon_set() -> None:
    def wants(key: str, effect: str, *effects: str, **spec: Any) -> bool:
        node = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": key, "effect": effect}]}}
        return wants_node({"spec": spec}, node, *effects)

    assert not wants("gpu", "NoSchedule", "NoSchedule", "NoExecute")
    assert wants("gpu", "NoSchedule", "NoExecute"), "what is there stays"
    assert not wants("gpu", "NoExecute", "NoExecute")
    assert wants("gpu", "NoExecute", "NoExecute", tolerations=[{"operator": "Exists"}])
    assert wants("node.kubernetes.io/unreachable", "NoExecute", "NoSchedule", "NoExecute")
    assert wants("gpu", "PreferNoSchedule", "NoSchedule", "NoExecute")


def service(*held: str, **spec: Any) -> dict[str, Any]:
    ingress = [{"ip": address} for address in held]
    return {"spec": {"type": "LoadBalancer", **spec}, "status": {"loadBalancer": {"ingress": ingress}}}


def test_a_service_keeps_its_addresses_and_new_ones_are_free() -> None:
    assert addresses_of(service(), ()) == ["198.51.100.10"]
    assert addresses_of(service(), {"198.51.100.10"}) == ["198.51.100.11"]
    assert addresses_of(service("198.51.100.40"), {"198.51.100.10"}) == ["198.51.100.40"]
    assert addresses_of(service("198.51.100.40"), {"198.51.100.40"}) == ["198.51.100.10"], "another has it"
    both = service("198.51.100.12", ipFamilies=["IPv6", "IPv4"])
    assert addresses_of(both, ()) == ["2001:db8:198::a", "198.51.100.12"]


def test_an_address_that_is_asked_for() -> None:
    assert addresses_of(service(loadBalancerIP="198.51.100.77"), ()) == ["198.51.100.77"]
    assert addresses_of(service(loadBalancerIP="198.51.100.77"), {"198.51.100.77"}) == ["198.51.100.10"]
    assert addresses_of(service(loadBalancerIP="10.0.0.1"), ()) == ["198.51.100.10"], "not of the range"


def test_no_address_is_free() -> None:
    with pytest.raises(LabError, match="no load-balancer address"):
        addresses_of(service(), {str(each) for each in BALANCER_RANGES[4]})


def test_other_load_balancers_are_left_alone() -> None:
    assert is_balanced(service())
    assert not is_balanced(service(loadBalancerClass="example.com/other"))
    assert not is_balanced(service(type="NodePort"))
