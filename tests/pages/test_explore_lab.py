"""The page of `kproxy explore --lab`: it follows the lab, breaks and heals it, and lays a capture over the model."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.browser import running_browser
from tests.support.explore import Page, crossed, exploring, place, serious
from tests.support.lab.labtools import deployment, lab_up, service
from tests.support.paths import ROOT

pytestmark = [pytest.mark.root, pytest.mark.slow]


def test_a_lab_is_followed_broken_healed_and_captured(tmp_path: Path) -> None:
    with lab_up(tmp_path / "labs", "--nodes", "2") as lab, running_browser(tmp_path / "profile", 1000) as browser:
        lab.apply(deployment("web", 1, node="node-2", labels={"app": "web"}), service("web", "web"))
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
            page.one('button[aria-label="Break the link of node-2"]').click()
            page.shows('[data-test="faults"] .note', "the link of node-2 is down")
            page.until(lambda: "bad" in page.item("node/node-2").get_attribute("class"), "a link that is down")
            page.open(place("ask", _from="node/node-1", to="svc/default/web"))
            page.until(lambda: page.all(".way-item"), "an answer")
            assert page.all(".way-item.ok") == []
            page.open(place("live", sel="node/node-2"))
            page.one('button[aria-label="Heal the link of node-2"]').click()
            page.until(lambda: "bad" not in page.item("node/node-2").get_attribute("class"), "a link that is up")

            page.open(place("live", _from="node/node-1", to="svc/default/web"))
            page.one('[data-test="follow"] button.primary').click()
            page.shows('[data-test="follow"] .outcome-line', "answered by default/web-")
            rows = page.text('[data-test="follow"] tbody')
            assert "VXLAN" in rows
            assert page.complaints() == []


def revision(page: Page) -> str:
    return page.text('[data-test="revision"]')


def wait_for_another(page: Page, before: str) -> None:
    page.until(lambda: revision(page) != before, "another revision")
