"""Every example of the documentation works as it stands there: tests/support/docs.py says how pages mark them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs import AS_ROOT, DOCS, fits, pages, run_page
from tests.support.paths import ROOT

PLAIN = [page for page in pages() if AS_ROOT not in page.read_text()]
QUICK = {"README.md", "docs/first-five-minutes.md"}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if name(page) in QUICK else pytest.mark.slow, id=name(page)) for page in PLAIN]
)
def test_examples(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), re.DOTALL))
def test_python_examples_run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_what_stands_for_the_rest() -> None:
    assert fits("a\n...\nb...", "a\nx\ny\nbc\n")
    assert fits("a\n...\nb", "a\nb\n")
    assert not fits("a\nb", "a\nx\nb\n")
    assert not fits("a\n...", "x\na\n")
