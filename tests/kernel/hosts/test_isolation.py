"""Mounts and a hostname of its own for what a thread starts."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from kproxy.linux.isolation import isolate
from kproxy.linux.namespace import Namespace

pytestmark = pytest.mark.root

SCRIPT = "uname -n; cat /etc/passwd; touch /etc/kproxy-test 2>/dev/null || echo refused; touch /tmp/x && ls /tmp"


def run(script: str) -> str:
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False).stdout


def test_what_is_started_inside_sees_other_files_and_can_write_none(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("192.0.2.1 nowhere\n")
    before, hostname = Path("/etc/passwd").read_text(), socket.gethostname()
    with Namespace.scratch() as inside:
        files = {"/etc/passwd": str(tmp_path / "hosts"), "/etc/there-is-no-such-file": str(tmp_path / "hosts")}
        inside.call(isolate, "db-0", files, read_only=True)
        assert inside.call(run, SCRIPT) == "db-0\n192.0.2.1 nowhere\nrefused\nx\n"
    assert (Path("/etc/passwd").read_text(), socket.gethostname()) == (before, hostname)
    assert tmp_path.exists()
    with Namespace.scratch() as inside:
        inside.call(isolate, "db-1", {})
        mark = tmp_path / "written"
        assert inside.call(run, f"uname -n; touch {mark}") == "db-1\n"
    assert mark.exists()
