"""`kproxy explore`: its arguments, and that it serves until it is told to stop."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import KPROXY, run_kproxy
from tests.support.cluster.snapshots import vxlan_cluster, write_files


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "a source expected: a dump of rules, manifests, a snapshot"),
        (("a.yaml", "lab:lab"), "lab:lab and a.yaml: one of both expected, manifests or a live cluster"),
        (("-f", "a.yaml", "--rules", "b"), "a.yaml: no such file"),
        (("a.tar.gz", "--mode", "nftables"), "--config, --mode and --feature go with"),
        (("a.tar.gz", "--listen", "0.0.0.0:0"), "a.tar.gz"),
        (("none.tar.gz",), "none.tar.gz: No such file or directory"),
        (("-f", "-", "-f", "-"), "only one input can be standard input"),
        (("-f", ""), "the name of a file expected, not an empty one"),
        (("-f", "", "-f", "-"), "the name of a file expected, not an empty one"),
        (("a.tar.gz", "--against", ""), "the name of a file expected, not an empty one"),
        (("-f", "-", "--against", "-"), "only one input can be standard input"),
    ],
)
def test_what_is_wrong_is_said(arguments: tuple[str, ...], message: str) -> None:
    done = run_kproxy("explore", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_it_prints_the_url_serves_and_ends(tmp_path: Path) -> None:
    directory = write_files(tmp_path / "shop", vxlan_cluster())
    refused = run_kproxy("explore", str(directory), "--listen", "192.0.2.1:0")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "loopback" in refused.stderr
    with subprocess.Popen(
        [*KPROXY, "explore", str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            _, _, host, token, _ = url.split("/")
            assert host.startswith("127.0.0.1:")
            connection = http.client.HTTPConnection(host, timeout=30)
            connection.request("GET", f"/{token}/api/source")
            assert json.loads(connection.getresponse().read())["kind"] == "snapshot"
        finally:
            server.send_signal(signal.SIGTERM)
            _, errors = server.communicate(timeout=60)
        assert (server.returncode, errors) == (0, "")
