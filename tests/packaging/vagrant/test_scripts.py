"""The shell scripts under vagrant/ and scripts/: bad usage is one clear message, and what they name exists."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import paths
from tests.support.waiting import eventually

VAGRANT = paths.ROOT / "vagrant"
SCRIPTS = sorted([*VAGRANT.glob("**/*.sh"), *(VAGRANT.parent / "scripts").glob("*.sh")])
IMAGE = VAGRANT / "qemu" / "image.sh"
NODES = VAGRANT / "provision" / "nodes.py"
INSTALL, OVERLAY, CHECK = (VAGRANT / "provision" / f"{name}.sh" for name in ("install", "overlay", "check"))
TEST = VAGRANT / "qemu" / "test.sh"


def run(*command: object, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(word) for word in command],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_shell_can_read_it(script: Path) -> None:
    # What is only sourced says in a comment for which shell it is.
    shell = "bash" if "bash" in "".join(script.read_text().splitlines(keepends=True)[:3]) else "sh"
    assert run(shell, "-n", script) == (0, "")


@pytest.mark.root
@pytest.mark.parametrize(
    ("script", "arguments", "told"),
    [
        (INSTALL, [], "usage: install.sh SOURCE"),
        (INSTALL, ["/nowhere"], "/nowhere is no checkout of kproxy"),
        (INSTALL, [VAGRANT.parent, "everything"], "'everything' is none of dependencies, kproxy, all"),
        (OVERLAY, [], "usage: KPROXY_TOKEN=SECRET overlay.sh"),
        (OVERLAY, [VAGRANT.parent, "node-1"], "usage: KPROXY_TOKEN=SECRET overlay.sh"),
        (OVERLAY, [VAGRANT.parent, "node-9", "node-1=192.0.2.1"], "node-9 is none of: node-1=192.0.2.1"),
        (OVERLAY, [VAGRANT.parent, "node-1", "node-1=192.0.2.1"], "no interface of this machine has node-1's address"),
        (CHECK, [], "usage: check.sh TREE"),
        (CHECK, ["/nowhere"], "/nowhere is no checkout of kproxy"),
    ],
)
def test_bad_usage(script: Path, arguments: list[object], told: str) -> None:
    code, said = run("sh", script, *arguments, KPROXY_TOKEN="secret")
    assert code in (1, 2), said
    assert told in said
    assert len(said.splitlines()) == 1


def bare_path(folder: Path) -> str:
    """A PATH of a machine without qemu and mmdebstrap, where what installs packages only leaves a mark."""
    folder.mkdir(exist_ok=True)
    for name in (
        "bash",
        "sh",
        "dirname",
        "uname",
        "id",
        "grep",
        "sed",
        "mktemp",
        "rm",
        "env",
        "timeout",
        "sleep",
        "tail",
    ):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    stub(folder, "apt-get", f": >{folder}/installed")
    return str(folder)


@pytest.mark.parametrize(
    ("arguments", "environment", "told"),
    [
        ([], {"VM_ACCEL": "warp"}, "VM_ACCEL must be auto, kvm or tcg, not 'warp'"),
        ([], {"VM_TIMEOUT": "soon"}, "VM_TIMEOUT must be a number of seconds, not 'soon'"),
        ([], {"VM_STEPS": "all"}, "VM_STEPS must be image, or some of overlay, checks and ipvs with commas, not 'all'"),
        ([], {"VM_GOLDEN": "/nowhere"}, "VM_GOLDEN must be a folder of scenarios, not '/nowhere'"),
        ([], {"VM_SOURCES": "/nowhere"}, "VM_SOURCES must be a file with lines that begin with 'deb ', not '/nowhere'"),
        ([], {"VM_SOURCES": str(TEST)}, "VM_SOURCES must be a file with lines that begin with 'deb '"),
        (["no-such"], {}, "no scenario "),
        (["a b"], {}, "no scenario has such a name: 'a b'"),
        ([""], {}, "no scenario has such a name: ''"),
        (["--every"], {}, "check.sh has no option '--every'"),
    ],
)
def test_bad_usage_of_the_virtual_machine(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], told: str
) -> None:
    """Told before anything is installed: this machine has none of the packages."""
    path = bare_path(tmp_path / "bin")
    # Debian keeps its own folders at the end of PATH; what is installed there must not hide the order.
    script = without_system_path(tmp_path)
    golden = {"VM_GOLDEN": str(VAGRANT.parent / "rules_golden")}
    code, said = run("/bin/bash", script, *arguments, PATH=path, **golden | environment)
    assert code == 2, said
    assert told in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "bin" / "installed").exists()


@pytest.mark.root
def test_packages_are_installed_only_for_good_usage(tmp_path: Path) -> None:
    """The counterpart of the above, so that it cannot pass because nothing would ever be installed."""
    path = bare_path(tmp_path / "bin")
    run(
        "/bin/bash",
        without_system_path(tmp_path),
        PATH=path,
        VM_GOLDEN=str(VAGRANT.parent / "rules_golden"),
        VM_STEPS="image",
    )
    assert (tmp_path / "bin" / "installed").exists()


def without_system_path(folder: Path) -> Path:
    """A copy of test.sh that looks for commands in PATH alone."""
    for name in ("vagrant/qemu", "scripts"):
        shutil.copytree(VAGRANT.parent / name, folder / name)
    script = folder / "vagrant" / "qemu" / "test.sh"
    script.write_text(TEST.read_text().replace('export PATH="$PATH:/usr/sbin:/sbin"', ""))
    return script


def stub(folder: Path, name: str, script: str) -> str:
    """A command in the place of another one; the PATH that has it first."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}:/usr/sbin:/sbin"


FRESH = VAGRANT.parent / "scripts" / "fresh.sh"


@pytest.mark.root
def test_an_interrupted_fresh_run_leaves_nothing(tmp_path: Path) -> None:
    """Neither a process nor a half-made root, when it is ended while mmdebstrap runs."""
    pid = tmp_path / "pid"
    path = stub(tmp_path / "bin", "mmdebstrap", f"echo $$ >{pid}.new && mv {pid}.new {pid} && exec sleep 300")
    only_named(tmp_path / "bin")
    environment = os.environ | {"PATH": path, "KPROXY_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(["bash", FRESH, "trixie"], env=environment) as script:
        eventually(lambda: pid.exists() or script.poll() is not None, 120)
        script.send_signal(signal.SIGTERM)
        assert script.wait(120) == 143
    assert not Path("/proc", pid.read_text().strip()).exists()
    left = [item.name for item in (tmp_path / "cache" / "fresh").iterdir()]
    assert sorted(left) == ["lock", "logs"]


@pytest.mark.root
def test_a_debian_suite_has_this_machines_sources_under_its_name(tmp_path: Path) -> None:
    """A mirror's path stays, and what is not Debian's is left out."""
    lines = [
        "Debian bookworm deb http://mirror.example/debian/ main",
        "Debian stable-updates deb http://mirror.example/debian/ main",
        "Debian bookworm-security deb http://mirror.example/security/ main",
        "Debian bookworm-backports deb http://mirror.example/debian/ main",
        "Debian bookworm deb http://mirror.example/debian/ contrib",
        "Other bookworm deb http://other.example/ main",
    ]
    path = stub(tmp_path / "bin", "apt-get", f"cat <<'END'\n{chr(10).join(lines)}\nEND")
    common = VAGRANT.parent / "scripts" / "common.sh"
    code, said = run("bash", "-c", f". {common}; need_sources trixie", PATH=path)
    assert code == 0, said
    assert said.splitlines() == [
        "deb http://mirror.example/debian/ trixie main",
        "deb http://mirror.example/debian/ trixie-updates main",
        "deb http://mirror.example/security/ trixie-security main",
    ]


def only_named(folder: Path) -> None:
    """Stands in for the tools that the script only looks for, so that a test installs no packages."""
    for name in ("qemu-system-x86_64", "mmdebstrap", "gpg", "mke2fs"):
        if not (folder / name).exists():
            stub(folder, name, "exit 1")


SETUP = VAGRANT.parent / "scripts" / "setup.sh"


@pytest.mark.parametrize(
    ("arguments", "python", "code", "told"),
    [
        ([], "python3", 2, "usage: setup.sh VENV [demo]"),
        (["venv", "more"], "python3", 2, "usage: setup.sh VENV [demo]"),
        (
            ["venv"],
            "python-from-nowhere",
            2,
            "PYTHON names the interpreter 'python-from-nowhere', and there is no such",
        ),
        (
            ["venv"],
            "python-of-old",
            1,
            "kproxy needs Python 3.11 or later, and python-of-old is Python 3.9.2; set PYTHON",
        ),
    ],
)
def test_setup_checks_before_it_installs(
    tmp_path: Path, arguments: list[str], python: str, code: int, told: str
) -> None:
    path = bare_path(tmp_path / "bin")
    stub(tmp_path / "bin", "python-of-old", '[ "$1" = --version ] || exit 1; echo Python 3.9.2')
    ended, said = run("/bin/sh", SETUP, *arguments, PATH=path, PYTHON=python)
    assert ended == code, said
    assert said.startswith(told)
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "bin" / "installed").exists()


@pytest.mark.root
def test_an_image_that_could_not_be_built_is_not_kept(tmp_path: Path) -> None:
    """Nor is what a build left that was killed: the next one starts anew."""
    cache = tmp_path / "cache" / "vm"
    (cache / "building" / "root").mkdir(parents=True)
    (cache / "building" / "vmlinuz").write_text("half an image")
    path = stub(tmp_path / "bin", "mmdebstrap", "echo what went wrong; exit 7")
    code, said = run("bash", IMAGE, PATH=path, KPROXY_CACHE=str(tmp_path / "cache"))
    assert code == 1, said
    assert "what went wrong" in said
    assert "the image could not be built (Debian's packages): exit 7" in said
    assert [item.name for item in cache.iterdir() if item.is_dir()] == []


@pytest.mark.root
def test_an_interrupted_build_leaves_neither_processes_nor_an_image(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    path = stub(tmp_path / "bin", "mmdebstrap", f"echo $$ >{pid}.new && mv {pid}.new {pid} && exec sleep 300")
    only_named(tmp_path / "bin")
    environment = os.environ | {"PATH": path, "KPROXY_CACHE": str(tmp_path / "cache")}
    # By test.sh, which hands the signal on; it is not ended before what it started is.
    with subprocess.Popen(["bash", TEST], env=environment | {"VM_STEPS": "image", "TMPDIR": str(tmp_path)}) as script:
        eventually(lambda: pid.exists() or script.poll() is not None, 120)
        script.send_signal(signal.SIGTERM)
        assert script.wait(120) == 143
    assert not Path("/proc", pid.read_text().strip()).exists()
    assert [item.name for item in (tmp_path / "cache" / "vm").iterdir() if item.is_dir()] == []
    assert list(tmp_path.glob("kproxy-vm.*")) == []


@pytest.mark.root
@pytest.mark.parametrize(
    ("script", "told"), [(IMAGE, "building the image needs 1500 MB"), (TEST, "the guest's disk needs 1500 MB")]
)
def test_a_full_disk_is_an_error_before_anything_is_done(tmp_path: Path, script: Path, told: str) -> None:
    path = stub(tmp_path / "bin", "df", "echo Avail; echo 12")
    only_named(tmp_path / "bin")
    code, said = run("bash", script, PATH=path, KPROXY_CACHE=str(tmp_path / "cache"), TMPDIR=str(tmp_path))
    assert code == 1, said
    assert (
        said.splitlines()[-1]
        == f"vm: {told} in {tmp_path / 'cache/vm' if script == IMAGE else tmp_path}, and 12 MB are free"
    )
    assert list(tmp_path.glob("kproxy-vm.*")) == []


def test_nodes_waits_for_the_server_and_then_gives_up(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("""{"apiVersion": "v1", "kind": "Config", "current-context": "c",
      "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
      "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]}""")
    began = time.monotonic()
    code, said = run(sys.executable, NODES, config, "1", "node-1=192.0.2.1")
    assert code == 1, said
    assert said.startswith("nodes.py: 127.0.0.1:1: ")
    assert len(said.splitlines()) == 1
    assert time.monotonic() - began > 1


def test_a_pod_outlives_the_script_that_made_it() -> None:
    """`ip netns exec` gives a command mounts of its own; a namespace that is named there dies with it."""
    lines = (VAGRANT / "qemu" / "guest.sh").read_text().splitlines()
    assert not [line for line in lines if "netns exec" in line and "overlay.sh" in line]


def test_the_vagrantfile_names_scripts_that_exist() -> None:
    paths = re.findall(r'path: "([^"]+)"', (VAGRANT / "Vagrantfile").read_text())
    assert paths == ["provision/install.sh", "provision/overlay.sh", "provision/check.sh"]
    for path in paths:
        assert (VAGRANT / path).is_file()
