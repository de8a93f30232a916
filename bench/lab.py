"""`kproxy lab`: up, pods that come and go, connections across nodes.

Targets, for two cores: 3 nodes and 12 pods in 10 s, 20 nodes and 200 pods in 90 s. The rest is measured: from
`kubectl scale` to the first answer of the new pod through the Service, from a pod's deletion to the last answer it
gives, from `kubectl scale` to the explorer's map, and TCP connections a second from a pod to a ClusterIP whose endpoint
is on another node (one client, one question each).
"""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kproxy.explorer.sources.live import LabSource
from kproxy.explorer.state import Explorer
from kproxy.lab.cluster import read_cluster
from kproxy.lab.inspect.request import send_request
from kproxy.lab.state import LabDirectory
from kproxy.linux.namespace import Namespace

SMALL, LARGE = (3, 12), (20, 200)
ROUNDS = 5
SECONDS = 5.0


def main() -> None:
    """Prints the table."""
    if os.geteuid() != 0:
        sys.exit("this bench needs root")
    print("lab")
    for (nodes, pods), target in ((SMALL, 10), (LARGE, 90)):
        with lab(nodes, pods) as (directory, seconds):
            print(f"  up, {nodes} nodes and {pods} pods: {seconds:.1f} s (target {target} s)")
            if (nodes, pods) == SMALL:
                _measure(directory)
        print(f"  down: {_down_seconds:.1f} s")


_down_seconds = 0.0


@contextmanager
def lab(nodes: int, pods: int) -> Iterator[tuple[LabDirectory, float]]:
    """A lab with a Deployment and its Service, and how long it took to come up."""
    global _down_seconds
    name = f"b{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="kproxy-bench-") as root:
        manifest = Path(root) / "web.json"
        manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": _workload(pods)}))
        environment = {**os.environ, "KPROXY_LAB_DIR": root}

        def call(*arguments: str) -> float:
            begun = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "kproxy", "lab", arguments[0], "--name", name, *arguments[1:]],
                env=environment, check=True, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            return time.perf_counter() - begun

        try:
            yield LabDirectory(name, Path(root)), call("up", "--nodes", str(nodes), "-f", str(manifest))
        finally:
            _down_seconds = call("down")


def _workload(pods: int) -> list[dict[str, Any]]:
    container = {"name": "echo", "image": "echo", "ports": [{"containerPort": 8080}]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"replicas": pods, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    port = {"port": 80, "targetPort": 8080}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [port]},
        },
    ]


def _measure(directory: LabDirectory) -> None:
    scaled, deleted = [], []
    _kubectl(directory, "scale", "deployment", "web", "--replicas=1")
    _wait(directory, 1)
    for _ in range(ROUNDS):
        scaled.append(_scale_up(directory))
        deleted.append(_delete_one(directory))
    for name, values in (
        ("kubectl scale to an answer of the new pod", scaled),
        ("delete to its last answer", deleted),
        ("kubectl scale to the explorer's map (target 1000 ms)", _explored(directory)),
    ):
        middle = sorted(values)[len(values) // 2]
        print(f"  {name}: median {middle * 1000:.0f} ms, longest {max(values) * 1000:.0f} ms")
    print(f"  TCP connections from a pod to a ClusterIP, endpoint on another node: {_connections(directory):,.0f}/s")


def _kubectl(directory: LabDirectory, *arguments: str) -> str:
    command = ["kubectl", "--kubeconfig", str(directory.kubeconfig), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _pods(directory: LabDirectory) -> set[str]:
    cluster = read_cluster(directory, directory.running())
    return {pod.key for pod in cluster.pods if pod.ready and not pod.terminating}


def _wait(directory: LabDirectory, count: int) -> set[str]:
    deadline = time.monotonic() + 30
    while len(found := _pods(directory)) != count and time.monotonic() < deadline:
        time.sleep(0.05)
    # The rules follow within a moment; no figure starts before.
    time.sleep(0.5)
    return found


def _client(directory: LabDirectory) -> tuple[str, str]:
    """A node's namespace to ask from, and the Service's address."""
    cluster = read_cluster(directory, directory.running())
    return cluster.nodes[0].namespace, cluster.service("web").cluster_ips[0]


def _scale_up(directory: LabDirectory) -> float:
    before = _pods(directory)
    netns, address = _client(directory)
    begun = time.perf_counter()
    _kubectl(directory, "scale", "deployment", "web", "--replicas=2")
    while True:
        answer = send_request(netns, address, 80, "TCP")
        if answer.pod and answer.pod not in before:
            return time.perf_counter() - begun


def _explored(directory: LabDirectory) -> list[float]:
    """From `kubectl scale` to the event of a page whose map has another number of pods."""
    record = directory.record()
    assert record is not None
    explorer = Explorer(LabSource(directory, record))
    told: queue.SimpleQueue[object] = queue.SimpleQueue()
    explorer.listen(told.put)
    explorer.start()
    found = []
    try:
        for replicas in (2, 1) * ROUNDS:
            before = set(explorer.model.cluster.pods)
            begun = time.perf_counter()
            _kubectl(directory, "scale", "deployment", "web", f"--replicas={replicas}")
            while before == {name for name, pod in explorer.model.cluster.pods.items() if not pod.terminating}:
                told.get(timeout=60)
            found.append(time.perf_counter() - begun)
            _wait(directory, replicas)
    finally:
        explorer.stop()
    return found


def _delete_one(directory: LabDirectory) -> float:
    """Scales back to one; the time until the pod that goes answers, or is missed, for the last time."""
    before = _wait(directory, 2)
    netns, address = _client(directory)
    begun = last = time.perf_counter()
    _kubectl(directory, "scale", "deployment", "web", "--replicas=1")
    answers: list[tuple[float, str]] = []
    while time.perf_counter() - last < 1.0 or time.perf_counter() - begun < 1.5:
        answer = send_request(netns, address, 80, "TCP", timeout=0.5)
        now = time.perf_counter()
        answers.append((now, answer.pod))
        left = _pods(directory) & before
        if answer.pod not in left or not answer.pod:
            last = now
        if now - begun > 10:
            break
    left = _wait(directory, 1)
    gone = [moment for moment, pod in answers if pod not in left]
    return max(gone) - begun if gone else 0.0


def _connections(directory: LabDirectory) -> float:
    """One after another: connect, ask, read, close."""
    _kubectl(directory, "scale", "deployment", "web", "--replicas=1")
    _wait(directory, 1)
    cluster = read_cluster(directory, directory.running())
    endpoint = cluster.service("web").ports[0].endpoints[0]
    other = next(node for node in cluster.nodes if node.name != endpoint.node)
    _kubectl(
        directory, "run", "client", "--image=echo",
        "--overrides", json.dumps({"spec": {"nodeSelector": {"kubernetes.io/hostname": other.name}}}),
    )  # fmt: skip
    deadline = time.monotonic() + 20
    while "default/client" not in _pods(directory) and time.monotonic() < deadline:
        time.sleep(0.1)
    cluster = read_cluster(directory, directory.running())
    netns, address = cluster.pod("client").netns, cluster.service("web").cluster_ips[0]

    def run() -> float:
        count, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < SECONDS:
            with socket.create_connection((address, 80), timeout=5) as connection:
                connection.sendall(b"x\n")
                connection.recv(4096)
            count += 1
        return count / (time.perf_counter() - begun)

    with Namespace.named(netns) as inside:
        return inside.call(run)
