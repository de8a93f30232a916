"""Which labs there are to take down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.lab.lifecycle import down, processes


def test_labs_of_other_directories_are_known_by_their_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the directory is gone and the processes run on, as after a test run that was interrupted."""
    name = f"t{os.getpid()}"
    home = tmp_path / "labs" / name
    monkeypatch.delenv("KPROXY_LAB_DIR", raising=False)
    monkeypatch.setattr(down, "list_labs", list)
    monkeypatch.setattr(down, "stray_labs", lambda: {name, "bare"})
    command = [sys.executable, "-c", "print(flush=True); input()"]
    environment = {**os.environ, processes.LAB: str(home)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as begun:
        assert begun.stdout is not None
        assert begun.stdout.readline() == "\n"
        bare, found = sorted(down.all_labs(), key=lambda each: len(each.name) > 4)
        assert (found.name, found.path) == (name, home)
        assert (bare.name, str(bare.path)) == ("bare", "/run/kproxy-lab/bare")
        assert [each.pid for each in processes.find(found)] == [begun.pid]
        monkeypatch.setenv("KPROXY_LAB_DIR", str(tmp_path / "others"))
        assert down.all_labs() == []
        begun.communicate("\n")
