"""pods/exec and pods/log: what is checked, what the kubelet is asked, and how it comes back.

[sig-node] Pods should support remote command execution over websockets; [sig-node] Pods should support retrieving logs
from the container over websockets (here over HTTP); [sig-cli] Kubectl client Simple pod should return command exit
codes.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import websocket

from kproxy.apiserver import running_apiserver
from kproxy.apiserver.kubelet import (
    CLOSE,
    RESIZE,
    STARTED,
    STDERR,
    STDIN,
    STDOUT,
    ExecRequest,
    KubeletRequest,
    LogRequest,
)
from kproxy.client import ApiError, RestClient, TransportError
from kproxy.client.exec import ExecError, execute
from kproxy.lab.kubelet.commands import Client, exit_status, failure
from tests.support.apiserver.kubelets import Kubelets
from tests.support.apiserver.server import TOKENS, Api, rest_client

PODS = "/api/v1/namespaces/default/pods"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"


def answer(_node: str, asked: KubeletRequest, client: Client) -> None:
    """A kubelet that does what the command's first word says."""
    if isinstance(asked, LogRequest):
        if asked.previous:
            client.end(failure('previous terminated container "a" in pod "one" not found', 400, "BadRequest"))
            return
        client.send(STARTED)
        client.send(STDOUT, b"first\n")
        client.send(STDOUT, b"second\n")
        client.end(exit_status(0))
        return
    word, *rest = asked.command
    if word == "refuse":
        client.end(failure('unable to upgrade connection: container not found ("a")'))
        return
    client.send(STARTED)
    if word == "print":
        client.send(STDOUT, b"out")
        client.send(STDERR, b"err")
    while word == "flood":
        client.send(STDOUT, bytes(1 << 16))
    if word == "cut":
        client.send(STDOUT, b"half")
        return
    while word == "input" and (found := client.receive()) is not None and found[0] != CLOSE:
        client.send(STDOUT, str(found).encode())
    if word == "sleep":
        client.receive()
    if word == "unknown":
        client.end(failure("error executing command in container: no such program"))
        return
    client.end(exit_status(int(rest[0]) if rest else 0))


@pytest.fixture(scope="module")
def kubelets() -> Kubelets:
    return Kubelets(answer)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, kubelets: Kubelets) -> Iterator[Api]:
    directory = tmp_path_factory.mktemp("apiserver")
    (directory / "tokens.csv").write_text(TOKENS)
    with running_apiserver(directory, token_file=directory / "tokens.csv", kubelet=kubelets) as server:
        found = Api(server)
        for name, node, containers in (
            ("one", "n1", "a"), ("two", "n1", "ab"), ("pending", "", "a"), ("lost", "gone", "a"),
        ):  # fmt: skip
            spec: Any = {"containers": [{"name": each, "image": "i"} for each in containers]}
            if node:
                spec["nodeName"] = node
            found.ok("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        yield found


@pytest.fixture(scope="module")
def client(api: Api) -> Iterator[RestClient]:
    with rest_client(api.server.kubeconfig) as found:
        yield found


def run(client: RestClient, *command: str, pod: str = "one", container: str = "", **bounds: Any) -> Any:
    limits = {"timeout": 60.0, "max_octets": 1 << 20, **bounds}
    return execute(client, "default", pod, command, container=container, **limits)


def connect(
    api: Api, query: Any, protocols: tuple[str, ...] = ("v5.channel.k8s.io",), token: str = "admin-token"
) -> Any:
    context = ssl.create_default_context(cafile=str(api.server.ca))
    return websocket.create_connection(
        f"wss://127.0.0.1:{api.server.port}{PODS}/one/exec?{urlencode(query)}", subprotocols=list(protocols),
        header=[f"Authorization: Bearer {token}"], sslopt={"context": context}, timeout=60, http_no_proxy=["*"],
    )  # fmt: skip


def refusal(api: Api, *arguments: Any, **options: Any) -> tuple[int, str]:
    with pytest.raises(websocket.WebSocketBadStatusException) as caught:
        connect(api, *arguments, **options)
    return caught.value.status_code, json.loads(caught.value.resp_body or b"")["message"]


# --- exec ---


def test_output_errors_and_exit_code(client: RestClient, kubelets: Kubelets) -> None:
    done = run(client, "print", "7", pod="two", container="b")
    assert (done.output, done.errors, done.code) == (b"out", b"err", 7)
    node, asked = kubelets.asked[-1]
    assert isinstance(asked, ExecRequest)
    assert (node, asked.container, asked.command) == ("n1", "b", ("print", "7"))
    assert (asked.stdin, asked.stdout, asked.stderr, asked.tty) == (False, True, True, False)


def test_input_goes_there_and_ends_with_v5(api: Api) -> None:
    connection = connect(api, [("command", "input"), ("stdin", "1"), ("stdout", "1"), ("tty", "1")])
    assert connection.getsubprotocol() == "v5.channel.k8s.io"
    for message in (
        bytes((STDIN,)) + b"hello",
        bytes((RESIZE,)) + b'{"Width":80}',
        b"\x07ignored",
        bytes((CLOSE, STDIN)),
    ):
        connection.send_binary(message)
    told = []
    while (data := connection.recv())[:1] != b"\x03":
        told.append(data[1:].decode())
    assert told == ["(0, b'hello')", "(4, b'{\"Width\":80}')"]
    assert json.loads(data[1:]) == {"metadata": {}, "status": "Success"}
    connection.close()


def test_v4_is_spoken_and_others_are_not(api: Api) -> None:
    query = [("command", "print"), ("stdout", "1")]
    connection = connect(api, query, ("v4.channel.k8s.io", "x"))
    assert connection.getsubprotocol() == "v4.channel.k8s.io"
    connection.close()
    code, message = refusal(api, query, ("v3.channel.k8s.io",))
    assert (code, message.startswith("none of the protocols v3.channel.k8s.io is supported")) == (400, True)


@pytest.mark.parametrize(
    ("pod", "container", "code", "message"),
    [
        ("nosuch", "", 404, 'pods "nosuch" not found'),
        ("one", "z", 400, "container z is not valid for pod one"),
        ("two", "", 400, "a container name must be specified for pod two, choose one of: [a b]"),
        ("pending", "", 400, "pod pending does not have a host assigned"),
        ("lost", "", 500, "Internal error occurred: error dialing backend: kubelet of node gone: Connection refused"),
    ],
)
def test_refusals_are_worded_as_in_kubernetes(
    api: Api, client: RestClient, pod: str, container: str, code: int, message: str
) -> None:
    with pytest.raises(ApiError) as caught:
        run(client, "print", pod=pod, container=container)
    assert (caught.value.code, caught.value.message) == (code, message)
    if pod != "lost":  # SPDY gets the same
        query = f"?command=print&stdout=1&container={container}"
        headers = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
        response = api.raw("POST", f"{PODS}/{pod}/exec{query}", None, **headers)
        assert (response.status, json.loads(response.read())["message"]) == (code, message)


def test_spdy_and_plain_requests_are_told_what_to_do(api: Api) -> None:
    path = f"{PODS}/one/exec?command=print&stdout=1"
    status, told = api("POST", path)
    assert (status, told["reason"]) == (400, "BadRequest")
    assert "use kubectl 1.30 or later" in told["message"]
    assert api("GET", path)[1]["message"] == "Upgrade request required"
    response = api.raw("GET", path, None, Connection="Upgrade", Upgrade="websocket")  # without a key
    assert json.loads(response.read())["message"] == "Upgrade request required"
    assert api("PUT", path, {})[0] == 405
    assert refusal(api, [("command", "print")])[1] == "you must specify at least 1 of stdin, stdout, stderr"
    assert refusal(api, [("stdout", "1")])[1] == "you must specify a command"


def test_it_takes_both_rights(api: Api) -> None:
    query = [("command", "print"), ("stdout", "1")]
    code, message = refusal(api, query, token="bob-token")
    assert (code, 'cannot get resource "pods/exec"' in message) == (403, True)
    rule = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]}
    api.ok("POST", f"{ROLES}/roles", {"metadata": {"name": "exec"}, "rules": [rule]})
    api.ok("POST", f"{ROLES}/rolebindings", {
        "metadata": {"name": "exec"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "exec"},
    })  # fmt: skip
    code, message = refusal(api, query, token="bob-token")
    assert (code, 'cannot create resource "pods/exec"' in message) == (403, True)
    rule["verbs"] = ["get", "create"]
    api.ok("PUT", f"{ROLES}/roles/exec", {"metadata": {"name": "exec"}, "rules": [rule]})
    connect(api, query, token="bob-token").close()


def test_faults_of_the_command_are_told_apart(client: RestClient) -> None:
    with pytest.raises(ApiError, match="container not found"):
        run(client, "refuse")
    with pytest.raises(ExecError, match="no such program"):
        run(client, "unknown")
    with pytest.raises(ExecError, match="more than 1 MiB"):
        run(client, "flood")
    with pytest.raises(ExecError, match="not done after 0 s"):
        run(client, "sleep", timeout=0.4)
    with pytest.raises(TransportError, match="the connection was lost before the command's end"):
        run(client, "cut")


def test_a_server_without_kubelets_says_so(tmp_path: Path) -> None:
    with running_apiserver(tmp_path) as server, rest_client(server.kubeconfig) as client:
        pod = {"metadata": {"name": "one"}, "spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "i"}]}}
        client.raw("POST", PODS, body=json.dumps(pod).encode())
        with pytest.raises(ApiError, match="no kubelet of node n1: this server has none"):
            run(client, "print")


# --- log ---


def test_a_log_is_handed_on(api: Api, kubelets: Kubelets) -> None:
    path = f"{PODS}/two/log?container=b&follow=true&tailLines=3&sinceTime=2026-01-01T00:00:00Z&timestamps=true"
    response = api.raw("GET", path)
    assert (response.status, response.headers["Content-Type"]) == (200, "text/plain")
    assert response.read() == b"first\nsecond\n"
    _, asked = kubelets.asked[-1]
    assert isinstance(asked, LogRequest)
    assert (asked.container, asked.follow, asked.tail, asked.timestamps) == ("b", True, 3, True)
    assert asked.since == 1767225600
    response = api.raw("GET", f"{PODS}/pending/log")
    assert (response.status, response.read()) == (200, b"")


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("nosuch/log", 404, 'pods "nosuch" not found'),
        ("two/log", 400, "a container name must be specified for pod two, choose one of: [a b]"),
        ("one/log?container=z", 400, "container z is not valid for pod one"),
        ("one/log?previous=true", 400, 'previous terminated container "a" in pod "one" not found'),
        ("one/log?tailLines=-1", 422, 'PodLogOptions "" is invalid: tailLines: Invalid value: -1: must be'),
        ("one/log?tailLines=x", 400, "strconv.ParseInt"),
        ("one/log?sinceTime=yesterday", 400, "sinceTime: "),
    ],
)
def test_logs_that_cannot_be_read(api: Api, path: str, code: int, message: str) -> None:
    status, told = api("GET", f"{PODS}/{path}")
    assert status == code
    assert told["message"].startswith(message)
