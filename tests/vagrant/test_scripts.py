"""The shell scripts under vagrant/: bad usage is one clear message, and what they name exists."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

VAGRANT = Path(__file__).parents[2] / "vagrant"
SCRIPTS = sorted(VAGRANT.glob("**/*.sh"))
INSTALL, OVERLAY, CHECK = (VAGRANT / "provision" / f"{name}.sh" for name in ("install", "overlay", "check"))
TEST = VAGRANT / "qemu" / "test.sh"


def run(*command: object, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(word) for word in command],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def test_there_are_scripts() -> None:
    assert {INSTALL, OVERLAY, CHECK, TEST} <= set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_shell_can_read_it(script: Path) -> None:
    shell = "bash" if script.read_text().startswith("#!/bin/bash") else "sh"
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


def test_the_overlay_wants_a_token() -> None:
    code, said = run("sh", OVERLAY, VAGRANT.parent, "node-1", "node-1=192.0.2.1", KPROXY_TOKEN="")
    assert code == 2, said
    assert "KPROXY_TOKEN" in said


@pytest.mark.parametrize(
    ("arguments", "environment", "told"),
    [
        ([], {"VM_ACCEL": "warp"}, "VM_ACCEL must be auto, kvm or tcg, not 'warp'"),
        ([], {"VM_TIMEOUT": "soon"}, "VM_TIMEOUT must be a number of seconds, not 'soon'"),
        ([], {"VM_STEPS": "all"}, "VM_STEPS must be image, overlay, checks or overlay,checks, not 'all'"),
        (["no-such"], {}, "no scenario "),
        (["a b"], {}, "no scenario has such a name: 'a b'"),
    ],
)
def test_bad_usage_of_the_virtual_machine(arguments: list[str], environment: dict[str, str], told: str) -> None:
    code, said = run("bash", TEST, *arguments, **environment)
    assert code == 2, said
    assert told in said
    assert len(said.splitlines()) == 1


@pytest.mark.root
def test_without_the_tools_it_names_the_packages(tmp_path: Path) -> None:
    """As nobody, who may not install them, with a PATH that holds only what the script itself uses."""
    for name in ("bash", "dirname", "uname", "id"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    tmp_path.chmod(0o755)
    text = TEST.read_text().replace('export PATH="$PATH:/usr/sbin:/sbin"', "")
    script = tmp_path / "vagrant" / "qemu" / "test.sh"
    script.parent.mkdir(parents=True)
    script.write_text(text)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.owner() == "root" and str(parent).startswith("/tmp/pytest-of-root"):
            parent.chmod(parent.stat().st_mode | 0o055)
    code, said = run(
        "/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/bin/bash", script, PATH=str(tmp_path)
    )
    assert code == 1, said
    assert said.splitlines()[-1] == (
        "vm: Debian packages are missing; install them with: sudo apt-get install"
        " qemu-system-x86 mmdebstrap e2fsprogs util-linux"
    )


def test_the_vagrantfile_names_scripts_that_exist() -> None:
    paths = re.findall(r'path: "([^"]+)"', (VAGRANT / "Vagrantfile").read_text())
    assert paths == ["provision/install.sh", "provision/overlay.sh", "provision/check.sh"]
    for path in paths:
        assert (VAGRANT / path).is_file()
