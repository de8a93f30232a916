"""Labs for tests: made by the command itself, in a directory of their own, always taken down."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from kproxy.lab.cluster import ClusterView, read_cluster
from kproxy.lab.lifecycle.down import tear_down
from kproxy.lab.lifecycle.processes import LAB
from kproxy.lab.model.hosts import LabModel
from kproxy.lab.network import lab_namespaces
from kproxy.lab.state import LabDirectory
from tests.support.cli import KPROXY, run_kproxy

NETNS = Path("/run/netns")
_GOTO = re.compile(r"goto endpoint-\S+__([0-9a-f.]+)/(\d+)")
_numbers = count()


def fresh_name() -> str:
    """A lab's name that no other test run has."""
    return f"t{os.getpid()}n{next(_numbers)}"


def end_labs_of(run: str) -> None:
    """Takes down the labs whose processes carry this number of a test run in their environment."""
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                pairs = Path(entry.path, "environ").read_bytes().decode(errors="replace").split("\0")
                values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
                if values.get("KPROXY_TEST_RUN") == run and values.get(LAB):
                    found.add(Path(values[LAB]))
    for path in found:
        tear_down(LabDirectory(path.name, path.parent))


class Lab:
    """A lab by name: its commands, its kubectl, its model."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        self.directory = LabDirectory(name, root)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "KPROXY_LAB_DIR": str(self.root), "KUBECONFIG": str(self.directory.kubeconfig)}

    def command(self, *arguments: str) -> list[str]:
        """`kproxy lab ARGUMENTS`, with --name after the subcommand."""
        return [*KPROXY, "lab", arguments[0], "--name", self.name, *arguments[1:]]

    def call(self, *arguments: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """Runs a subcommand."""
        return run_kproxy(*self.command(*arguments)[len(KPROXY) :], environment=self.environment, timeout=timeout)

    def run(self, *arguments: str) -> str:
        """Runs a subcommand that must succeed; its output."""
        done = self.call(*arguments)
        assert done.returncode == 0, f"lab {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """The JSON that a subcommand prints."""
        return json.loads(self.run(*arguments, "-o", "json"))

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Runs kubectl, which must succeed."""
        done = subprocess.run(
            ["kubectl", *arguments], env=self.environment, input=text, capture_output=True, text=True, check=False,
            timeout=180,
        )  # fmt: skip
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def apply(self, *documents: dict[str, Any]) -> None:
        """Applies objects."""
        body = {"apiVersion": "v1", "kind": "List", "items": documents}
        self.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(body))

    def cluster(self) -> ClusterView:
        return read_cluster(self.directory, self.directory.running())

    def model(self) -> LabModel:
        return LabModel(self.directory.running().spec, self.cluster())

    def namespaces(self) -> list[str]:
        """Those of this lab that there are."""
        return lab_namespaces(self.name)

    def settled(self, done: Callable[[ClusterView], bool], timeout: float = 120.0) -> ClusterView:
        """Waits until the cluster is as wanted, and every node's rules follow it."""
        deadline = time.monotonic() + timeout
        while True:
            cluster = self.cluster()
            if done(cluster) and self._rules_follow(cluster):
                return cluster
            assert time.monotonic() < deadline, "\n".join(
                f"{service.key}: {[port.endpoints for port in service.ports]}" for service in cluster.services
            )
            time.sleep(0.1)

    @staticmethod
    def _rules_follow(cluster: ClusterView) -> bool:
        """Whether every running node's rules have, for each Service, exactly the pods that are its endpoints, and its
        addresses."""
        wanted = {
            f"{service.key}{f':{port.name}' if port.name else ''} -> {_join(item.address, item.port)}"
            for service in cluster.services
            for port in service.ports
            for item in port.endpoints
            if item.ready and item.pod and (service.internal_policy == "Cluster" or port.node_port)
        }
        addresses = {
            f"{address}/{128 if ':' in address else 32}"
            for service in cluster.services
            if any(item.ready for port in service.ports for item in port.endpoints)
            # With an internal policy of Local, nodes without an endpoint have no rule for the cluster IP.
            for address in (
                *(service.cluster_ips if service.internal_policy == "Cluster" else ()),
                *service.external_ips,
                *service.load_balancer_ips,
            )
        }
        pods = {address for pod in cluster.pods for address in pod.addresses}
        for node in cluster.nodes:
            if "proxy" not in node.processes or not node.link:
                continue
            named, served = (_of_table if cluster.mode == "nftables" else _of_iptables)(cluster, node.namespace)
            sources = {item.rpartition(" -> ")[2].rpartition(":")[0].strip("[]") for item in named}
            if not wanted <= named or (sources & pods) - _serving(cluster):
                return False
            if not addresses <= served:
                return False
        return True


def _of_iptables(cluster: ClusterView, namespace: str) -> tuple[set[str], set[str]]:
    """What a node's rules say: which Service leads to which endpoint, and the addresses that are Services'."""
    commands = [[f"{command}-{cluster.variant}-save", "-t", "nat"] for command in ("iptables", "ip6tables")]
    rules = _printed(namespace, commands)
    # Rules say in a comment which endpoint of which Service they lead to.
    named = set(re.findall(r'--comment "(\S+ -> \S+)"', rules))
    return named, set(re.findall(r"-A KUBE-SERVICES -d (\S+) ", rules))


def _of_table(_cluster: ClusterView, namespace: str) -> tuple[set[str], set[str]]:
    """The same of nftables mode: chains have the name of their Service."""
    rules = _printed(namespace, [["nft", "list", "table", family, "kube-proxy"] for family in ("ip", "ip6")])
    named = set()
    for chain, body in re.findall(r"\tchain service-[0-9A-Z]{8}-(\S+) \{\n(.*?)\n\t\}", rules, re.DOTALL):
        namespace_of, name, _, port = chain.split("/")
        found = re.findall(r" : ([0-9a-f.:]+) \. (\d+)", body)
        found += [(ip.replace(".", ":") if ip.count(".") > 3 else ip, number) for ip, number in _GOTO.findall(body)]
        service = f"{namespace_of}/{name}{f':{port}' if port else ''}"
        named |= {f"{service} -> {_join(ip, int(number))}" for ip, number in found}
    text = "".join(re.findall(r"\tmap service-ips \{\n.*?\n\t\}", rules, re.DOTALL))
    return named, {f"{ip}/{128 if ':' in ip else 32}" for ip in re.findall(r"([0-9a-f.:]+) \. (?:tcp|udp|sctp) ", text)}


def _printed(namespace: str, commands: list[list[str]]) -> str:
    return "".join(
        subprocess.run(["ip", "netns", "exec", namespace, *command], capture_output=True, text=True, check=False).stdout
        for command in commands
    )


def _join(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _serving(cluster: ClusterView) -> set[str]:
    return {
        item.address
        for service in cluster.services
        for port in service.ports
        for item in port.endpoints
        if item.ready or item.serving
    }


@contextmanager
def lab_up(root: Path, *arguments: str, name: str = "") -> Iterator[Lab]:
    """A lab that is up; afterwards nothing of it is left."""
    lab = Lab(name or fresh_name(), root)
    try:
        done = lab.call("up", *arguments)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        yield lab
    finally:
        done = lab.call("down")
        assert done.returncode == 0, done.stderr
    assert lab.namespaces() == []
    assert not lab.directory.exists()


def deployment(
    name: str,
    replicas: int,
    ports: Sequence[tuple[int, str]] = ((8080, "TCP"),),
    *,
    node: str = "",
    pre_stop: int = 0,
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A Deployment of echo servers, perhaps on one node only, that goes on for `pre_stop` seconds when deleted."""
    container: dict[str, Any] = {
        "name": "echo",
        "image": "echo",
        "ports": [{"containerPort": port, "protocol": protocol} for port, protocol in ports],
    }
    if pre_stop:
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": pre_stop}}}
    spec: dict[str, Any] = {"containers": [container]}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    selected = labels or {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"deployment": name}},
            "template": {"metadata": {"labels": {**selected, "deployment": name}}, "spec": spec},
        },
    }


def service(
    name: str, app: str, ports: Sequence[tuple[int, int, str]] = ((80, 8080, "TCP"),), **spec: Any
) -> dict[str, Any]:
    """A Service of the pods with the label `app`; ports are (port, target port, protocol)."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"app": app},
            "ports": [
                {"name": f"{protocol.lower()}{port}", "port": port, "targetPort": target, "protocol": protocol}
                for port, target, protocol in ports
            ],
            **spec,
        },
    }
