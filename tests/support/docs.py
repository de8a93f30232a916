"""The examples of the documentation, read from its pages and run as a reader would run them.

How pages mark them, by the language of a block of code:

- `sh`: is run, in a copy of docs/examples, block after block of a page in one directory;
- `text` right after it: what is printed then; `...` stands for any lines, or at the end of a line for its rest;
- a block with a `title`: a file of that name, which the reader writes, and so does the test;
- `shell`: is not run, since it takes a cluster, a machine or names of the reader's own;
- before a block, `<!-- exits 1 -->`: the exit code of its last command; else no command fails.

A page with `<!-- as root -->` in it makes namespaces or loads rules.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

DOCS = ROOT / "docs"
AS_ROOT = "<!-- as root -->"

_FENCE = re.compile(
    r"^(?:<!-- exits (?P<code>\d+) -->\n)?"
    r"```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One block of code of a page."""

    language: str
    text: str
    line: int
    title: str
    code: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            found["language"],
            found["text"],
            text.count("\n", 0, found.start()) + 1,
            found["title"] or "",
            int(found["code"] or 0),
        )
        for found in _FENCE.finditer(text)
    ]


def pages() -> list[Path]:
    """README and the pages of docs/ that have examples to run."""
    candidates = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [page for page in candidates if any(block.language == "sh" for block in blocks(page))]


def run_page(page: Path, directory: Path, replaced: Mapping[str, str] | None = None) -> None:
    """Runs the examples of a page in a copy of docs/examples, and compares what is printed with what the page shows.

    Args:
        replaced: words of the examples that have others here, so that two runs beside one another do not meet.
    """
    work = directory / "examples"
    shutil.copytree(DOCS / "examples", work)
    (work / "docs").mkdir()
    (work / "docs" / "examples").symlink_to(work)  # README begins at the top of the repository
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
    for name in ("KUBECONFIG", "COLUMNS"):
        environment.pop(name, None)
    every = blocks(page)
    for at, block in enumerate(every):
        if block.title:
            (work / block.title).parent.mkdir(parents=True, exist_ok=True)
            (work / block.title).write_text(block.text)
        if block.language != "sh":
            continue
        script = block.text if block.code else f"set -eo pipefail\n{block.text}"
        for old, new in (replaced or {}).items():
            script = script.replace(old, new)
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        where = f"{page.relative_to(ROOT)}:{block.line}"
        assert done.returncode == block.code, f"{where}: {done.stdout}"
        after = every[at + 1] if at + 1 < len(every) else None
        if after and after.language == "text":
            assert fits(after.text, done.stdout), f"{where} prints:\n{done.stdout}"


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
