"""The README's Python runs as it stands there, and its commands exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from kproxy.cli.main import COMMANDS
from tests.support import paths
from tests.support.cli import KPROXY

ROOT = paths.ROOT
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


def test_every_page_is_in_it() -> None:
    assert {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} <= set(re.findall(r"\]\(([^)#]+)\)", README))


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


SAMPLES = re.findall(r"```console\n\$ kproxy (explain (?:.*\\\n)*.*)\n((?s:.*?))```", README)


def fits(shown: str, printed: str) -> bool:
    """Whether a sample is what was printed: `...` stands for any lines, or at the end of a line for its rest."""
    pattern = ""
    for line in shown.splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        elif line.endswith("..."):
            pattern += re.escape(line.removesuffix("...")) + r".*\n"
        else:
            pattern += re.escape(line) + r"\n"
    return re.fullmatch(pattern, printed) is not None


def test_what_stands_for_the_rest() -> None:
    assert fits("a\n...\nb...", "a\nx\ny\nbc\n")
    assert fits("a\n...\nb", "a\nb\n")
    assert not fits("a\nb", "a\nx\nb\n")
    assert not fits("a\n...", "x\na\n")


def test_samples_are_what_is_printed() -> None:
    assert SAMPLES
    for command, shown in SAMPLES:
        words = [*KPROXY, *shlex.split(command.replace("\\\n", " "))]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert fits(shown, done.stdout), done.stdout
