"""`kproxy collect --via agent` against agents that fail in every way: a node that fails is named, the rest is kept."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kproxy.cli.audit.command import command as audit_command
from kproxy.cli.collect import command
from kproxy.client import ClientConfig, HttpClient, RestClient
from kproxy.cluster.snapshot.cluster import read_snapshot
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.cluster.snapshot.script import pack_stream
from kproxy.collect.agent import AgentError, AgentReader, find_agents
from kproxy.collect.nodes import collect_nodes
from kproxy.errors import InputError
from kproxy.httpd.server import HttpServers, Request, Response, Route, text_response

NODES = ("bomb", "busy", "garbage", "good", "other", "silent", "token")


def packed(node: str, files: dict[str, bytes]) -> bytes:
    data = b"".join(f"@@b {name}\n".encode() + content + b"\n@@b end\n" for name, content in files.items())
    return pack_stream([data], "@@b", node, 0)


def answer(request: Request) -> Response:
    """An agent whose node's name, the first part of the path, says what goes wrong."""
    _, node, *rest = request.path.split("/")
    assert rest == ["debug", "collect"]
    whole = Response(packed(node, {"iptables-save": b"*filter\nCOMMIT\n"}), content_type="application/gzip")
    if node == "token":
        token = request.headers.get("x-kproxy-token")
        return whole if token == "s3cret" else text_response("the token in X-Kproxy-Token is missing\n", 403)
    bodies = {
        "garbage": Response(b"<html>"),
        "other": Response(packed("worker-7", {"sysctl": b""})),
        "silent": Response(packed("silent", {})),
        "busy": text_response("this node is being read for somebody else: try again\n", 503),
        "bomb": Response(packed("bomb", {"sysctl": bytes(3 << 20)})),
    }
    return bodies.get(node, whole)


@pytest.fixture
def agents() -> Iterator[str]:
    """Where they listen."""
    with HttpServers() as servers:
        listener = servers.listen("127.0.0.1", 0, lambda _path: Route(answer, slow=True))
        yield f"http://127.0.0.1:{listener.port}"


def test_each_fault_is_named_and_the_rest_is_kept(agents: str) -> None:
    readers, missing = find_agents(None, NODES, f"{agents}/{{node}}", "")
    assert (list(readers), missing) == (list(NODES), {})
    small = {}
    for name, reader in readers.items():
        assert isinstance(reader, AgentReader)
        small[name] = dataclasses.replace(reader, max_octets=1 << 20)
    files = MemoryFiles("S")
    failures = {each.name: each.failure for each in collect_nodes(small, files, lambda _result: None)}
    where = agents.removeprefix("http://")
    assert failures == {
        "bomb": f"{where}/debug/collect: 'nodes/bomb/sysctl': over 1 MiB",
        "busy": f"{where}/debug/collect: this node is being read for somebody else: try again",
        "garbage": f"{where}/debug/collect: a snapshot expected: a directory, .tar.gz, .tar.zst or .tar",
        "good": "",
        "other": f"{where}/debug/collect: it is node worker-7 that answers",
        "silent": f"{where}/debug/collect: it has no files of a node",
        "token": f"{where}/debug/collect: the token in X-Kproxy-Token is missing",
    }
    assert files.paths() == ("nodes/good/iptables-save",)
    told = find_agents(None, ("token",), f"{agents}/{{node}}", "s3cret")[0]["token"]
    assert told.read() == {"iptables-save": b"*filter\nCOMMIT\n"}


def test_what_is_no_agent() -> None:
    with HttpServers() as servers:
        listener = servers.listen("127.0.0.1", 0, lambda _path: None)
        gone = HttpClient(ClientConfig(server=f"http://127.0.0.1:{listener.port}"))
        files = MemoryFiles("S")
        reader = AgentReader(gone, "/debug/collect", "n")
        found = collect_nodes({"n": reader}, files, lambda _result: None)
        assert "404, which kproxy run does not answer: 404 page not found" in found[0].failure
    found = collect_nodes({"n": reader}, files, lambda _result: None)
    assert "connection refused" in found[0].failure.lower()


def test_urls(agents: str) -> None:
    for url in ("", "ftp://x", "http://", "http://h:99999", "h:10249", "http://h?x=1"):
        with pytest.raises(InputError, match="http://HOST:PORT or https://HOST:PORT expected"):
            find_agents(None, ("n",), url, "")
    with pytest.raises(InputError, match="the same for 2 nodes"):
        find_agents(None, ("a", "b"), "http://h:1", "")
    assert find_agents(None, ("a",), "http://{address}:1", "")[1] == {
        "a": "its address is not known, which http://{address}:1 needs"
    }


def test_the_command_asks_without_an_api_server(agents: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    arguments = ["--via", "agent", "--agent-url", f"{agents}/{{node}}", "--agent-token-file", str(tmp_path / "token")]
    arguments += ["--node", "good", "--node", "token", "--node", "busy", "-o", str(tmp_path / "s.tar.gz")]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 1, done.output
    assert "1 part could not be read: nodes/busy" in done.stderr
    found = read_snapshot(str(tmp_path / "s.tar.gz"))
    assert list(found.hosts) == ["good", "token"]
    assert {name: each.via for name, each in found.info.nodes.items()} == dict.fromkeys(
        ("busy", "good", "token"), "agent"
    )


def test_an_audit_says_what_it_could_not_read(agents: str) -> None:
    asked = ["--via", "agent", "--agent-url", f"{agents}/{{node}}", "--node", "good", "--node", "busy"]
    done = CliRunner().invoke(audit_command, asked)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (1, "note: 1 part could not be read: nodes/busy")


def test_the_api_server_knows_nodes_and_hands_requests_on_to_them(agents: str) -> None:
    """As Kubernetes' does by /api/v1/nodes/NAME:PORT/proxy/; in URLs a Node's InternalIP stands for {address}."""
    status = {"addresses": [{"type": "ExternalIP", "address": "9.9.9.9"}, {"type": "InternalIP", "address": "::1"}]}
    items = [{"metadata": {"name": "n1"}, "status": status}, {"metadata": {"name": "n2"}, "status": {}}]
    listed = {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": items}
    answers = {
        "/api/v1/nodes": Response(json.dumps(listed).encode(), content_type="application/json"),
        "/api/v1/nodes/n1:10249/proxy/debug/collect": Response(packed("n1", {"sysctl": b""})),
    }
    with HttpServers() as servers:
        listener = servers.listen("127.0.0.1", 0, {path: Route(lambda r: answers[r.path]) for path in answers}.get)
        client = RestClient(ClientConfig(server=f"http://127.0.0.1:{listener.port}"))
        readers, missing = find_agents(client, (), None, "")
        assert (list(readers), missing) == (["n1", "n2"], {})
        assert readers["n1"].read() == {"sysctl": b""}
        with pytest.raises(AgentError, match="/api/v1/nodes/n2:10249/proxy/debug/collect: 404, which kproxy run"):
            readers["n2"].read()
        readers, missing = find_agents(client, (), "http://{address}:7/{node}", "")
        assert missing == {"n2": "its address is not known, which http://{address}:7/{node} needs"}
        assert isinstance(reader := readers["n1"], AgentReader)
        assert reader.http.address == "[::1]:7"
        with pytest.raises(InputError, match="the cluster has no node 'n9': there are n1, n2"):
            find_agents(client, ("n9",), None, "")
        client.close()
