"""Questions about packets that are lost: which way is shown first, at which step, and why it is lost."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.showcase import App, showcase
from tests.support.cluster.snapshots import write_files
from tests.support.explore import Page, exploring, looking, place, serious
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

DROP = '-A FORWARD -p tcp -d 10.244.1.5/32 -m comment --comment "hardening-2024" -j DROP\n'
IN_SIGHT = """const [rule, list] = ['.rule.fatal', '.rule-list']
    .map((css) => document.querySelector(css).getBoundingClientRect());
return rule.top >= list.top - 1 && rule.bottom <= list.bottom + 1"""


def damaged() -> dict[str, bytes]:
    """The showcase, in which worker-1 drops what goes to web-1, worker-2 does not know shop/web, and worker-3 sends a
    connection of shop/web to an address that nobody has."""
    files = dict(showcase())

    def change(node: str, old: str, new: str) -> None:
        path = f"nodes/{node}/iptables-save"
        text = files[path].decode()
        assert old in text, f"{node}: {old}"
        files[path] = text.replace(old, new, 1).encode()

    change("worker-1", "-A FORWARD ", f"{DROP}-A FORWARD ")
    rules = files["nodes/worker-2/iptables-save"].decode().splitlines(keepends=True)
    jump = next(line for line in rules if "-A KUBE-SERVICES" in line and '"shop/web:http cluster IP"' in line)
    change("worker-2", jump, "")
    change("worker-3", "--to-destination 10.244.0.5:8080", "--to-destination 10.244.0.77:8080")
    return files


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return damaged()


MIDDLES = """return [...document.querySelectorAll(arguments[0])].map((item) => {
    const box = item.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
})"""
STILL = "return document.getAnimations().every((each) => !each.effect.target.matches('.packet'))"


def middles(page: Page, css: str) -> list[list[float]]:
    """Where things on the map are, once the packet has come to where it goes."""
    page.until(lambda: page.browser.execute_script(STILL), "a packet that does not move")
    return [list(each) for each in page.browser.execute_script(MIDDLES, css)]


def fields(page: Page) -> dict[str, str]:
    """The header strip."""
    return {each.text.split("\n")[0]: each.text.split("\n")[-1] for each in page.all(".strip .field")}


def passed(page: Page) -> set[str]:
    """The stations of the drawing of hooks that the packet passes."""
    return {str(item.get_attribute("data-station")) for item in page.all(".hooks .station.passed")}


def shares(page: Page) -> list[str]:
    return [item.text for item in page.all(".map .share text")]


def open_finding(page: Page, node: str) -> None:
    """Chooses the audit's error on a node."""
    page.open(place("audit", severity="error"))
    found = page.until(lambda: [item for item in page.all(".finding.error") if f"on {node}" in item.text], "the error")
    heading = found[0]
    number = str(heading.get_attribute("id"))
    if "chosen" not in str(heading.get_attribute("class")).split():
        heading.find_element("css selector", "a.choose").click()
    page.until(lambda: page.all(f"#{number}.chosen .button"), "the finding")


def ask_it(page: Page) -> None:
    next(item for item in page.all(".finding.chosen .button") if item.text == "Ask it").click()
    page.one(".ask .way-item")
    page.idle()


def test_a_finding_asks_at_the_rule_that_drops(page: Page) -> None:
    open_finding(page, "worker-1")
    here = page.fragment
    ask_it(page)
    assert "from=pod/shop/" in page.fragment
    page.shows(".way-item.bad[aria-current=true]", "lost")
    position, steps = page.text(".position").split("/")
    assert position == steps, "where it is lost"
    said = "sent to 10.244.1.5:8080, dropped by rule 1 of filter FORWARD on worker-1: hardening-2024"
    assert page.text("p.answer.bad") == f"✕ This way, 50%: {said}."
    assert "dropped" not in page.text(".way-item.bad"), "it is said once"
    assert page.text('[data-test="now"]') == "On worker-1: the packet is dropped"
    assert page.text(".map .end-label.lost") == "dropped: FORWARD 1"
    assert "hardening-2024" in page.text(".rule.fatal.now code")
    assert page.browser.execute_script(IN_SIGHT), "the rule is in sight"
    assert page.all(".map > .packet ~ .cross"), "above the packet"
    # A step back the rule is still marked, and the address tells the way and the step.
    page.one(".controls button").click()
    page.until(lambda: page.text(".position") == f"{int(steps) - 1}/{steps}", "a step back")
    assert page.all(".rule.fatal")
    assert f"step={int(steps) - 2}" in page.fragment
    page.browser.refresh()
    page.until(lambda: page.text(".position") == f"{int(steps) - 1}/{steps}", "the same step, loaded anew")
    page.browser.back()
    page.until(lambda: page.fragment == here and page.all(".finding.chosen"), "the finding")


def test_a_finding_asks_where_the_packet_goes_astray(page: Page) -> None:
    open_finding(page, "worker-3")
    ask_it(page)
    page.shows("p.answer", "sent to 10.244.0.77:8080")
    assert page.text(".field.dst.lit dd").split() == ["10.96.0.10", "10.244.0.77"], "it is sent there at this step"
    assert "10.244.0.77:8080" in page.text(".rule.now code")


def test_what_is_rejected_is_shown_where_it_is_and_not_where_the_sender_learns_it(page: Page) -> None:
    page.open(place("ask", _from="pod/shop/cart-0", to="svc/shop/orders", step="fault"))
    page.shows("p.answer.bad", "by rule ")
    assert page.text("p.answer.bad").startswith("✕ Rejected in FORWARD by rule ")
    assert "shop/orders:grpc has no endpoints" in page.text("p.answer.bad")
    assert page.all(".rule.fatal.now")
    assert page.all(".rail .there.here")
    where = middles(page, ".map > .cross")
    # What comes back is told as what it is, and the cross stays where the packet was rejected.
    page.button("next host").click()
    page.shows("p.now", "On worker-1: an ICMP error (port unreachable) is sent")
    assert fields(page) == {
        "protocol": "icmp", "source": "10.244.0.1", "destination": "10.244.0.6", "says": "port unreachable",
        "mark": "0x0", "conntrack": "–",
    }  # fmt: skip
    assert passed(page) == {"host", "OUTPUT", "POSTROUTING", "out"}
    page.button("next host").click()
    page.shows("p.now", "At cart-0: arrives")
    assert fields(page)["protocol"] == "icmp"
    assert middles(page, ".map > .cross") == where


def test_hooks_without_rules_are_passed_too(page: Page) -> None:
    """The rules of nat are not asked about an answer, which leaves by POSTROUTING all the same."""
    page.open(place("ask", _from="pod/shop/cart-0", to="svc/shop/cart"))
    page.until(lambda: page.all(".rail .back a"), "the way back")[1].click()
    page.until(lambda: page.all(".rail .back.here"), "a host on the way back")
    assert passed(page) == {"in", "PREROUTING", "routing", "FORWARD", "POSTROUTING", "out"}
    page.shows(".rules", "no rule of nat is asked")
    step, steps = page.text(".position").split("/")
    assert int(step) < int(steps), "the sender is told of it afterwards"
    page.step()
    page.until(lambda: page.all(".rail .back.here"), "what the sender is told")
    assert not page.all(".map > .cross")


def test_without_a_way_the_one_that_is_lost_and_chances_of_who_asks(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page.open(place("ask", _from="pod/shop/cart-0", to="svc/shop/web"))
    page.shows(".way-item.bad[aria-current=true]", "lost")
    assert page.one("p.now.stops.bad"), "it opens where it is lost"
    assert page.all(".scrubber line.bad"), "which the slider marks"
    position = page.text(".position")
    page.button("from the start").click()
    page.until(lambda: page.text(".position").startswith("1/"), "the first step")
    assert "step=0" in page.fragment
    page.button("where it is lost").click()
    page.until(lambda: page.text(".position") == position, "where it is lost")
    page.until(lambda: shares(page) == ["50%"], "the chance of the way that is answered")
    # The other one, by its link, and with its address.
    page.one(".way-item.ok").click()
    page.until(lambda: page.all(".way-item.ok[aria-current=true]"), "the way that is answered")
    assert "way=0" in page.fragment
    page.browser.back()
    page.until(lambda: page.all(".way-item.bad[aria-current=true]"), "the one that is lost")
    # Of a Pod where the Service is not known nothing gets anywhere.
    page.open(place("ask", _from="pod/shop/web-1", to="svc/shop/web"))
    page.shows(".way-item.bad[aria-current=true]", "100%")
    page.browser.execute_script("document.activeElement.blur()")

    page.press(Keys.END)
    page.shows("p.answer.bad", "Lost at worker-2: 10.96.0.10 is a Service's address")
    assert "the packet leaves by eth0 for the router 192.168.0.1, and nobody answers." in page.text("p.answer.bad")
    assert page.text('[data-test="now"]') == "On worker-2: the packet leaves by eth0, and nobody answers"
    assert page.all(".map > .cross")
    assert shares(page) == []
    # It has left by its node's interface, and no way leads on from there.
    # Which rule is not there is said where it would be.
    page.shows(".rule.missing.now", "None of the 6 rules here is for 10.96.0.10:80.")
    chain = page.one(".chain:has(.rule.missing)").text
    assert chain.startswith("nat KUBE-SERVICES")
    [cross], [packet] = middles(page, ".map > .cross"), middles(page, ".packet .letter")
    assert cross == pytest.approx(packet, abs=2)
    _, worker_2, _ = (each for each in page.all(".above .port") if each.text.startswith("eth0"))
    assert cross[0] < worker_2.rect["x"]
    assert worker_2.rect["y"] < cross[1] < worker_2.rect["y"] + worker_2.rect["height"]
    # Where nothing is lost it is the first one, from its beginning.
    page.open(place("ask", _from="pod/shop/cart-0", to="svc/kube-system/kube-dns:dns"))
    page.until(lambda: page.all(".way-item")[0].get_attribute("aria-current") == "true", "the first way")
    assert page.text(".position").startswith("1/")
    assert not page.all(".scrubber line")


UNTRANSLATED = place("ask", _from="pod/shop/web-1", to="svc/shop/web")
HEADED = """const [chain, list] = ['.chain:has(.rule.missing)', '.rule-list']
    .map((css) => document.querySelector(css).getBoundingClientRect().top);
return Math.abs(chain - list)"""


def test_the_answer_is_said_once_above_the_picture_that_shows_it(page: Page) -> None:
    page.size(1400, 900)
    page.open(UNTRANSLATED)
    page.shows("p.answer.bad", "no rule of worker-2 translates")
    assert page.text("body").count("no rule of worker-2 translates") == 1
    rows = [page.one(css).rect for css in (".question", "p.answer", ".map-frame", ".player")]
    assert [row["x"] for row in rows] == [rows[0]["x"]] * 4
    for above, below in itertools.pairwise(rows):
        assert 0 < below["y"] - above["y"] - above["height"] < 20
    # It is said on the map, too, and in the drawing of hooks; the list is at the chain that lacks the rule.
    assert page.text(".map .end-label.lost").split("\n") == [
        "no rule for 10.96.0.10:80", "leaves by eth0, nobody answers",
    ]  # fmt: skip
    assert page.text(".hooks .station.misses").split() == ["PREROUTING", "no", "rule"]
    page.until(lambda: page.browser.execute_script(HEADED) < 12, "the chain at the top of the list")
    page.size(1400, 700)
    page.until(lambda: page.browser.execute_script(HEADED) < 12, "and so in a lower window")


def test_services_that_are_not_asked_are_not_drawn_and_told_no_faults_of(page: Page) -> None:
    page.open(UNTRANSLATED)
    page.until(lambda: page.all(".map .end-label.lost"), "the answer")
    assert [each.get_attribute("data-id") for each in page.all(".map .item.service")] == ["svc/shop/web"]
    assert len(page.all(".map .item.room")) == 3, "the hosts are there"
    page.one(".zoom .button").click()
    page.until(lambda: len(page.all(".map .item.service")) == 5, "all Services")
    assert "whole=1" in page.fragment
    assert len(page.all(".map .item.service.faulty")) == 1
    assert page.text(".map .item.service .fault") == "100% lost"
    assert page.text(".zoom .button") == "Only what is asked"
    # In a low window are the hosts on the way alone, and no map that scrolls.
    page.size(1280, 720)
    page.open(UNTRANSLATED)
    page.until(lambda: page.text(".map .item.room .name") == "worker-2", "the host on the way")
    drawing = page.one(".drawing")
    assert drawing.get_property("scrollHeight") <= drawing.get_property("clientHeight")
    assert int(page.browser.execute_script("return document.documentElement.scrollHeight")) <= 720
    page.size(1400, 900)
    # A node port is a Service's, too, by whichever name it is asked.
    page.open(place("ask", _from="outside", to="192.168.0.10:30080"))
    page.until(lambda: page.all(".way-item"), "the answer")
    assert [each.get_attribute("data-id") for each in page.all(".map .item.service")] == ["svc/shop/web"]


def test_on_a_phone_the_question_is_one_line_and_the_picture_on_the_first_screen(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page.size(390, 844)
    page.open(UNTRANSLATED)
    page.until(lambda: page.all(".map .end-label.lost"), "the answer")
    folded = page.one(".folded-question")
    assert folded.accessible_name == "web-1 → web (change the question)"
    assert folded.get_attribute("aria-expanded") == "false"
    assert not page.one("form.question").is_displayed()
    rows = [page.one(css).rect for css in (".folded-question", "p.answer", ".way-item", ".map-frame", ".player")]
    for above, below in itertools.pairwise(rows):
        assert above["y"] + above["height"] < below["y"]
    assert rows[3]["y"] + rows[3]["height"] < 844, "all of the map"
    assert page.text(".map .item.room .name") == "worker-2", "the host on the way"
    assert page.text(".zoom .button") == "Whole map (3 hosts)"
    folded.send_keys(Keys.ENTER)
    page.until(lambda: page.one("form.question").is_displayed(), "the form")
    assert folded.get_attribute("aria-expanded") == "true"
    folded.click()
    page.until(lambda: not page.one("form.question").is_displayed(), "one line again")
    # So does the key for the first field.
    page.browser.execute_script("document.activeElement.blur()")
    page.press("/")
    page.until(lambda: page.browser.switch_to.active_element.get_attribute("name") == "from", "the first field")
    field = page.one("input[name=from]")
    field.clear()
    field.send_keys("pod/shop/cart-0", Keys.ENTER)
    page.until(lambda: page.text(".folded-question").startswith("cart-0 → web"), "another question, in one line")
    assert not page.one("form.question").is_displayed()
    # What is wrong is mended in the form.
    page.open(place("ask", _from="pod/shop/cart-0", to="svc/shop/none"))
    page.shows("[role=alert]", "shop/none")
    assert page.one("input[name=to]").is_displayed()
    assert not page.all(".folded-question")
    assert all("404" in each or "400" in each for each in page.complaints())
    # Where there is room the form is always there.
    page.size(1400, 900)
    page.open(UNTRANSLATED)
    page.until(lambda: page.all(".way-item"), "the answer")
    assert page.one("form.question").is_displayed()
    assert not page.one(".folded-question").is_displayed()


def test_axe_finds_nothing_serious_where_a_packet_is_lost(page: Page) -> None:
    subprocess.run(["sh", "scripts/web.sh", "tools"], cwd=ROOT, check=True)
    found = []
    for width, scheme in ((1400, "light"), (1400, "dark"), (390, "light")):
        page.size(width, 1000)
        page.scheme(scheme)
        page.open(place("ask", _from="pod/shop/cart-0", to="svc/shop/web", step="fault"))
        page.one(".rule.fatal")
        found += [(width, scheme, *each) for each in serious(page)]
    page.scheme("light")
    assert found == [], "\n".join(map(str, found))


def scrolled(page: Page) -> list[float]:
    return list(page.browser.execute_script("return [scrollY, document.querySelector('.beside')?.scrollTop ?? 0]"))


def test_both_ways_are_in_the_address_and_back_leads_to_them(page: Page) -> None:
    page.size(1400, 700)
    page.open(place("compare", kind="drift"))
    page.button("Show both ways").click()
    page.one(".pair .way-item")
    page.idle()
    assert "both=0" in page.fragment
    page.button("Hide both ways").click()
    page.until(lambda: not page.all(".pair"), "both ways are shut")
    page.browser.back()
    page.one(".pair .way-item")
    page.idle()
    # What stands above the ways is who asks in them.
    asked = page.text(".both-ways .asked-words")
    assert asked.startswith("TCP from shop/")
    # What a reader does ends the scrolling to where one was before.
    page.browser.execute_script("dispatchEvent(new Event('wheel')); document.querySelector('.pair').scrollIntoView()")
    was = page.until(lambda: next((each for each in [scrolled(page)] if any(each)), None), "another place on the page")
    here = page.fragment
    lost = page.one(".pair .way-item.bad")
    page.browser.execute_script("arguments[0].click()", lost)
    page.shows(".ask .asked-words", asked)
    page.until(lambda: page.all("p.now.stops.bad"), "where it is lost")
    page.browser.back()
    page.until(lambda: page.fragment == here and page.all(".pair .way-item"), "both ways")
    page.until(lambda: scrolled(page) == was, "the same place on the page")


def test_back_leads_to_where_one_was_in_the_list(page: Page) -> None:
    page.size(390, 800)
    page.open(place("audit"))
    number = len(page.until(lambda: page.all(".finding"), "the findings"))
    last = page.one(f".finding#finding-{number} a.choose")
    last.click()
    page.until(lambda: page.all(f"#finding-{number}.chosen .button"), "the last finding")
    page.browser.execute_script("scrollTo(0, document.documentElement.scrollHeight - innerHeight - 40)")
    was = page.until(lambda: next((each for each in [scrolled(page)] if each[0] > 300), None), "the end of the list")
    page.browser.execute_script("document.querySelector('.finding.chosen .button').click()")
    page.until(lambda: page.text("h1") == "Map", "the map")
    page.until(lambda: scrolled(page) != was, "another page from its beginning")
    page.browser.back()
    page.until(lambda: page.all(f"#finding-{number}.chosen"), "the finding")
    page.until(lambda: scrolled(page) == was, "where one was")


def test_a_node_port_is_asked_at_a_node_that_is_offered(page: Page) -> None:
    page.open(place("ask", _from="outside", to="nodeport/shop/web"))
    page.shows("[role=alert]", "say at which")
    assert all("400" in each for each in page.complaints())
    assert [item.text for item in page.all(".at-node a")] == ["worker-1", "worker-2", "worker-3"]
    page.all(".at-node a")[1].click()
    page.shows(".asked-words", "192.168.0.11:30080")
    assert not page.all(".at-node")


def examples(page: Page) -> list[str]:
    page.open(place("ask"))
    page.until(lambda: page.all(".examples a"), "examples")
    return [str(item.get_attribute("href")).partition("#")[2] for item in page.all(".examples a")]


def test_every_example_has_an_answer(browser: Any, page: Page, tmp_path: Path) -> None:
    write_files(tmp_path / "shop", dict(showcase()))
    with exploring("--rules", "shop/nodes/worker-1/iptables-save", directory=tmp_path) as url:
        dump = Page(browser, url)
        for source in (page, dump):
            found = examples(source)
            assert len(found) >= 4
            for example in found:
                source.open(f"#{example}")
                source.until(lambda: source.all(".way-item"), example)  # noqa: B023
                assert not source.all("[role=alert]"), example
            source.leave()


def test_many_ways_are_told_in_sums_and_those_that_are_lost_first(browser: Any, tmp_path: Path) -> None:
    files = dict(showcase(3, [App("shop", "many", 21, (("http", "TCP", 80, 8080),))]))
    rules = files["nodes/worker-2/iptables-save"].decode()
    files["nodes/worker-2/iptables-save"] = rules.replace("-A FORWARD ", "-A FORWARD -j DROP\n-A FORWARD ", 1).encode()
    write_files(tmp_path / "shop", files)
    with exploring("shop", directory=tmp_path) as url, looking(browser, url) as page:
        page.open(place("ask", _from="pod/shop/many-0", to="svc/shop/many"))
        page.shows(".sums", "33.3% lost at worker-2, 66.7% answered by 14 endpoints.")
        headings = [item.text for item in page.all(".alike-ways")]
        assert headings == ["33.3% lost at worker-2", "66.7% answered by 14 endpoints"]
        lost = [item.text for item in page.all(".way-item .where")]
        assert lost == [f"many-{number}" for number in (1, 4, 7, 10, 13, 16, 19)]
        page.button("Show all 14").click()
        page.until(lambda: len(page.all(".way-item")) == 21, "all ways")
        names = [item.text for item in page.all(".way-item.ok .where")]
        assert names == sorted(names, key=lambda name: int(name.removeprefix("many-")))
        page.button("Hide them").click()
        page.until(lambda: len(page.all(".way-item")) == 7, "those that are lost")
