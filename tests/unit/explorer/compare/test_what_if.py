"""Copies of a cluster: edits, what they change for packets, and comparisons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kproxy.cluster.edits import Edit
from kproxy.dataplane.compare.difference import Extent
from kproxy.dataplane.model.packet import parse_ip
from kproxy.explorer.compare.findings import Sent, question
from kproxy.explorer.model.model import Model
from tests.support.explorer.client import Page
from tests.support.explorer.sources import source_of

TERMINATING = {"do": "endpoint", "pod": "shop/web-1", "set": {"ready": False, "serving": True, "terminating": True}}
LOCAL = {"do": "policy", "service": "shop/web", "set": {"internalTrafficPolicy": "Local"}}
CART = {"from": "pod/shop/cart-0", "to": "svc/shop/web"}


def _ends(page: Page, *edits: object) -> set[str]:
    return {way["at"] for way in page.post("api/ask", {**CART, "edits": list(edits)})["journeys"]}


def test_a_terminating_endpoint_gets_nothing_more(page: Page) -> None:
    found = page.post("api/whatif", {"edits": [TERMINATING]})
    assert not found["alike"]
    (edit,) = found["edits"]
    assert edit["text"] == "endpoint shop/web-1: not ready, serving, terminating"
    assert set(edit["touches"]) == {"pod/shop/web-1", "svc/shop/web"}
    first = found["findings"][0]
    assert first["services"] == ["svc/shop/web"]
    assert first["nodes"] == ["n1", "n2"]
    assert first["after"] == "sends all to 10.244.1.5:8080"
    assert first["ask"] == {"from": "pod/shop/cart-0", "to": "10.96.0.7:80", "protocol": "tcp"}
    edge = next(each for each in found["map"]["edges"] if each["target"] == "pod/shop/web-1")
    assert (edge["used"], edge["why"]) == (False, "terminating, and there are ready endpoints")
    assert _ends(page) == {"pod/shop/web-0", "pod/shop/web-1"}
    assert _ends(page, TERMINATING) == {"pod/shop/web-0"}


def test_no_edits_and_edits_that_change_nothing_change_nothing(page: Page) -> None:
    same = {"do": "endpoint", "pod": "shop/web-1", "set": {"ready": True}}
    for edits in ([], [same]):
        found = page.post("api/whatif", {"edits": edits})
        assert (found["alike"], found["findings"]) == (True, [])


def test_edits_take_the_ids_of_the_map(page: Page) -> None:
    by_id = {**TERMINATING, "pod": "pod/shop/web-1", "service": "svc/shop/web"}
    assert _ends(page, by_id) == {"pod/shop/web-0"}
    assert _ends(page, {"do": "drop-node", "node": "node/n2"}) == {"pod/shop/web-0"}


def test_policy_local_splits_by_node(page: Page) -> None:
    found = page.post("api/whatif", {"edits": [LOCAL], "node": "n2"})
    after = {node: each["after"] for each in found["findings"] for node in each["nodes"]}
    assert "10.244.1.5:8080" in after["n1"]
    assert "10.244.2.5:8080" in after["n2"]
    edges = {each["target"]: (each["percent"], each["varies"]) for each in found["map"]["edges"]}
    assert edges == {"pod/shop/web-0": (0.0, True), "pod/shop/web-1": (100.0, True)}


def test_a_dropped_node_takes_its_pods_and_endpoints_along(page: Page) -> None:
    found = page.post("api/whatif", {"edits": [{"do": "drop-node", "node": "n2"}]})
    assert [node["name"] for node in found["map"]["nodes"]] == ["n1"]
    assert "pod/shop/web-1" not in {pod["id"] for pod in found["map"]["pods"]}
    assert _ends(page, {"do": "drop-node", "node": "n2"}) == {"pod/shop/web-0"}


def test_a_manifest_is_applied_and_a_service_deleted(page: Page) -> None:
    more = """
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec: {clusterIP: 10.96.0.99, clusterIPs: [10.96.0.99], ports: [{port: 443, protocol: TCP}]}
"""
    applied = {"do": "apply", "manifest": more}
    found = page.post("api/whatif", {"edits": [applied]})
    assert found["edits"][0]["text"] == "applied Service shop/api"
    assert "svc/shop/api" in {each["id"] for each in found["map"]["services"]}
    # Without endpoints it refuses.
    ways = page.post("api/ask", {"from": "pod/shop/cart-0", "to": "svc/shop/api", "edits": [applied]})["journeys"]
    assert [way["end"] for way in ways] == ["refused"]
    gone = page.post("api/whatif", {"edits": [{"do": "delete", "service": "shop/web"}], "compare": False})
    assert gone["map"]["services"] == []


def test_the_mode_is_switched_on_a_copy(page: Page) -> None:
    edits = [{"do": "mode", "mode": "nftables"}]
    found = page.post("api/whatif", {"edits": edits})
    assert {node["mode"] for node in found["map"]["nodes"]} == {"nftables"}
    told = page.post("api/compare", {"kind": "migrate"})
    reasons = [each["reason"] for each in told["report"]["findings"]]
    assert [each["reason"] for each in found["findings"]] == reasons
    assert all(each["title"] and each["advice"] and each["cause"] is None for each in found["findings"])
    assert [each["effort"] for each in found["findings"]] == [each["effort"] for each in told["report"]["findings"]]
    assert [each["witness"] for each in found["findings"]] == [each["witness"] for each in told["report"]["findings"]]
    assert [each["asks"] for each in found["findings"]] == told["asks"]
    assert set(found["touched"]) >= {"svc/shop/web"}
    # With another change it is no switch alone.
    both = page.post(
        "api/whatif", {"edits": [*edits, {"do": "endpoint", "pod": "shop/web-1", "set": {"ready": False}}]}
    )
    assert both["findings"]
    assert {each["reason"] for each in both["findings"]} == {""}
    assert any("rejects" in each["after"] for each in both["findings"])
    # To the mode that it is in already nothing changes.
    assert page.post("api/whatif", {"edits": [{"do": "mode", "mode": "iptables"}]})["alike"]
    way = page.post("api/ask", {**CART, "edits": edits})["journeys"][0]
    assert any(rule["table"] == "ip kube-proxy" for hop in way["there"] for rule in hop.get("rules", ()))
    rules = page.post("api/rules", {**CART, "edits": edits, "journey": 0, "hop": 1})
    shown = [rule for hook in rules["hooks"] for chain in hook["chains"] for rule in chain["rules"]]
    assert {rule.get("matched", False) for rule in shown} == {True, False}


def test_a_copy_is_saved_as_manifests(page: Page) -> None:
    answered = page.ask("POST", "api/whatif/save", {"edits": [TERMINATING]})
    assert answered.headers["content-type"] == "application/yaml"
    assert "attachment" in answered.headers["content-disposition"]
    objects = list(yaml.safe_load_all(answered.body))
    slices = [each for each in objects if each["kind"] == "EndpointSlice"]
    conditions = [entry["conditions"] for each in slices for entry in each["endpoints"]]
    assert {"ready": False, "serving": True, "terminating": True} in conditions


@pytest.mark.parametrize(
    ("edit", "field", "message"),
    [
        ({"do": "melt"}, "do", "edits[0].do: one of endpoint, drop-node, policy, delete, apply, mode expected"),
        ({"do": "drop-node", "node": "n9"}, "node", "edits[0]: there is no node 'n9'"),
        (
            {"do": "endpoint", "address": "10.9.9.9", "set": {"ready": True}},
            "address",
            "edits[0]: no endpoint is 10.9.9.9",
        ),
        (
            {"do": "endpoint", "pod": "shop/web-1"},
            "set",
            "edits[0].set: ready, serving or terminating, true or false, expected",
        ),
        ({"do": "mode", "mode": "ipvs"}, "mode", "edits[0].mode: iptables or nftables expected"),
    ],
)
def test_an_edit_that_cannot_be_made_is_named(page: Page, edit: dict[str, object], field: str, message: str) -> None:
    answered = page.ask("POST", "api/whatif", {"edits": [edit]})
    assert answered.status in (400, 404)
    assert answered.json["error"] == {"field": f"edits[0].{field}", "message": message}


def test_a_manifest_that_is_wrong_says_where(page: Page) -> None:
    answered = page.ask("POST", "api/whatif", {"edits": [{"do": "apply", "manifest": "kind: Service\nspec: 7"}]})
    assert answered.status == 400
    assert answered.json["error"]["field"] == "edits[0].manifest"


def test_drift_and_migrate_and_diff(page: Page) -> None:
    drift = page.post("api/compare", {"kind": "drift", "node": "n1"})
    # The snapshot's rules were made with a clusterCIDR, which nothing in it tells.
    assert "kube-proxy's configuration is not known" in drift["notes"][0]
    assert all(each["nodes"] == ["n1"] for each in drift["findings"])
    migrate = page.post("api/compare", {"kind": "migrate", "nodes": ["n1"], "family": "IPv4"})
    assert (migrate["report"]["from"], migrate["report"]["to"]) == ("iptables", "nftables")
    diff: dict[str, Any] = page.post("api/compare", {"kind": "diff", "a": {"edits": []}, "b": {"edits": [LOCAL]}})
    assert not diff["alike"]
    assert page.ask("POST", "api/compare", {"kind": "guess"}).error == "kind: kind: diff, drift or migrate expected"


def _balanced(*ranges: str) -> dict[str, object]:
    """The Service with a load balancer's address, for clients of these networks only."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.7",
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}],
            "loadBalancerSourceRanges": list(ranges),
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.80"}]}},
    }
    return {"do": "apply", "manifest": yaml.safe_dump(service)}


@pytest.mark.parametrize(
    ("clients", "sender"), [("198.51.100.0/24", "outside/198.51.100.7"), ("10.244.1.0/24", "pod/shop/cart-0")]
)
def test_a_question_is_asked_by_a_pod_only_if_that_shows_the_difference(page: Page, clients: str, sender: str) -> None:
    before, after = [_balanced("203.0.113.0/24", clients)], [_balanced("203.0.113.0/24")]
    found = page.post("api/compare", {"kind": "diff", "a": {"edits": before}, "b": {"edits": after}})
    finding = next(each for each in found["findings"] if each["destinations"] == ["192.0.2.80:80/tcp"])
    assert [each["from"] for each in finding["asks"]] == [sender, sender]
    assert finding["ask"]["to"] == "192.0.2.80:80"
    if sender.startswith("pod/"):  # a load balancer's way from outside is not known
        first, second = (
            page.post("api/ask", {**finding["ask"], "edits": edits})["journeys"] for edits in (before, after)
        )
        assert {way["at"] for way in first} == {"pod/shop/web-0", "pod/shop/web-1"}
        assert {way["end"] for way in second} == {"lost"}


def test_a_node_port_is_asked_at_the_nodes_address_only_if_that_shows_the_difference(snapshot: Path) -> None:
    model = Model(source_of(snapshot).read(), 1)
    edited = model.copy([Edit("apply", manifest=str(_balanced()["manifest"]))])
    own = next(address for address, node in edited.owners.nodes.items() if node == "n1")
    elsewhere, at = parse_ip("192.0.2.99")[1], parse_ip(own)[1]
    for extent, to_host, wanted in (
        (Extent(), True, own),
        (Extent(), False, "192.0.2.99"),
        (Extent(destinations=((elsewhere, elsewhere),)), True, "192.0.2.99"),
        (Extent(destinations=((at, at), (elsewhere, elsewhere))), True, own),
    ):
        sent = Sent("", "192.0.2.99", 30080, "tcp", local=False, to_host=to_host, extent=extent)
        assert question(edited, "n1", sent).to == f"{wanted}:30080"


def test_a_packet_that_only_arrives_is_not_asked_by_the_node(snapshot: Path) -> None:
    model = Model(source_of(snapshot).read(), 1)
    extent = Extent(sources=((0, parse_ip("9.9.9.9")[1]), (parse_ip("172.0.0.0")[1], parse_ip("200.0.0.0")[1])))
    for origins, wanted in (({"arriving"}, "outside/198.51.100.7"), ({"arriving", "local"}, "node/n1")):
        seen = replace(extent, origins=frozenset(origins))
        sent = Sent("198.51.100.7", "10.96.0.7", 80, "tcp", local=False, extent=seen)
        assert question(model, "n1", sent).sender == wanted
