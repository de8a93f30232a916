"""Exec credential plugins: when they run, what they are told, and what is said of those that are no good."""

from __future__ import annotations

import base64
import json
import os
import pty
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kproxy.client import ConfigError, CredentialError, RestClient
from kproxy.client.config import ClientConfig, load_client_config
from kproxy.client.credentials import ClientCertificate, ExecPlugin
from kproxy.client.execplugin import ALWAYS, IF_AVAILABLE, NEVER, ExecConfig, Variable, run_plugin
from kproxy.client.resources import SERVICES
from tests.support.cli import KPROXY
from tests.support.client.kubeconfig import kubeconfig
from tests.support.fakeapi.server import FakeApiServer

V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"

PLUGIN = """#!/bin/sh
echo run >> "$COUNT"
echo "open this page" >&2
test -n "$FAIL" && { echo "no luck" >&2; exit 3; }
printf '%s' "$KUBERNETES_EXEC_INFO" > "$COUNT.info"
pwd > "$COUNT.pwd"
if test -t 0; then echo terminal; else readlink /proc/self/fd/0; fi > "$COUNT.stdin"
cat <<END
{"apiVersion": "$VERSION", "kind": "ExecCredential", "status": {"token": "$1"}}
END
"""


def script(directory: Path, text: str = PLUGIN) -> str:
    path = directory / "plugin"
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def entry(directory: Path, version: str = V1, **more: Any) -> dict[str, Any]:
    """An exec entry whose command is beside the kubeconfig, told to write down what it sees."""
    script(directory)
    env = {"COUNT": str(directory / "count"), "VERSION": version, **more.pop("env", {})}
    return {
        "apiVersion": version,
        "command": "./plugin",
        "args": ["token-1"],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "interactiveMode": "Never",
        **more,
    }


def load(directory: Path, exec_entry: dict[str, Any], **parts: Any) -> ClientConfig:
    return load_client_config(kubeconfig(directory / "config", user={"exec": exec_entry}, **parts), None, {})


def fails(config: ClientConfig) -> str:
    with pytest.raises(CredentialError) as caught:
        config.credential.authorization()
    return str(caught.value)


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_it_runs_once_and_again_when_rejected(tmp_path: Path, version: str) -> None:
    credential = load(tmp_path, entry(tmp_path, version)).credential
    assert [credential.authorization() for _ in range(3)] == ["Bearer token-1"] * 3
    assert (tmp_path / "count").read_text() == "run\n"
    info = json.loads((tmp_path / "count.info").read_text())
    assert info == {"kind": "ExecCredential", "apiVersion": version, "spec": {"interactive": False}}
    assert (tmp_path / "count.stdin").read_text() == "/dev/null\n"
    assert (tmp_path / "count.pwd").read_text().strip() == os.getcwd(), "the command alone is relative to the file"
    assert credential.rejected("Bearer token-1")
    credential.authorization()
    assert (tmp_path / "count").read_text() == "run\nrun\n"


def test_a_plugin_gets_the_cluster_with_provide_cluster_info(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("PEM")
    cluster = {
        "certificate-authority": "ca.pem",
        "tls-server-name": "api.internal",
        "proxy-url": "http://proxy:3128",
        "extensions": [
            {"name": "other", "extension": {"x": 1}},
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "me"}},
        ],
    }
    load(tmp_path, entry(tmp_path, provideClusterInfo=True), cluster=cluster).credential.authorization()
    info = json.loads((tmp_path / "count.info").read_text())
    assert info["spec"]["cluster"] == {
        "server": "https://one:6443",
        "tls-server-name": "api.internal",
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
        "proxy-url": "http://proxy:3128",
        "config": {"audience": "me"},
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"command": ""}, 'command must be specified for user "one"'),
        ({"apiVersion": ""}, 'apiVersion must be specified for user "one"'),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "exec plugin: invalid apiVersion"),
        ({"interactiveMode": None}, 'interactiveMode must be specified for user "one"'),
        ({"interactiveMode": "Sometimes"}, 'invalid interactiveMode for user "one": "Sometimes"'),
        ({"env": [{"value": "x"}]}, "env variable name must be specified"),
        ({"args": "x"}, 'user "one": exec: Expected `array'),
    ],
)
def test_entries_that_cannot_be_used(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {**entry(tmp_path), **change})
    assert message in str(caught.value)


def test_v1beta1_may_leave_the_mode_out(tmp_path: Path) -> None:
    beta = {**entry(tmp_path, V1BETA1), "interactiveMode": None}
    assert load(tmp_path, beta).credential.authorization() == "Bearer token-1"


def test_what_fails_says_why_and_shows_at_once_what_the_plugin_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = fails(load(tmp_path, entry(tmp_path, env={"FAIL": "1"})))
    assert text == (
        f"getting credentials: exec: executable {tmp_path}/plugin failed with exit code 3: open this page no luck"
    )
    assert capsys.readouterr().err == "open this page\nno luck\n"
    missing = {**entry(tmp_path), "command": "kp-nosuch", "installHint": "Install it.\n\x1b[2Jnow"}
    assert fails(load(tmp_path, missing)) == (
        "getting credentials: exec: executable kp-nosuch not found\n\nInstall it.\n[2Jnow"
    )
    (tmp_path / "data").write_text("x")
    assert "permission denied" in fails(load(tmp_path, {**entry(tmp_path), "command": "./data"}))


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ("nonsense", "decoding stdout"),
        ("[]", "printed no ExecCredential"),
        (json.dumps({"apiVersion": V1, "kind": "Pod", "status": {}}), "printed no ExecCredential"),
        (
            json.dumps({"apiVersion": V1BETA1, "kind": "ExecCredential", "status": {}}),
            f"configured to use API version {V1}, plugin returned version {V1BETA1}",
        ),
        (json.dumps({"apiVersion": V1, "kind": "ExecCredential"}), "didn't return a status field"),
        (json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {}}), "didn't return a token or cert/key"),
    ],
)
def test_answers_that_are_none(tmp_path: Path, printed: str, message: str) -> None:
    script(tmp_path, f"#!/bin/sh\ncat <<'END'\n{printed}\nEND\n")
    exec_entry = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never"}
    text = fails(load(tmp_path, exec_entry))
    assert text.startswith("getting credentials: ")
    assert message in text


def seen(directory: Path, mode: str, terminal: bool) -> bool:
    """Whether the plugin was told that it may ask."""
    variables = (Variable("COUNT", str(directory / "n")), Variable("VERSION", V1))
    config = ExecConfig(V1, script(directory), ("t",), variables, mode)
    run_plugin(config, lambda: terminal)
    return bool(json.loads((directory / "n.info").read_text())["spec"]["interactive"])


def test_when_a_plugin_may_use_the_terminal(tmp_path: Path) -> None:
    assert not seen(tmp_path, NEVER, True)
    assert not seen(tmp_path, IF_AVAILABLE, False)
    assert seen(tmp_path, IF_AVAILABLE, True)
    assert seen(tmp_path, ALWAYS, True)
    with pytest.raises(CredentialError) as caught:
        seen(tmp_path, ALWAYS, False)
    assert str(caught.value) == (
        "getting credentials: exec plugin cannot support interactive mode: standard input is not a terminal"
    )


def render(path: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [*KPROXY, "render", "--node", "n", "--kubeconfig", path]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **more)


def test_a_command_without_a_terminal_refuses_and_with_one_asks(tmp_path: Path) -> None:
    path = kubeconfig(
        tmp_path / "config", server="http://127.0.0.1:9", user={"exec": entry(tmp_path, interactiveMode="Always")}
    )
    refused = render(path, stdin=subprocess.DEVNULL)
    assert refused.returncode == 1
    assert refused.stderr == (
        "error: getting credentials: exec plugin cannot support interactive mode: standard input is not a terminal\n"
    )
    assert not (tmp_path / "count").exists(), "it was not even run"
    ours, theirs = pty.openpty()
    asked = render(path, stdin=theirs)
    os.close(ours)
    os.close(theirs)
    assert "connection refused" in asked.stderr, "it got as far as the server"
    assert (tmp_path / "count.stdin").read_text() == "terminal\n"


def test_credentials_expire() -> None:
    now = 1_000_000_000.0
    runs: list[dict[str, str]] = [
        {"token": "one", "expirationTimestamp": "2001-09-09T02:46:40Z"},
        {"clientCertificateData": "C", "clientKeyData": "K"},
        {},
        {"token": "t", "clientKeyData": "K"},
    ]
    credential = ExecPlugin(lambda: runs.pop(0), lambda: now)
    assert credential.authorization() == "Bearer one"
    assert credential.certificate() is None
    now += 3601
    assert credential.authorization() == ""
    assert credential.certificate() == ClientCertificate(b"C", b"K")
    credential.rejected("")
    with pytest.raises(CredentialError, match="didn't return a token or cert/key pair"):
        credential.authorization()
    with pytest.raises(CredentialError, match="only certificate or key, not both"):
        credential.authorization()
    for text in ("soon", "2001-09-09T02:46:40"):
        bad = ExecPlugin(lambda text=text: {"token": "t", "expirationTimestamp": text}, lambda: now)  # type: ignore[misc]
        with pytest.raises(CredentialError, match="expirationTimestamp"):
            bad.authorization()


def test_it_is_asked_again_when_the_server_says_401(tmp_path: Path) -> None:
    counting = """#!/bin/sh
echo run >> "$COUNT"
n=$(wc -l < "$COUNT")
printf '{"apiVersion": "%s", "kind": "ExecCredential", "status": {"token": "token-%s"}}' "$VERSION" "$n"
"""
    with FakeApiServer() as server:
        server.tokens = {"token-2": "me"}
        exec_entry = entry(tmp_path)
        script(tmp_path, counting)
        config = load(tmp_path, exec_entry, server=server.url)
        assert RestClient(config).list(SERVICES).items == ()
    assert (tmp_path / "count").read_text() == "run\nrun\n"
