"""The directory of a lab."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kproxy.lab.errors import LabError, LabInputError
from kproxy.lab.spec import LabSpec
from kproxy.lab.state import LabDirectory, LabRecord, lab_root, list_labs


def test_the_directory_of_a_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPROXY_LAB_DIR", str(tmp_path))
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
    assert [item.name for item in list_labs()] == ["one"]
    (lab.path / "lab.json").write_text('{"spec"')
    assert lab.record() is None
    lab.remove()
    assert list_labs() == []


def test_a_lock_that_is_held_a_moment_is_waited_for(tmp_path: Path) -> None:
    """As by a child of a killed command, until it executes its program."""
    lab, done = LabDirectory("one", tmp_path), threading.Event()

    def hold() -> None:
        with LabDirectory("one", tmp_path).locked():
            held.set()
            done.wait(0.2)

    held = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    with lab.locked():
        pass
    holder.join()


def test_a_lab_directory_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KPROXY_LAB_DIR", "rel dir")
    assert lab_root() == tmp_path / "rel dir"
