"""The page of `kproxy trace --html`, looked at in a real browser."""

from __future__ import annotations

import functools
import http.server
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import paths
from tests.support.browser import check_light_dark_and_narrow, running_browser
from tests.support.cli import KPROXY

ROOT = paths.ROOT
GOLDEN = ROOT / "rules_golden"
MINI = GOLDEN / "minikube"
WATCHERS = ("--src", "10.244.0.36", "--in", "cni0", "--to", "svc/default/crd-array-watchers")


def write_page(path: Path, *arguments: str | Path, scenario: Path = MINI) -> Path:
    command = [
        *KPROXY,
        "trace",
        "-f",
        scenario / "cluster.yaml",
        "--config",
        scenario / "config.yaml",
    ]
    done = subprocess.run(
        [*map(str, [*command, *arguments, "--html", path])], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running_browser(tmp_path_factory.mktemp("profile"), 1400, "performance") as session:
        yield session


def complaints(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser")]


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    page = write_page(tmp_path / "page.html", *WATCHERS)
    text = page.read_text()
    assert not re.search(r"(?:src|href)=[\"'](?!#)", text), "nothing is loaded or linked but places in the page itself"
    assert not re.search(r"https?://|@import|url\((?!#)", text)
    assert "default-src 'none'" in text
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_text_of_rules_is_escaped(tmp_path: Path) -> None:
    rules = tmp_path / "rules.save"
    rules.write_text(
        '*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -m comment --comment "<script>alert(1)</script>" -j DROP\nCOMMIT\n'
    )
    page = tmp_path / "page.html"
    command = [*KPROXY, "trace", "--rules", rules, "--local-ip", "192.0.2.1", "--src", "10.0.0.1"]
    subprocess.run([*map(str, [*command, "--dst", "10.0.0.2:80", "--html", page])], check=True)
    assert "<script>alert" not in page.read_text()
    assert "&lt;script&gt;alert(1)" in page.read_text()


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    command = [*KPROXY, "trace", "-f", MINI / "cluster.yaml", *WATCHERS, "--html", "gone/page.html"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot write gone/page.html" in done.stderr


def test_outcomes_the_map_and_rules_on_demand(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.get(write_page(tmp_path / "page.html", *WATCHERS).as_uri())
    assert "10.244.0.36 → 10.103.198.138:8080" in browser.title
    assert complaints(browser) == []
    outcomes = browser.find_elements(By.CSS_SELECTOR, "a.outcome")
    assert [item.find_element(By.CSS_SELECTOR, ".chance").text for item in outcomes] == ["50%", "50%"]
    ways = browser.find_elements(By.CSS_SELECTOR, ".way")
    assert [way.is_displayed() for way in ways] == [True, False]
    passed = [item.text.split("\n")[0] for item in ways[0].find_elements(By.CSS_SELECTOR, ".map .passed")]
    assert passed == ["network", "PREROUTING", "routing", "FORWARD", "POSTROUTING", "network"]

    rule = ways[0].find_element(By.CSS_SELECTOR, "details")
    code = rule.find_element(By.CSS_SELECTOR, "code")
    assert not code.is_displayed()
    rule.find_element(By.CSS_SELECTOR, "summary").click()
    assert code.is_displayed()
    assert code.text.startswith("-A PREROUTING")

    outcomes[1].send_keys(Keys.ENTER)
    assert [way.is_displayed() for way in ways] == [False, True]
    assert outcomes[1].get_attribute("aria-current") == "true"
    assert "10.244.0.37:8080" in ways[1].text
    everything = ways[1].find_element(By.CSS_SELECTOR, "button.all")
    everything.click()
    codes = ways[1].find_elements(By.CSS_SELECTOR, "code")
    assert len(codes) > 5
    assert all(code.is_displayed() for code in codes)
    everything.click()
    assert not any(code.is_displayed() for code in codes)
    ways[1].find_element(By.CSS_SELECTOR, ".map a[aria-label^=FORWARD]").click()
    assert browser.current_url.endswith("#stop-1-1")


def test_light_dark_and_narrow(browser: Any, tmp_path: Path) -> None:
    browser.get(write_page(tmp_path / "page.html", *WATCHERS).as_uri())
    check_light_dark_and_narrow(browser, tmp_path, 500, 20_000)
    browser.set_window_size(1200, 1400)


def test_contrast_and_names_for_screen_readers(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By

    browser.get(write_page(tmp_path / "page.html", *WATCHERS).as_uri())
    assert browser.execute_script("return document.documentElement.lang") == "en"
    for link in browser.find_elements(By.CSS_SELECTOR, "a, button, summary"):
        if link.is_displayed():
            assert link.accessible_name.strip()
    assert len(browser.find_elements(By.CSS_SELECTOR, "main")) == 1
    assert len(browser.find_elements(By.CSS_SELECTOR, "h1")) == 1


def test_without_network_and_without_scripts(browser: Any, tmp_path: Path) -> None:
    """Served by a counting server: one request for the page, no others; with scripts off every way is shown."""
    from selenium.webdriver.common.by import By

    write_page(tmp_path / "page.html", *WATCHERS)
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        browser.get(f"http://127.0.0.1:{server.server_address[1]}/page.html")
        assert all(way.is_displayed() for way in browser.find_elements(By.CSS_SELECTOR, ".way"))
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        server.shutdown()
    assert [path for path in asked if path != "/favicon.ico"] == ["/page.html"]


@pytest.mark.parametrize(
    ("scenario", "arguments", "last"),
    [
        ("no-endpoints", ("--src", "10.244.0.9", "--dst", "10.96.0.120:80"), "FORWARD"),
        ("minikube", ("--src", "192.168.49.1", "--in", "eth0", "--dst", "127.0.0.1:10249"), "INPUT"),
        ("minikube", ("--src", "192.168.49.2", "--origin", "local", "--dst", "192.168.49.2:10250"), "this host"),
        ("large-cluster", ("--src", "10.244.0.9", "--dst", "10.96.0.161:80", "--node", "node-0"), "network"),
    ],
)
def test_other_ends(browser: Any, tmp_path: Path, scenario: str, arguments: tuple[str, ...], last: str) -> None:
    from selenium.webdriver.common.by import By

    browser.get(write_page(tmp_path / "page.html", *arguments, scenario=GOLDEN / scenario).as_uri())
    assert complaints(browser) == []
    assert browser.find_element(By.CSS_SELECTOR, ".way .map .last text").text == last
