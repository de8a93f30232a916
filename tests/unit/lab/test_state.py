"""The directory of a lab."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kproxy.lab.errors import LabError, LabInputError
from kproxy.lab.spec import LabSpec
from kproxy.lab.state import LabDirectory, LabRecord, lab_root, list_labs


def test_the_directory_of_a_lab(tmp_path: Path) -> None:
    lab = LabDirectory("one", tmp_path)
    with pytest.raises(LabInputError, match="there is no lab 'one'"):
        lab.running()
    lab.write(LabRecord(LabSpec("one"), "starting"))
    with pytest.raises(LabError, match="it was left starting"):
        lab.running()
    with lab.locked(), pytest.raises(LabError, match="another command"), LabDirectory("one", tmp_path).locked():
        pass
    lab.write(LabRecord(LabSpec("one", 2, "dual", "legacy"), "up", 7, (1, 2)))
    assert lab.running().spec.families == (4, 6)
    assert [item.name for item in list_labs(tmp_path)] == ["one"]
    (lab.path / "lab.json").write_text('{"spec"')
    assert lab.record() is None
    lab.remove()
    assert list_labs(tmp_path) == []


KILLED = """
import os, sys
from pathlib import Path
from kproxy.lab.state import LabDirectory
with LabDirectory("one", Path(sys.argv[1])).locked():
    if os.fork() == 0:
        print("a child has the lock", flush=True)
        sys.stdin.read()
    os._exit(0)
"""


def test_the_lock_of_a_killed_command_is_waited_for(tmp_path: Path) -> None:
    """Its child has it until it executes its program."""
    begun = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert begun.stdin is not None
    assert begun.stdout is not None
    assert begun.stdout.readline() == b"a child has the lock\n"
    begun.wait()
    taken: list[bool] = []

    def take() -> None:
        with LabDirectory("one", tmp_path).locked():
            taken.append(True)

    waiting = threading.Thread(target=take)
    waiting.start()
    assert not taken
    begun.stdin.close()
    waiting.join()
    begun.stdout.close()
    assert taken == [True]


def test_a_lab_directory_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KPROXY_LAB_DIR", "rel dir")
    assert lab_root() == tmp_path / "rel dir"
