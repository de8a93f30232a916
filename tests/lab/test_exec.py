"""`kubectl exec` and `kubectl logs` of a lab's pods, and `kproxy collect --via exec`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kproxy.apiserver.kubelet import ENDED, STDIN, ExecRequest, frame
from kproxy.client import RestClient
from kproxy.client.exec import ExecError, execute
from kproxy.cluster.snapshot.cluster import read_snapshot
from kproxy.lab.kubelet.streaming import SOCKET
from kproxy.netfilter import Family
from tests.support.apiserver.server import rest_client
from tests.support.cli import run_kproxy
from tests.support.lab.labtools import Lab, lab_up
from tests.support.waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.slow]

PODS: list[dict[str, Any]] = [
    {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cart", "namespace": "default"},
        "spec": {"containers": [
            {"name": "a", "image": "x", "ports": [{"containerPort": 8080}], "env": [{"name": "COLOR", "value": "red"}]},
            {"name": "b", "image": "x", "ports": [{"containerPort": 9090, "protocol": "UDP"}]},
        ]},
    },
    {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": "default"},
        "spec": {"containers": [{"name": "a", "image": "x"}]},
    },
    {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "prepared", "namespace": "default"},
        "spec": {
            "initContainers": [{"name": "wait", "image": "x", "command": ["false"]}],
            "containers": [{"name": "a", "image": "x"}],
        },
    },
]  # fmt: skip


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab_up(tmp_path_factory.mktemp("work"), "--nodes", "2") as found:
        found.apply(*PODS)
        found.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=120s")
        yield found


@pytest.fixture(scope="module")
def client(lab: Lab) -> Iterator[RestClient]:
    with rest_client(lab.directory.kubeconfig) as found:
        yield found


def run(
    client: RestClient, pod: str, *command: str, container: str = "", timeout: float = 60.0
) -> tuple[int, str, str]:
    done = execute(client, "default", pod, command, container=container, timeout=timeout, max_octets=64 << 20)
    return done.code, done.output.decode(), done.errors.decode()


def test_servers_are_not_kept_by_init_containers(lab: Lab) -> None:
    """Of one that would fail."""
    events = json.loads(lab.kubectl("get", "events", "-o", "json"))["items"]
    assert "servers begin at once, without the init containers: wait" in {each["message"] for each in events}


def test_commands_run_in_the_network_of_the_pod(lab: Lab, client: RestClient) -> None:
    code, output, _ = run(client, "one", "ip", "-json", "address", "show", "dev", "eth0")
    address = json.loads(lab.kubectl("get", "pod", "one", "-o", "json"))["status"]["podIP"]
    assert code == 0
    assert json.loads(output)[0]["addr_info"][0]["local"] == address
    words = 'echo "$HOSTNAME $COLOR"; echo err >&2; exit 7'
    assert run(client, "cart", "sh", "-c", words, container="a") == (7, "cart red\n", "err\n")
    assert run(client, "one", "sh", "-c", "kill -9 $$")[0] == 137
    assert run(client, "one", "head", "-c", "30000000", "/dev/zero")[1] == "\0" * 30_000_000
    with pytest.raises(ExecError, match='exec: "nosuch": executable file not found'):
        run(client, "one", "nosuch")


def processes_in(netns: str) -> list[str]:
    done = subprocess.run(["ip", "netns", "pids", netns], capture_output=True, text=True, check=False)
    return done.stdout.split()


def test_a_command_ends_with_its_client_and_with_its_pod(lab: Lab, client: RestClient) -> None:
    with pytest.raises(ExecError, match="not done after 2 s"):
        run(client, "one", "sh", "-c", "sleep 1000 & sleep 1000", timeout=2.0)
    uid = json.loads(lab.kubectl("get", "pod", "one", "-o", "json"))["metadata"]["uid"]
    netns = lab.directory.running().spec.pod_namespace(uid)
    eventually(lambda: processes_in(netns) == [])
    lab.apply({**PODS[1], "metadata": {"name": "short", "namespace": "default"}})
    lab.kubectl("wait", "--for=condition=Ready", "pod", "short", "--timeout=120s")
    found: list[tuple[int, str, str]] = []
    thread = threading.Thread(target=lambda: found.append(run(client, "short", "sh", "-c", "echo on; sleep 1000")))
    thread.start()
    uid = json.loads(lab.kubectl("get", "pod", "short", "-o", "json"))["metadata"]["uid"]
    netns = lab.directory.running().spec.pod_namespace(uid)
    eventually(lambda: len(processes_in(netns)) >= 2)
    lab.kubectl("delete", "pod", "short", "--grace-period=0", "--force")
    thread.join(60)
    assert found == [(137, "on\n", "")]


def test_what_a_client_still_sends_does_not_hide_how_the_command_ended(lab: Lab) -> None:
    """A terminal's size, or input, that crosses the end on its way."""
    pod = json.loads(lab.kubectl("get", "pod", "one", "-o", "json"))
    asked = ExecRequest(pod["metadata"]["uid"], "a", ("true",), stdin=True, stdout=True, stderr=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(60)
        connection.connect(str(lab.directory.node(pod["spec"]["nodeName"]) / SOCKET))
        connection.sendall(msgspec.json.encode(asked) + b"\n")
        data = b""
        while piece := connection.recv(4096):
            data += piece
        assert data.endswith(frame(ENDED, b'{"metadata":{},"status":"Success"}'))
        connection.sendall(frame(STDIN, b"late"))


def test_kubectl_executes_or_says_why_not(lab: Lab) -> None:
    """Debian 12's kubectl is 1.20, which executes over SPDY only."""
    version = json.loads(lab.kubectl("version", "--client", "-o", "json"))["clientVersion"]
    words = ["kubectl", "exec", "-i", "one", "--", "sh", "-c", "cat; exit 3"]
    done = subprocess.run(
        words, env=lab.environment, input="hello", capture_output=True, text=True, check=False, timeout=120
    )
    if int(version["minor"].rstrip("+")) >= 30:
        assert (done.returncode, done.stdout) == (3, "hello")
        assert "command terminated with exit code 3" in done.stderr
        # With a terminal: script(1) gives kubectl one.
        shown = subprocess.run(
            ["script", "-qec", "kubectl exec -it one -- tty", os.devnull], env=lab.environment, capture_output=True,
            text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert "/dev/pts/" in shown.stdout
    else:
        assert done.returncode == 1
        assert "use kubectl 1.30 or later" in done.stderr


@pytest.fixture(scope="module")
def selector(lab: Lab) -> str:
    """The label selector of Pods that are in their node's network, one on each node."""
    labels = {"app": "tools"}
    spec = {"hostNetwork": True, "containers": [{"name": "t", "image": "x", "ports": [{"containerPort": 7070}]}]}
    lab.apply({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "tools", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    })  # fmt: skip
    lab.kubectl("rollout", "status", "daemonset/tools", "--timeout=120s")
    return "app=tools"


def test_collect_reads_nodes_in_pods_that_are_in_their_network(lab: Lab, selector: str, tmp_path: Path) -> None:
    """The same as from the namespaces, and the audit finds nothing, also after redaction."""
    target, again, redacted = (str(tmp_path / name) for name in ("exec.tar.gz", "lab.tar.gz", "redacted.tar.gz"))
    kubeconfig = str(lab.directory.kubeconfig)
    words = ("collect", "--kubeconfig", kubeconfig, "--via", "exec", "--selector", selector, "-o", target)
    done = run_kproxy(*words, environment=lab.environment)
    assert (done.returncode, done.stdout) == (0, f"{target}\n"), done.stderr
    assert run_kproxy("collect", "--lab", lab.name, "-o", again, environment=lab.environment).returncode == 0
    found, other = read_snapshot(target), read_snapshot(again)
    for name in ("node-1", "node-2"):
        assert found.hosts[name].routes == other.hosts[name].routes
        assert found.hosts[name].interfaces == other.hosts[name].interfaces
        assert found.hosts[name].neighbours is not None
        assert found.hosts[name].rules(Family.IPV4) is not None
        assert found.hosts[name].proxy_config is not None
    done = run_kproxy("collect", "--from", target, "--redact", "-o", redacted, environment=lab.environment)
    assert done.returncode == 0, done.stderr
    for path in (target, redacted):
        done = run_kproxy("audit", path, environment=lab.environment)
        assert (done.returncode, "All well." in done.stdout) == (0, True), done.stdout + done.stderr


def test_traces_go_over_all_hosts_of_a_live_cluster(lab: Lab, selector: str) -> None:
    """By the namespaces of the lab and by its Pods in the hosts' network, and as `lab trace` sees it."""
    asked = ("trace", "--from", "pod/default/cart", "--to", "pod/default/one:8080", "--summary")
    kubeconfig = str(lab.directory.kubeconfig)
    by_lab = run_kproxy(*asked, "--lab", lab.name, environment=lab.environment)
    by_exec = run_kproxy(
        *asked, "--kubeconfig", kubeconfig, "--via", "exec", "--selector", selector, environment=lab.environment
    )
    assert (by_lab.returncode, by_exec.returncode) == (0, 0), by_lab.stderr + by_exec.stderr
    assert "100%  answered by pod/default/one" in by_lab.stdout
    assert by_exec.stdout == by_lab.stdout
    assert "hops agree" in lab.run("trace", "--from", "cart", "--to", "pod/one:8080")


def test_logs(lab: Lab) -> None:
    assert lab.kubectl("logs", "cart", "-c", "b").splitlines()[0] == "serving UDP 9090"
    address = json.loads(lab.kubectl("get", "pod", "one", "-o", "json"))["status"]["podIP"]
    following = subprocess.Popen(
        ["kubectl", "logs", "-f", "--tail=1", "one"], env=lab.environment, stdout=subprocess.PIPE, text=True
    )
    with following:
        assert following.stdout is not None
        first = following.stdout.readline()
        lab.run("exec", "cart", "--", "curl", "-s", f"http://{address}:8080/shop")
        second = following.stdout.readline()
        following.kill()
    assert first  # whatever the pod's last line was: it is followed from there
    assert "\npod one on node-" in lab.kubectl("logs", "one")
    assert second.startswith("TCP ")
    assert second.endswith(f" to {address}:8080: GET /shop HTTP/1.1\n")
    stamped = lab.kubectl("logs", "one", "--timestamps", "--tail=1")
    assert stamped[:4].isdecimal()
    done = subprocess.run(
        ["kubectl", "logs", "cart", "-p", "-c", "a"], env=lab.environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "previous terminated container" in done.stderr) == (1, True)
