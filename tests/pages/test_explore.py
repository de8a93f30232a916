"""The page of `kproxy explore` in a browser: asked, stepped through, changed, by keyboard, on a phone, from disk."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kproxy.api.load.manifests import load_manifests, parse_manifests
from kproxy.render import render_target, select_target
from kproxy.services import IPFamily
from tests.support.cluster.showcase import MANY_APPS, showcase
from tests.support.cluster.snapshots import CONFIG, vxlan_cluster, write_files
from tests.support.explore import Page, crossed, damaged_showcase, exploring, looking, place, serious, write_showcase
from tests.support.migrate import endpoints, node, service
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

ASKED = place("ask", _from="pod/shop/cart-0", to="svc/shop/web", way="1")
VIEWS = (
    place("map"),
    place("map", sel="svc/shop/web"),
    ASKED,
    place("services"),
    place("service/shop/web"),
    place("whatif", sel="pod/shop/web-0"),
    place("compare", kind="migrate"),
    place("compare", kind="migrate", finding="1"),
    place("audit"),
)


RECTS = """return arguments[0].map((css) => document.querySelector(css).getBoundingClientRect())
    .map((box) => [box.top, box.bottom])"""
SIDEWAYS = """return [...document.querySelectorAll('.map-frame .drawing')]
    .map((item) => [item.scrollWidth, item.clientWidth]).filter(([all, seen]) => all > seen)"""


SHEET = "return [...document.querySelectorAll('.panel.sheet')].map((item) => item.getBoundingClientRect().top)"
ALONE = """\
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.244.0.0/24, podCIDRs: [10.244.0.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.0.10}]}
"""
NOTHING_CHANGES = """\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clusterCIDR: 10.244.0.0/16
iptables: {localhostNodePorts: false}
nodePortAddresses: [primary]
conntrack: {tcpBeLiberal: true}
"""


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_showcase(tmp_path_factory.mktemp("explore") / "shop")


@pytest.fixture(scope="module")
def url(snapshot: Path) -> Iterator[str]:
    with exploring(str(snapshot)) as found:
        yield found


def step_to(page: Page, css: str) -> None:
    """Presses the button for one step until something is there."""
    for _ in range(60):
        if page.all(css):
            return
        page.step()
    raise AssertionError(f"no step shows {css}")


def test_a_question_on_the_map_stepped_to_the_rewritten_header_and_back(page: Page) -> None:
    page.open(place("ask"))
    page.item("pod/shop/cart-0").click()
    page.until(lambda: "from=pod/shop/cart-0" in page.fragment, "the source in the URL")
    page.item("svc/shop/web").click()
    page.until(lambda: len(page.all(".way-item")) == 2, "two ways")
    assert [item.text for item in page.all(".way-item .chance b")] == ["50%", "50%"]
    page.all(".way-item")[1].click()
    page.shows(".way-item[aria-current=true]", "shop/web-1")
    assert "1/2" not in page.text(".way-item"), "50% says it all"
    said = "✓ This way, 50%: answered by shop/web-1 at 10.244.1.5:8080, which sees 10.244.0.6."
    assert page.text("p.answer.ok") == said

    step_to(page, ".field.dst.lit")
    assert page.one('[data-test="now"]').text.startswith("On worker-1")
    assert page.text(".field.dst dd").split() == ["10.96.0.10", "10.244.1.5"]
    assert page.text(".field.dport dd").split() == ["80", "8080"]
    assert page.all(".hooks .station.now text")[0].text == "PREROUTING"
    assert "DNAT" in page.text(".rule.now")
    assert "shop/web:http" in page.text(".rule.now code")

    step_to(page, ".strips.wrapped")
    assert "VXLAN 1 192.168.0.10 → 192.168.0.11:8472" in page.text(".outer")
    assert page.all(".packet.wrapped")
    step_to(page, ".rail .back.here")
    step_to(page, ".field.src.lit")
    assert page.text(".field.src dd").split() == ["10.244.1.5", "10.96.0.10"], "the answer comes from where was asked"
    step_to(page, ".controls .primary:disabled")
    assert page.text('[data-test="now"]') == "At cart-0: the answer is delivered"
    assert page.text("p.answer") == said, "at each step"

    here = page.fragment
    page.all(".way-item")[0].click()
    page.shows(".way-item[aria-current=true]", "shop/web-0")
    page.browser.back()
    page.until(lambda: page.fragment == here, "the step before, by the browser's button")
    page.shows(".way-item[aria-current=true]", "shop/web-1")


@pytest.mark.parametrize("edits", ["garbage", "{}", "[null]", '[{"do": 5}]'])
def test_changes_in_the_url_that_cannot_be_read_are_said_and_left_out(page: Page, edits: str) -> None:
    page.open(place("whatif", edits=edits))
    page.shows(".banners [role=alert]", "no list of changes")
    assert page.text(".panel h2") == "Change something"
    page.one(".banners a").click()
    page.until(lambda: not page.all(".banners [role=alert]"), "no message")
    assert "edits" not in page.fragment


def test_rules_in_order_and_those_that_did_not_match_on_demand(page: Page) -> None:
    page.open(f"{ASKED}&step=6")
    few = page.until(lambda: len(page.all(".rules .rule")), "rules that matched")
    assert few > 5
    assert not page.all(".rules .rule.unmatched")
    next(item for item in page.all(".rules .button") if "unmatched" in item.text).click()
    page.until(lambda: page.all(".rules .rule.unmatched"), "rules that did not match")
    assert len(page.all(".rules .rule:not(.unmatched)")) == few
    assert "svc" not in page.text(".rules .problem")
    assert [item.text for item in page.all(".hook-rules h3")] == ["PREROUTING", "FORWARD", "POSTROUTING"]


def test_a_service_with_what_is_left_out_and_who_reaches_it(page: Page) -> None:
    page.open(place("service/shop/web"))
    assert "worker-1 :30080" in page.text(".fan")
    page.shows(".service-port", "terminating, and there are ready endpoints")
    rows = page.all(".matrix tbody tr")
    assert len(rows) >= 4
    outside = next(row for row in rows if "outside" in row.text)
    cells = outside.find_elements("css selector", "td")
    assert cells[0].text == "– not reachable from outside, as meant"
    assert not cells[0].find_elements("css selector", ".bad")
    assert "answered" in cells[1].text
    cells[1].find_element("css selector", "a").click()
    page.until(lambda: page.all(".way-item"), "the cell's question")
    assert page.fragment.startswith("#/ask?from=outside/203.0.113.9")


def test_what_if_an_endpoint_terminates(page: Page) -> None:
    page.open(place("whatif"))
    page.item("pod/shop/web-0").click()
    next(item for item in page.all(".choices button") if item.text.startswith("Terminating, still")).click()
    page.shows('[data-test="verdict"]', "for packets")
    finding = page.text(".finding")
    assert "shop/web" in finding
    assert "10.244.1.5:8080" in finding
    assert "touched" in page.item("svc/shop/web").get_attribute("class")
    page.button("Show both ways").click()
    page.until(lambda: len(page.all(".pair .way-item")) == 3, "two ways now, and one after the change")
    now, then = page.all(".pair section")
    assert [item.text for item in now.find_elements("css selector", ".where")] == ["shop/web-0", "shop/web-1"]
    assert [item.text for item in then.find_elements("css selector", ".where")] == ["shop/web-1"]
    then.find_element("css selector", ".way-item").click()
    page.until(lambda: len(page.all(".ask .way-item")) == 1, "one endpoint, asked of the copy")
    page.shows(".note", "changed copy")
    page.browser.back()
    page.shows(".edits", "web-0")
    next(item for item in page.all(".panel .button") if item.text == "Undo").click()
    page.until(lambda: not page.all(".edits li"), "nothing changed")


MANIFEST = """apiVersion: v1
kind: Service
metadata: {name: extra, namespace: shop}
spec: {clusterIP: 10.96.0.99, clusterIPs: [10.96.0.99], ports: [{port: 80, protocol: TCP, targetPort: 8080}]}
"""


def edits_are(page: Page, count: int) -> None:
    page.until(lambda: len(page.all(".edits li")) == count, f"{count} changes")


def test_a_copy_is_changed_saved_and_everything_taken_back(page: Page, tmp_path: Path) -> None:
    """A node goes, a policy changes, a manifest is pasted, the mode is switched; the copy is saved as manifests."""
    from selenium.webdriver.support.ui import Select

    page.open(place("whatif", sel="node/worker-2"))
    page.button("Take the node away").click()
    page.shows('[data-test="verdict"]', "for packets")
    page.until(lambda: page.all('.map .removed[data-id="node/worker-2"]'), "what is gone, still drawn")
    page.shows(".edge.gone text", "50% → 0%")
    page.shows(".edge.strong:not(.gone) text", "50% → 100%")

    page.item("svc/shop/web").click()
    page.shows(".panel h3", "Service shop/web")
    Select(page.one(".two select")).select_by_visible_text("Local")
    page.shows(".edits", "internalTrafficPolicy")
    manifest(page).send_keys(MANIFEST)
    page.button("Apply to the copy").click()
    page.until(lambda: page.all('.map [data-id="svc/shop/extra"]'), "the Service of the manifest")
    page.button("Switch kube-proxy to nftables mode").click()
    edits_are(page, 4)
    page.until(lambda: "nftables" in page.text(".map .core"), "nodes in nftables mode")
    page.button("Switch kube-proxy to iptables mode")

    page.browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    page.button("Save as manifests").click()
    saved = tmp_path / "what-if.yaml"
    page.until(lambda: saved.is_file() and saved.stat().st_size, "the file")
    objects = load_manifests([str(saved)])
    services = {each.metadata.key: each for each in objects.services}
    assert services["shop/web"].spec.internal_traffic_policy == "Local"
    assert "shop/extra" in services
    assert [node.metadata.name for node in objects.nodes] == ["worker-1", "worker-3"]

    for left in (3, 2, 1, 0):
        next(item for item in page.all(".panel .button") if item.text == "Undo").click()
        edits_are(page, left)
    page.until(lambda: "removed" not in page.item("node/worker-2").get_attribute("class"), "the node is back")


REFUSED = """apiVersion: v1
kind: Service
metadata: {name: A_B, namespace: shop}
spec: {clusterIP: 10.96.0.98, ports: [{port: 80000, targetPort: 80}]}
"""


def manifest(page: Page) -> Any:
    """The field for a manifest, unfolded."""
    fields = page.until(
        lambda: [item for item in page.all(".panel summary") if item.text == "Paste a manifest"], "the field"
    )
    fields[0].click()
    return page.one("#manifest")


def test_a_manifest_that_is_refused_is_no_change(page: Page) -> None:
    page.open(place("whatif"))
    manifest(page).send_keys(REFUSED)
    page.button("Apply to the copy").click()
    errors = page.until(lambda: [each.text for each in page.all(".panel .problem li")], "both errors")
    assert len(errors) == 2
    assert errors[0].startswith("change 1: document 1: line 3: metadata.name")
    assert errors[1].startswith("change 1: document 1: line 4: spec.ports[0].port")
    assert not page.all(".edits li")
    assert page.one("#manifest").get_attribute("value") == REFUSED, "it can be mended"
    page.complaints()  # the browser itself notes that the answer was 400
    page.one("#manifest").clear()
    page.one("#manifest").send_keys(MANIFEST)
    page.button("Apply to the copy").click()
    edits_are(page, 1)
    page.until(lambda: not page.all(".problem"), "no error")


def test_on_a_phone_a_change_leaves_the_map_in_sight(page: Page) -> None:
    page.size(390, 844)
    page.open(place("whatif", sel="pod/shop/web-0"))
    [top] = page.until(lambda: page.browser.execute_script(SHEET), "what can be changed")
    assert top > 844 * 0.6, "less than half of the window"
    page.button("Not ready").click()
    page.shows('[data-test="verdict"]', "for packets")
    assert not page.all(".sheet"), "what came of it is in sight"


def test_endpoints_without_pods_have_boxes(browser: Any) -> None:
    case = ROOT / "rules_golden/minikube"
    with (
        exploring("-f", str(case / "cluster.yaml"), "--config", str(case / "config.yaml")) as url,
        looking(browser, url) as page,
    ):
        page.open(place("map"))
        assert "10.244.0.36" in page.item("outside/10.244.0.36").text
        page.item("outside/10.244.0.36").click()
        page.shows(".panel", "Endpoint 10.244.0.36")
        page.shows(".panel", "crd-array-watchers")


OUTSIDE = """---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: extra-1, namespace: shop, labels: {kubernetes.io/service-name: extra}}
addressType: IPv4
ports: [{port: 8080, protocol: TCP}]
endpoints: [{addresses: [192.0.2.10]}, {addresses: [192.0.2.11]}]
"""


def test_lines_to_what_is_outside_go_around_the_nodes(browser: Any, snapshot: Path, tmp_path: Path) -> None:
    (tmp_path / "extra.yaml").write_text(MANIFEST + OUTSIDE)
    with (
        exploring("-f", str(snapshot / "objects"), "-f", str(tmp_path / "extra.yaml")) as url,
        looking(browser, url) as page,
    ):
        for width in (1400, 390):
            page.size(width, 900)
            page.open(place("map", sel="svc/shop/extra"))
            page.until(lambda: page.text(".share").split() == ["50%", "50%"], "both chances")
            assert crossed(page) == [], f"{width} pixels wide"


def test_by_keyboard_alone(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page.open(place("map"))
    page.press("g", "a")
    page.until(lambda: page.fragment == "#/ask", "g a leads to the questions")
    page.press("/")
    page.press(*"pod/shop/cart-0", Keys.TAB)
    for _ in range(2):
        if page.browser.switch_to.active_element.get_attribute("name") != "to":
            page.press(Keys.TAB)
    page.press(*"svc/shop/web", Keys.ENTER)
    page.until(lambda: len(page.all(".way-item")) == 2, "two ways")
    page.browser.execute_script("document.activeElement.blur()")
    page.press("n")
    page.shows(".position", "2/")
    page.press(Keys.END)
    page.shows('[data-test="now"]', "the answer is delivered")
    page.press("g", "m")
    page.until(lambda: page.text("h1") == "Map", "g m leads to the map")
    current = page.one(".map a[tabindex='0']")
    page.browser.execute_script("arguments[0].focus()", current)
    seen = set()
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT):
        page.press(key)
        seen.add(page.browser.switch_to.active_element.get_attribute("data-id"))
    assert len(seen) >= 4
    page.press(Keys.ENTER)
    chosen = page.browser.switch_to.active_element.get_attribute("data-id")
    page.until(lambda: f"sel={chosen}" in page.fragment, "Enter chooses")
    page.press("?")
    page.until(lambda: page.all(".help"), "the list of keys")
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.all(".help"), "no list of keys")


def test_light_dark_and_a_phone(page: Page) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        page.open(place("map"))
        colours.add(page.browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    page.one("button[aria-label='Light colours']").click()
    page.until(lambda: page.all("html[data-theme=light]"), "light colours by the button")
    page.browser.execute_script("localStorage.clear()")
    page.scheme("light")
    assert len(colours) == 2
    page.size(390, 800)
    for view in VIEWS:
        page.open(view)
        width = page.browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert width[0] <= width[1], f"{view} scrolls sideways on a phone"
        maps = page.browser.execute_script(SIDEWAYS)
        assert maps == [], f"the map of {view} scrolls sideways on a phone"


def test_no_step_scrolls_the_page(page: Page) -> None:
    page.size(1240, 800)
    for way, end in (("0", "answered by shop/web-0"), ("1", "answered by shop/web-1")):
        page.open(place("ask", _from="pod/shop/cart-0", to="svc/shop/web", way=way))
        assert end in page.text("p.answer")
        sizes = {page.one("svg.map").size["height"]}
        steps = int(page.text(".position").partition("/")[2])
        for step in range(1, steps):
            page.press("n")
            page.shows(".position", f"{step + 1}/{steps}")
            tall = page.browser.execute_script("return document.documentElement.scrollHeight")
            assert tall <= 800, f"step {step + 1} of way {way}: {page.text('[data-test=now]')}"
            sizes.add(page.one("svg.map").size["height"])
        assert len(sizes) == 1, "nor makes it the map smaller"
        assert page.text('[data-test="now"]') == "At cart-0: the answer is delivered"


FAST = """const done = arguments[0];
const press = (left) => {
    if (left === 0) return done();
    document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'n', bubbles: true}));
    setTimeout(() => press(left - 1));
};
press(10);"""


def test_keys_that_come_faster_than_frames_all_count(page: Page) -> None:
    page.open(place("ask", _from="pod/shop/cart-0", to="svc/shop/web"))
    page.browser.execute_async_script(FAST)
    page.shows(".position", "11/")


def test_200_nodes_on_a_phone(browser: Any, tmp_path: Path) -> None:
    """What is chosen is seen without scrolling, as are the places of a way; what takes long waits to be asked for."""
    write_files(tmp_path / "shop", dict(showcase(200, MANY_APPS)))
    with exploring("-f", "shop/objects", directory=tmp_path) as url, looking(browser, url) as page:
        page.size(390, 844)
        page.open(place("map"))
        assert len(page.all(".map .item.dot")) == 200
        page.item("svc/shop/web").click()
        page.shows(".panel h2", "Service ")
        at = page.browser.execute_script(RECTS, [".panel h2", '[data-id="svc/shop/web"]', ".close"])
        assert all(top >= 0 and bottom <= 844 for top, bottom in at), at
        assert at[1][1] < at[0][0], "what is chosen is above what is known of it"
        page.one(".close").click()
        page.until(lambda: "sel=" not in page.fragment, "nothing chosen")

        page.open(place("ask", _from="pod/shop/cart-0", to="svc/shop/search", way="80"))
        names = [item.get_attribute("data-id") for item in page.all(".map .item.room")]
        assert len(names) == 2, "who asks and who answers, as rooms"
        player = page.browser.execute_script(RECTS, [".player"])[0]
        assert player[0] < 2 * 844, "90 ways do not push away what is done with one"
        assert page.browser.execute_script(SIDEWAYS) == []

        page.open(place("compare"))
        page.shows(".note", "Choose what to compare")
        page.size(1280, 800)
        page.open(place("map"))
        page.one("details.tables summary").click()
        pods = page.until(lambda: page.all("details.tables .scroll")[1:2], "the table of Pods")[0]
        assert len(pods.find_elements("css selector", "tbody tr")) == 100
        page.button("Later").click()
        page.shows(".pager", "rows 101 to 200 of")


DARK = "{runOnly: ['color-contrast']}"
"""What the dark scheme may change."""


def test_axe_finds_nothing_serious(page: Page) -> None:
    subprocess.run(["sh", "scripts/web.sh", "tools"], cwd=ROOT, check=True)
    found = []
    for view in VIEWS:
        page.open(view)
        for scheme, options in (("light", "{}"), ("dark", DARK)):
            page.scheme(scheme)
            found += [(scheme, view, *each) for each in serious(page, options)]
        page.scheme("light")
        page.size(390, 800)
        found += [("a phone", view, *each) for each in serious(page)]
        page.size(1400, 1000)
    assert found == [], "\n".join(map(str, found))


def test_axe_finds_nothing_serious_in_a_drift(browser: Any, tmp_path: Path) -> None:
    subprocess.run(["sh", "scripts/web.sh", "tools"], cwd=ROOT, check=True)
    write_files(tmp_path / "shop", damaged_showcase(known=False))
    with exploring("shop", directory=tmp_path) as url, looking(browser, url) as page:
        found = []
        for width, height, scheme in ((1400, 1000, "light"), (1400, 1000, "dark"), (390, 800, "light")):
            page.size(width, height)
            page.scheme(scheme)
            for view in (
                place("compare", kind="drift"),
                place("compare", kind="drift", finding="5"),
                place("audit"),
                place("services"),
                place("service/shop/web"),
            ):
                page.open(view)
                found += [(scheme, width, view, *each) for each in serious(page, DARK if scheme == "dark" else "{}")]
        page.scheme("light")
        assert found == [], "\n".join(map(str, found))


def test_two_sources_on_one_map_and_both_ways_of_a_finding(browser: Any, tmp_path: Path) -> None:
    for name, ready in (("before", True), ("after", False)):
        write_showcase(tmp_path / name, web_0_ready=ready)
    with (
        exploring("-f", "before/objects", "--against", "after/objects", directory=tmp_path) as url,
        looking(browser, url) as page,
    ):
        page.open(place("compare", finding="none"))
        page.shows('[data-test="verdict"]', "1 difference for packets: missing in after/objects")
        page.shows(".edge.gone text", "50% → 0%")
        assert page.text(".edge.strong:not(.gone) text") == "50% → 100%"
        assert page.text(".found-mark") == "Missing in after/objects on all 3 nodes"
        assert page.text(".both dt").split() == ["before/objects", "after/objects"]
        assert "all to web-1 (10.244.1.5:8080)" in page.text(".both")
        page.button("Show both ways").click()
        page.until(lambda: len(page.all(".pair .way-item")) == 3, "two ways before, one after")
        page.all(".pair .way-item")[2].click()
        page.shows(".note", "after/objects")
        page.until(lambda: len(page.all(".ask .way-item")) == 1, "the way in the second source")
        assert "source=against" in page.fragment


def test_both_ways_of_a_finding_are_never_the_same(browser: Any, tmp_path: Path) -> None:
    """A question has no state and no interface: where its ways are alike, the packet is shown as it was found."""
    write_showcase(tmp_path / "shop")
    with exploring("-f", "shop/objects", directory=tmp_path) as url, looking(browser, url) as page:
        page.open(place("compare", kind="migrate", finding="1"))
        page.shows('[data-test="verdict"]', "Before the switch")
        assert "Nothing else changes: all packets were compared." in page.text('[data-test="completeness"]')
        pairs, conditions = {}, []
        for place_, title in enumerate(titles_of(page)):
            if place_:
                choose(page, place_)
            assert page.all(".finding.chosen .do"), "what to do"
            page.until(lambda: page.all(".ways-drawn .run"), "the packet on the map")
            was, is_ = ([each.text for each in page.all(f".finding.chosen .{side} .fate")] for side in ("was", "is"))
            assert was
            assert is_
            assert was != is_, "what becomes of the packet, at a glance"
            conditions.append([each.text for each in page.all(".map-caption .condition")])
            page.button("Show both ways").click()
            page.idle()
            pairs[title] = sides_of(page.one(".both-ways .pair"))
        assert len(pairs) > 3
        assert all(today and then and today != then for today, then in pairs.values())
        dropped = next(today for title, (today, _) in pairs.items() if "conntrack cannot place" in title)
        assert "DROP" in dropped, "what conntrack cannot place is dropped today"
        assert ["conntrack: INVALID"] in conditions
        assert ["mark 0x4000"] in conditions

        titles, verdict = titles_of(page), page.text('[data-test="verdict"]')
        page.open(place("whatif", edits=json.dumps([{"do": "mode", "mode": "nftables"}])))
        page.shows('[data-test="verdict"]', verdict)
        assert titles_of(page) == titles, "a switch of the mode is told by its reasons"
        assert "nftables" in page.text(".map .core")


BARS = """return [...document.querySelectorAll('.lane')].map((lane) => [lane.querySelector('.harm').textContent,
    ...[...lane.querySelectorAll('.ends-bar')].map((bar) => bar.getAttribute('aria-label'))])"""


def test_all_that_a_switch_of_the_mode_changes_is_seen_at_a_glance(page: Page) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    page.size(1400, 900)
    page.open(place("compare", kind="migrate"))
    page.until(lambda: len(page.all(".lane")) > 6, "a row for each difference")
    assert not page.all(".map"), "the map is of the one that is chosen"
    harms = dict(zip(titles(page), page.browser.execute_script(BARS), strict=True))
    assert harms["Node ports answer at other addresses"] == [
        "no longer arrives",
        "50% checkout-1, 50% checkout-0",
        "the node’s own programs",
    ]
    harm, today, then = harms["A pod that reaches itself through another node"]
    assert harm == "50% no longer arrives"
    assert today == "50% checkout-1, 50% checkout-0, masqueraded"
    assert then == "50% checkout-1, 50% checkout-0, from its own address"
    assert harms["Ports of a ClusterIP that no Service has"] == [
        "refused, where it timed out",
        "passed on untranslated",
        "refused",
    ]
    assert harms["The guard of 127.0.0.0/8"] == ["now reaches the node", "dropped", "the node’s own programs"]
    assert all(each.text for each in page.all(".lane-do")), "what to do"
    assert [each.text for each in page.all(".lanes h2")][::3] == [
        "Before the switch",
        "Nothing to do nobody should send such packets",
    ]
    assert "nodePortAddresses: [" in page.text(".lane-do code"), "what to set, to copy"
    first, second = page.all(".lane")[0].find_elements("css selector", ".token")
    assert (first.text, second.text) == ("a Pod\non worker-1", "checkout\nnode port 10.244.0.1:30082"), "it has that"
    page.shows('[data-test="absent"]', "Two Services want the same address and port")
    assert "✓ " not in page.text('[data-test="completeness"]'), "marks are no words"
    assert "Nodes need Linux 5.13 or later: all have it" in page.text('[data-test="completeness"]')
    assert "Nodes need nft 1.0.1 or later: not known here" in page.text('[data-test="completeness"]')
    ruled_out = page.text('[data-test="absent"]')
    assert "A ClusterIP without endpoints that is the node's own" not in harms, "no node has such an address"
    assert (
        "Only on a node that has 10.96.0.13, and these have not.\nA ClusterIP without endpoints that is the node's own"
        in ruled_out
    )
    assert "These nodes have no rules of other programs.\nNode ports behind a host firewall" in ruled_out

    # All of a row leads to its finding, and n to the first one; back leads to all.
    ActionChains(page.browser).click(page.all(".lane-ends")[2]).perform()
    page.until(lambda: page.all("#finding-3.chosen") and page.all(".map .end-label"), "the third one, on the map")
    next(item for item in page.all("a") if "All 8 differences" in item.text).click()
    page.until(lambda: page.all(".lane"), "all of them")
    page.press("n")
    page.until(lambda: page.all("#finding-1.chosen"), "the first one")
    assert page.complaints() == []


def titles(page: Page) -> list[str]:
    return [each.text for each in page.all(".lane .head-title")]


IN_SIGHT = """const box = (css) => document.querySelector(css).getBoundingClientRect();
const [card, list] = [box('.finding.chosen'), box('.panel')];
return card.top < list.bottom && card.bottom > list.top && card.top >= list.top - 1"""


def test_a_switch_of_the_mode_says_what_it_presumes_and_opens_at_its_first_reason(page: Page) -> None:
    page.open(place("compare", kind="migrate", finding="1"))
    page.shows(".map-caption", "10.244.0.1:30082")
    page.open(place("whatif", edits=json.dumps([{"do": "mode", "mode": "nftables"}])))
    page.until(lambda: page.all(".panel #finding-1.chosen"), "the first reason, beside the map")
    page.shows(".map-caption", "10.244.0.1:30082")
    last = len(page.all(".panel .finding"))
    for number in range(2, last + 1):
        page.press("n")
        page.until(partial(page.all, f"#finding-{number}.chosen"), f"reason {number}")
    page.until(lambda: page.browser.execute_script(IN_SIGHT), "the chosen one in sight")


def test_a_what_if_of_read_rules_is_of_what_they_should_be(page: Page) -> None:
    edit = {"do": "endpoint", "pod": "shop/web-0", "set": {"ready": False, "serving": True, "terminating": True}}
    page.open(place("whatif", edits=json.dumps([edit])))
    page.until(
        lambda: [each.text for each in page.all(".both dt")] == ["should be now", "should be after the change"],
        "what both sides are",
    )


def test_drift_is_told_by_its_causes_and_drawn(browser: Any, tmp_path: Path) -> None:
    """A cause is one finding, on whichever nodes; the map has its number and the ways of its packet on both sides."""
    write_files(tmp_path / "shop", damaged_showcase())
    with exploring("shop", directory=tmp_path) as url, looking(browser, url) as page:
        page.open(place("compare", kind="drift"))
        page.shows('[data-test="verdict"]', "3 differences for packets: 1 extra, 1 missing, 1 changed.")
        assert len(page.all(".finding")) == 3
        page.shows(".beside > .hints", "16 more destinations on worker-2 not listed here")
        marks = page.until(
            lambda: [each.text for each in page.all(".found-mark")], "what is missing, and what is too much"
        )
        titles = [each.text for each in page.all(".head-title")]
        rules = [each.text.replace("\n", "") for each in page.all(".head-rule")]
        found = dict(zip(marks, rules, strict=True))
        assert set(found) == {"Missing on worker-1, worker-2", "Changed on worker-3", "Extra on worker-2"}
        assert marks[0] == "Extra on worker-2", "what drops comes first"
        number = marks.index("Missing on worker-1, worker-2")
        assert titles[number].startswith("shop/web: ")
        assert rules[number].startswith("jump to KUBE-SVC-")
        assert found["Extra on worker-2"] == "-j DROP in KUBE-FORWARD"
        assert dict(zip(marks, titles, strict=True))["Extra on worker-2"] == "drops everything it forwards"
        page.open(place("compare", kind="drift", finding=str(number + 1)))
        missing = f"#finding-{number + 1}"
        page.shows(f"{missing} .do code", "kproxy drift --repair")
        assert "with its next sync" in page.text(f"{missing} .do"), "KUBE-SERVICES is written at every sync"
        # It is open, with its packet on the map.
        assert '"shop/web:http cluster IP"' in page.text(f"{missing}.chosen .rule-text code")
        page.shows(".end-label.lost", "50% → 0%")
        assert page.all(".drawn.was .run")
        assert page.all(".drawn.is.bad .cross"), "it is lost"
        assert "to 10.96.0.10:80" in page.text(".map-caption")
        assert {"svc/shop/web", "node/worker-1", "node/worker-2", "pod/shop/web-0"} <= touched(page)
        # By key, by a number on the map, and back.
        page.press("p")
        page.until(lambda: page.all("#finding-1.chosen") and "finding=1" in page.fragment, "the first one")
        page.until(lambda: page.text(".map-caption .number") == "1", "its packet on the map")
        assert "If it comes back" in page.text("#finding-1 .do")
        assert page.text(".map-caption").split(" to ")[1] in page.text(".finding.chosen .packets-to"), (
            "of the card's line"
        )
        page.browser.execute_script(
            "const mark = document.querySelector(`.mark[aria-label^='finding 3']`);"
            "mark.dispatchEvent(new MouseEvent('click', {bubbles: true}))"
        )
        page.until(lambda: page.all("#finding-3.chosen") and "finding=3" in page.fragment, "the one of that number")
        page.until(lambda: page.text(".map-caption .number") == "3", "its packet on the map")
        assert page.text(".map-caption").split(" to ")[1].split(",")[0] in page.text(".finding.chosen .packets-to")
        # A changed rule has both lines, with what differs marked.
        assert [each.text.split(" · ")[0] for each in page.all("#finding-3 .rule-text small")] == ["should be", "is"]
        assert "when its Service changes" in page.text("#finding-3 .do")
        assert [each.text for each in page.all("#finding-3 mark")] == ["10.244.0.5:8080", "10.244.2.77:8080"]
        page.browser.back()
        page.until(lambda: page.all("#finding-1.chosen"), "the one before")
        page.one("#finding-1 a.choose").click()
        page.until(lambda: not page.all(".finding.chosen"), "none is open")
        page.shows(".edge.gone text", "50% → 0%")


def test_what_both_sides_lose_is_no_difference_and_leads_to_the_audit(browser: Any, tmp_path: Path) -> None:
    """Another program's rule on worker-1 is in the chances of its clients, beside a finding of worker-3."""
    files = dict(showcase())
    rules, damaged = "nodes/worker-1/iptables-save", "nodes/worker-3/iptables-save"
    at = files[rules].index(b"-A FORWARD")
    files[rules] = files[rules][:at] + b"-A FORWARD -d 10.244.1.6/32 -j DROP\n" + files[rules][at:]
    files[damaged] = damaged_showcase()[damaged]
    write_files(tmp_path / "shop", files)
    with exploring("shop", directory=tmp_path) as url, looking(browser, url) as page:
        page.open(place("compare", kind="drift"))
        page.shows('[data-test="other-faults"]', "For clients on worker-1, and in no finding: shop/cart (50% lost).")
        assert "shop/cart" not in page.text(".findings")
        page.one('[data-test="other-faults"] a').click()
        page.until(
            lambda: any("another program" in each.text for each in page.all(".head-title")), "what the rule does"
        )


def touched(page: Page) -> set[str]:
    return {str(each.get_attribute("data-id")) for each in page.all(".map .item.touched")}


def test_findings_of_the_audit_are_on_the_map(browser: Any, tmp_path: Path) -> None:
    """Their numbers are where they are, the chosen one's packet is drawn, and each leads to the map and back."""
    write_files(tmp_path / "shop", damaged_showcase())
    with exploring("shop", directory=tmp_path) as url, looking(browser, url) as page:
        page.open(place("audit"))
        page.shows(".score", "errors")
        errors = int(page.text(".score .bad b"))
        assert errors == len(page.all(".finding.error")) >= 3
        page.shows("#finding-1.chosen .head-title", "do not know a Service")
        page.shows(".end-label.lost", "50% → 0%")
        page.shows(".end-label", "not translated")
        assert "service-missing" in page.text("#finding-1")
        # By severity: the others are neither listed nor on the map.
        marks = len(page.all(".mark"))
        page.one(".score .open a").click()
        page.until(lambda: page.all(".finding.warning") and not page.all(".finding.error"), "warnings alone")
        page.until(lambda: 0 < len(page.all(".mark")) < marks, "their numbers alone")
        page.browser.back()
        page.until(lambda: page.all("#finding-1.chosen"), "all of them")
        page.press("n")
        page.until(lambda: page.all("#finding-2.chosen"), "the second one")
        here = page.fragment
        next(item for item in page.all("#finding-2 .button") if item.text == "On the map").click()
        page.shows(".panel h2", "Service ")
        page.browser.back()
        page.until(lambda: page.fragment == here and page.all("#finding-2.chosen"), "back at the finding")


def test_what_rests_on_an_unknown_configuration_is_amber(browser: Any, tmp_path: Path) -> None:
    """A node whose rules tell of another cluster CIDR may have another configuration."""
    files = damaged_showcase(known=False)
    rules = "nodes/worker-3/iptables-save"
    files[rules] = files[rules].replace(b"! -s 10.244.0.0/16", b"! -s 10.0.0.0/8")
    write_files(tmp_path / "shop", files)
    with exploring("shop", directory=tmp_path) as url, looking(browser, url) as page:
        page.open(place("compare", kind="drift"))
        page.shows(".verdicts .bad", "3 differences")
        page.shows(".verdicts .open", "perhaps")
        page.shows(".finding-group h2", "configuration is not known")
        assert [each.get_attribute("id") for each in page.all(".finding.bad")] == [
            "finding-1",
            "finding-2",
            "finding-3",
        ]
        assert "KUBE-MARK-MASQ" in page.text(".finding-group .finding.open .head-rule").replace("\n", "")


def test_dumps_of_one_host_have_no_map_but_an_index(browser: Any, tmp_path: Path) -> None:
    before = dict(showcase())["nodes/worker-2/iptables-save"].decode()
    after = re.sub(r"(?=-A KUBE-FORWARD )", "-A KUBE-FORWARD -j DROP\n", before, count=1)
    after = re.sub(r"(?<=--to-destination )10\.244\.0\.5:8080", "10.244.2.77:8080", after, count=1)
    for name, text in (("before", before), ("after", after)):
        (tmp_path / name).write_text(text)
    with exploring("--rules", "before", "--against", "after", directory=tmp_path) as url, looking(browser, url) as page:
        page.open(place("compare"))
        page.shows('[data-test="verdict"]', "differences for packets: ")
        assert not page.all("svg.map")
        lines = [each.text for each in page.all(".found-index li")]
        assert len(lines) == len(page.all(".finding"))
        assert any("Extra in after" in line and "-j DROP in KUBE-FORWARD" in line for line in lines)
        assert len(page.all(".finding .both")) >= len(lines), "all are open"


def choose(page: Page, number: int) -> None:
    """Opens a finding by its heading."""
    page.all(".finding a.choose")[number].click()
    page.until(lambda: page.all(f"#finding-{number + 1}.chosen"), f"finding {number + 1} open")


def titles_of(page: Page) -> list[str]:
    return [each.text for each in page.all(".finding h3")]


def sides_of(pair: Any) -> list[str]:
    """What is shown below the headings of both sides."""
    return [each.text.partition("\n")[2] for each in pair.find_elements("css selector", "section")]


def test_a_part_of_a_large_cluster(browser: Any, tmp_path: Path) -> None:
    """Of some nodes only their Services are drawn; a change is drawn wherever it is, with the nodes around it."""
    write_files(tmp_path / "shop", dict(showcase(nodes=14)))
    with exploring("-f", "shop/objects", directory=tmp_path) as url, looking(browser, url) as page:
        page.size(1280, 900)
        page.open(place("map", only="node/worker-1,node/worker-2"))
        services = [item.get_attribute("data-id") for item in page.all(".map .item.service")]
        assert services == ["svc/shop/web"], "the Services that have endpoints there"
        assert not page.all(".map .item.service.empty")
        gone = [{"do": "endpoint", "pod": "shop/checkout-0", "set": {"ready": False}}]
        page.open(place("whatif", edits=json.dumps(gone)))
        assert "touched" in page.item("pod/shop/checkout-0").get_attribute("class")
        assert page.text(".edge.strong:not(.gone) text") == "50% → 100%"
        names = [item.get_attribute("data-id") for item in page.all(".map .item.node")]
        page.open(place("map"))
        assert len(names) < 4 < len(page.all(".map .item.node")) == 14


def test_what_one_host_does_is_not_said_to_be_an_answer(browser: Any, tmp_path: Path) -> None:
    rules = vxlan_cluster()["nodes/n1/iptables-save"]
    (tmp_path / "before.save").write_bytes(rules)
    (tmp_path / "after.save").write_bytes(rules.replace(b"10.244.2.5:8080", b"10.244.2.77:8080"))
    with (
        exploring("--rules", "before.save", "--against", "after.save", directory=tmp_path) as url,
        looking(browser, url) as page,
    ):
        page.open(place("compare"))
        page.shows('[data-test="verdict"]', "for packets")
        page.button("Show both ways").click()
        page.until(lambda: page.all(".pair .way-item"), "the ways on both sides")
        page.shows(".pair .ending", "accepted")
        page.shows(".pair .where", "10.244.")
        assert "answered" not in page.text(".pair")


OPEN = """*nat
:PREROUTING ACCEPT [0:0]
-A PREROUTING -d 10.96.0.10/32 -p tcp -m time --timestart 08:00:00 -j DNAT --to-destination 10.244.0.6:8080
COMMIT
"""


def test_the_map_of_a_dump_has_one_host(browser: Any, snapshot: Path) -> None:
    """From left to right: a client, the host with its Services, and their endpoints in the same order; nothing is
    joined to nothing, nothing is strong that nobody chose, and all of it is in sight."""
    with exploring("--rules", str(snapshot / "nodes/worker-1/iptables-save")) as url, looking(browser, url) as page:
        page.size(1400, 900)
        page.open(place("map"))
        assert page.text(".counts") == "1 host · 5 Services that its rules name"
        host, client = page.item("node/host").rect, page.item("outside/203.0.113.9").rect
        rows = [("kube-system/kube-dns", ("10.244.1.7", "10.244.2.7")), ("shop/web", ("10.244.0.5", "10.244.1.5"))]
        heights = []
        for name, addresses in rows:
            service = page.item(f"svc/{name}").rect
            assert client["x"] + client["width"] < host["x"] < service["x"] < host["x"] + host["width"]
            ends = [page.item(f"outside/{address}").rect for address in addresses]
            assert all(end["x"] > host["x"] + host["width"] for end in ends)
            heights += [end["y"] for end in ends]
            assert ends[0]["y"] < service["y"] + service["height"] / 2 < ends[1]["y"] + ends[1]["height"]
        assert heights == sorted(heights)
        ends = [item for item in page.all(".map .item.outside") if item.rect["x"] > host["x"]]
        assert len(ends) == len(page.all(".map .edge path")) == 8
        assert not page.all(".map .share")
        assert "cable" not in page.text(".legend")
        drawing = page.one(".drawing")
        assert int(drawing.get_property("scrollHeight")) <= int(drawing.get_property("clientHeight"))
        assert int(drawing.get_property("scrollWidth")) <= int(drawing.get_property("clientWidth"))
        page.item("svc/shop/web").click()
        page.until(lambda: page.text(".share").split() == ["50%", "50%"], "the chosen Service's chances")


def test_the_map_of_a_dump_shows_who_fares_worst(browser: Any, tmp_path: Path) -> None:
    """Of all Services the one who loses most; of the one that is chosen who loses there."""
    lines = (ROOT / "docs/examples/worker-1.save").read_text().splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("-A FORWARD"))
    rule = "-A FORWARD -s 203.0.113.0/24 -d 10.244.2.99/32 -m statistic --mode random --probability 0.5 -j DROP"
    (tmp_path / "rules.save").write_text("\n".join([*lines[:at], rule, *lines[at:]]) + "\n")
    with exploring("--rules", "rules.save", directory=tmp_path) as url, looking(browser, url) as page:
        page.size(1400, 900)
        page.open(place("map"))
        assert page.item("outside/10.244.0.9").text.split("\n") == ["a Pod", "10.244.0.9"]
        page.item("svc/shop/web").click()
        page.until(lambda: page.item("outside/203.0.113.9").text.startswith("a client outside"), "who asks")
        assert "a Pod" not in page.text(".map")


def test_a_packet_moves_over_the_map_of_a_dump(browser: Any, snapshot: Path) -> None:
    """From who asks, whose address need not be on the map, along the hooks to the endpoint."""
    question = {"_from": "10.244.0.99", "to": "svc/shop/web", "way": "0"}
    with exploring("--rules", str(snapshot / "nodes/worker-1/iptables-save")) as url, looking(browser, url) as page:
        page.size(1400, 900)
        page.open(place("ask", **question))
        page.shows(".way-item[aria-current=true] .ending", "accepted by the rules")
        page.shows("p.answer", "do not tell whether it arrives")
        assert [each.get_attribute("data-id") for each in page.all(".map .item.service")] == ["svc/shop/web"]
        assert page.text(".zoom .button") == "All 5 Services"
        assert page.text(".map .item.from").split("\n") == ["who asks", "10.244.0.99"]
        assert [item.text for item in page.all(".hook.met text")] == ["PREROUTING", "FORWARD", "POSTROUTING"]
        end = page.item("outside/10.244.0.5")
        assert "passed" in end.get_attribute("class")
        places = [packet_at(page)]
        for where in ("PREROUTING", "after its rules", "routing", "the endpoint"):
            page.press("n")
            page.until(lambda: packet_at(page) > places[-1], where)
            places.append(packet_at(page))
        assert page.one(".drawing").get_property("scrollTop") == 0
        page.press("n")
        page.shows('[data-test="now"]', "the answer arrives")
        assert not page.all(".hook.met"), "of an answer no rules are told"
        # Who asks from the host itself is the host.
        page.open(place("ask", _from="node/host", to="10.1.2.3:80"))
        page.until(lambda: page.all(".map .item.node.from"), "the host is lit")


def packet_at(page: Page) -> float:
    """How far to the right the packet on the map is."""
    return float(page.one(".packet").get_attribute("style").partition("(")[2].partition("px")[0])


def test_a_packet_that_a_dump_drops_stops_in_its_hook(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "rules").write_bytes(damaged_showcase()["nodes/worker-2/iptables-save"])
    with exploring("--rules", "rules", directory=tmp_path) as url, looking(browser, url) as page:
        page.size(1400, 900)
        page.open(place("ask", _from="10.244.0.99", to="svc/shop/cart", step="fault"))
        page.shows("p.answer", "dropped in FORWARD")
        forward = page.all(".hook rect")[1].rect
        cross = page.one(".map > .cross").rect
        assert forward["x"] < cross["x"] + cross["width"] / 2 < forward["x"] + forward["width"]
        assert page.text(".map .share").split() == ["50%", "lost", "50%", "lost"]


def test_many_endpoints_of_a_dump_are_one_box(browser: Any, tmp_path: Path) -> None:
    """All of it stays in sight; a Service's panel has each."""
    objects: list[dict[str, Any]] = [node("n1", "192.0.2.10")]
    for number in range(12):
        ends = [f"10.244.{number}.{end}" for end in range(1, 13)]
        objects += [service(f"s{number}", f"10.96.0.{number + 1}"), endpoints(f"s{number}", ends, "n1")]
    cluster = parse_manifests(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    target = select_target(cluster.nodes, CONFIG, "n1")
    rendered = render_target(target, IPFamily.IPV4, cluster.services, cluster.endpoint_slices, CONFIG)
    (tmp_path / "rules").write_text(rendered.save_text)
    with exploring("--rules", "rules", directory=tmp_path) as url, looking(browser, url) as page:
        page.size(1400, 900)
        page.open(place("map"))
        page.until(lambda: len(page.all(".map .item.more")) == 12, "a box for each Service's endpoints")
        assert {item.text for item in page.all(".map .item.more")} == {"12 endpoints"}
        drawing = page.one(".drawing")
        assert int(drawing.get_property("scrollHeight")) <= int(drawing.get_property("clientHeight"))
        page.all(".map .item.more")[3].click()
        page.shows(".panel h2", "Service s3")
        page.shows(".share", "100% (12)")
        assert len(page.all(".panel .shares li")) == 12


def test_services_of_a_dump_lead_to_what_its_rules_tell(browser: Any, snapshot: Path) -> None:
    with exploring("--rules", str(snapshot / "nodes/worker-1/iptables-save")) as url:
        page = Page(browser, url)
        page.size(1400, 900)
        page.leave()
        page.open(place("services"))
        next(item for item in page.all("tbody a") if item.text == "shop/web").click()
        page.shows(".panel h2", "Service web")
        assert page.text(".panel .shares").count("50%") == 2
        assert not any(item.text == "Open its page" for item in page.all(".panel a"))
        # So do links from elsewhere, as from a rule's comment.
        page.open(place("service/shop/checkout"))
        page.shows(".panel h2", "Service checkout")
        assert not page.all("[role=alert]")


def test_what_is_open_has_a_switch_for_each_assumption(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "rules.save").write_text(OPEN)
    with exploring("--rules", "rules.save", directory=tmp_path) as url, looking(browser, url) as page:
        page.size(1280, 900)
        page.open(place("ask", _from="outside", to="10.96.0.10:80"))
        page.shows(".settle legend", "-m time --timestart 08:00:00")
        assert page.all(".way-item.open")
        for word, end in (("yes", "10.244.0.6:8080"), ("no", "10.96.0.10:80")):
            next(item for item in page.all(".settle .switch a") if item.text == word).click()
            page.shows(".way-item.ok .where", end)
        next(item for item in page.all(".settle .switch a") if item.text == "open").click()
        page.until(lambda: page.all(".way-item.open"), "open again")


def test_bad_questions_are_said_and_the_page_goes_on(page: Page) -> None:
    page.open(place("ask", _from="pod/shop/nobody", to="svc/shop/web"))
    page.shows("[role=alert]", "nobody")
    page.complaints()  # the browser itself notes that the answer was 400
    page.open(place("service/shop/<img src=x onerror=alert(1)>"))
    page.shows("[role=alert]", "<img")
    page.complaints()
    page.open(place("no-such-view"))
    assert "Not found" in page.text("h1")
    page.open(ASKED)
    assert len(page.all(".way-item")) == 2


def test_exported_from_disk(browser: Any, snapshot: Path, tmp_path: Path) -> None:
    file = tmp_path / "shop.html"
    subprocess.run([sys.executable, "-m", "kproxy", "explore", str(snapshot), "--export", str(file)], check=True)
    page = Page(browser, file.as_uri())
    page.size(1400, 1000)
    page.requests()
    page.leave()
    page.open(place("map", sel="svc/shop/web"))
    assert "worker-2" in page.text(".map")
    page.shows(".panel", "50%")
    assert "For clients on" not in page.text(".filters"), "a file has the map of one node's clients"
    page.open(ASKED)
    page.until(lambda: len(page.all(".way-item")) == 2, "an answer that is in the file")
    step_to(page, ".field.dst.lit")
    page.open(place("service/shop/web"))
    assert page.all(".matrix tbody tr")
    page.open(place("ask", _from="pod/shop/cart-0", to="10.96.0.10:81"))
    page.shows(".note", "needs kproxy explore")
    page.open(place("ask"))
    listed = [each.text for each in page.all(".examples li")]
    assert len(listed) == len(set(listed)) > 1
    assert any(each.endswith(":53 UDP") for each in listed)
    assert any(each.endswith(":53 TCP") for each in listed)
    assert any(each.endswith("web:80") for each in listed), "the protocol stands only where there are two"
    page.open(place("whatif"))
    page.shows('[data-test="not-here"]', "This file was exported")
    assert not page.all("#main button, #main textarea, #main select")
    assert page.complaints() == []
    assert {url.partition("#")[0] for url in page.requests()} <= {page.url, "data:,", "about:blank"}


def test_services_of_findings_in_an_exported_file_lead_to_their_page(browser: Any, tmp_path: Path) -> None:
    source, file = write_files(tmp_path / "shop", damaged_showcase()), tmp_path / "shop.html"
    subprocess.run([sys.executable, "-m", "kproxy", "explore", str(source), "--export", str(file)], check=True)
    page = Page(browser, file.as_uri())
    page.size(1400, 1000)
    page.leave()
    for view, names in ((place("compare", kind="drift"), ".whose"), (place("audit"), ".where-found")):
        page.open(view)
        link = page.one(f'.finding {names} a[href^="#/service/shop/web"]')
        assert link.text.startswith("shop/web")
        link.click()
        page.shows(".fan", "10.96.0.10:80")
        assert not page.all(".view .problem")
    assert page.complaints() == []


def test_a_switch_that_changes_nothing_says_what_nodes_need(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(ALONE)
    (tmp_path / "kube-proxy.yaml").write_text(NOTHING_CHANGES)
    file = tmp_path / "switch.html"
    arguments = ("-f", tmp_path / "node.yaml", "--config", tmp_path / "kube-proxy.yaml", "--html", file)
    subprocess.run([sys.executable, "-m", "kproxy", "migrate", *map(str, arguments)], check=True)
    page = Page(browser, file.as_uri())
    page.size(1400, 1000)
    page.leave()
    page.open(place("compare"))
    page.shows('[data-test="verdict"]', "Both sides treat every packet alike")
    page.shows('[data-test="completeness"]', "Nodes need Linux 5.13 or later")
    page.shows('[data-test="completeness"]', "0 Services on 1 node")
    page.shows('[data-test="absent"]', "Node ports")
    assert page.complaints() == []


def test_a_switch_says_what_may_be_hidden(browser: Any, tmp_path: Path) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n"
    spec = "spec: {clusterIP: 10.96.0.9, selector: {app: web}, sessionAffinity: ClientIP, ports: [{port: 80}]}\n"
    (tmp_path / "git.yaml").write_text(f"{ALONE}---\n{service}{spec}")
    file = tmp_path / "switch.html"
    arguments = map(str, ("-f", tmp_path / "git.yaml", "--node", "node-1", "--html", file))
    done = subprocess.run([sys.executable, "-m", "kproxy", "migrate", *arguments], check=False)
    assert done.returncode == 1
    page = Page(browser, file.as_uri())
    page.leave()
    page.open(place("compare"))
    page.shows('[data-test="undecided"]', "1 thing could not be decided")
    page.shows('[data-test="undecided"]', "What was not seen may hide: ")
    assert "Session affinity starts anew" in page.text('[data-test="undecided"]')
    assert "Session affinity" not in page.text('[data-test="absent"]')
    assert page.complaints() == []


def test_an_exported_dump_has_its_services_and_questions(browser: Any, snapshot: Path, tmp_path: Path) -> None:
    file, rules = tmp_path / "host.html", snapshot / "nodes/worker-1/iptables-save"
    subprocess.run(
        [sys.executable, "-m", "kproxy", "explore", "--rules", str(rules), "--export", str(file)], check=True
    )
    page = Page(browser, file.as_uri())
    page.size(1400, 1000)
    page.leave()
    page.open(place("map"))
    assert [each.text for each in page.all("nav[aria-label=Views] a")] == ["Map", "Ask", "Services"]
    page.open(place("services"))
    assert "There is no such view" not in page.text("#main")
    page.shows("tbody", "shop/web")
    page.open(place("map", sel="svc/shop/web"))
    page.shows('[data-test="by-client"]', "a client outside: ✓ 100% accepted by the rules")
    page.open(place("ask"))
    next(each for each in page.all(".examples a") if "10.96.0.10:80" in each.text).click()
    page.until(lambda: len(page.all(".way-item")) == 2, "an answer that is in the file")
    assert page.complaints() == []


def test_two_sources_exported_are_compared_from_disk(browser: Any, snapshot: Path, tmp_path: Path) -> None:
    file, after = tmp_path / "two.html", write_showcase(tmp_path / "after", web_0_ready=False)
    arguments = ("-f", snapshot / "objects", "--against", after / "objects", "--export", file)
    subprocess.run([sys.executable, "-m", "kproxy", "explore", *map(str, arguments)], check=True)
    page = Page(browser, file.as_uri())
    page.size(1400, 1000)
    page.requests()
    page.leave()
    page.open(place("compare"))
    page.shows('[data-test="verdict"]', "for packets")
    page.shows(".end-label text", "50% → 100%")
    page.button("Show both ways").click()
    page.until(lambda: len(page.all(".pair .way-item")) == 3, "two ways in the one, one in the other")
    then = page.all(".pair section")[1]
    then.find_element("css selector", ".way-item").click()
    page.until(lambda: len(page.all(".ask .way-item")) == 1, "the answer of the second source")
    page.shows(".note", str(after / "objects"))
    page.browser.back()
    next(item for item in page.all(".tab") if "nftables" in item.text).click()
    page.until(lambda: "migrate" in page.fragment and page.all('[data-test="verdict"]'), "the other comparison")
    page.open(place("service/shop/web"))
    assert "web-0" in page.text(".view")
    page.one("select option[value=against]").click()
    page.until(lambda: "source=against" in page.fragment, "the Service in the second source")
    page.shows(".view", "100%")
    assert not page.all(".view .problem")
    assert page.complaints() == []
    assert {url.partition("#")[0] for url in page.requests()} <= {page.url, "data:,", "about:blank"}


def test_the_page_in_the_repository_is_what_its_sources_give(tmp_path: Path) -> None:
    subprocess.run(["sh", "scripts/web.sh", "tools"], cwd=ROOT, check=True)
    subprocess.run(["node", "web/build.mjs", str(tmp_path)], cwd=ROOT, check=True)
    static = ROOT / "kproxy/explorer/static"
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_bytes() for path in static.iterdir()}
    assert sorted(built) == sorted(kept)
    different = [name for name in built if built[name] != kept[name]]
    assert different == [], "make web"
    lock = json.loads((ROOT / "web/package-lock.json").read_text())
    assert not [name for name, item in lock["packages"].items() if "resolved" in item]
