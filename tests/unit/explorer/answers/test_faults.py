"""Where a node's rules do not give what the objects ask for: the map and the Service's page say the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kproxy.cluster.audit.report import AuditReport
from kproxy.explorer.answers import reach, service
from kproxy.explorer.state import Explorer
from tests.support.cluster.snapshots import write_files
from tests.support.explore import damaged_showcase, write_showcase
from tests.support.explorer.client import Page, serving
from tests.support.explorer.sources import source_of
from tests.support.waiting import PATIENCE

NODES = ("worker-1", "worker-2", "worker-3")
WEB = "svc/shop/web"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """worker-1 and worker-2 lack shop/web's rules, worker-2 drops what it forwards, worker-3 has another endpoint."""
    directory = write_files(tmp_path_factory.mktemp("damaged") / "shop", damaged_showcase())
    with serving(Explorer(source_of(directory))) as page:
        yield page


def edges(page: Page, node: str, service: str = WEB) -> dict[str, Any]:
    """A Service's edges by endpoint, once all rules have been asked."""
    while (found := page.get(f"api/map?node={node}"))["pending"]:
        pass
    return {each["endpoint"]: each for each in found["edges"] if each["service"] == service}


def door(page: Page, node: str) -> Any:
    """The cluster IP of shop/web on its page."""
    return page.get(f"api/services/shop/web?node={node}")["ports"][0]["fan"][0]


def test_rules_as_the_objects_ask_for_have_no_fault_at_any_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_ASKING", PATIENCE)
    directory = write_showcase(tmp_path / "shop")
    kinds = set()
    with serving(Explorer(source_of(directory))) as page:
        for name in page.get("api/services")["services"]:
            for node in NODES:
                for port in page.get(f"api/services/{name}?node={node}")["ports"]:
                    assert {(each["fault"], each["by"]) for each in port["fan"]} == {("", "rules")}
                    kinds |= {each["kind"] for each in port["fan"]}
    assert kinds == {"clusterIP", "nodePort", "loadBalancerIP"}


def test_a_node_port_has_what_the_rules_do_from_outside(damaged: Page) -> None:
    cluster_ip, node_port = (
        {each["address"]: (each["chance"], each["fault"]) for each in found["endpoints"]}
        for found in damaged.get("api/services/shop/web?node=worker-3")["ports"][0]["fan"]
    )
    assert node_port == cluster_ip
    assert node_port["10.244.2.77:8080"] == ("1/2", "wrong")
    # Node ports are known to worker-1, whose rules lack the cluster IP.
    one, other = damaged.get("api/services/shop/web?node=worker-1")["ports"][0]["fan"]
    assert (one["verdict"], other["verdict"], other["by"]) == ("missing", "endpoints", "rules")


def test_what_another_node_drops_is_lost(damaged: Page) -> None:
    """worker-2 drops what it forwards, also to its own Pods: of Services that worker-1's and worker-3's rules know."""
    dropped = "dropped by a rule in FORWARD on worker-2"
    for node in ("worker-1", "worker-3"):
        found = edges(damaged, node, "svc/shop/cart")
        assert {
            each["target"]: (each["used"], each["fault"], each["lost"], each["why"]) for each in found.values()
        } == {
            "pod/shop/cart-0": (True, "", "", ""),
            "pod/shop/cart-1": (False, "lost", "1/2", dropped),
        }
    _, node_port = damaged.get("api/services/shop/web?node=worker-1")["ports"][0]["fan"]
    assert node_port["fault"] == "lost"
    assert {each["target"]: each["why"] for each in node_port["endpoints"] if each["lost"]} == {
        "pod/shop/web-1": dropped
    }


def test_rules_are_missing_also_where_another_program_drops_some_packets(tmp_path: Path) -> None:
    """One in ten is dropped before kube-proxy's rules, and the others find none."""
    files = dict(damaged_showcase())
    path = "nodes/worker-1/iptables-save"
    some = b"-A PREROUTING -m statistic --mode random --probability 0.1 -j DROP\n"
    files[path] += b"*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n" + some + b"COMMIT\n"
    with serving(Explorer(source_of(str(write_files(tmp_path / "shop", files))))) as page:
        found = edges(page, "worker-1")
    assert {each["fault"] for each in found.values() if each["objects"]} == {"missing"}


def test_rules_that_are_missing_are_said_to_be(damaged: Page) -> None:
    for node in NODES[:2]:
        found = edges(damaged, node)
        asked_for = [each for each in found.values() if each["objects"]]
        assert asked_for
        assert {(each["fault"], each["why"], each["used"]) for each in asked_for} == {
            ("missing", f"rules missing on {node}", False)
        }
        shown = door(damaged, node)
        assert (shown["verdict"], shown["fault"], shown["why"]) == ("missing", "missing", f"rules missing on {node}")


def test_an_address_of_a_pod_network_that_no_pod_has_is_on_that_node(damaged: Page) -> None:
    found = edges(damaged, "worker-3")
    wrong = found["10.244.2.77:8080"]
    assert (wrong["fault"], wrong["why"], wrong["node"], wrong["used"]) == (
        "wrong", "no Pod has this address", "node/worker-3", True,
    )  # fmt: skip
    unused = found["10.244.0.5:8080"]
    assert (unused["fault"], unused["why"]) == ("unused", "the rules of worker-3 do not lead there")
    assert (unused["target"], unused["used"], unused["objects"]) == ("pod/shop/web-0", False, "1/2")


@pytest.mark.parametrize("node", NODES)
def test_the_page_of_a_service_says_what_the_map_says(damaged: Page, node: str) -> None:
    fields = ("chance", "objects", "fault", "target", "node", "lost")
    on_map = {
        endpoint: tuple(each[name] for name in fields)
        for endpoint, each in edges(damaged, node).items()
        if each["used"] or each["objects"]
    }
    shown = door(damaged, node)
    assert {each["address"]: tuple(each[name] for name in fields) for each in shown["endpoints"]} == on_map
    why = {endpoint: each["why"] for endpoint, each in edges(damaged, node).items() if each["fault"]}
    assert {each["address"]: each["why"] for each in shown["endpoints"] if each["fault"]} == why


def test_what_is_dropped_on_its_way_to_an_endpoint_is_lost_there(damaged: Page) -> None:
    found = edges(damaged, "worker-2", "svc/shop/cart")
    lost = {endpoint: each for endpoint, each in found.items() if each["fault"]}
    assert lost
    assert {(each["fault"], each["why"], each["used"]) for each in lost.values()} == {
        ("lost", "dropped by filter KUBE-FORWARD 1", False)
    }
    assert all(each["lost"] == each["objects"] for each in lost.values())


def columns(found: Any) -> list[str]:
    return [each["label"].split()[3] for each in found["addresses"] if each["kind"] == "nodePort"]


@pytest.mark.parametrize("node", NODES)
def test_each_node_that_differs_is_among_those_whose_node_ports_are_asked(damaged: Page, node: str) -> None:
    matrix = damaged.get(f"api/services/shop/web?node={node}")["matrix"]
    assert columns(matrix) == list(NODES)
    assert (matrix["left"], matrix["unasked"]) == ([], 0)
    reasons = {cell["reason"] for row in matrix["cells"] for cell in row}
    assert "dropped by a rule in FORWARD on worker-2" in reasons


def test_where_nothing_differs_two_nodes_are_asked_of_which_one_is_looked_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_LOOKING", PATIENCE)
    directory = write_showcase(tmp_path / "shop")
    with serving(Explorer(source_of(directory))) as page:
        for node, expected in (("worker-1", ["worker-1", "worker-3"]), ("worker-2", ["worker-2", "worker-3"])):
            matrix = page.get(f"api/services/shop/web?node={node}")["matrix"]
            assert (columns(matrix), matrix["left"], matrix["unasked"]) == (expected, [], 0)


def test_nodes_that_differ_and_have_no_column_are_named(damaged: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_MOST_NODES", 2)
    matrix = damaged.get("api/services/shop/web")["matrix"]
    assert (columns(matrix), matrix["left"]) == (["worker-1", "worker-3"], ["worker-2"])


def test_nodes_that_the_audit_names_are_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_LOOKING", 0.0)
    directory = write_files(tmp_path / "shop", damaged_showcase())
    explorer = Explorer(source_of(directory))
    with serving(explorer) as page:
        found = page.get("api/services/shop/web")["matrix"]
        assert (columns(found), found["unasked"]) == (["worker-1", "worker-3"], 2)
        blamed: Any = SimpleNamespace(nodes=("worker-2",), services=("shop/web:http",))
        explorer.model.audited = cast(AuditReport, SimpleNamespace(findings=(blamed,)))
        found = page.get("api/services/shop/web")["matrix"]
        assert (columns(found), found["unasked"]) == (list(NODES), 2)


def test_from_outside_nobody_is_meant_to_reach_a_cluster_ip(damaged: Page) -> None:
    for node in NODES:
        matrix = damaged.get(f"api/services/shop/web?node={node}")["matrix"]
        for client, row in zip(matrix["clients"], matrix["cells"], strict=True):
            for address, cell in zip(matrix["addresses"], row, strict=True):
                inside_only = client["kind"] == "outside" and address["kind"] == "clusterIP"
                assert cell["meant"] is (inside_only and cell["end"] != "answered")
                assert not inside_only or cell["meant"]
