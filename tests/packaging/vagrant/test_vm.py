"""The virtual machine itself. Minutes each, hence soak: `make vm-test` is CI's run of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import paths

ROOT = paths.ROOT
TEST = ROOT / "vagrant" / "qemu" / "test.sh"

pytestmark = [pytest.mark.root, pytest.mark.soak]


def run(*arguments: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", str(TEST), *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_wrong_golden_file_fails_the_run(tmp_path: Path) -> None:
    """One rule of one family is not as the guest's kernel has it."""
    shutil.copytree(ROOT / "rules_golden" / "clusterip-single-endpoint", tmp_path / "wrong")
    path = tmp_path / "wrong" / "expected" / "node-0.v4.save"
    path.write_text(path.read_text().replace("--to-destination 10.244.0.5:8080", "--to-destination 10.244.0.5:8081"))
    code, said = run("wrong", VM_GOLDEN=str(tmp_path), VM_STEPS="checks", VM_LOG=str(tmp_path / "log"))
    assert code == 1, said
    assert "examined: DIFFERS" in said
    assert "--to-destination 10.244.0.5:8081" in said
    assert "kproxy-vm-result 1" in (tmp_path / "log").read_text()


def test_a_guest_that_is_not_done_in_time_is_ended(tmp_path: Path) -> None:
    code, said = run(VM_TIMEOUT="4", VM_ACCEL="tcg", VM_LOG=str(tmp_path / "log"))
    assert code == 1, said
    assert "the guest was not done after 4 s (VM_TIMEOUT)" in said


def test_a_guest_that_panics_is_reported_with_the_end_of_its_console(tmp_path: Path) -> None:
    code, said = run(VM_APPEND="init=/bin/false", VM_ACCEL="tcg", VM_LOG=str(tmp_path / "log"))
    assert code == 1, said
    assert "Kernel panic - not syncing: Attempted to kill init!" in said
    assert "the guest ended without a result" in said
