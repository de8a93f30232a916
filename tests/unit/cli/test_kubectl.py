"""kproxy as a plugin of kubectl: its flags, and the real kubectl that calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kproxy.cli.kubectl import plugin_arguments
from tests.support.apiserver.server import Api
from tests.support.apiserver.server import api as api

COMMANDS = ("render", "get", "golden")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("render --node n1", "render --node n1"),
        ("--context=prod -n shop render --node n1", "render --context prod -n shop --node n1"),
        ("render -n=shop -s=http://one", "render -n shop -s http://one"),
        ("--insecure-skip-tls-verify=true render", "render --insecure-skip-tls-verify"),
        ("--insecure-skip-tls-verify=false render", "render"),
        ("--insecure-skip-tls-verify get pods", "get --insecure-skip-tls-verify pods"),
        ("-v 9 --cache-dir=/tmp/x render --disable-compression", "render"),
        ("get golden", "get golden"),
        ("--context render render", "render --context render"),
        ("--as bob --as-group=a,b --as-group c get svc", "get --as bob --as-group a,b --as-group c svc"),
        ("golden check -- --context", "golden check -- --context"),
        ("--help", "--help"),
        ("render --context", "render --context"),
        ("", ""),
    ],
)
def test_flags_are_brought_into_kproxys_form(given: str, expected: str) -> None:
    assert plugin_arguments(given.split(), COMMANDS) == expected.split()


@pytest.mark.parametrize(
    "given", ["--request-timeout=5s render", "render --as-user-extra a=b", "--insecure-skip-tls-verify=maybe render"]
)
def test_what_cannot_be_honoured_is_refused(given: str) -> None:
    with pytest.raises(click.UsageError):
        plugin_arguments(given.split(), COMMANDS)


@pytest.mark.slow
def test_kubectl_calls_the_plugin(api: Api, tmp_path: Path) -> None:
    """`kubectl kproxy` with kubectl's own kubeconfig, without -f."""
    node = api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    node["status"] = {"addresses": [{"type": "InternalIP", "address": "192.168.0.1"}]}
    api.ok("PUT", "/api/v1/nodes/n1/status", node)
    spec = {"clusterIP": "10.96.0.50", "ports": [{"port": 80}]}
    api.ok("POST", "/api/v1/namespaces/default/services", {"metadata": {"name": "web"}, "spec": spec})
    plugin = tmp_path / "bin" / "kubectl-kproxy"
    plugin.parent.mkdir()
    code = "from kproxy.__main__ import kubectl_plugin; kubectl_plugin()"
    plugin.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    plugin.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{plugin.parent}:{os.environ['PATH']}",
        "KUBECONFIG": str(api.server.kubeconfig),
    }

    def kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", "kproxy", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)

    done = kubectl("render", "--node", "n1")
    assert done.returncode == 0, done.stderr
    assert "default/web has no endpoints" in done.stdout
    assert kubectl("--server", f"https://127.0.0.1:{api.server.port}", "render", "--node=n1").stdout == done.stdout
    done = kubectl("render", "--context=nowhere")
    assert (done.returncode, done.stderr) == (2, 'error: context "nowhere" does not exist\n')
    done = kubectl("--as", "bob", "render", "--node", "n1")
    assert done.returncode == 1
    assert "forbidden" in done.stderr
    done = kubectl("trace", "--rules", "none.save", "--dst", "10.0.0.1:80")
    assert (done.returncode, done.stderr) == (2, "error: none.save: No such file or directory\n")
    assert "Usage: kubectl kproxy render" in kubectl("render", "--help").stdout
