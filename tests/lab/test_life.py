"""What happens to a lab that goes wrong, and to two at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from kproxy.lab.lifecycle import processes
from tests.support.cli import CODE, KPROXY, run_kproxy
from tests.support.examples import spread
from tests.support.lab.labtools import Lab, deployment, fresh_name, lab_up
from tests.support.machine import only_these_programs

root_only = pytest.mark.root

LOOKED_FOR: Final = "from kproxy.extras import require; require('lab', 'a lab')"


# How far `up` is when it is hit; moments on the clock would mean something else on every machine.
REACHED: dict[str, Callable[[Lab], bool]] = {
    "the directory": lambda lab: lab.directory.exists(),
    "the record": lambda lab: lab.directory.record() is not None,
    "the API server": lambda lab: lab.directory.log("apiserver").exists(),
    "a node": lambda lab: any(name.endswith("-node-1") for name in lab.namespaces()),
    "the kubelet": lambda lab: any(item.kind == "kubelet" for item in processes.find(lab.directory)),
}


def up_as_far_as(lab: Lab, reached: Callable[[Lab], bool], *arguments: str) -> subprocess.Popen[str]:
    """Starts `lab up` and returns once it has come so far; it may go on meanwhile."""
    begun = subprocess.Popen(lab.command("up", *arguments), env=lab.environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not reached(lab):
        assert time.monotonic() < deadline
        assert begun.poll() is None, begun.communicate()[1]
        time.sleep(0.002)
    return begun


@root_only
@pytest.mark.slow
@pytest.mark.parametrize("reached", REACHED)
def test_killed_in_the_middle_of_up(tmp_path: Path, reached: str) -> None:
    """Wherever it is killed: `up` again works, and `down` leaves nothing."""
    lab = Lab(fresh_name(), tmp_path)
    try:
        begun = up_as_far_as(lab, REACHED[reached], "--nodes", "1")
        begun.kill()
        begun.communicate()
        left = lab.directory.record()
        assert left is None or left.phase == "starting", "it was done before it was killed"
        done = lab.call("up", "--nodes", "1")
        assert done.returncode == 0, done.stderr
        assert (left is None) == ("did not finish" not in done.stderr)
        assert lab.run("probe", "--count", "1").endswith("0 differ\n")
    finally:
        done = lab.call("down")
    assert done.returncode == 0, done.stderr
    assert lab.namespaces() == []
    assert processes.find(lab.directory) == []
    assert "nothing there" in lab.call("down").stderr


@root_only
def test_down_all_after_a_crash(tmp_path: Path) -> None:
    lab = Lab(fresh_name(), tmp_path)
    begun = up_as_far_as(lab, REACHED["the kubelet"], "--nodes", "1")
    begun.kill()
    begun.communicate()
    status = lab.call("status")
    assert status.returncode == 1
    assert "it was left starting" in status.stderr
    done = subprocess.run(
        [*KPROXY, "lab", "down", "--all"], env=lab.environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"lab {lab.name}: " in done.stderr
    assert lab.namespaces() == []
    assert processes.find(lab.directory) == []
    assert list(tmp_path.iterdir()) == []


@root_only
def test_up_does_not_wait_for_what_has_ended(tmp_path: Path) -> None:
    """A proxy that cannot go on ends `lab up` at once, with its last words, and not when the time is over."""
    lab = Lab(fresh_name(), tmp_path / "labs")
    metrics = "config: {bindAddressHardFail: true, metricsBindAddress: '192.0.2.1:10249'}"
    file = tmp_path / "lab.yaml"
    file.write_text(f"apiVersion: kproxy/v1\nkind: Lab\nnodes: 1\nproxy: {{{metrics}}}\ntimeout: 30m\n")
    done = lab.call("up", "--config", str(file))
    assert done.returncode == 1
    assert "error: has ended, and was not to: proxy/node-1\n" in done.stderr
    assert "metrics: cannot listen on 192.0.2.1:10249" in done.stderr
    assert lab.namespaces() == []
    assert processes.find(lab.directory) == []


@root_only
def test_interrupted_up_cleans_up_after_itself(tmp_path: Path) -> None:
    lab = Lab(fresh_name(), tmp_path)
    begun = up_as_far_as(lab, REACHED["a node"], "--nodes", "2")
    begun.terminate()
    begun.communicate(timeout=120)
    assert begun.returncode != 0
    assert lab.namespaces() == []
    assert processes.find(lab.directory) == []


MOMENTS: Final = 24
"""Parts of the time that `lab up` takes."""


@root_only
@pytest.mark.parametrize("moment", spread(range(MOMENTS), 1, 3))
def test_ctrl_c_at_any_moment_of_up(tmp_path: Path, moment: int) -> None:
    """As a terminal sends it: to the whole process group. One line, and nothing is left."""
    lab = Lab(fresh_name(), tmp_path)
    begun = subprocess.Popen(
        lab.command("up", "--nodes", "2"),
        env=lab.environment, stderr=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while begun.poll() is None and not _handles_sigterm(begun.pid):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(3.0 * moment / MOMENTS)
    os.killpg(begun.pid, signal.SIGINT)
    _, text = begun.communicate(timeout=120)
    # A signal after the end of the command, while the interpreter goes down, ends that at once.
    if begun.returncode in (0, -signal.SIGINT):
        assert lab.directory.running().phase == "up", "the signal came too late"
        lab.run("down")
    else:
        assert (begun.returncode, text.strip()) == (130, "kproxy: interrupted")
    assert lab.namespaces() == []
    assert processes.find(lab.directory) == []
    assert not lab.directory.exists()


def _handles_sigterm(pid: int) -> bool:
    """Whether a process has installed its handlers: from then on signals are the command's."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


@root_only
@pytest.mark.slow
def test_the_kubeconfig_is_for_the_user_of_sudo() -> None:
    # pytest's directories are root's alone, and each run that begins makes them so again.
    with TemporaryDirectory() as made:
        kubeconfig_of_sudo(Lab(fresh_name(), Path(made) / "labs"))


def kubeconfig_of_sudo(lab: Lab) -> None:
    done = _as(65534, lab, "env")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: {lab.directory.path / 'lab.json'}: Permission denied\n"
    lab.root.parent.chmod(0o755)
    try:
        done = subprocess.run(
            lab.command("up", "--nodes", "1"), env={**lab.environment, "SUDO_UID": "65534", "SUDO_GID": "65533"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        for _ in range(2):
            found = lab.directory.kubeconfig.stat()
            assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (65534, 65533, 0o600)
            assert lab.directory.node_kubeconfig.stat().st_uid == 0
            lab.run("fail", "apiserver")
            lab.run("heal", "apiserver")  # by root without sudo: it stays the user's
        done = _as(65534, lab, "env")
        assert (done.stdout, done.stderr) == (f"export KUBECONFIG={lab.directory.kubeconfig}\n", "")
        done = _as(65532, lab, "env")
        assert (done.returncode, done.stdout) == (1, "")
        assert (
            f"{lab.directory.kubeconfig}: only root, and the user who made the lab by sudo, can read it" in done.stderr
        )
    finally:
        assert lab.call("down").returncode == 0


def _as(user: int, lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Everything is imported and looked for before root is given up: where the interpreter lives, nobody may read.
    modules = "kproxy.__main__, kproxy.cli.main, kproxy.cli.lab.command, kproxy.cli.lab.which"
    become = f"os.setgroups([]); os.setgid({user}); os.setuid({user})"
    code = f"import os, {modules}; {LOOKED_FOR}; {become}; {CODE}"
    command = [sys.executable, "-c", code, *lab.command(*arguments)[3:]]
    return subprocess.run(command, env=lab.environment, capture_output=True, text=True, check=False)


@root_only
def test_manifests_that_the_server_refuses(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: UPPER}\nspec: {ports: [{port: 0}]}\n")
    lab = Lab(fresh_name(), tmp_path / "labs")
    done = lab.call("up", "--nodes", "1", "-f", str(bad))
    assert done.returncode == 2
    assert "bad.yaml: document 1: line 1: Service " in done.stderr
    assert "Traceback" not in done.stderr
    assert lab.namespaces() == []
    done = lab.call("up", "-f", str(tmp_path / "gone.yaml"))
    assert done.returncode == 2
    assert "gone.yaml: no such file" in done.stderr
    assert not lab.directory.exists()


@root_only
@pytest.mark.slow
def test_two_labs_side_by_side(tmp_path: Path) -> None:
    """The same addresses in both, and neither sees the other."""
    with lab_up(tmp_path, "--nodes", "1") as one, lab_up(tmp_path, "--nodes", "1", "--ip-family", "dual") as other:
        one.apply(deployment("a", 1))
        other.apply(deployment("b", 1))
        for lab, name in ((one, "a"), (other, "b")):
            cluster = lab.settled(lambda found: any(pod.ready for pod in found.pods))
            assert [pod.name[0] for pod in cluster.pods] == [name]
            assert cluster.pods[0].addresses[0] == "10.244.1.2"
            assert lab.run("probe", "--count", "1").endswith("0 differ\n")
        one.run("down")
        assert other.run("probe", "--count", "1").endswith("0 differ\n")


@root_only
def test_a_lab_of_the_same_name_in_another_directory_is_left_alone(tmp_path: Path) -> None:
    """Namespaces go by the name alone."""
    with lab_up(tmp_path / "one", "--nodes", "1") as lab:
        namesake = Lab(lab.name, tmp_path / "other")
        for command in ("up", "down"):
            done = namesake.call(command)
            assert done.returncode == 1
            assert f"is up in {lab.directory.path}" in done.stderr
        assert not namesake.directory.exists()
        lab.run("exec", "node-1", "--", "true")
        assert lab.json("status")["nodes"][0]["processes"] == ["overlay", "proxy", "kubelet"]


@root_only
def test_without_vxlan_and_without_programs(tmp_path: Path) -> None:
    """A kernel without VXLAN, as `ip` tells it; then no `ip` at all. Nothing is made in either case."""
    tools = tmp_path / "bin"
    tools.mkdir()
    fake = tools / "ip"
    fake.write_text(
        '#!/bin/sh\ncase "$*" in *vxlan*) echo "Unknown device type" >&2; exit 2;; esac\nexec /sbin/ip "$@"\n'
    )
    fake.chmod(0o755)
    lab = Lab(fresh_name(), tmp_path / "labs")

    def up(path: str, *prefix: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*prefix, *lab.command("up")], env={**lab.environment, "PATH": path}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    done = up(f"{tools}:{os.environ['PATH']}")
    assert done.returncode == 1
    assert "this kernel makes no vxlan links (Unknown device type)" in done.stderr
    assert "--backend host-gw" in done.stderr
    fake.unlink()
    for directory in ("/usr/bin", "/bin"):
        assert not Path(directory, "conntrack").exists()
    done = up("/usr/bin:/bin", *only_these_programs(tools))
    assert done.returncode == 1
    assert "install iptables" in done.stderr or "install iproute2" in done.stderr
    assert lab.namespaces() == []
    assert not lab.directory.exists()


def test_without_root(tmp_path: Path) -> None:
    """As nobody: one line, exit 1, nothing made."""
    # Everything is imported and looked for before root is given up: where the interpreter lives, nobody may read.
    modules = "kproxy.__main__, kproxy.cli.main, kproxy.cli.lab.command, kproxy.cli.lab.up, kproxy.cli.lab.change"
    code = f"import os, {modules}; {LOOKED_FOR}; os.getuid() or os.setuid(65534); {CODE}"
    lab = Lab(fresh_name(), tmp_path / "labs")
    environment = {**lab.environment, "PYTHONDONTWRITEBYTECODE": "1"}
    for command in ("up", "down"):
        done = subprocess.run(
            [sys.executable, "-c", code, "lab", command, "--name", lab.name], env=environment, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (1, "")
        assert "a lab needs root" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_help_has_examples_and_bad_usage_exits_2(tmp_path: Path) -> None:
    from kproxy.cli.lab.command import SUBCOMMANDS

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_kproxy("lab", *arguments, environment={**os.environ, "KPROXY_LAB_DIR": str(tmp_path)})

    for name in SUBCOMMANDS:
        done = call(name, "--help")
        assert done.returncode == 0
        assert "kproxy lab" in done.stdout.split("Examples:")[1]
    assert call("up", "--nodes", "0").returncode == 2
    assert call("up", "--name", "Big").returncode == 2
    assert call("status", "--name", "gone").returncode == 2
    assert "there is no lab 'gone'" in call("status", "--name", "gone").stderr
    assert call("fail", "pod").returncode == 2
