"""Links in the documentation lead to files and headings that are there, and the site's navigation has every page."""

from __future__ import annotations

import re
import runpy
import sys
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from tests.support.paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
OTHERS = [
    ROOT / name
    for name in ("README.md", "CONTRIBUTING.md", "deploy/README.md", "web/README.md", "tests/reference/README.md")
]


def prose(path: Path) -> str:
    """A page without its code."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


@cache
def anchors(path: Path) -> frozenset[str]:
    """What a page's headings are called in links."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings)


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        made = path.is_relative_to(DOCS) and re.match(r"options/|examples\.zip", str(path.relative_to(DOCS)))
        found = path.exists() and (not anchor or path.suffix != ".md" or anchor in anchors(path))
        if not found and not made:
            broken.append(target)
    assert broken == []


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without the Python objects that its extensions name."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def _pages_of(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    children = entry.values() if isinstance(entry, dict) else entry
    return [page for child in children for page in _pages_of(child)]


def test_the_navigation_has_every_page_once() -> None:
    config = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)
    listed = _pages_of(config["nav"])
    own = {str(path.relative_to(DOCS)) for path in PAGES if path.parent.name != "decisions"}
    assert sorted(listed) == sorted({"deploy.md", *own})


def test_the_site_keeps_names_with_hyphens_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Browsers break them after a hyphen. Blocks, and words too long for a narrow screen, stay as they are."""
    for name in ("mkdocs", "mkdocs.structure", "mkdocs.structure.files"):  # the site's builder need not be installed
        monkeypatch.setitem(sys.modules, name, Mock())
    mended = runpy.run_path(str(ROOT / "scripts" / "docs" / "hooks.py"))["on_page_content"]
    assert mended("a-b <code>--assume-endpoints N</code>") == (
        'a-b <code><span class="word">--assume-endpoints</span> N</code>'
    )
    long = f"<code>{'a-b' * 14}</code>"
    for same in ("<pre><code>--assume-endpoints</code></pre>", long, "<code>trace</code>"):
        assert mended(same) == same
    assert re.search(r"code \.word \{[^}]*white-space: nowrap", (DOCS / "assets" / "site.css").read_text())
