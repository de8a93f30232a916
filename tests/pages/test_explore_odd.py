"""The page of `kproxy explore` with unusual sources: without nodes or with too many, with names that are long or turn
round what stands beside them; and with a server that is gone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import running_browser
from tests.support.explore import Page, exploring, looking, place
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

DUMP = ROOT / "docs/examples/worker-1.save"
LONG = ".".join(["n" * 60] * 4) + "-long-enough"
assert len(LONG) > 250
VIP = "198.51.100.12"


def service(name: str = "web", namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    spec = {"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ports": [{"name": "http", "port": 80}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def balanced() -> dict[str, Any]:
    return {**service(type="LoadBalancer"), "status": {"loadBalancer": {"ingress": [{"ip": VIP}]}}}


def node(name: str, number: int) -> dict[str, Any]:
    status = {"addresses": [{"type": "InternalIP", "address": f"172.18.0.{number + 1}"}]}
    spec = {"podCIDRs": [f"10.244.{number}.0/24"]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}


def endpoints(names: list[str], of: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """An endpoint on each of some nodes, a hundred in a slice."""
    meta, labels = of["metadata"], {"kubernetes.io/service-name": of["metadata"]["name"]}
    for first in range(0, len(names), 100):
        ends = [
            {"addresses": [f"10.100.{place // 250}.{place % 250 + 1}"], "nodeName": name, "conditions": {"ready": True}}
            for place, name in enumerate(names[first : first + 100], first)
        ]
        yield {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": ends,
            "metadata": {"name": f"slice-{first}", "namespace": meta["namespace"], "labels": labels},
            "ports": [{"name": "http", "port": 8080}],
        }  # fmt: skip


def written(path: Path, *items: dict[str, Any]) -> str:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running_browser(tmp_path_factory.mktemp("profile"), 1000, "performance") as session:
        yield session


def test_services_alone_have_a_map_and_an_honest_answer(browser: Any, tmp_path: Path) -> None:
    with exploring("-f", written(tmp_path / "a.json", balanced())) as url, looking(browser, url) as page:
        page.open(place("map"))
        client, card = (page.item(each).rect for each in ("outside/203.0.113.9", "svc/shop/web"))
        assert client["x"] + client["width"] < card["x"], "the client stands before the Service"
        page.open(place("ask", _from="outside", to=f"{VIP}:80"))
        page.shows("main", "to which node 198.51.100.12, an address of shop/web, leads is not known")
        assert page.all(".way-item.ok") == []
        page.open(place("service/shop/web"))
        page.shows("[role=alert]", "there is no node: no Node is among the objects, and no Pod or endpoint names one")
        page.complaints()  # the browser itself notes that the answer was 404


def test_what_a_view_needs_is_said_and_what_never_changes_is_not_listened_to(browser: Any, tmp_path: Path) -> None:
    with exploring("-f", written(tmp_path / "a.json", service())) as url, looking(browser, url) as page:
        page.open(place("audit"))
        page.shows("main", "this needs a snapshot (kproxy collect) or a lab")
        assert page.text("h1") == "Audit"
        assert [each for each in page.requests() if "/api/events" in each] == []


def test_a_server_that_is_gone_says_how_to_go_on(browser: Any, tmp_path: Path) -> None:
    with exploring("-f", written(tmp_path / "a.json", service(), node("n1", 1))) as url:
        page = Page(browser, url)
        page.leave()
        page.open(place("map"))
    browser.execute_script("location.hash = '#/service/shop/web'")
    page.shows("[role=alert]", "Start it again in a terminal and open the address that it prints")
    page.leave()


def test_a_part_of_the_map_without_hosts_has_a_size(browser: Any, tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(8)]
    items = (service(), *map(node, names, range(8)), *endpoints(names, service()))
    with exploring("-f", written(tmp_path / "a.json", *items)) as url, looking(browser, url) as page:
        page.open(place("ask", _from="outside", to="svc/shop/web"))
        page.until(lambda: page.all(".way-item"), "an answer")
        sizes = [each.get_attribute("viewBox") for each in page.all("main svg.map, main .drawing svg")]
        assert sizes
        assert not [each for each in sizes if each and re.search(r"Infinity|NaN", each)]


def test_nodes_that_only_endpoints_name_are_nodes_and_other_endpoints_are_bounded(browser: Any, tmp_path: Path) -> None:
    named = [f"worker-{number}" for number in range(600)]
    items = (service(), node("worker-0", 0), *endpoints(named, service()))
    with exploring("-f", written(tmp_path / "a.json", *items)) as url, looking(browser, url) as page:
        page.open(place("map"))
        page.shows(".counts", "600 nodes")
        assert len(page.all(".map .item.outside")) <= 2
        page.open(place("service/shop/web"))
        page.shows("main", "600 endpoints")
    slices = list(endpoints(["" for _ in named], service()))
    for each in slices:
        for end in each["endpoints"]:
            del end["nodeName"]
    items = (service(), node("worker-0", 0), *slices)
    with exploring("-f", written(tmp_path / "a.json", *items)) as url, looking(browser, url) as page:
        page.open(place("map"))
        page.shows("main", "576 more endpoints outside are not drawn")
        assert len(page.all(".map .item.outside")) <= 26


def test_what_turns_words_round_is_marked_and_can_be_asked(browser: Any, tmp_path: Path) -> None:
    text = DUMP.read_text()
    text = text.replace("shop/cart:http", "shop/ca\u202ert:http").replace("no DNS to", "no \u202eDNS\u0007 to")
    (tmp_path / "worker.save").write_text(text)
    with exploring("--rules", "worker.save", directory=tmp_path) as url, looking(browser, url) as page:
        page.open(place("services"))
        page.shows("main", "shop/ca⟨U+202E⟩rt")
        page.open(place("ask", _from="10.244.1.5", to="svc/shop/ca⟨U+202E⟩rt"))
        page.until(lambda: page.all(".way-item.ok"), "an answer")
        page.open(place("ask", _from="10.244.1.5", to="10.96.0.10:53", proto="udp"))
        page.shows("main", "no ⟨U+202E⟩DNS⟨U+0007⟩ to other racks")
        assert not re.search("[\u202a-\u202e\u0007]", str(browser.execute_script("return document.body.innerHTML")))
        styles = "return [...document.querySelectorAll('main code')].map((one) => getComputedStyle(one).unicodeBidi)"
        assert set(browser.execute_script(styles)) == {"isolate"}


@pytest.mark.parametrize("width", [390, 1280])
def test_the_longest_names_make_no_view_wider_than_the_window(browser: Any, tmp_path: Path, width: int) -> None:
    names = [f"{LONG[:250]}-{number}" for number in range(3)]
    long = service("s" * 63, "n" * 63)
    items = (long, *map(node, names, range(3)), *endpoints(names, long))
    key = f"{'n' * 63}/{'s' * 63}"
    with exploring("-f", written(tmp_path / "a.json", *items)) as url, looking(browser, url) as page:
        page.size(width, 900)
        for view in (place("map", sel=f"svc/{key}"), place("map", sel=f"node/{names[0]}"), place("services"),
                     place(f"service/{key}"), place("ask", _from="outside", to=f"svc/{key}"), place("compare"),
                     place("whatif")):  # fmt: skip
            page.open(view)
            seen = browser.execute_script("return [document.documentElement.scrollWidth, window.screen.width]")
            assert seen[0] <= width, f"{view}: {seen}"


def test_one_hosts_rules_are_asked_by_each_client_and_the_worst_is_the_mark(browser: Any) -> None:
    with exploring("--rules", str(DUMP)) as url, looking(browser, url) as page:
        page.open(place("services"))
        page.until(lambda: "50% lost" in page.text("tbody tr:first-child"), "what Pods lose")
        assert page.text("thead").count("from a Pod of 10.244.0.0/16") == 1
        assert len(page.all("tbody tr:first-child .packet-shares")) == 3
        page.open(place("map", sel="svc/kube-system/kube-dns"))
        page.shows('[data-test="by-client"]', "a Pod of 10.244.0.0/16")
        page.shows('[data-test="by-client"]', "50% lost")
        assert "faulty" in page.item("svc/kube-system/kube-dns").get_attribute("class")


def test_a_dump_of_nat_alone_says_what_was_not_seen_and_nothing_is_green(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "nat").write_text("*nat\n" + DUMP.read_text().partition("*nat\n")[2])
    with exploring("--rules", str(tmp_path / "nat")) as url, looking(browser, url) as page:
        page.open(place("services"))
        page.shows(".not-seen", "Not seen: filter table")
        page.until(lambda: page.text("tbody").count("? not known") >= 9, "open answers")
        assert page.all("tbody .part-words.ok") == []
