"""Damage on the Map and on the Service's page, in a browser: the same words in each place, and red."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.showcase import showcase
from tests.support.cluster.snapshots import write_files
from tests.support.explore import Page, exploring, looking, place

pytestmark = pytest.mark.slow

MISSING = "rules missing on worker-2"
NOBODY = "no Pod has this address"


def item(page: Page, name: str) -> Any:
    return page.one(f'.map .item[data-id="{name}"]')


def told(page: Page, selector: str) -> set[str]:
    """What elements say; their titles, which have it whole, are not part of it."""
    return {each.text for each in page.all(selector)}


def test_rules_that_are_missing_are_one_story_in_all_places(page: Page) -> None:
    page.open(place("map", sel="svc/shop/web", node="worker-2"))
    page.until(lambda: MISSING in item(page, "svc/shop/web").text, "the words on the map")
    assert "faulty" in item(page, "svc/shop/web").get_attribute("class")
    assert page.text(".panel .problem") == MISSING
    reasons = [each.text for each in page.all(".panel .shares .bad-text")]
    assert reasons
    assert set(reasons) == {MISSING}
    assert "no endpoints" not in item(page, "svc/shop/web").text
    page.open(place("service/shop/web", node="worker-2"))
    page.shows(".fan .item.service.faulty", "10.96.0.10:80")
    assert MISSING in page.text(".fan .policy.missing")
    # Each address with its own: what is said of one is not said of the other.
    assert told(page, ".fan .item.pod.bad .why") == {
        f"cluster IP: {MISSING}",
        "node port: 50% lost: dropped by filter KUBE-FORWARD 1",
    }
    assert len(page.all(".fan .item.service.faulty")) == 2
    assert page.all(".fan .edge-line")
    assert page.all(".fan .edge-line") == page.all(".fan .edge-line.lost")


def test_an_endpoint_that_one_address_still_gives_packets_is_not_red(page: Page) -> None:
    page.open(place("service/shop/web", node="worker-1"))
    page.shows(".fan .policy.missing", "rules missing on worker-1")
    # worker-2 drops what comes to web-1, also by worker-1's node port.
    assert [each.text.split("\n")[0] for each in page.all(".fan .item.pod.bad")] == ["shop/web-1"]
    assert told(page, ".fan .item.pod .why.broken") == {
        "cluster IP: rules missing on worker-1",
        "node port: 50% lost: dropped by a rule in FORWARD on worker-2",
    }
    assert told(page, ".fan .item.pod .gets") == {"node port: 50%"}
    addresses = [each.text.split("\n")[0] for each in page.all(".fan .item.service.faulty")]
    assert addresses == ["10.96.0.10:80", "worker-1 :30080"]
    assert len(page.all(".fan .edge-line")) == 2
    assert len(page.all(".fan .edge-line.lost")) == 1
    heads = [each.text for each in page.all(".matrix thead th")]
    assert [each.split()[3] for each in heads if each.startswith("node port")] == ["worker-1", "worker-2", "worker-3"]


def test_packets_that_are_lost_have_a_red_end_and_the_rule(page: Page) -> None:
    page.open(place("map", sel="svc/shop/cart", node="worker-2"))
    page.until(lambda: "% lost" in item(page, "svc/shop/cart").text, "what is lost, on the map")
    assert page.all(".edges .edge.gone.strong .cross")
    assert any(each.text.endswith("% lost") for each in page.all(".share.gone text"))
    assert "lost: dropped by filter KUBE-FORWARD 1" in page.text(".panel .shares .bad-text")
    page.open(place("service/shop/cart", node="worker-2"))
    page.shows(".fan .item.pod.bad .why", "lost: dropped by filter KUBE-FORWARD 1")
    assert page.all(".fan .edge-line.lost")


def test_an_address_that_no_pod_has_is_in_its_nodes_room_and_red(page: Page) -> None:
    page.open(place("map", sel="svc/shop/web", node="worker-3"))
    page.until(lambda: NOBODY in page.text(".panel .shares .bad-text"), "the words in the panel")
    assert "bad" in item(page, "outside/10.244.2.77").get_attribute("class").split()
    assert "an endpoint outside" not in page.text(".map")
    assert page.all(".edges .edge.wrong")
    page.open(place("service/shop/web", node="worker-3"))
    page.shows(".fan .item.pod.bad .why", "the rules of worker-3 do not lead there")
    assert f"50% {NOBODY}" in told(page, ".fan .item.pod.bad .why")


def test_the_map_shows_what_the_audit_finds_and_leads_there(page: Page) -> None:
    page.open(place("map"))
    page.until(lambda: page.all(".audited.bad"), "the audit's count")
    listed = page.all(".audited-list li")
    errors = [each for each in listed if each.find_elements("css selector", ".number.bad")]
    assert page.text(".audited").startswith(f"Audit: {len(errors)} errors")
    numbers = {each.find_element("css selector", ".number").text for each in listed}
    # A number at each Service and node that it is about, as in the list.
    marks = {each.text for each in page.all(".map .mark text")}
    assert marks
    assert marks <= numbers
    labels = [each.get_attribute("aria-label") for each in page.all(".map .mark")]
    assert any("kube-proxy's rules do not know a Service" in each for each in labels)
    number = errors[-1].find_element("css selector", ".number").text
    errors[-1].find_element("css selector", "a").click()
    page.until(lambda: page.all(f"#finding-{number}.chosen"), "the finding of that number")
    assert page.fragment == f"#/audit?finding={number}"


def test_a_what_if_shows_todays_faults_when_that_is_asked_for_and_leads_to_drift(page: Page) -> None:
    edit = {"do": "endpoint", "pod": "shop/cart-0", "set": {"ready": False, "serving": False, "terminating": False}}
    page.open(place("whatif", edits=json.dumps([edit])))
    page.shows('[data-test="today"]', "Today’s rules are not")
    page.until(lambda: page.all('.map .mark[aria-label^="finding 1"]'), "the number of the change")
    assert not page.all(".map .fault"), "the copy has the rules that its objects ask for"
    assert not page.all('.map .mark[aria-label^="today, "]')
    next(item for item in page.all('[data-test="today"] a') if "Show today’s faults" in item.text).click()
    page.until(lambda: "rules missing on worker-1" in item(page, "svc/shop/web").text, "the words on the map")
    page.until(
        lambda: page.all('.map .mark[aria-label^="today, "][aria-label*="kube-proxy\'s rules do not know a Service"]'),
        "the audit's errors",
    )
    # At three nodes and the Services of errors; the number of the change beside it.
    assert len(page.all('.map .mark[aria-label^="today, "]')) > 3
    page.until(lambda: page.all('.map .mark[aria-label^="finding 1"]'), "the number of the change")
    page.one('[data-test="today"] a').click()
    page.shows('[data-test="verdict"]', "1 changed")


def test_what_is_noted_of_several_nodes_is_one_note(page: Page) -> None:
    page.open(place("map"))
    page.one(".notes-button").click()
    notes = page.until(lambda: [each.text for each in page.all(".banners .note li")], "the notes")
    assert page.text(".notes-button") == f"{len(notes)} notes"
    (conntrack,) = [each for each in notes if each.startswith("conntrack: missing")]
    assert conntrack.endswith("(on worker-1, worker-2, worker-3)")


def test_where_another_finding_stops_a_findings_packet_it_says_which(page: Page) -> None:
    """worker-2 drops what it forwards, too."""
    page.open(place("compare", kind="drift"))
    cards = page.all(".finding")
    number, other = (
        next(at for at, each in enumerate(cards, 1) if words in each.text)
        for words in ("Changed on worker-3", "drops everything it forwards")
    )
    page.open(place("compare", kind="drift", finding=str(number)))
    page.until(lambda: page.all(".end-label"), "what becomes of its packet")
    labels = [each.text for each in page.all(".end-label text")]
    assert sorted(labels) == [
        "50% → 0%", "50% → 0%", f"dropped (finding {other}): 0% → 50%", "unreachable: 0% → 50%",
    ]  # fmt: skip


def test_no_drift_is_not_said_to_be_all(browser: Any, tmp_path: Path) -> None:
    """Another program drops packets of a Service: the rules of kube-proxy are as they should be."""
    files = dict(showcase())
    path = "nodes/worker-2/iptables-save"
    drop = b"-A FORWARD -p tcp -m tcp --dport 8080 -j DROP\n"
    files[path], times = re.subn(rb"(?=-A FORWARD )", drop, files[path], count=1)
    assert times == 1
    write_files(tmp_path / "shop", files)
    with exploring("shop", directory=tmp_path) as url, looking(browser, url) as page:
        page.open(place("compare", kind="drift"))
        page.shows('[data-test="verdict"]', "do what the objects ask for, but packets are lost. Other programs’ rules")
        page.until(lambda: page.all('.map .mark[aria-label*="A rule of another program"]'), "the audit's error")
        page.one('[data-test="verdict"] a').click()
        page.shows(".finding.chosen", "A rule of another program")


# Of the bar in the row of a Service: what each piece says, and how much of the bar it has.
_PARTS = """
const row = [...document.querySelectorAll('tbody tr')].find((each) => each.textContent.startsWith(arguments[0]));
const of = (each) => ['class', 'width'].map((name) => each.getAttribute(name));
return [...row.querySelectorAll('.share-bar')].map((bar) => [...bar.querySelectorAll('svg')].map(of));
"""


def parts_of(page: Page, name: str) -> list[list[list[str]]]:
    """The parts of each bar in a row."""
    return list(page.browser.execute_script(_PARTS, name))


def row_of(page: Page, name: str) -> str:
    return str(next(item.text for item in page.all("tbody tr") if name in item.text))


def test_the_list_of_services_says_what_clients_of_a_node_lose(page: Page) -> None:
    page.open(place("services", node="worker-1"))
    page.shows("thead", "for clients on worker-1")
    page.until(lambda: "◐ 50% answered, 50% lost" in row_of(page, "shop/cart"), "what worker-2 drops")
    assert "2 used, 1 loses" in row_of(page, "shop/cart")
    assert "✕ rules missing on worker-1" in row_of(page, "shop/web")
    assert "2 get nothing, 1 left out" in row_of(page, "shop/web")
    assert "✓ 100% answered" in row_of(page, "shop/checkout")
    assert "2 used" in row_of(page, "shop/checkout")
    assert parts_of(page, "shop/cart") == [[["ok", "50.00%"], ["bad", "50.00%"]]]
    assert parts_of(page, "shop/web") == [[["bad", "100.00%"]]]
    assert parts_of(page, "shop/checkout") == [[["ok", "50.00%"]] * 2], "a piece for each endpoint"
    assert parts_of(page, "shop/orders") == [[]]
    page.until(lambda: page.all("tbody .number.bad"), "the audit's numbers")
    assert page.one("tbody .number.bad").get_attribute("href").endswith("#/audit?finding=2")
    page.open(place("services", node="worker-2"))
    page.shows("thead", "for clients on worker-2")
    page.until(lambda: "100% lost" in row_of(page, "shop/cart"), "what its own rules drop")


def test_the_list_of_services_says_what_it_looked_for(page: Page) -> None:
    for query, words in (
        ({"q": "Cart"}, "1 Service"),
        ({"q": "10.96.0.12"}, "1 Service"),
        (
            {"q": "cart", "ns": "kube-system"},
            "No Service in the namespace kube-system has “cart” in its name or address.",
        ),
        ({"ns": "none"}, "There is no Service in the namespace none."),
    ):
        page.open(place("services", **query))
        page.shows("#main", words)


def test_a_node_that_is_not_there_leads_back(page: Page) -> None:
    for view in ("services", "map"):
        page.open(place(view, node="worker-9"))
        page.shows(".banners", "There is no node worker-9")
        next(each for each in page.all(".banners a") if each.text == "Without it").click()
        page.until(lambda: not page.all(".banners .problem"), "the view without it")
        page.shows("#main", "worker-2")
    # Chromium tells of the 404 itself.
    page.complaints()


def test_the_list_of_services_has_a_column_for_each_of_few_nodes(page: Page) -> None:
    def says(name: str, words: str) -> bool:
        return words in row_of(page, name)

    page.open(place("services"))
    head = [item.text for item in page.all("thead th")]
    assert head[4:7] == ["from worker-1", "from worker-2", "from worker-3"]
    lost = [["ok", "50.00%"], ["bad", "50.00%"]]
    page.until(lambda: parts_of(page, "shop/cart") == [lost, [["bad", "100.00%"]], lost], "each node's clients")
    for name, words in (
        ("shop/web", "✕ rules missing"),
        ("shop/web", "✕ 50% lost, 50% to nobody"),
        ("shop/web", "2 with a fault, 1 foreign"),
        ("shop/checkout", "✓ answered"),
    ):
        page.until(partial(says, name, words), f"{words} of {name}")
    # What is told of one node, with its reason, is that of a Service's page.
    page.one("select[name=node], .filters label:nth-of-type(3) select").send_keys("worker-3")
    page.shows("thead", "for clients on worker-3")
    assert "node=worker-3" in page.fragment


_TITLES = """
const name = (row) => row.querySelector('th').textContent;
const title = (row) => row.querySelector('.squares title')?.textContent;
return [...document.querySelectorAll('tbody tr')].map((row) => [name(row), title(row)]);
"""
_BADGES = """
const numbers = (row) => [...row.querySelectorAll('.audit-marks .number')].map((each) => Number(each.textContent));
return [...document.querySelectorAll('tbody tr')].map((row) => [row.querySelector('th').textContent, numbers(row)]);
"""


def test_the_squares_of_services_have_names_and_their_badges_are_the_audits(page: Page, url: str) -> None:
    page.open(place("services", node="worker-1"))
    page.until(lambda: page.all("tbody .number.quiet"), "what is good to know")
    titles = dict(page.browser.execute_script(_TITLES))
    assert titles["shop/web"] == (
        "web-0: rules missing on worker-1\nweb-1: rules missing on worker-1\n"
        "web-2: left out: terminating, and there are ready endpoints"
    )
    assert titles["shop/cart"] == "cart-1: 50% lost: dropped by a rule in FORWARD on worker-2\ncart-0: 50%"
    assert titles["shop/orders"] is None, "no square where there is no endpoint"
    legend = page.text(".list-legend")
    for words in ("answered", "lost, refused", "endpoint that is used", "endpoint with a fault", "left out", "note in"):
        assert words in legend
    badges = dict(page.browser.execute_script(_BADGES))
    found = page.browser.execute_async_script(
        "fetch(arguments[0]).then((got) => got.json()).then((got) => arguments[1](got.findings))", f"{url}api/audit"
    )
    wanted: dict[str, list[int]] = {name: [] for name in badges}
    for number, finding in enumerate(found, 1):
        for name in {each.partition(":")[0] for each in finding["services"]}:
            wanted[name].append(number)
    assert badges == wanted
    assert badges["shop/orders"], "a Service without endpoints has a finding, too"


# The first answers have only what the objects ask for, as of a node whose rules have not been asked yet.
_NOT_YET = """
const real = window.fetch;
let left = 3;
window.fetch = async (...asked) => {
    const got = await real(...asked);
    if (!/api\\/map/.test(String(asked[0])) || left === 0) return got;
    left -= 1;
    const map = await got.json();
    const edges = map.edges.map((edge) => {
        const chance = edge.objects || edge.chance;
        return {...edge, by: 'objects', chance, used: chance !== '0/1', fault: '', lost: '', why: ''};
    });
    return new Response(JSON.stringify({...map, pending: 1, edges}));
};
"""


def test_what_rules_have_not_been_asked_yet_is_not_said_to_be_answered(page: Page) -> None:
    command = page.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _NOT_YET})
    try:
        page.open(place("services", node="worker-1"))
        page.shows("tbody", "? 100% not known")
        assert "answered" not in page.text("tbody")
        page.shows(".list-legend", "not known")
        page.until(lambda: "not known" not in page.text("tbody"), "what the rules do, asked for again")
        page.shows("tbody", "50% answered, 50% lost")
        page.open(place("map"))
        page.until(lambda: "50% lost" in item(page, "svc/shop/cart").text, "the same on the map")
    finally:
        page.browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", command)


def test_who_reaches_a_service_is_seen_and_each_reason_said_once(page: Page) -> None:
    page.open(place("service/shop/web", node="worker-1"))
    page.until(lambda: page.all(".matrix .cell"), "the table")
    rows = [each.find_elements("css selector", ".cell") for each in page.all(".matrix tbody tr")]
    inside = rows[1]
    # Of a node whose rules differ, and on which is none of the others.
    page.shows(".matrix tbody", "pod on worker-2, whose rules differ")
    assert [each.get_attribute("class") for each in inside] == ["cell bad", "cell open", "cell bad", "cell bad"]
    words = [each.find_element("css selector", ".part-words").text for each in inside]
    assert words[:3] == ["✕ 100% lost", "◐ 50% answered, 50% lost", "✕ 100% lost"]
    assert words[3].split() == ["✕", "50%", "lost,", "50%", "unreachable"], "◐ is only where something is answered"
    reasons = [each.text for each in page.all(".reasons li span:nth-child(2)")]
    assert [each.rpartition(" cells")[0].rpartition(" ")[0] for each in reasons] == [
        "dropped by a rule in FORWARD on worker-2",
        "no pod of worker-3 has 10.244.2.77, and nobody answers when worker-3 asks who has it",
        "10.96.0.10 is a Service's address, which no rule of worker-1 translates: the packet leaves by eth0 for the "
        "router 192.168.0.1, and nobody answers",
    ]
    letters = [[each.text[-1] for each in cell.find_elements("css selector", ".letter")] for cell in inside]
    assert letters == [["c"], ["a"], ["a"], ["a", "b"]]
    assert "50% answered by web-0, 50% lost; dropped by a rule in FORWARD" in (inside[1].get_attribute("title") or "")
    assert page.all(".matrix .cell.meant")
    for unclear in ("2 ways", "in vain", "have too much"):
        assert unclear not in page.text("main")
    # Half of the node port's packets are answered: it is not as red as the cluster IP.
    partly = [each.text.split("\n")[0] for each in page.all(".fan .item.service.partly")]
    assert partly == ["worker-1 :30080"]
    page.shows(".fan .policy", "2 endpoints: 50% lost")


def test_maps_of_findings_say_what_is_found(page: Page) -> None:
    """A Service is not green where nothing arrives, and no arrow ends where another finding stops the packet."""
    page.open(place("audit", finding="3"))
    page.shows(".map-caption", "by the rules of worker-3 and finding 2")
    assert sorted(each.text for each in page.all(".end-label text")) == [
        "50% → 0%",
        "50% → 0%",
        "finding 2: 0% → 50%",
        "no Pod has 10.244.2.77: 0% → 50%",
    ]
    page.shows('.map [data-id="svc/shop/web"]', "nothing from checkout-0")
    page.open(place("compare", kind="drift", finding="1"))
    page.shows('.map [data-id="svc/shop/cart"]', "nothing from web-1")
    page.shows('.map [data-id="svc/shop/checkout"]', "lost on worker-2")
    page.shows('.map [data-id="svc/shop/orders"]', "no endpoints")
    # What fails on both sides is no alarm.
    page.open(place("compare", kind="migrate"))
    page.until(lambda: len(page.all(".lane")) > 6, "a row for each difference")
    quiet = next(each for each in page.all(".lane.quiet") if "The masquerade mark" in each.text)
    quiet.find_element("css selector", "a.choose").click()
    page.until(lambda: page.all(".ways-drawn.calm .end-label"), "its packet on the map")
    assert not page.all(".ways-drawn:not(.calm)")


def test_what_rules_cannot_decide_is_not_drawn_as_answered(browser: Any, tmp_path: Path) -> None:
    files = dict(showcase())
    path = "nodes/worker-1/iptables-save"
    unknown = "-A KUBE-SERVICES -m string --string x --algo bm -j DROP\n"
    files[path] = files[path].decode().replace("-A KUBE-SERVICES ", f"{unknown}-A KUBE-SERVICES ", 1).encode()
    with exploring(str(write_files(tmp_path / "shop", files))) as url, looking(browser, url) as page:
        page.size(1400, 900)
        page.open(place("service/shop/web", node="worker-1"))
        page.shows(".fan .policy", "not known")
        # KUBE-FORWARD accepts the node port's packets by their mark, before that rule.
        lines = sorted(str(each.get_attribute("class")) for each in page.all(".fan .edge-line"))
        assert lines == ["edge-line"] * 2 + ["edge-line open"] * 2
        assert [each.text[:24] for each in page.all(".fan .not-known")] == ["cluster IP: not decided:"] * 2
        assert [each.text for each in page.all(".fan .gets")] == ["node port: 50%"] * 2


def test_a_phone_has_who_reaches_a_service_without_moving_sideways(page: Page) -> None:
    page.size(390, 844)
    for view, css in ((place("service/shop/web"), ".matrix .cell"), (place("services"), ".packet-share")):
        page.open(view)
        page.until(partial(page.all, css), css)
        script = """const wide = (each) => each.getBoundingClientRect().right > innerWidth;
            return [...document.querySelectorAll(arguments[0] + ', ' + arguments[0] + ' *')].filter(wide).length"""
        assert page.browser.execute_script(script, css) == 0
