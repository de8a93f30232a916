"""Running `kproxy` as its users do: as a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

CODE = "import sys; from kproxy.cli.main import main; sys.argv[0] = 'kproxy'; main()"


@pytest.fixture
def kproxy(tmp_path: Path) -> Run:
    """Runs `kproxy ARGUMENTS` in an empty directory; never a traceback, whatever happens."""

    def run(*arguments: str | Path, stdin: str = "", cwd: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CODE, *map(str, arguments)]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=cwd, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run
