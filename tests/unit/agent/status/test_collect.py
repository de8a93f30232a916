"""/debug/collect: who may read a node, one at a time, within bounds."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest

from kproxy.agent.config.options import Settings
from kproxy.agent.status.collect import NodeCollection, guarded, objection
from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.cluster.snapshot.files import read_archive
from kproxy.httpd.server import Request, text_response


def request(peer: str, token: str = "") -> Request:
    headers = {"x-kproxy-token": token} if token else {}
    return Request("GET", "/debug/collect", peer=peer, headers=headers)


def test_without_a_token_this_host_may(tmp_path: Path) -> None:
    assert [objection(request(peer), "") for peer in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1")] == [""] * 4
    for peer in ("10.0.0.1", "192.168.0.2", "fe80::1%eth0", "::ffff:10.0.0.1", ""):
        assert objection(request(peer, "guess"), "") == "only this host may see this"


@pytest.mark.parametrize(
    ("headers", "fine"),
    [
        ({"host": "localhost:10249"}, True),
        ({"host": "127.0.0.1:10249", "origin": "http://127.0.0.1:10249", "sec-fetch-site": "same-origin"}, True),
        ({"host": "[::1]:10249", "sec-fetch-site": "none"}, True),
        ({"host": "rebound.example:10249"}, False),
        ({"host": "127.0.0.1.example"}, False),
        ({"host": "localhost:10249", "origin": "http://evil.example"}, False),
        ({"host": "localhost:10249", "origin": "null"}, False),
        ({"host": "localhost:10249", "sec-fetch-site": "cross-site"}, False),
    ],
)
def test_pages_of_other_origins_may_not_ask(headers: dict[str, str], fine: bool) -> None:
    """What a browser on this host would send for them."""
    asked = Request("GET", "/debug/collect", peer="127.0.0.1", headers=headers)
    assert (objection(asked, "") == "") is fine


def test_those_who_may_ask_do_so_by_get() -> None:
    page = guarded(lambda _request: text_response("told"))
    refused = page(Request("POST", "/debug/rules", peer="127.0.0.1"))
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")
    for peer, status in (("10.0.0.9", 403), ("::ffff:10.0.0.9", 403), ("::ffff:127.0.0.1", 200), ("::1", 200)):
        assert page(request(peer)).status == status


def test_with_a_token_who_sends_it_may_and_nobody_else(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    token = str(file)
    for peer in ("127.0.0.1", "10.0.0.1"):
        assert objection(request(peer, "s3cret"), token) == ""
        assert objection(request(peer, "S3cret"), token) == "the token in X-Kproxy-Token is wrong"
        assert objection(request(peer, "ü"), token) == "the token in X-Kproxy-Token is wrong"
        assert objection(request(peer), token) == "the token in X-Kproxy-Token is missing"
    file.write_text("other")  # as a mounted Secret changes
    assert objection(request("10.0.0.1", "s3cret"), token) == "the token in X-Kproxy-Token is wrong"
    for damaged in ("", " \n", "two\nlines"):
        file.write_text(damaged)
        assert objection(request("10.0.0.1", damaged), token).startswith("nobody may see this: ")
    file.unlink()
    assert objection(request("127.0.0.1"), token) == f"nobody may see this: {file}: No such file or directory"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that are found before this machine's."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return directory


def tool(directory: Path, name: str, body: str) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{body}\n")
    (directory / name).chmod(0o700)


def collection(metrics: str = "0.0.0.0:10249", **bounds: float) -> NodeCollection:
    config = KubeProxyConfiguration(metrics_bind_address=metrics, healthz_bind_address="[::]:7")
    return NodeCollection(Settings(config=config, node_name="n1"), **bounds)  # type: ignore[arg-type]


QUICK = ("iptables-save", "ip6tables-save", "iptables", "ip6tables", "nft", "ipset", "ip", "bridge", "conntrack")


def test_it_answers_with_the_nodes_files_and_asks_its_own_ports(tools: Path) -> None:
    for name in QUICK:
        tool(tools, name, "exit 0")
    tool(tools, "iptables-save", "echo '*nat'; echo COMMIT")
    tool(tools, "curl", 'for last; do :; done; echo "$last"')
    answer = collection().answer(request("127.0.0.1"))
    assert (answer.status, answer.content_type) == (200, "application/gzip")
    assert answer.headers == {"Content-Disposition": 'attachment; filename="n1.tar.gz"'}
    files = read_archive(io.BytesIO(answer.body), "answer", 1 << 20)
    assert files.read("nodes/n1/iptables-save") == b"*nat\nCOMMIT\n"
    assert files.read("nodes/n1/kube-proxy/configz") == b"http://127.0.0.1:10249/configz\n"
    assert files.read("nodes/n1/kube-proxy/healthz") == b"http://[::1]:7/healthz\n"


def test_one_at_a_time_and_within_bounds(tools: Path, tmp_path: Path) -> None:
    for name in QUICK:
        tool(tools, name, "exit 0")
    began, go = tmp_path / "began", tmp_path / "go"
    os.mkfifo(began)
    os.mkfifo(go)
    tool(tools, "iptables-save", f": > {began}; read -r _ < {go}")
    page = collection()
    statuses: list[int] = []
    reader = threading.Thread(target=lambda: statuses.append(page.answer(request("127.0.0.1")).status))
    reader.start()
    began.read_bytes()  # the script is at work
    busy = page.answer(request("127.0.0.1"))
    assert (busy.status, busy.headers["Retry-After"]) == (503, "10")
    go.write_bytes(b"\n")
    reader.join()
    assert statuses == [200]

    tool(tools, "iptables-save", "exec yes")
    flooded = collection(max_octets=1 << 20).answer(request("127.0.0.1"))
    assert (flooded.status, flooded.body) == (503, b"error: sh printed more than 1 MiB and was stopped\n")
    tool(tools, "iptables-save", "exec sleep 60")
    late = collection(seconds=0.2).answer(request("127.0.0.1"))
    assert (late.status, late.body) == (503, b"error: sh had not ended after 0 s and was stopped\n")
