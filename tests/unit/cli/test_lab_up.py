"""`kproxy lab up`: what it is given is checked before anything is made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.cli import run_kproxy

LAB = "apiVersion: kproxy/v1\nkind: Lab\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--preset", "zone"), "one of 'damaged', 'dual-stack', 'nftables', 'zones'."),
        (("--preset", "zones", "--config", "a.yaml"), "--preset and --config exclude one another"),
        (("--config", "-", "-f", "-"), "only one file can be -"),
        (("--config", "gone.yaml"), "gone.yaml: cannot be read: No such file or directory"),
        (("--config", ""), "cannot be read"),
        (("--name", "My-Lab", "--dry-run"), "--name 'My-Lab': 1 to 16 lower-case letters, digits and dashes"),
        (("-f", "gone.yaml", "--dry-run"), "gone.yaml: no such file or directory"),
        (("--config", "lab.yaml"), 'lab.yaml: document 1: line 3: nodess: unknown field "nodess"; is "nodes" meant?'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab.yaml").write_text(f"{LAB}nodess: 3\n")
    environment = {**os.environ, "KPROXY_LAB_DIR": str(tmp_path / "labs")}
    done = run_kproxy("lab", "up", *arguments, environment=environment, stdin="")
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert not (tmp_path / "labs").exists(), "nothing was made"


def test_a_dry_run_makes_nothing(tmp_path: Path) -> None:
    """From standard input; the environment goes before the file, an option before both; -f adds."""
    manifest = tmp_path / "m.yaml"
    manifest.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}\n")
    environment = {**os.environ, "KPROXY_LAB_DIR": str(tmp_path / "labs"), "KPROXY_LAB": "mine"}
    text = f"{LAB}name: other\nnodes: 5\nnetworking: {{backend: host-gw}}\n"
    done = run_kproxy(
        "lab",
        "up",
        "--config",
        "-",
        "--nodes",
        "2",
        "-f",
        str(manifest),
        "--dry-run",
        environment=environment,
        stdin=text,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"{LAB}name: mine\nnodes: 2\nnetworking:\n  ipFamily: ipv4\n  backend: host-gw\n"
        f"proxy:\n  mode: iptables\n  variant: nft\nmanifests:\n- {manifest}\ntimeout: 120s\n"
    )
    assert not (tmp_path / "labs").exists()


def test_dns_comes_with_what_asks_for_names(tmp_path: Path) -> None:
    """What was decided stands in the file that a dry run prints."""
    manifest = tmp_path / "m.yaml"
    meta = "apiVersion: v1, metadata: {name: a}"
    manifest.write_text(f"{{{meta}, kind: Service}}\n---\n{{{meta}, kind: Job}}\n")
    environment = {**os.environ, "KPROXY_LAB_DIR": str(tmp_path / "labs")}
    note = (
        f"note: {manifest}: document 2: line 3: Job runs commands: cluster DNS is up for it; --no-dns leaves it out\n"
    )
    for options, expected, said in (((), "true", note), (("--no-dns",), "false", "")):
        done = run_kproxy("lab", "up", "-f", str(manifest), "--dry-run", *options, environment=environment)
        assert (done.returncode, done.stderr) == (0, said)
        assert f"\n  dns: {expected}\n" in done.stdout
