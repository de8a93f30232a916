"""What a shell is offered: completions, versions, help, suggestions, colours; and forms of answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kproxy import KUBE_PROXY_VERSION, __version__
from kproxy.cli.help import SHELLS
from kproxy.cli.lab.which import status
from kproxy.cli.loading import COMPLETE
from kproxy.cli.main import COMMANDS, group
from kproxy.cli.output import choose_colour, colour_stdout
from tests.support import paths
from tests.support.cli import Run, run_kproxy
from tests.support.cluster.snapshots import vxlan_cluster, write_files

CLUSTER = str(paths.GOLDEN / "minikube" / "cluster.yaml")


def offered(line: str, incomplete: str = "") -> list[str]:
    shell = SHELLS["bash"](group, {}, "kproxy", COMPLETE)
    return [item.value for item in shell.get_completions(line.split(), incomplete) if item.type == "plain"]


def test_commands_and_flags() -> None:
    assert offered("", "dri") == ["drift"]
    assert set(offered("")) == set(COMMANDS)
    assert offered("lab", "st") == ["status"]
    assert offered("lab up --preset", "d") == ["damaged", "dual-stack"]
    assert "--service" in offered("explain", "--s")
    assert offered("explain -o", "y") == ["yaml"]


def test_files_are_offered_where_nothing_else_fits() -> None:
    shell = SHELLS["zsh"](group, {}, "kproxy", COMPLETE)
    for line in ("explain --service", "render -f", "nosuch command"):
        [item] = shell.get_completions(line.split(), "x")
        assert (item.value, item.type) == ("x", "file")


def test_bash_takes_the_script() -> None:
    program = f"{sys.executable} -m kproxy"
    script = (
        f'kproxy() {{ {program} "$@"; }}\nenv() {{ command env "${{@:1:$#-1}}" {program}; }}\n'
        "source <(kproxy completion bash)\n"
        "COMP_WORDS=(kproxy lab stat) COMP_CWORD=2\n"
        "_kproxy_completion kproxy 2>/dev/null\nprintf '%s\\n' \"${COMPREPLY[@]}\"\ncomplete -p kproxy"
    )
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=False)
    reply, _, registered = done.stdout.partition("\n")
    assert (reply, "_kproxy_completion" in registered) == ("status", True), done.stdout + done.stderr


def test_versions(kproxy: Run) -> None:
    assert kproxy("version").stdout == f"kproxy {__version__}, as kube-proxy {KUBE_PROXY_VERSION}\n"
    found = yaml.safe_load(kproxy("version", "-o", "yaml").stdout)
    assert (found["kind"], found["kubeProxy"]) == ("Version", KUBE_PROXY_VERSION)


def test_help_is_that_of_the_command(kproxy: Run) -> None:
    assert kproxy("help", "lab", "up").stdout == kproxy("lab", "up", "--help").stdout
    done = kproxy("help", "lab", "up", "more")
    assert (done.returncode, done.stdout) == (2, "")
    assert "kproxy lab up has no commands of its own" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rendr"], "No such command 'rendr'. Did you mean render?"),
        (["lab", "statu"], "No such command 'statu'. Did you mean status?"),
        (["golden", "chek"], "No such command 'chek'. Did you mean check?"),
        (["help", "trce"], "No such command 'trce'. Did you mean trace?"),
        (["zzz"], "No such command 'zzz'."),
    ],
)
def test_suggestions(kproxy: Run, words: list[str], told: str) -> None:
    done = kproxy(*words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"error: {told}"


def test_answers_for_programs_say_what_they_are(kproxy: Run, tmp_path: Path) -> None:
    rules = paths.GOLDEN / "minikube" / "expected" / "minikube.v4.save"
    packet = ("--src", "10.244.0.9", "--dst", "10.96.0.10:53", "--proto", "udp")
    snapshot = write_files(tmp_path / "s", vxlan_cluster())
    for kind, words in {
        "Trace": ("trace", "--rules", rules, *packet),
        "Comparison": ("diff", rules, rules),
        "Explanation": ("explain", "-f", CLUSTER, "--service", "kube-system/kube-dns"),
        "GoldenCheck": ("golden", "check", paths.GOLDEN / "minikube"),
        "Audit": ("audit", snapshot),
        "Snapshot": ("snapshot", snapshot),
    }.items():
        found: dict[str, Any] = json.loads(kproxy(*words, "-o", "json").stdout)
        assert list(found.items())[:2] == [("apiVersion", "kproxy/v1"), ("kind", kind)]
        assert yaml.safe_load(kproxy(*words, "-o", "yaml").stdout) == found
    listed = json.loads(kproxy("render", "-f", CLUSTER, "--format", "json").stdout)
    assert yaml.safe_load(kproxy("render", "-f", CLUSTER, "--format", "yaml").stdout) == listed


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_colours_are_as_asked(kproxy: Run, monkeypatch: pytest.MonkeyPatch, terminal: str) -> None:
    monkeypatch.setenv("TERM", terminal)
    rules = str(paths.GOLDEN / "minikube" / "expected" / "minikube.v4.save")
    words = ("trace", "--rules", rules, "--src", "10.244.0.9", "--dst", "10.96.0.10:53", "--proto", "udp")
    explain = ("explain", "-f", CLUSTER, "--service", "kube-system/kube-dns")
    for each in (words, explain):
        assert "\x1b[" not in kproxy(*each).stdout
        assert "\x1b[" in kproxy(*each, "--color", "always").stdout
    assert "\x1b[" in kproxy("explain", "-f", "nosuch", "--service", "a/b", "--color=always").stderr


def test_colours_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal: Callable[[], bool] = lambda: True  # noqa: E731
    monkeypatch.setattr(sys.stdout, "isatty", terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert colour_stdout()
    monkeypatch.setenv("TERM", "dumb")
    assert not colour_stdout()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour_stdout()
    try:
        choose_colour("always")
        assert colour_stdout()
    finally:
        choose_colour("auto")


def test_the_only_lab_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPROXY_LAB_DIR", str(tmp_path))
    monkeypatch.delenv("KPROXY_LAB", raising=False)

    def meant(*arguments: str) -> str:
        return str(status.make_context("status", list(arguments)).params["name"])

    assert meant() == "lab"
    (tmp_path / "old").mkdir()
    assert meant() == "old"
    (tmp_path / "new").mkdir()
    assert meant() == "lab"
    monkeypatch.setenv("KPROXY_LAB", "new")
    assert (meant(), meant("--name", "old")) == ("new", "old")


def test_labs_are_listed(tmp_path: Path) -> None:
    environment = {**os.environ, "KPROXY_LAB_DIR": str(tmp_path)}
    none = run_kproxy("lab", "list", environment=environment)
    assert (none.returncode, none.stdout, "`kproxy lab up` makes one" in none.stderr) == (0, "", True)
    (tmp_path / "old").mkdir()
    found = json.loads(run_kproxy("lab", "list", "-o", "json", environment=environment).stdout)
    assert [(each["name"], each["phase"]) for each in found["labs"]] == [("old", "unknown")]


def test_every_error_begins_alike(kproxy: Run) -> None:
    """Those that click prints, after usage and a hint, too; without a command a group shows its help alone."""
    for words in (["trace", "--nope"], ["lab", "up", "--nodes", "x"]):
        usage, hint, empty, *told = kproxy(*words).stderr.splitlines()
        assert (usage[:7], hint[:5], empty) == ("Usage: ", "Try '", "")
        assert [line[:7] for line in told] == ["error: "]
    for words in (["render", "--node"], ["render", "-f", "gone.yaml"]):
        assert kproxy(*words).stderr.startswith("error: ")
    for words in ([], ["lab"]):
        assert "rror:" not in kproxy(*words).stderr


def test_text_has_one_kind_of_arrow(kproxy: Run, tmp_path: Path) -> None:
    """Rules with their comments stay as they are."""
    shop = paths.ROOT / "docs" / "examples" / "shop.yaml"
    sides = ("-f", shop, "--config", shop.with_name("kube-proxy.yaml"), "--node", "worker-1")
    asked = ("trace", *sides, "--src", "10.244.2.9", "--dst", "10.96.0.80:80")
    told = [line for line in kproxy(*asked).stdout.splitlines() if "--comment" not in line]
    assert [line for line in told if "->" in line] == []
    assert any("address translation: 10.244.2.9 → 10.96.0.80:80 becomes" in line for line in told)
