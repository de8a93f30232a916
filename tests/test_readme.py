"""The README's Python runs as it stands there, and its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_python_examples_run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_every_command_is_in_the_readme_and_every_command_there_exists() -> None:
    named = set(re.findall(r"`kproxy ([a-z-]+)", README)) | set(
        re.findall(r"^\$.*?kproxy ([a-z-]+)", README, re.MULTILINE)
    )
    assert named == set(COMMANDS)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
