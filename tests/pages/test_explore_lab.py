"""The page of `kproxy explore --lab`: it follows the lab, breaks and heals it, and lays a capture over the model."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.browser import running_browser
from tests.support.explore import SECONDS, Page, crossed, exploring, place, serious
from tests.support.lab.labtools import deployment, lab_up, service
from tests.support.paths import ROOT

pytestmark = [pytest.mark.root, pytest.mark.slow]


def test_a_lab_is_followed_broken_healed_and_captured(tmp_path: Path) -> None:
    with lab_up(tmp_path / "labs", "--nodes", "2") as lab, running_browser(tmp_path / "profile", 1000) as browser:
        lab.apply(deployment("web", 1, node="node-2", labels={"app": "web"}), service("web", "web", type="NodePort"))
        lab.settled(lambda found: any(i.ready for s in found.services if s.name == "web" for i in s.ports[0].endpoints))
        with exploring("--lab", lab.name, environment=lab.environment) as url:
            page = Page(browser, url)
            page.size(1400, 1000)
            page.open(place("live"))
            page.until(lambda: len(page.all(".map .item.pod")) == 1, "one Pod")
            lab.kubectl("scale", "deployment/web", "--replicas=2")
            page.until(lambda: len(page.all(".map .item.pod")) == 2, "another Pod, without being asked for")
            page.shows('[data-test="log"]', "Pod default/web-")

            for turn in ("1", "2"):
                before = revision(page)
                lab.kubectl("label", "--overwrite", "pods", "--all", f"turn={turn}")
                wait_for_another(page, before)
            page.shows('[data-test="log"]', " changes")
            changed = re.findall(r"Pod \S+", page.text('[data-test="log"]'))
            assert len(changed) == len(set(changed)) >= 2, "each Pod has one line"

            page.open(place("map", sel="svc/default/kubernetes"))
            page.shows(".panel", "100%")
            assert crossed(page) == [], "the line to the API server goes around the nodes"
            page.open(place("live"))
            page.item("node/node-2").click()
            page.one('button[aria-label="Break the link of node-2"]')
            subprocess.run(["sh", "scripts/web.sh", "tools"], cwd=ROOT, check=True)
            assert serious(page) == []
            assert page.all('button[aria-label="Heal the link of node-2"]') == [], "it is up"
            page.one('button[aria-label="Break the link of node-2"]').click()
            page.shows('[data-test="faults"]', "the link of node-2 is down")
            page.shows('[data-test="log"]', "the link of node-2 is down")
            page.until(lambda: "bad" in page.item("node/node-2").get_attribute("class"), "a link that is down")
            page.one('button[aria-label="Heal the link of node-2"]')
            assert page.all('button[aria-label="Break the link of node-2"]') == [], "it is down"
            page.open(place("ask", _from="client", to="nodeport/default/web@node-2"))
            page.until(lambda: page.all(".way-item"), "an answer")
            assert page.all(".way-item.ok") == []

            page.open(place("live", _from="client", to="nodeport/default/web@node-2"))
            page.shows('[data-test="broken"]', "the link of node-2 is down")
            page.one('[data-test="follow"] button.primary').click()
            page.shows(".sent .outcome-line.bad", "Lost at fabric: the link of node-2 is down")
            page.shows(".agreement.ok", "The capture is what the model says: 3 of 3 hops agree")
            assert page.all(".map .cross")
            passed = [item.get_attribute("data-id") for item in page.all(".map .item.passed")]
            assert passed == ["node/client", "node/fabric"]
            lab.run("fail", "link", "node-1")
            page.shows('[data-test="broken"]', "the link of node-1 is down")
            page.shows('[data-test="log"]', "the link of node-1 is down")
            page.button("Heal all").click()
            page.until(lambda: "bad" not in page.item("node/node-2").get_attribute("class"), "a link that is up")
            page.until(lambda: not page.all('[data-test="broken"]'), "nothing that is broken or awaited")

            page.open(place("live", _from="node/node-1", to="svc/default/web"))
            page.one('[data-test="follow"] button.primary').click()
            page.shows(".sent .outcome-line.ok", "Answered by default/web-")
            page.shows(".agreement.ok", "of")
            page.shows('[data-test="held"]', "this one came about")
            assert "VXLAN" in page.text('[data-test="captured"] tbody')
            assert {row.text for row in page.all('[data-test="captured"] tbody .same')} == {"="}
            assert len(page.all(".map .captures .same")) >= 4
            assert page.all(".map .captures .differs") == []
            counted_after_sending(page)
            page.shows('[data-test="busiest"] .heat', "default/web")
            assert crossing_cables(page) == []
            assert page.complaints() == []


def counted_after_sending(page: Page) -> None:
    """Waits for a rule of a Service that met the connection. Sends another one where a proxy wrote the Service's chain
    anew meanwhile, for that sets what its rules counted to 0."""
    for seconds in (10, 10, SECONDS):
        try:
            page.until(lambda: page.all('[data-test="busiest"] > .heat li a'), "a rule that counted", seconds)
            return
        except AssertionError:
            if seconds == SECONDS:
                raise
            page.one('[data-test="follow"] button.primary').click()


_CROSSING = """
const box = (item) => item.getBBox();
const bars = [...document.querySelectorAll('.map .item.bar rect')].map(box);
return [...document.querySelectorAll('.map .cables .cable')].map(box).flatMap((cable) =>
    bars.filter((bar) => cable.x < bar.x + 1 && cable.x + cable.width > bar.x + bar.width - 1)).length
    ? ['a cable passes a network'] : bars.length === 2 ? [] : ['there are not two networks'];
"""


def crossing_cables(page: Page) -> list[str]:
    """Cables that pass a network and end at another one, for each belongs to the network that it touches first."""
    return list(page.browser.execute_script(_CROSSING))


def revision(page: Page) -> str:
    return str(page.one('[data-test="revision"]').get_attribute("data-revision"))


def wait_for_another(page: Page, before: str) -> None:
    page.until(lambda: revision(page) != before, "another revision")
