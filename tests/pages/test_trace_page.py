"""The pages of `kproxy trace --html`, `diff --html` and `audit --html`, looked at in a real browser."""

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
from tests.support.explore import Page, place, write_showcase

pytestmark = pytest.mark.slow

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


def test_the_page_is_one_file_that_may_load_nothing(tmp_path: Path) -> None:
    page = write_page(tmp_path / "page.html", *WATCHERS)
    text = page.read_text()
    around = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r"(?:src|href)=[\"'](?!data:,)", around)
    assert not re.search(r"https?://|@import|url\(", around)
    assert "default-src 'none'; script-src 'sha256-" in text
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
    assert "&lt;script&gt;alert(1)" in page.read_text(), "as text"
    assert "\\u003cscript\\u003ealert(1)" in page.read_text(), "as data"


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    command = [*KPROXY, "trace", "-f", MINI / "cluster.yaml", *WATCHERS, "--html", "gone/page.html"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot write gone/page.html" in done.stderr


def texts(browser: Any, css: str) -> list[str]:
    return [item.text for item in browser.find_elements("css selector", css)]


def test_rules_stand_where_there_is_no_map(browser: Any, tmp_path: Path) -> None:
    """Below the header, and as wide."""
    page = Page(browser, write_page(tmp_path / "page.html", *WATCHERS).as_uri())
    page.size(1400, 900)
    page.open("")
    above, rules = page.one(".player").rect, page.one("section.rules").rect
    assert (rules["x"], rules["width"]) == (above["x"], above["width"])
    assert rules["y"] > above["y"] + above["height"]
    assert rules["y"] + rules["height"] <= 900


def test_outcomes_hooks_and_the_header_step_by_step(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    page = Page(browser, write_page(tmp_path / "page.html", *WATCHERS).as_uri())
    page.open("")
    assert "10.244.0.36 → 10.103.198.138:8080" in browser.title
    assert "10.244.0.36 → 10.103.198.138:8080, arrives on cni0" in page.text("h1")
    assert page.complaints() == []
    assert texts(browser, ".way-item .chance b") == ["50%", "50%"]
    passed = ["link", "PREROUTING", "routing", "FORWARD", "POSTROUTING", "link"]
    assert texts(browser, ".hooks .station.passed text") == passed
    codes = texts(browser, ".rules .rule code")
    assert codes[0].startswith("-A PREROUTING")
    assert len(codes) > 5

    page.all(".way-item")[1].send_keys(Keys.ENTER)
    page.shows(".way-item[aria-current=true]", "10.244.0.37:8080")
    for _ in range(20):
        if page.all(".field.dst.lit"):
            break
        page.press("n")
    assert page.text(".field.dst dd").split() == ["10.103.198.138", "10.244.0.37"]
    assert texts(browser, ".hooks .station.now text") == ["PREROUTING"]
    assert "DNAT" in page.text(".rule.now")
    page.shows("p.answer", "10.244.0.36 → 10.244.0.37:8080, leaves")
    assert page.text("p.answer").startswith("✓ This way, 50%: accepted by the rules")
    assert page.text("p.answer").endswith("they do not tell whether it arrives.")
    page.press(Keys.END)
    page.shows('[data-test="now"]', "the answer leaves")


def test_light_dark_and_narrow(browser: Any, tmp_path: Path) -> None:
    browser.get(write_page(tmp_path / "page.html", *WATCHERS).as_uri())
    check_light_dark_and_narrow(browser, tmp_path, 500, 20_000)
    browser.set_window_size(1200, 1400)


def test_contrast_and_names_for_screen_readers(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By

    Page(browser, write_page(tmp_path / "page.html", *WATCHERS).as_uri()).open("")
    assert browser.execute_script("return document.documentElement.lang") == "en"
    for link in browser.find_elements(By.CSS_SELECTOR, "a, button, summary"):
        if link.is_displayed():
            assert link.accessible_name.strip()
    assert len(browser.find_elements(By.CSS_SELECTOR, "main")) == 1
    assert len(browser.find_elements(By.CSS_SELECTOR, "h1")) == 1


def test_without_network_and_without_scripts(browser: Any, tmp_path: Path) -> None:
    """Served by a counting server: one request for the page, no others; with scripts off it is the command's text."""
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
        (text,) = texts(browser, "noscript pre")
        assert text.count("10.244.0.37:8080") > 1
        assert "KUBE-SEP-" in text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        server.shutdown()
    assert [path for path in asked if path != "/favicon.ico"] == ["/page.html"]


@pytest.mark.parametrize(
    ("scenario", "arguments", "last", "end"),
    [
        ("no-endpoints", ("--src", "10.244.0.9", "--dst", "10.96.0.120:80"), "FORWARD", "rejected in FORWARD"),
        (
            "minikube",
            ("--src", "192.168.49.1", "--in", "eth0", "--dst", "127.0.0.1:10249"),
            "INPUT",
            "dropped in INPUT",
        ),
        (
            "minikube",
            ("--src", "192.168.49.2", "--origin", "local", "--dst", "192.168.49.2:10250"),
            "process",
            "delivered to this host",
        ),
        (
            "large-cluster",
            ("--src", "10.244.0.9", "--dst", "10.96.0.161:80", "--node", "node-0"),
            "link",
            "leaves by",
        ),
    ],
)
def test_other_ends(
    browser: Any, tmp_path: Path, scenario: str, arguments: tuple[str, ...], last: str, end: str
) -> None:
    page = Page(browser, write_page(tmp_path / "page.html", *arguments, scenario=GOLDEN / scenario).as_uri())
    page.open("")
    assert page.complaints() == []
    assert end.lower() in page.text("p.answer").lower()
    assert last in texts(browser, ".hooks .station.passed text")
    stopped = texts(browser, ".hooks .station.stops text")
    lost = end.partition(" ")[0] in ("rejected", "dropped")
    assert (stopped[:1] == [last]) == lost
    assert bool(page.all("p.answer.bad")) == lost
    assert bool(page.all("p.now.stops.bad")) == lost, "what is lost is opened where it is lost"


def test_the_way_over_all_hosts_on_the_map(browser: Any, tmp_path: Path) -> None:
    """`kproxy trace --snapshot --html`, without a server: the rewritten header, the tunnel, the way back."""
    snapshot, file = write_showcase(tmp_path / "shop"), tmp_path / "way.html"
    asked = ("--from", "pod/shop/cart-0", "--to", "svc/shop/web:http")
    subprocess.run([*KPROXY, "trace", "--snapshot", snapshot, *asked, "--html", file], check=True)
    page = Page(browser, file.as_uri())
    page.size(1400, 1000)
    page.open("")
    assert [item.text for item in page.all(".way-item .chance b")] == ["50%", "50%"]
    page.all(".way-item")[1].click()
    page.until(lambda: page.all(".way-item")[1].get_attribute("aria-current") == "true", "the second way")
    for css in (".field.dst.lit", ".strips.wrapped", ".rail .back.here"):
        for _ in range(60):
            if page.all(css):
                break
            page.step()
        page.one(css)
    assert page.complaints() == []


def test_the_pages_of_diff_migrate_and_audit(browser: Any, tmp_path: Path) -> None:
    other = GOLDEN / "no-endpoints/cluster.yaml"
    file = tmp_path / "diff.html"
    command = [*KPROXY, "diff", MINI / "cluster.yaml", other, "--html", file]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "different:" in done.stdout
    page = Page(browser, file.as_uri())
    page.open("")
    page.shows('[data-test="verdict"]', "for packets")
    first = page.one(".finding")
    assert [item.text for item in first.find_elements("css selector", ".both dt")] == [
        str(MINI / "cluster.yaml"),
        str(other),
    ]
    assert page.all(".map .item.service.touched"), "both clusters' objects are known"
    page.button("Show both ways").click()
    assert len(page.all(".pair section")) == 2
    assert page.text(".pair .ending").split()
    assert "KUBE-" in first.text
    assert page.complaints() == []

    file = tmp_path / "switch.html"
    command = [*KPROXY, "migrate", "-f", MINI / "cluster.yaml", "--config", MINI / "config.yaml", "--html", file]
    assert subprocess.run([*map(str, command)], capture_output=True, check=False).returncode == 1
    page = Page(browser, file.as_uri())
    page.open("")
    page.shows('[data-test="verdict"]', "Before the switch")
    page.one(".lane a.choose").click()
    page.until(lambda: page.all(".map .item.service"), "the map")
    page.button("Show both ways").click()
    page.until(lambda: len(page.all(".pair .way-item")) >= 2, "the ways in both modes")
    assert "other rules" not in page.text(".both-ways")
    assert page.complaints() == []

    file = tmp_path / "audit.html"
    command = [*KPROXY, "audit", write_showcase(tmp_path / "shop"), "--html", file]
    assert subprocess.run([*map(str, command)], capture_output=True, check=False).returncode == 1
    page = Page(browser, file.as_uri())
    page.open("")
    page.shows(".finding.warning", "mtu")
    next(item for item in page.all(".finding .button") if item.text == "On the map").click()
    page.shows(".panel", "Node worker-1")
    assert page.all(".map .item.pod")
    assert page.complaints() == []


MARKED = """*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
-A FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
COMMIT
"""


def test_ways_of_a_change_of_mode_say_whether_other_rules_count(browser: Any, tmp_path: Path) -> None:
    file, dump = tmp_path / "switch.html", tmp_path / "node.save"
    dump.write_text(MARKED)
    command = [*KPROXY, "migrate", "-f", MINI / "cluster.yaml", "--config", MINI / "config.yaml", "--rules", dump]
    assert subprocess.run([*map(str, command), "--html", file], capture_output=True, check=False).returncode == 1
    page = Page(browser, file.as_uri())
    page.open(place("compare", finding="1"))
    said = {}
    for number in range(len(page.all(".finding"))):
        if number:
            page.all(".finding a.choose")[number].click()
        finding = page.one(f"#finding-{number + 1}.chosen")
        shown = [item for item in finding.find_elements("css selector", "button") if item.text == "Show both ways"]
        for button in shown:
            button.click()
            said[finding.find_element("css selector", "h3").text] = finding.find_element("css selector", ".note").text
    ours = [words for title, words in said.items() if "firewall" in title]
    assert len(ours) == 1, list(said)
    assert "With the node’s other rules" in ours[0]
    assert any("are not in these ways" in words for words in said.values())
    assert page.complaints() == []
