"""The page of `kproxy lab view`, looked at in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kproxy.cli.lab.page_map import _between, boxes, cable
from kproxy.lab.cluster import ClusterView, NodeView
from tests.support.browser import check_light_dark_and_narrow, running_browser
from tests.support.lab.labtools import deployment, lab_up, service

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("view")
    with lab_up(directory / "labs", "--nodes", "2") as lab:
        lab.apply(
            deployment("a-b", 1, node="node-2", labels={"app": "web"}),
            service("web", "web", type="NodePort"),
        )
        lab.settled(lambda found: any(i.ready for s in found.services if s.name == "web" for i in s.ports[0].endpoints))
        flows = ["client=nodeport/web@node-1", "a-b=svc/web", "client=svc/web"]
        path = directory / "lab.html"
        lab.run("view", "--html", str(path), *(word for flow in flows for word in ("--flow", flow)), "--timeout", "0.5")
        default = lab.run("view", "--html", "-")
        assert default.count('class="flow"') == 2
        lab.run("fail", "link", "node-2")
        flows = ["client=nodeport/web@node-2", "node-1=svc/web", "node-2=172.30.0.11:80", "node-1=172.30.0.12:80"]
        words = [word for flow in flows for word in ("--flow", flow)]
        lab.run("view", "--html", str(directory / "down.html"), *words, "--timeout", "0.5")
    return path


def test_cables_touch_no_other_node_and_paths_follow_them() -> None:
    nodes = tuple(NodeView(f"node-{n}", "", (f"172.30.0.{n}",), ()) for n in range(1, 12))
    cluster = ClusterView(
        "x", "ipv4", "nft", "iptables", "vxlan", "", "https://127.0.0.1:1", True, ("203.0.113.2",), nodes
    )
    places = boxes(cluster)
    ways = {name: cable(places, name) for name in places if name != "fabric"}
    ways |= {
        f"{one} {other}": _between(one, other, places[one].middle, places[other].middle, places)
        for one in places
        for other in places
        if one != other and "fabric" not in (one, other)
    }
    fabric = places["fabric"]
    for name, direction in ways.items():
        own = name.split()
        for (x1, y1), (x2, y2) in pairwise(direction[1:-1] if len(own) == 2 else direction):
            assert x1 == x2 or y1 == y2
            for host, box in places.items():
                inside = min(x1, x2) < box.x + box.width and max(x1, x2) > box.x
                inside &= min(y1, y2) < box.y + box.height and max(y1, y2) > box.y
                assert not inside or host in (*own, "fabric"), f"the way of {name} crosses {host}"
        if len(own) == 2:
            assert any(y == fabric.middle[1] and fabric.x < x < fabric.x + fabric.width for x, y in direction)


def test_a_path_ends_where_the_packet_is_lost(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.by import By

    browser.get(page.with_name("down.html").as_uri())
    paths = browser.find_elements(By.CSS_SELECTOR, ".path")
    (down,) = browser.find_elements(By.CSS_SELECTOR, ".cable.down")
    assert down.get_attribute("data-cable") == "node-2"
    (other,) = browser.find_elements(By.CSS_SELECTOR, '.map .host[data-host="node-2"]')
    for place, choice in enumerate(browser.find_elements(By.CSS_SELECTOR, ".choice")):
        choice.click()
        crosses = paths[place].find_elements(By.CSS_SELECTOR, ".lost")
        lost = "lost" in choice.text or "unreachable" in choice.text
        assert len(crosses) == int(lost), choice.text
        numbers = paths[place].find_elements(By.CSS_SELECTOR, "circle")
        within = [item for item in numbers if other.rect["x"] < item.rect["x"] < other.rect["x"] + other.rect["width"]]
        within = [item for item in within if item.rect["y"] > other.rect["y"]]
        assert len(within) == int(place == 2), "only what begins on the node is on it"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running_browser(tmp_path_factory.mktemp("profile"), 1500) as session:
        yield session


def test_the_page_needs_nothing_else(page: Path) -> None:
    text = page.read_text()
    assert not re.search(r"(?:src|href)=[\"'](?!#)", text), "nothing is loaded or linked but places in the page itself"
    assert not re.search(r"https?://|@import|url\((?!#)", text)
    assert "default-src 'none'" in text


def test_topology_and_the_path_of_the_chosen_flow(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.get(page.as_uri())
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    hosts = [item.get_attribute("data-host") for item in browser.find_elements(By.CSS_SELECTOR, ".map .host")]
    assert hosts[:4] == ["client", "fabric", "node-1", "node-2"]
    assert hosts[4].startswith("pod/default/a-b-")
    assert "default/web" in browser.find_element(By.CSS_SELECTOR, "section[aria-labelledby=services]").text

    choices = browser.find_elements(By.CSS_SELECTOR, ".choice")
    flows = browser.find_elements(By.CSS_SELECTOR, ".flow")
    paths = browser.find_elements(By.CSS_SELECTOR, ".path")
    assert len(choices) == len(flows) == len(paths) == 3
    assert [flow.is_displayed() for flow in flows] == [True, False, False]
    assert [path.is_displayed() for path in paths] == [True, False, False]
    lit = [item.get_attribute("data-host") for item in browser.find_elements(By.CSS_SELECTOR, ".map .host.on")]
    assert lit == ["client", "fabric", "node-1", "node-2", hosts[4]]
    rows = flows[0].find_elements(By.CSS_SELECTOR, ".hops tbody tr")
    assert len(rows) > 20
    assert all(row.get_attribute("class") == "same" for row in rows)
    assert any("VXLAN" in row.text for row in rows)
    numbers = [item.text for item in paths[0].find_elements(By.CSS_SELECTOR, ".number")]
    assert numbers == ["1", "2", "3", "4", "5"]

    choices[1].send_keys(Keys.ENTER)
    assert [flow.is_displayed() for flow in flows] == [False, True, False]
    assert [path.is_displayed() for path in paths] == [False, True, False]
    assert choices[1].get_attribute("aria-current") == "true"
    details = flows[1].find_element(By.CSS_SELECTOR, "details")
    assert not details.find_element(By.CSS_SELECTOR, "code").is_displayed()
    details.find_element(By.CSS_SELECTOR, "summary").click()
    assert "KUBE-SERVICES" in details.text

    choices[2].click()
    assert "unreachable" in flows[2].text


def test_light_dark_narrow_and_with_screen_readers(browser: Any, page: Path, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By

    browser.get(page.as_uri())
    check_light_dark_and_narrow(browser, tmp_path, 520, 30_000)
    browser.set_window_size(1200, 1500)
    assert browser.execute_script("return document.documentElement.lang") == "en"
    assert len(browser.find_elements(By.CSS_SELECTOR, "h1")) == 1
    for link in browser.find_elements(By.CSS_SELECTOR, "a, summary"):
        if link.is_displayed():
            assert link.accessible_name.strip()


def test_without_scripts_every_flow_is_there(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.by import By

    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(page.as_uri())
        assert all(flow.is_displayed() for flow in browser.find_elements(By.CSS_SELECTOR, ".flow"))
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
