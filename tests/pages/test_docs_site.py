"""The documentation site: it builds without a warning, asks nobody for anything, and its search works from disk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.cli.main import COMMANDS
from tests.support.browser import running_browser
from tests.support.paths import ROOT
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


def test_the_site(tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="?(?:https?:)?//[^">]*', text) == [], page
        assert re.findall(r"<td[^>]*>(?:(?!</td>).)*\\\|", text) == [], page
    for style in site.rglob("*.css"):
        assert re.findall(r"url\([\"']?(?:https?:)?//|@import", style.read_text()) == [], style
    for name in COMMANDS:
        assert f"Usage: kproxy {name}" in (site / "options" / f"{name}.html").read_text()

    with running_browser(tmp_path / "profile", 900, "performance") as browser:
        browser.get((site / "index.html").as_uri())
        browser.execute_script("document.querySelector('[name=query]').focus()")
        browser.switch_to.active_element.send_keys("hairpin")
        links = "return [...document.querySelectorAll('.md-search-result__link')].map(link => link.href)"
        eventually(lambda: browser.execute_script(links))
        assert any("/lab.html" in link for link in browser.execute_script(links))
        events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        # The browser's own first page has requests of its own.
        urls = {each["request"]["url"] for each in sent if each["documentURL"].startswith("file:")}
        assert any("/search/search_index.js" in url for url in urls)
        assert [url for url in urls if not url.startswith(("file:", "data:", "blob:"))] == []
