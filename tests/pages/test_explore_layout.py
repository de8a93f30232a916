"""Where things stand on the page, measured in a browser: what fits the window, what lies over what."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.showcase import APPS, App, showcase
from tests.support.cluster.snapshots import write_files
from tests.support.explore import Page, exploring, looking, place

pytestmark = pytest.mark.slow

UNREADY = json.dumps([{"do": "endpoint", "pod": "shop/web-0", "set": {"ready": False}}])
SWITCHED = json.dumps([{"do": "mode", "mode": "nftables"}])


LOST = place("ask", _from="pod/shop/cart-0", to="svc/shop/web")
TOP_AND_HEIGHT = """return [document.querySelector('.map-frame').getBoundingClientRect().top,
    document.documentElement.scrollHeight]"""
FITTING = (
    place("map", sel="svc/shop/cart"),
    place("compare", kind="drift"),
    place("compare", kind="migrate", finding="1"),
    place("audit"),
    place("whatif", edits=UNREADY),
    place("whatif", edits=SWITCHED),
    LOST,
    place("ask", _from="node/worker-3", to="svc/shop/web"),
)


@pytest.mark.parametrize("view", FITTING)
def test_the_map_is_not_pushed_down_and_the_page_fits_the_window(page: Page, view: str) -> None:
    page.size(1400, 900)
    page.open(view)
    page.until(lambda: page.all(".map .end-label, .map .share"), "what becomes of its packet")
    top, height = page.browser.execute_script(TOP_AND_HEIGHT)
    assert top <= 230
    assert height <= 900


def test_what_can_be_compared_is_one_row_of_tabs(page: Page) -> None:
    page.size(1400, 900)
    page.open(place("compare"))
    tabs = page.all("nav.tabs a")
    assert len({each.location["y"] for each in tabs}) == 1
    assert [each.get_attribute("aria-current") for each in tabs] == ["true", None]
    page.shows(".about", "kproxy drift")
    tabs[1].click()
    page.shows(".about", "kproxy migrate")
    page.until(lambda: page.text(".tab[aria-current=true]") == "Today, and in nftables mode", "the other tab")


# What is said over the map and covers words; and words under a drawn way that are not drawn again above it.
_COVERED = """
const map = document.querySelector('svg.map');
const rect = (item) => item.getBoundingClientRect();
const meet = (one, other) =>
    one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
const texts = [...map.querySelectorAll('text')];
const found = [];
for (const over of map.querySelectorAll('.mark circle, .more-marks, .end-label > rect, .share > rect')) {
    for (const text of texts) {
        if (text === over || text.parentNode === over.parentNode && over.tagName !== 'text') continue;
        const words = over.tagName === 'text' ? over.textContent : over.parentNode.textContent;
        if (meet(rect(over), rect(text))) found.push(`${words} over ${text.textContent}`);
    }
}
const after = (one, other) => one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING;
for (const path of map.querySelectorAll('.drawn .run, .way .track')) {
    const toScreen = path.getScreenCTM();
    const crossed = new Set();
    for (let along = 0; along < path.getTotalLength(); along += 3) {
        const {x, y} = path.getPointAtLength(along).matrixTransform(toScreen);
        for (const text of texts) {
            const at = rect(text);
            const inside = x > at.left && x < at.right && y > at.top && y < at.bottom;
            if (inside && after(text, path)) crossed.add(text);
        }
    }
    for (const text of crossed) {
        const same = (other) => other !== text && other.textContent === text.textContent;
        const again = (other) => same(other) && after(path, other) && meet(rect(other), rect(text));
        if (!texts.some(again)) found.push(`a way through ${text.textContent}`);
    }
}
return [texts.length, map.querySelectorAll('.mark, .end-label, .share').length, found];
"""
STATES = (
    place("map"),
    place("map", sel="svc/shop/web"),
    place("map", sel="svc/shop/cart", node="worker-2"),
    *(place("compare", kind="drift", finding=str(number)) for number in (1, 2, 3)),
    *(place("compare", kind="migrate", finding=str(number)) for number in range(1, 9)),
    *(place("audit", finding=str(number)) for number in range(1, 7)),
    place("whatif", edits=UNREADY),
    place("ask", _from="pod/shop/cart-0", to="svc/shop/checkout"),
    LOST,
    place("ask", _from="pod/shop/cart-1", to="svc/shop/web"),
    *(place("ask", _from="node/worker-3", to="svc/shop/web", way=str(way)) for way in (0, 1)),
)


@pytest.mark.parametrize("width", [1400, pytest.param(390, marks=pytest.mark.soak)])
def test_nothing_on_the_map_covers_words(page: Page, width: int) -> None:
    page.size(width, 900)
    covered = []
    for view in STATES:
        page.open(view)
        page.until(lambda: page.all(".map .mark, .map .share, .map .end-label"), f"what is said over the map of {view}")
        texts, over, found = page.browser.execute_script(_COVERED)
        # On a phone an answer has the hosts on its way only.
        assert texts > (12 if width < 900 and "ask" in view else 20)
        assert over
        covered += [f"{view}: {each}" for each in found]
    assert covered == [], "\n".join(covered)


def test_nor_does_what_is_said_of_the_one_host_of_a_low_window(page: Page) -> None:
    page.size(1280, 720)
    page.open(LOST)
    page.until(lambda: page.all(".map .end-label.lost"), "where it is lost")
    assert page.browser.execute_script(_COVERED)[2] == []


@pytest.mark.parametrize("nodes", [6, 8])
def test_nor_on_a_map_of_more_nodes_which_fits_the_window(browser: Any, tmp_path: Path, nodes: int) -> None:
    """Six rooms are higher than the window, and the map scrolls in itself; eight nodes are tiles."""
    write_files(tmp_path / "shop", dict(showcase(nodes)))
    with exploring("shop", directory=tmp_path) as url, looking(browser, url) as page:
        for number in ("1", "7"):
            view = place("compare", kind="migrate", finding=number)
            for width in (1400, 390):
                page.size(width, 900)
                page.open(view)
                page.until(lambda: page.all(".map .end-label"), "what becomes of its packet")
                assert page.browser.execute_script(_COVERED)[2] == [], f"{view} at {width}"
                assert width < 900 or page.browser.execute_script(TOP_AND_HEIGHT)[1] <= 900


_IN_TUNNEL = """
const at = document.querySelector('.map path.tunnel').getBBox();
return [...document.querySelectorAll('.map .casing')].map((item) => item.getBBox())
    .map((box) => Math.abs(box.x - at.x) < 1 && box.height > 40);
"""


@pytest.mark.parametrize(
    "view",
    [
        place("compare", kind="drift"),
        place("audit", finding="3"),
        place("ask", _from="pod/shop/cart-0", to="svc/shop/checkout", way="0"),
    ],
)
def test_a_way_through_a_tunnel_is_drawn_in_the_tunnel(page: Page, view: str) -> None:
    page.size(1400, 900)
    page.open(view)
    page.until(lambda: page.all(".map .casing"), "the part of the way that is in the tunnel")
    assert all(page.browser.execute_script(_IN_TUNNEL))


def test_so_is_one_to_an_address_that_no_pod_has(browser: Any, tmp_path: Path) -> None:
    files = dict(showcase())
    path = "nodes/worker-1/iptables-save"
    files[path] = files[path].replace(b"--to-destination 10.244.1.5:8080", b"--to-destination 10.244.2.77:8080")
    write_files(tmp_path / "shop", files)
    with exploring("shop", directory=tmp_path) as url, looking(browser, url) as page:
        page.open(place("audit"))
        page.shows(".end-label", "no Pod has 10.244.2.77")
        assert page.browser.execute_script(_IN_TUNNEL) == [True, True], "to web-1, and to the address"
        assert page.all(".drawn.is.bad .casing")


def test_the_tunnel_of_a_finding_is_marked(page: Page) -> None:
    page.size(1400, 900)
    page.open(place("audit"))
    number = page.until(
        lambda: next(
            (at for at, each in enumerate(page.all(".finding"), 1) if "do not fit the network" in each.text), 0
        ),
        "the finding of the tunnel",
    )
    assert not page.all(".map .port.touched")
    page.open(place("audit", finding=str(number)))
    page.until(lambda: len(page.all(".map .port.tunnel.touched")) == 3, "the tunnels of all nodes")
    assert page.all(".map path.tunnel.touched")


_STROKE = "return getComputedStyle(document.querySelector(`[data-id='${arguments[0]}'] rect`)).stroke"


def test_what_is_nobodys_error_is_not_red(page: Page) -> None:
    page.size(1400, 900)
    page.open(place("map"))
    page.shows('.map [data-id="svc/shop/orders"]', "no endpoints")
    red = page.browser.execute_script(_STROKE, "svc/shop/web")
    assert page.browser.execute_script(_STROKE, "svc/shop/orders") != red
    page.shows(".legend", "no endpoints")
    page.open(place("services"))
    page.shows("td .packet-share .soft", "no endpoints")
    row = next(each for each in page.all("tbody tr") if "shop/orders" in each.text)
    assert not row.find_elements("css selector", ".bad, .bad-text, .squares")
    page.open(place("audit"))
    page.shows(".finding.info", "has no endpoint that is ready")


SERVICES = ["svc/kube-system/kube-dns", "svc/shop/cart", "svc/shop/checkout", "svc/shop/orders", "svc/shop/web"]


def test_services_stand_in_the_same_order_whatever_is_wrong(page: Page, browser: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "shop", dict(showcase()))
    page.open(place("map"))
    damaged = services_from_top(page)
    with exploring("shop", directory=tmp_path) as url, looking(browser, url) as other:
        other.open(place("map"))
        assert services_from_top(other) == damaged == SERVICES


def services_from_top(page: Page) -> list[str]:
    items = page.all(".map .item.service")
    return [str(each.get_attribute("data-id")) for each in sorted(items, key=lambda each: each.location["y"])]


def test_many_endpoints_are_told_at_once(browser: Any, tmp_path: Path) -> None:
    """Eight nodes, and a Service with 24 endpoints whose rules one of the nodes lacks."""
    files = dict(showcase(8, (*APPS, App("shop", "catalog", 24, (("http", "TCP", 80, 8080),)))))
    rules = files["nodes/worker-3/iptables-save"].decode()
    lacking, times = re.subn(r'-A KUBE-SERVICES .*"shop/catalog:http cluster IP".*\n', "", rules)
    assert times == 1
    files["nodes/worker-3/iptables-save"] = lacking.encode()
    write_files(tmp_path / "shop", files)
    with exploring("shop", directory=tmp_path) as url, looking(browser, url) as page:
        page.open(place("compare", kind="drift"))
        page.until(lambda: page.all(".end-label"), "what becomes of its packet")
        assert [each.text for each in page.all(".end-label text")] == ["not translated: 0% → 100%"]
        page.shows(".map-caption .condition", "24 Pods on 8 nodes: 100% → 0%")
        assert page.all(".ways-drawn .cross"), "where it is lost"
        assert "sends 1/24 each to catalog-" in page.text(".finding .both .was")
        page.open(place("audit"))
        page.shows(".finding.chosen .was .fate", "24 endpoints")
        # They are audited for the Map, too.
        page.open(place("map"))
        page.shows(".audited.bad", "Audit: 1 error")


_ON_PHONE = """
const box = (css) => document.querySelector(css).getBoundingClientRect();
const [bar, map, card] = ['header.top', '.map-frame', '.finding.chosen'].map(box);
return {
    map: map.top >= bar.bottom - 2 && map.height < innerHeight / 2,
    card: card.top >= map.bottom && card.top < innerHeight - 150,
    sideways: document.documentElement.scrollWidth - innerWidth,
};
"""


@pytest.mark.parametrize(
    "view", [place("compare", kind="migrate", finding="1"), place("audit"), place("whatif", edits=SWITCHED)]
)
def test_on_a_phone_the_map_stays_above_the_finding_that_is_chosen(page: Page, view: str) -> None:
    page.size(390, 844)
    page.open(view)
    page.until(lambda: page.all(".map .end-label"), "the first finding's packet")
    for number in (3, 5):
        page.browser.execute_script(f"document.querySelectorAll('.finding a.choose')[{number - 1}].click()")
        page.until(partial(page.all, f"#finding-{number}.chosen"), f"finding {number}")
        page.until(lambda: page.browser.execute_script(_ON_PHONE)["card"], "the card below the map")
        assert page.browser.execute_script(_ON_PHONE) == {"map": True, "card": True, "sideways": 0}


def test_the_tabs_of_a_phone_fit_beside_the_heading(page: Page) -> None:
    page.size(390, 844)
    page.open(place("compare"))
    page.until(lambda: page.all(".map .end-label"), "the first finding's packet")
    assert page.text(".tab").split("\n") == ["Drift", "Switch to nftables"]
    assert page.browser.execute_script(TOP_AND_HEIGHT)[0] < 844 / 2


def test_back_leads_to_where_one_was_in_what_a_change_means(page: Page) -> None:
    page.size(1400, 900)
    page.open(place("whatif", edits=SWITCHED))
    page.until(lambda: page.all(".panel #finding-1.chosen") and page.all(".map .end-label"), "the first reason, drawn")
    scrolled = "return document.querySelector('.panel').scrollTop"
    page.browser.execute_script("document.querySelector('.panel').scrollTop = 300")
    page.until(lambda: page.browser.execute_script(scrolled) == 300, "further down")
    here = page.fragment
    page.browser.execute_script("document.querySelector('.panel .actions.general a[href^=\"#/ask\"]').click()")
    page.until(lambda: "ask" in page.fragment, "a question of the copy")
    page.browser.back()
    page.until(lambda: page.fragment == here and page.all(".panel #finding-1.chosen"), "what the change means")
    page.until(lambda: page.browser.execute_script(scrolled) == 300, "where one was")
