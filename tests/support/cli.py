"""Running `kproxy` as its users do: as a process."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

KPROXY = [sys.executable, "-m", "kproxy"]
CODE = "from kproxy.__main__ import main; main()"
"""The same for `python -c`, after something else."""

ON_THE_MACHINE = f"import kproxy.cli.node_options as kernel; kernel.in_initial_namespace = lambda: True; {CODE}"
"""Where the tests may run in a container, whose rules a test of being asked must not change either."""


@pytest.fixture
def kproxy(tmp_path: Path) -> Run:
    """Runs `kproxy ARGUMENTS` in an empty directory; never a traceback, whatever happens.

    A process of its own, forked from one that has imported the commands: half a second less for each of hundreds.
    """
    return _runner(KPROXY, tmp_path)


@pytest.fixture
def kproxy_on_the_machine(tmp_path: Path) -> Run:
    """The same, as if in the machine's initial network namespace."""
    return _runner([sys.executable, "-c", ON_THE_MACHINE], tmp_path)


_COMMANDS = [
    f"kproxy.cli.{name}"
    for name in (
        *("apply", "diff.command", "drift", "explain", "golden", "migrate.command", "migrate.text"),
        *("overlay", "render", "run.command", "trace.command"),
        *(f"lab.{each}" for each in ("ask", "change", "hosts", "up", "which")),
    )
]
_FORKED = Path(__file__).with_name("forked_kproxy.py")
_PROCESSES = multiprocessing.get_context("forkserver")
_CLIENT = ["kproxy.client.cluster"]
_PROCESSES.set_forkserver_preload(["kproxy.__main__", *_COMMANDS, *_CLIENT])


def _runner(program: Sequence[str], directory: Path) -> Run:
    def run(
        *arguments: str | Path, stdin: str = "", cwd: Path = directory, prefix: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        command = [*prefix, *program, *map(str, arguments)]
        if program is KPROXY and not prefix:
            done = run_kproxy(*command[len(KPROXY) :], stdin=stdin, cwd=cwd)
        else:
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=cwd, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


def held_by(page: Path) -> Any:
    """What a page of --html or --export knows."""
    found = re.search(r'id="kproxy-data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def run_kproxy(
    *arguments: str,
    stdin: str = "",
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """`kproxy ARGUMENTS` in a process that was forked from one that has imported the commands.

    Raises:
        subprocess.TimeoutExpired: it has not ended after `timeout` seconds, and is killed.
    """
    command = [*KPROXY, *arguments]
    with TemporaryDirectory() as scratch:
        files = [Path(scratch) / name for name in ("stdin", "stdout", "stderr")]
        for path, text in zip(files, (stdin, "", ""), strict=True):
            path.write_text(text)
        given = {
            "arguments": arguments,
            "files": files,
            "cwd": cwd or Path.cwd(),
            "environment": dict(environment or os.environ),
        }
        process = _PROCESSES.Process(target=runpy.run_path, args=(str(_FORKED), given))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout or 0.0)
        code = process.exitcode
        process.close()
        assert code is not None
        return subprocess.CompletedProcess(command, code, files[1].read_text(), files[2].read_text())
