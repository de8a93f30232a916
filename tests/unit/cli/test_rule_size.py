"""Rule files that are too large are refused by every command that reads them, and so is what never ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import paths
from tests.support.cli import KPROXY, Run, run_kproxy
from tests.support.cluster import audited
from tests.support.cluster.snapshots import write_files
from tests.support.examples import spread

SCENARIO = paths.ROOT / "rules_golden" / "minikube"
SAVE = SCENARIO / "expected" / "minikube.v4.save"
LONG = b"*nat\nCOMMIT\n# " + b"x" * 1_000_001 + b"\n"
PACKET = ("--src", "10.0.0.1", "--dst", "10.0.0.2:80")
TOO_LARGE = "larger than 50 MB"
TOO_LONG = "line 3: longer than 1 MB"


def arguments(command: str, rules: str | Path) -> tuple[str | Path, ...]:
    """A command that reads these rules first."""
    return {
        "trace": ("trace", "--rules", rules, *PACKET),
        "ipset": ("trace", "--rules", SAVE, "--ipset", rules, *PACKET),
        "diff": ("diff", rules, SAVE),
        "migrate": ("migrate", "-f", SCENARIO / "cluster.yaml", "--rules", rules),
        "explore": ("explore", "--rules", rules, "--export", "page.html"),
    }[command]


@pytest.mark.parametrize("command", spread(["trace", "ipset", "diff", "migrate", "explore"], 2, 1))
def test_files(kproxy: Run, tmp_path: Path, command: str) -> None:
    rules = tmp_path / "rules"
    rules.write_bytes(LONG)
    done = kproxy(*arguments(command, rules))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{rules}: {TOO_LONG}" in done.stderr

    os.truncate(rules, 50_000_001)
    done = kproxy(*arguments(command, rules))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{rules}: {TOO_LARGE}" in done.stderr


@pytest.mark.parametrize("command", spread(["trace", "diff", "migrate", "explore"], 1, 1))
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_what_never_ends(command: str, device: str) -> None:
    done = run_kproxy(*map(str, arguments(command, device)), timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert TOO_LARGE in done.stderr


@pytest.mark.parametrize("named", spread([True, False], 1, 0))
def test_a_pipe_that_never_ends(tmp_path: Path, named: bool) -> None:
    endless = "while True: print('# more')"
    rules = tmp_path / "pipe"
    os.mkfifo(rules)
    to_pipe = f"import sys; sys.stdout = open({str(rules)!r}, 'w')\n{endless}"
    with subprocess.Popen(
        [sys.executable, "-c", to_pipe if named else endless], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as writer:
        command = [*KPROXY, *map(str, arguments("trace", rules if named else "-"))]
        done = subprocess.run(
            command, stdin=writer.stdout, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path
        )
        assert writer.stdout is not None
        writer.stdout.close()
        writer.wait(60)
    assert done.returncode == 2
    assert TOO_LARGE in done.stderr


def test_a_pipe_that_ends(tmp_path: Path) -> None:
    rules = tmp_path / "pipe"
    os.mkfifo(rules)
    with subprocess.Popen(["cp", str(SAVE), str(rules)]):
        done = run_kproxy(*map(str, arguments("trace", rules)), timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["audit", "trace", "explore"])
def test_a_snapshot(kproxy: Run, tmp_path: Path, command: str) -> None:
    files = audited.cluster()
    files["nodes/n1/iptables-save"] += LONG
    snap = write_files(tmp_path / "snap", files)
    more = {
        "trace": ("--from", "node/n1", "--to", "svc/shop/dns:dns"),
        "explore": ("--export", "page.html"),
        "audit": (),
    }[command]
    done = kproxy(command, snap, *more)
    assert "longer than 1 MB" in done.stdout + done.stderr, done.stderr
    assert done.returncode == (2 if command == "trace" else done.returncode)


def test_golden_files(kproxy: Run, tmp_path: Path) -> None:
    scenario = tmp_path / "minikube"
    shutil.copytree(SCENARIO, scenario)
    (scenario / "expected" / "minikube.v4.save").write_bytes(LONG)
    done = kproxy("golden", "check", scenario)
    assert (done.returncode, TOO_LONG in done.stderr) == (2, True)


@pytest.mark.parametrize("option", ["-f", "--config"])
def test_manifests_and_configurations_have_a_bound_too(kproxy: Run, tmp_path: Path, option: str) -> None:
    sparse = tmp_path / "much.yaml"
    sparse.touch()
    os.truncate(sparse, (256 << 20) + 1)
    given = ("-f", sparse) if option == "-f" else ("-f", SCENARIO / "cluster.yaml", "--config", sparse)
    done = kproxy("render", *given)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{sparse}: cannot be read: larger than 268 MB" in done.stderr
