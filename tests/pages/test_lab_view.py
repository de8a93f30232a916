"""The page of `kproxy lab view`, looked at in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import check_light_dark_and_narrow, running_browser
from tests.support.explore import Page
from tests.support.lab.labtools import deployment, lab_up, service

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
        assert default.count('"agrees":') == 2
        lab.run("fail", "link", "node-2")
        flows = ["client=nodeport/web@node-2", "node-1=svc/web", "node-1=172.30.0.12:80"]
        words = [word for flow in flows for word in ("--flow", flow)]
        lab.run("view", "--html", str(directory / "down.html"), *words, "--timeout", "0.5")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running_browser(tmp_path_factory.mktemp("profile"), 1500) as session:
        yield session


def opened(browser: Any, file: Path) -> Page:
    page = Page(browser, file.as_uri())
    page.size(1400, 1000)
    page.complaints()
    page.open("")
    return page


def test_the_page_is_one_file_that_may_load_nothing(file: Path) -> None:
    text = file.read_text()
    around = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r"(?:src|href)=[\"'](?!data:,)", around)
    assert not re.search(r"https?://|@import|url\(", around)
    assert "default-src 'none'; script-src 'sha256-" in text


_CUT = """
const edge = document.querySelector('.player').getBoundingClientRect().right;
return [...document.querySelectorAll('.rail a')].filter((item) => item.getBoundingClientRect().right > edge);
"""


def test_topology_and_the_way_of_the_chosen_connection(browser: Any, file: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    page = opened(browser, file)
    hosts = [item.get_attribute("data-id") for item in page.all(".map .item")]
    assert {"node/client", "node/node-1", "node/node-2", "svc/default/web"} <= set(hosts)
    (pod,) = [name for name in hosts if name and name.startswith("pod/default/a-b-")]
    flows = page.all(".flow")
    assert len(flows) == 3
    assert all("as the model says" in item.text for item in flows)
    assert flows[0].get_attribute("aria-current") == "true"
    page.shows('[data-test="now"]', "DNAT")
    assert page.text("p.answer").startswith("✓ By the model ")
    assert "?" not in page.text(".strip"), "its sender's address was captured"
    assert page.browser.execute_script(_CUT) == []
    passed = {item.get_attribute("data-id") for item in page.all(".map .item.passed")}
    assert {"node/client", "node/node-1", "node/node-2", pod} <= passed
    rows = page.all('[data-test="captured"] tbody tr')
    assert len(rows) > 20
    assert not page.all(".laid .differs")
    assert any("VXLAN" in row.text for row in rows)
    page.shows(".way-item[aria-current=true]", "this one came about")

    flows[1].send_keys(Keys.ENTER)
    page.until(lambda: page.all(".flow")[1].get_attribute("aria-current") == "true", "the second connection")
    page.shows(".rail", "node-2")
    page.press("P")
    page.shows(".rules code", "KUBE-SERVICES")

    page.all(".flow")[2].click()
    page.shows(".flow[aria-current=true]", "unreachable")
    assert page.complaints() == []


def test_a_link_that_is_down_and_ways_that_are_lost_there(browser: Any, file: Path) -> None:
    page = opened(browser, file.with_name("down.html"))
    assert "bad" in page.item("node/node-2").get_attribute("class")
    ends = [item.text for item in page.all(".flow .more-words")]
    assert all("lost" in text or "unreachable" in text for text in ends), ends
    assert page.all(".flow.ok") == [], "as the model says, and lost"
    page.shows(".sent .outcome-line.bad", "the link of node-2 is down")
    page.shows(".agreement.ok", "hops agree")
    assert page.all(".map .cross, .map .way")
    assert page.complaints() == []


def test_light_dark_narrow_and_with_screen_readers(browser: Any, file: Path, tmp_path: Path) -> None:
    page = opened(browser, file)
    check_light_dark_and_narrow(browser, tmp_path, 520, 30_000)
    page.size(1200, 1500)
    assert browser.execute_script("return document.documentElement.lang") == "en"
    assert len(page.all("h1")) == 1
    for link in page.all("a, summary"):
        if link.is_displayed():
            assert link.accessible_name.strip()


def test_without_scripts_every_connection_is_there(browser: Any, file: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(file.as_uri())
        (text,) = [item.text for item in browser.find_elements("css selector", "noscript pre")]
        assert text.count("answered") >= 2
        assert "unreachable" in text
        assert "VXLAN" in text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
