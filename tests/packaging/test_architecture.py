"""docs/architecture.md names files that are there."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

TEXT = (ROOT / "docs/architecture.md").read_text()


def test_the_files_that_it_names_exist() -> None:
    named = {name for name in re.findall(r"`([a-z_]+(?:/[a-zA-Z_]+)+/?(?:\.py)?)`", TEXT) if "NAME" not in name}
    assert len(named) > 40
    missing = [
        name
        for name in named
        if not any((ROOT / path).exists() for path in (name, f"kproxy/{name}", f"kproxy/{name}.py"))
    ]
    assert missing == []


def test_every_package_is_in_it() -> None:
    packages = {path.parent.name for path in (ROOT / "kproxy").glob("*/__init__.py")}
    assert packages <= set(re.findall(r"^\| `kproxy\.(\w+)`", TEXT, re.MULTILINE))
    assert packages <= set(re.findall(r"^  (\w+)/", TEXT, re.MULTILINE))
