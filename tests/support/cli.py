"""Running `kproxy` as its users do: as a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

KPROXY = [sys.executable, "-m", "kproxy"]
CODE = "from kproxy.__main__ import main; main()"
"""The same for `python -c`, after something else."""

ON_THE_MACHINE = f"import kproxy.cli.kernel as kernel; kernel.in_initial_namespace = lambda: True; {CODE}"
"""Where the tests may run in a container, whose rules a test of being asked must not change either."""


@pytest.fixture
def kproxy(tmp_path: Path) -> Run:
    """Runs `kproxy ARGUMENTS` in an empty directory; never a traceback, whatever happens."""
    return _runner(KPROXY, tmp_path)


@pytest.fixture
def kproxy_on_the_machine(tmp_path: Path) -> Run:
    """The same, as if in the machine's initial network namespace."""
    return _runner([sys.executable, "-c", ON_THE_MACHINE], tmp_path)


def _runner(program: Sequence[str], directory: Path) -> Run:
    def run(
        *arguments: str | Path, stdin: str = "", cwd: Path = directory, prefix: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        command = [*prefix, *program, *map(str, arguments)]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=cwd, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run
