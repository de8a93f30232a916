"""The lessons of docs/guides/teach-with-a-lab.md, as they stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs import AS_ROOT, pages, run_page
from tests.support.lab.labtools import Lab, fresh_name

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.mark.parametrize("page", [page for page in pages() if AS_ROOT in page.read_text()], ids=lambda page: page.stem)
def test_lessons(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(fresh_name(), tmp_path / "labs")
    monkeypatch.setenv("KPROXY_LAB_DIR", str(lab.root))
    try:
        run_page(page, tmp_path, {"--name class": f"--name {lab.name}", "lab:class": f"lab:{lab.name}"})
    finally:
        lab.call("down")
