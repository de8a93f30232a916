"""What a shell is offered: completions, versions, help, manual pages, suggestions, colours; and forms of answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from kproxy import KUBE_PROXY_VERSION, __version__
from kproxy.apiserver import running_apiserver
from kproxy.cli.completion import SHELLS
from kproxy.cli.help import manual_pages
from kproxy.cli.lab.status import command as status
from kproxy.cli.loading import COMPLETE
from kproxy.cli.main import COMMANDS, group
from kproxy.cli.output import choose_colour, colour_stdout
from tests.support import paths
from tests.support.apiserver.server import rest_client
from tests.support.cli import Run, run_kproxy
from tests.support.client.kubeconfig import kubeconfig
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


def test_names_of_manifests() -> None:
    assert "kube-system/kube-dns" in offered(f"explain -f {CLUSTER} --service")
    assert offered(f"explain -f {CLUSTER} --service", "kube-s") == ["kube-system/kube-dns"]
    assert offered(f"render -f {CLUSTER} --node", "mini") == ["minikube"]
    assert "kube-system" in offered(f"render -f {CLUSTER} -n")


def test_names_of_a_snapshot(tmp_path: Path) -> None:
    snapshot = write_files(tmp_path / "s", vxlan_cluster())
    assert offered(f"trace --snapshot {snapshot} --to", "svc/") == ["svc/shop/web"]
    assert offered(f"trace --snapshot {snapshot} --from", "pod/shop/c") == ["pod/shop/cart-0"]
    assert offered(f"trace --snapshot {snapshot} --from", "node/") == ["node/n1", "node/n2"]
    assert offered(f"trace {snapshot} --from", "node/") == ["node/n1", "node/n2"]


def test_names_of_contexts_and_labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path / "config", name="prod"))
    assert offered("render --context") == ["prod"]
    monkeypatch.setenv("KPROXY_LAB_DIR", str(tmp_path / "labs"))
    assert offered("lab status --name") == []
    (tmp_path / "labs" / "old").mkdir(parents=True)
    assert offered("lab status --name") == ["old"]
    assert offered("trace --lab") == ["old"]
    assert offered("trace", "lab:") == ["lab:old"]
    assert offered("render", "cluster:") == ["cluster:prod"]


def test_names_of_a_live_cluster_and_of_a_labs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the API server that a flag names, that kubectl would ask, or that is the lab's."""
    lab = tmp_path / "labs" / "old"
    monkeypatch.setenv("KPROXY_LAB_DIR", str(lab.parent))
    monkeypatch.delenv("KPROXY_LAB", raising=False)
    with running_apiserver(tmp_path / "data") as server, rest_client(server.kubeconfig) as client:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
        client.raw("POST", "/api/v1/nodes", body=json.dumps(node).encode())
        assert offered(f"render --kubeconfig {server.kubeconfig} --node") == ["n1"]
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
        assert offered("explain --service") == []
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        assert offered("explain --service") == ["default/kubernetes"]
        monkeypatch.delenv("KUBECONFIG")
        lab.mkdir(parents=True)
        shutil.copyfile(server.kubeconfig, lab / "kubeconfig")
        for line in ("lab trace --name old", "lab trace"):
            assert offered(f"{line} --from") == ["client", "n1"]
            assert offered(f"{line} --to", "svc/") == ["svc/default/kubernetes"]
        assert offered("trace --lab old --to", "svc/") == ["svc/default/kubernetes"]


def test_what_cannot_be_read_offers_files(tmp_path: Path) -> None:
    """And says nothing: it would stand in the command line."""
    broken = tmp_path / "broken.yaml"
    broken.write_text("{")
    shell = SHELLS["zsh"](group, {}, "kproxy", COMPLETE)
    for line in (f"explain -f {broken} --service", "render -f", "nosuch command"):
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


def test_every_command_has_a_manual_page_that_can_be_formatted() -> None:
    pages = dict(manual_pages(click.Context(group, info_name="kproxy")))
    assert {f"kproxy-{name}.1" for name in COMMANDS} <= set(pages)
    for name, text in pages.items():
        # A line that begins with a dot is a request, and these are all that there are.
        requests = {line.split()[0] for line in text.splitlines() if line.startswith((".", "'"))}
        assert requests <= {".TH", ".SH", ".PP", ".TP", ".nf", ".fi"}, name
        assert "\b" not in text
    trace = pages["kproxy-trace.1"]
    assert "\\-\\-expect" in trace
    assert trace.index(".SH OPTIONS") < trace.index(".SH EXAMPLES")


def test_text_of_a_manual_page_is_no_request_and_can_be_copied() -> None:
    shown = click.Command("x", help=".so file\n\n\b\nExamples:\n  x --all\n'quoted \\fB")
    _, found, examples = dict(manual_pages(click.Context(shown, info_name="x")))["x.1"].split(".PP\n")
    assert found.startswith("\\&.so file\n")
    assert examples == ".nf\n  x \\-\\-all\n\\&'quoted \\efB\n.fi\n"


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
