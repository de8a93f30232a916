"""`kproxy collect --via exec` against kubelets that fail in every way: a node that fails is named, the rest is kept."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kproxy.apiserver import running_apiserver
from kproxy.apiserver.kubelet import CLOSE, STARTED, STDERR, STDOUT, ExecRequest, KubeletRequest
from kproxy.cli.collect import command
from kproxy.client import RestClient, load_client_config
from kproxy.cluster.snapshot.cluster import read_snapshot
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.collect.exec import ExecReader, find_readers
from kproxy.collect.nodes import collect_nodes, failures_of
from kproxy.errors import InputError
from kproxy.lab.kubelet.commands import Client, exit_status, failure
from tests.support.apiserver.kubelets import Kubelets
from tests.support.apiserver.server import TOKENS, Api, rest_client

NODES = ("bare", "code", "cut", "flood", "good", "noshell", "slow")


def answer(node: str, asked: KubeletRequest, client: Client) -> None:
    """A kubelet whose node's name says what goes wrong."""
    assert isinstance(asked, ExecRequest)
    assert asked.command == ("sh", "-s")
    client.send(STARTED)
    script = b""
    while (found := client.receive()) is not None and found[0] != CLOSE:
        script += found[1]
    boundary = script.decode().partition("KPROXY_BOUNDARY=")[2].partition("\n")[0].strip("'")
    whole = f"{boundary} iptables-save\n*filter\nCOMMIT\n\n{boundary} end\n".encode()
    if node == "noshell":
        client.end(failure('error executing command in container: exec: "sh": executable file not found in $PATH'))
        return
    if node == "slow":
        client.receive()
    if node == "bare":
        whole = f"{boundary} errors\niptables-save: iptables-save: not found\n\n{boundary} end\n".encode()
    client.send(STDOUT, whole[: len(whole) // 2])
    if node == "cut":
        return
    while node == "flood":
        client.send(STDOUT, bytes(1 << 16))
    if node == "code":
        client.send(STDERR, b"sh: 1: out of memory\n")
    client.send(STDOUT, whole[len(whole) // 2 :])
    client.end(exit_status(2 if node == "code" else 0))


def pod(name: str, node: str, namespace: str = "kube-system", **spec: Any) -> dict[str, Any]:
    labels = {"k8s-app": "kube-proxy"} if namespace == "kube-system" else {"app": "tools"}
    containers = [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": node, "containers": containers, "hostNetwork": True, **spec},
    }


@pytest.fixture(scope="module")
def kubelets() -> Kubelets:
    return Kubelets(answer)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, kubelets: Kubelets) -> Iterator[Api]:
    directory = tmp_path_factory.mktemp("apiserver")
    (directory / "tokens.csv").write_text(TOKENS)
    with running_apiserver(directory, token_file=directory / "tokens.csv", kubelet=kubelets) as server:
        found = Api(server)
        for node in (*NODES, "empty", "isolated", "pending"):
            found.ok("POST", "/api/v1/nodes", {"metadata": {"name": node}})
        pods = [pod(f"kube-proxy-{node}", node) for node in NODES]
        pods += [pod("alone", "isolated", hostNetwork=False), pod("waits", "pending"), pod("t", "empty", "default")]
        for each in pods:
            path = f"/api/v1/namespaces/{each['metadata']['namespace']}/pods"
            found.ok("POST", path, each)
            if each["metadata"]["name"] != "waits":
                status = {"status": {"phase": "Running"}}
                media = "application/merge-patch+json"
                found.ok("PATCH", f"{path}/{each['metadata']['name']}/status", status, media)
        yield found


@pytest.fixture(scope="module")
def client(api: Api) -> Iterator[RestClient]:
    with rest_client(api.server.kubeconfig) as found:
        yield found


def test_each_fault_is_named_and_the_rest_is_kept(client: RestClient) -> None:
    readers, missing = find_readers(client, (), None)
    assert sorted(readers) == list(NODES)
    assert missing == {
        "empty": "no Pod of kube-proxy in kube-system is there: --selector names others",
        "isolated": "pod kube-system/alone has a network of its own: hostNetwork is needed",
        "pending": "pod kube-system/waits is not running: Pending",
    }
    bounded = {}
    for name, reader in readers.items():
        assert isinstance(reader, ExecReader)
        assert reader.container == "c"
        bounded[name] = dataclasses.replace(reader, seconds=1.0 if name == "slow" else 60.0, max_octets=1 << 20)
    files = MemoryFiles("S")
    results = collect_nodes(bounded, files, lambda _result: None)
    server = client.http.address
    assert {each.what.rpartition("/")[2]: each.message for each in failures_of(results)} == {
        "code": "pod kube-system/kube-proxy-code: the script ended with exit code 2: sh: 1: out of memory",
        "cut": f"{server}: the connection was lost before the command's end",
        "flood": "pod kube-system/kube-proxy-flood: it printed more than 1 MiB",
        "noshell": "pod kube-system/kube-proxy-noshell: error executing command in container: "
        'exec: "sh": executable file not found in $PATH',
        "slow": "pod kube-system/kube-proxy-slow: not done after 1 s",
    }
    assert files.paths() == ("nodes/bare/errors", "nodes/good/iptables-save")
    assert next(each.errors for each in results if each.name == "bare") == 1


def test_the_command(api: Api, tmp_path: Path) -> None:
    arguments = ["--kubeconfig", str(api.server.kubeconfig), "--via", "exec", "-o", str(tmp_path / "s")]
    done = CliRunner().invoke(command, [*arguments, "--node", "good", "--node", "pending"])
    assert done.exit_code == 1
    assert "1 part could not be read: nodes/pending" in done.output
    found = read_snapshot(tmp_path / "s")
    assert (found.info.via, sorted(found.info.nodes)) == ("exec", ["good", "pending"])
    assert json.loads((tmp_path / "s" / "snapshot.json").read_text())["nodes"]["good"]["via"] == "exec"
    selected = CliRunner().invoke(command, [*arguments[:-1], str(tmp_path / "t"), "--selector", "app=tools"])
    assert selected.exit_code == 1  # of the nodes only one has such a Pod
    assert "nodes/empty" not in selected.output
    unknown = CliRunner().invoke(command, [*arguments, "--node", "nosuch"])
    assert isinstance(unknown.exception, InputError)
    assert "the cluster has no node 'nosuch': there are bare, code" in str(unknown.exception)


def test_who_may_not_execute_is_told_so_for_each_node(api: Api, client: RestClient, tmp_path: Path) -> None:
    reader = find_readers(client, ("good",), None)[0]["good"]
    assert isinstance(reader, ExecReader)
    (tmp_path / "bob").write_text(api.server.kubeconfig_for("bob"))
    bob = RestClient(load_client_config(str(tmp_path / "bob")))
    results = collect_nodes({"good": dataclasses.replace(reader, client=bob)}, MemoryFiles("S"), lambda _result: None)
    bob.close()
    assert 'pods "kube-proxy-good" is forbidden' in results[0].failure
