"""`kproxy apiserver` and `kproxy run` as processes, for tests against the real kernel."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES, KubeProxyConfiguration
from kproxy.client import ENDPOINT_SLICES, NODES, SERVICE_CIDRS, SERVICES, RestClient, load_client_config
from kproxy.client.errors import ApiError
from kproxy.linux.iptables.executor import IptablesExecutor, find_iptables
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.readback import read_table
from kproxy.linux.nftables.table import TableDifference
from kproxy.linux.sync.apply import prepare_host
from kproxy.linux.sync.iptables.desired import Difference, desired_rules, find_difference
from kproxy.linux.sync.iptables.reconcile import read_dump
from kproxy.linux.sync.nftables.backend import TableFamily
from kproxy.linux.sync.nftables.desired import table_text
from kproxy.linux.sync.nftables.reconcile import find_table_difference
from kproxy.netfilter.hooks import Variant
from kproxy.render import Features, render_table, select_target
from kproxy.render.target import render_target
from kproxy.services import IPFamily
from tests.support.cli import KPROXY
from tests.support.waiting import PATIENCE

FEATURES = Features(nfacct=True)
CONFIG = KubeProxyConfiguration(cluster_cidr="10.244.0.0/16")
NODE = "node-0"


class Server:
    """A `kproxy apiserver` that can be stopped and started again on the same port."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self._port = "0"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [*KPROXY, "apiserver", "--data", str(self.directory / "data"), "--listen", f"127.0.0.1:{self._port}"]
        command += ["--write-kubeconfig", str(self.kubeconfig)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        found = re.search(r"ready: .*:(\d+)", line)
        assert found, line + self._process.stderr.read()
        self._port = found[1]

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE)
            assert self._process.stderr is not None
            self._process.stderr.close()
            self._process = None

    def client(self) -> RestClient:
        return RestClient(load_client_config(str(self.kubeconfig)))


@contextlib.contextmanager
def running_server(directory: Path) -> Iterator[Server]:
    server = Server(directory)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Agent:
    """A `kproxy run`; its log is a file."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.log = directory / f"run-{time.monotonic_ns()}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([*KPROXY, "run", *arguments], stderr=log, stdout=log)

    def said(self) -> str:
        return self.log.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends it with a signal; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def running_agent(directory: Path, *arguments: str) -> Iterator[Agent]:
    agent = Agent(directory, *arguments)
    try:
        yield agent
    finally:
        if agent.process.poll() is None:
            agent.stop(signal.SIGKILL)


def service(name: str, port: int = 80, protocol: str = "TCP", **spec: object) -> dict[str, Any]:
    ports = [{"name": "p", "port": port, "protocol": protocol, "targetPort": 8080}]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"ports": ports, **spec}}


def piece(name: str, *ips: str, owner: str = "", protocol: str = "TCP") -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": owner or name}
    return {
        "metadata": {"name": f"{name}-x", "namespace": "default", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ip], "conditions": {"ready": True}, "nodeName": NODE} for ip in ips],
        "ports": [{"name": "p", "port": 8080, "protocol": protocol}],
    }


def node(zone: str = "a") -> dict[str, Any]:
    return {
        "metadata": {"name": NODE, "labels": {"topology.kubernetes.io/zone": zone}},
        "spec": {"podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.2"}]},
    }


def put(client: RestClient, resource: Any, body: dict[str, Any]) -> None:
    """Creates or replaces an object."""
    name = body["metadata"]["name"]
    try:
        client.create(resource, json.loads(json.dumps(body)))
    except ApiError as error:
        if error.status.code != 409:
            raise
        if resource is SERVICES:
            found = client.get(SERVICES, name, "default")
            body["spec"] |= {"clusterIP": found.spec.cluster_ip, "clusterIPs": list(found.spec.cluster_ips)}
        path = resource.path(body["metadata"].get("namespace", ""), name)
        client.raw("PUT", path, body=json.dumps(body).encode())


def table_difference(client: RestClient, namespace: str, family: IPFamily) -> TableDifference:
    """The same in nftables mode; chains that are empty only wait for their deletion."""
    services = client.list(SERVICES).items
    slices = client.list(ENDPOINT_SLICES).items
    cidrs = client.list(SERVICE_CIDRS).items
    config = msgspec.structs.replace(CONFIG, mode=MODE_NFTABLES)
    target = select_target(client.list(NODES).items, config, NODE)
    with Namespace.named(namespace) as entered:
        (host,) = prepare_host(MODE_NFTABLES, entered, (family,)).families
        assert isinstance(host, TableFamily)
        table = render_table(target, family, services, slices, config, host.features, cidrs)
        desired = table_text(table.renderer)
        found = find_table_difference(desired, read_table(host.executor(), desired))
    before = found.before.rules if found.before is not None else {}
    stale = tuple(chain for chain in found.change.stale_chains if before.get(chain))
    return msgspec.structs.replace(found, change=msgspec.structs.replace(found.change, stale_chains=stale))


def difference(client: RestClient, namespace: str, family: IPFamily, variant: Variant) -> Difference:
    """How the kernel differs from a fresh rendering of what the server has; false if it does not."""
    services = client.list(SERVICES).items
    slices = client.list(ENDPOINT_SLICES).items
    nodes = client.list(NODES).items
    target = select_target(nodes, CONFIG, NODE if nodes else "node-0")
    rendered = render_target(target, family, services, slices, CONFIG, FEATURES)
    with Namespace.named(namespace) as entered:
        executor = IptablesExecutor(entered, find_iptables(family, variant))
        return find_difference(desired_rules(rendered), read_dump(executor, counters=False))
