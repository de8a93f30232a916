"""What tests leave behind when they are interrupted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kproxy.lab.lifecycle.processes import LAB
from tests.support.lab.labtools import end_labs_of


def test_the_labs_of_a_run_end_with_it(tmp_path: Path) -> None:
    """Those of another run stay."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    begun = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "KPROXY_TEST_RUN": f"r{os.getpid()}{run}", LAB: str(tmp_path / f"r{os.getpid()}{run}")},
        )
        for run in ("a", "b")
    ]  # fmt: skip
    try:
        for each in begun:
            assert each.stdout is not None
            assert each.stdout.readline() == b"\n"
        end_labs_of(f"r{os.getpid()}a")
        begun[0].wait(60)  # its code was taken with it
        assert begun[1].poll() is None
    finally:
        for each in begun:
            each.kill()
            each.communicate()
