"""Kubernetes' conformance specs of connection tracking (test/e2e/network/conntrack.go), as far as UDP goes.

A client keeps sending from one source port, so an entry that leads astray never expires: only who deletes it helps.
Here it sends every few milliseconds, and not every five seconds, so that each moment of a change meets a packet.
Endpoints come both ways: as slices written by hand, and from Pods by the EndpointSlice controller.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kproxy.client import ENDPOINT_SLICES, NODES, SERVICES, RestClient
from kproxy.linux.namespace import Namespace
from kproxy.netfilter.hooks import Variant
from tests.support.examples import spread
from tests.support.kernel.agent_runs import NODE, Agent, node, put, running_agent, running_server
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.waiting import eventually

pytestmark = pytest.mark.root

CLIENT_IP, NODE_IP = "10.244.9.2", "192.0.2.1"
SOURCE_PORT = 12345
BACKENDS = ("10.244.0.5", "10.244.0.6")
NUMBERS = itertools.count()
PODS = "/api/v1/namespaces/default/pods"
PAUSE = 0.003
FEW = 2
MANY = int(os.environ.get("KPROXY_ROUNDS", "50"))

rounds = pytest.mark.parametrize("rounds", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
endpoints_by = pytest.mark.parametrize("by_controller", [False, True], ids=["slices", "controller"])
variants = pytest.mark.parametrize(
    "variant", spread(list(Variant), 1, 1), ids=lambda variant: variant.value, scope="module"
)


class Network:
    """A node with a client behind one cable and endpoints behind another."""

    def __init__(self, node_name: str, client: Namespace, host: Namespace, backend: Namespace) -> None:
        self.node_name = node_name
        self.client = client
        self.host = host
        self.backend = backend


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with contextlib.ExitStack() as stack:
        host, client, backend = (stack.enter_context(fresh_namespace()) for _ in range(3))
        for name in (host, client, backend):
            run("ip", "link", "set", "lo", "up", namespace=name)
        for peer, inside, outside, device in (
            (client, CLIENT_IP, "10.244.9.1", "toclient"),
            (backend, "", "10.244.0.1", "toback"),
        ):
            cable = ["type", "veth", "peer", "name", "eth0", "netns", peer]
            run("ip", "link", "add", device, *cable, namespace=host)
            run("ip", "address", "add", f"{outside}/24", "dev", device, namespace=host)
            for ip in (inside,) if inside else BACKENDS:
                run("ip", "address", "add", f"{ip}/24", "dev", "eth0", namespace=peer)
            run("ip", "link", "set", device, "up", namespace=host)
            run("ip", "link", "set", "eth0", "up", namespace=peer)
            run("ip", "route", "add", "default", "via", outside, namespace=peer)
        # Where packets to a Service go that no rule takes: they get an entry, and no answer.
        run("ip", "address", "add", f"{NODE_IP}/24", "dev", "toclient", namespace=host)
        run("ip", "route", "add", "default", "via", "192.0.2.2", namespace=host)
        run("ip", "neighbour", "add", "192.0.2.2", "lladdr", "02:00:00:00:00:01", "dev", "toclient", namespace=host)
        run("sysctl", "-qw", "net.ipv4.ip_forward=1", namespace=host)
        spaces = [stack.enter_context(Namespace.named(name)) for name in (client, host, backend)]
        for ip in BACKENDS:
            for port in (80, 81):
                stack.enter_context(answering(spaces[2], ip, port))
        yield Network(host, *spaces)


@contextlib.contextmanager
def answering(space: Namespace, ip: str, port: int) -> Iterator[None]:
    """A UDP server that says where it is."""
    server = space.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((ip, port))
    server.settimeout(0.2)
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                _, peer = server.recvfrom(100)
                server.sendto(f"{ip}:{port}".encode(), peer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        server.close()


class Sender:
    """Sends to one address from one port, without a pause for answers, and keeps the last answer."""

    def __init__(self, space: Namespace, ip: str, port: int) -> None:
        self._socket = space.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("", SOURCE_PORT))
        self._socket.connect((ip, port))
        self._socket.settimeout(PAUSE)
        self._ended = threading.Event()
        self._answers: list[str] = []
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        while not self._ended.wait(PAUSE):
            with contextlib.suppress(OSError):  # no answer, or a REJECT
                self._socket.send(b"hostname")
            with contextlib.suppress(OSError):
                self._answers.append(self._socket.recv(100).decode())

    def is_answered_by(self, endpoint: str) -> bool:
        """Whether the last ten answers since it was asked last came from there."""
        found = self._answers[-10:]
        return len(found) == 10 and set(found) == {endpoint}

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._socket.close()


@contextlib.contextmanager
def sending(space: Namespace, ip: str, port: int) -> Iterator[Sender]:
    sender = Sender(space, ip, port)
    try:
        yield sender
    finally:
        sender.close()


class Endpoints:
    """The endpoints of one Service, written as slices or as Pods."""

    def __init__(self, client: RestClient, service: str, by_controller: bool) -> None:
        self._client = client
        self._service = service
        self._by_controller = by_controller
        self._there: dict[str, bool] = {}
        self._port = 80

    def put(self, ip: str, *, ready: bool = True) -> None:
        if self._by_controller:
            name = self._pod(ip)
            if ip not in self._there:
                spec = {"nodeName": NODE, "containers": [{"name": "c", "image": "x"}]}
                body = {"metadata": {"name": name, "labels": {"app": self._service}}, "spec": spec}
                self._request("POST", PODS, body)
            conditions = [{"type": "Ready", "status": str(ready)}]
            status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions}
            self._request("PATCH", f"{PODS}/{name}/status", {"status": status})
        self._there[ip] = ready
        self._write()

    def remove(self, ip: str) -> None:
        """As a Pod goes: it ends for a moment, then it is gone."""
        del self._there[ip]
        if self._by_controller:
            self._request("DELETE", f"{PODS}/{self._pod(ip)}", {})
            self._request("DELETE", f"{PODS}/{self._pod(ip)}?gracePeriodSeconds=0", {}, missing=True)
        self._write()

    def set_port(self, port: int) -> None:
        self._port = port
        path = f"/api/v1/namespaces/default/services/{self._service}"
        ports = [{"name": "udp", "port": 80, "protocol": "UDP", "targetPort": port}]
        self._request("PATCH", path, {"spec": {"ports": ports}})
        self._write()

    def _write(self) -> None:
        if self._by_controller:
            return
        labels = {"kubernetes.io/service-name": self._service}
        made = [
            {"addresses": [ip], "conditions": {"ready": ready, "serving": ready}, "nodeName": NODE}
            for ip, ready in self._there.items()
        ]
        body: dict[str, Any] = {
            "metadata": {"name": f"{self._service}-x", "namespace": "default", "labels": labels},
            "addressType": "IPv4",
            "endpoints": made,
            "ports": [{"name": "udp", "port": self._port, "protocol": "UDP"}],
        }
        put(self._client, ENDPOINT_SLICES, body)

    def _pod(self, ip: str) -> str:
        return f"{self._service}-{ip.replace('.', '-')}"

    def _request(self, method: str, path: str, body: object, *, missing: bool = False) -> None:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        done = self._client.http.request(method, path, body=json.dumps(body).encode(), content_type=kind)
        assert done.status < 300 or (missing and done.status == 404), done.data


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conntrack")


@pytest.fixture(scope="module")
def client(directory: Path) -> Iterator[RestClient]:
    with running_server(directory) as server:
        client = server.client()
        put(client, NODES, node())
        yield client


@pytest.fixture(scope="module")
def agent(network: Network, client: RestClient, directory: Path, variant: Variant) -> Iterator[Agent]:
    """kproxy on the node. Nothing but a change makes it look at connection tracking: there is no periodic check."""
    target = ("--kubeconfig", str(directory / "kubeconfig"), "--node", NODE, "--netns", network.node_name)
    period = ("--iptables-min-sync-period", "10ms", "--iptables-sync-period", "1h")
    with running_agent(
        directory, *target, *period, "--variant", variant.value, "--cluster-cidr", "10.244.0.0/16"
    ) as made:
        eventually(lambda: 'synced family="IPv4"' in made.said(), what=made.said)
        yield made


Scenario = Callable[[Endpoints, Sender], None]


def cycle(endpoints: Endpoints, sender: Sender) -> None:
    first, second = BACKENDS
    endpoints.put(first)
    eventually(lambda: sender.is_answered_by(f"{first}:80"), what=lambda: "the first never answered")
    endpoints.put(second)
    endpoints.remove(first)
    eventually(lambda: sender.is_answered_by(f"{second}:80"), what=lambda: "the second never answered")


def unready_then_ready(endpoints: Endpoints, sender: Sender) -> None:
    first, _ = BACKENDS
    endpoints.put(first, ready=False)
    endpoints.put(first, ready=True)
    eventually(lambda: sender.is_answered_by(f"{first}:80"), what=lambda: "it never answered")


def change_target_port(endpoints: Endpoints, sender: Sender) -> None:
    first, _ = BACKENDS
    endpoints.put(first)
    eventually(lambda: sender.is_answered_by(f"{first}:80"), what=lambda: "port 80 never answered")
    endpoints.set_port(81)
    eventually(lambda: sender.is_answered_by(f"{first}:81"), what=lambda: "port 81 never answered")


def has_entry(namespace: str, ip: str, port: int) -> bool:
    """Whether the node tracks the client's packets to there."""
    listed = run("conntrack", "-L", "-p", "udp", "-d", ip, "--dport", str(port), namespace=namespace)
    return f"sport={SOURCE_PORT} " in listed


def repeat(
    network: Network, client: RestClient, by_controller: bool, rounds: int, scenario: Scenario, kind: str, where: str
) -> None:
    space = network.host if where == "host" else network.client
    for _ in range(rounds):
        number = next(NUMBERS)
        name, cluster_ip = f"svc-udp-{number}", f"10.96.{100 + number // 250}.{number % 250 + 1}"
        ports: list[dict[str, Any]] = [{"name": "udp", "port": 80, "protocol": "UDP", "targetPort": 80}]
        spec: dict[str, Any] = {"ports": ports, "type": kind, "clusterIP": cluster_ip}
        address = (cluster_ip, 80)
        if kind == "NodePort":
            address = (NODE_IP, 30000 + number)
            ports[0]["nodePort"] = address[1]
        if by_controller:
            spec["selector"] = {"app": name}
        # The client is there before any rule of the Service, so that it has an entry that leads past every endpoint.
        with sending(space, *address) as sender:
            eventually(partial(has_entry, network.node_name, *address))
            client.create(SERVICES, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
            scenario(Endpoints(client, name, by_controller), sender)
        client.delete(SERVICES, name, "default")
        if by_controller:
            client.http.request("DELETE", f"{PODS}?labelSelector=app%3D{name}&gracePeriodSeconds=0")
        else:
            client.delete(ENDPOINT_SLICES, f"{name}-x", "default")


@rounds
@variants
@endpoints_by
@pytest.mark.parametrize(("kind", "where"), [("NodePort", "pod"), ("ClusterIP", "pod"), ("ClusterIP", "host")])
@pytest.mark.usefixtures("agent")
def test_server_pod_cycles(
    network: Network, client: RestClient, by_controller: bool, rounds: int, kind: str, where: str
) -> None:
    """Specs "should be able to preserve UDP traffic when server pod cycles for a NodePort service", "... for a
    ClusterIP service" and "... for a ClusterIP service and client is hostNetwork".
    """
    repeat(network, client, by_controller, rounds, cycle, kind, where)


@rounds
@variants
@endpoints_by
@pytest.mark.usefixtures("agent")
def test_initial_unready_endpoints_get_ready(
    network: Network, client: RestClient, by_controller: bool, rounds: int
) -> None:
    """Spec "should be able to preserve UDP traffic when initial unready endpoints get ready"."""
    repeat(network, client, by_controller, rounds, unready_then_ready, "ClusterIP", "pod")


@rounds
@variants
@endpoints_by
@pytest.mark.usefixtures("agent")
def test_target_port_changes(network: Network, client: RestClient, by_controller: bool, rounds: int) -> None:
    """Spec "should be able to cleanup conntrack entries when UDP service target port changes for a NodePort
    service".
    """
    repeat(network, client, by_controller, rounds, change_target_port, "NodePort", "pod")
