"""The page of `kproxy lab view`, looked at in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import check_light_dark_and_narrow, running_browser
from tests.lab.labtools import deployment, lab_up, service

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
    return path


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


def test_light_dark_narrow_and_for_those_who_do_not_see(browser: Any, page: Path, tmp_path: Path) -> None:
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
