"""The process of one node's kubelet: registers the node, renews its lease, says whether it is ready, runs its pods."""

from __future__ import annotations

import logging
import platform
import signal
import threading
import time
from typing import Final

from kproxy import __version__
from kproxy.client import ApiError, RestClient, TransportError, load_client_config
from kproxy.cni.install import CONFLIST
from kproxy.lab.errors import LabError
from kproxy.lab.events import Recorder
from kproxy.lab.kubelet.cni import NetworkList
from kproxy.lab.kubelet.kubelet import Kubelet
from kproxy.lab.kubelet.status import node_body, node_is_ready, node_status
from kproxy.lab.resources import (
    LEASE_NAMESPACE,
    LEASE_SECONDS,
    LEASES,
    NODES,
    RENEW_SECONDS,
    Json,
    is_ready,
    micro_timestamp,
    now,
)
from kproxy.lab.spec import LabSpec, NodePlan, node_number
from kproxy.lab.state import LabDirectory

log = logging.getLogger(__name__)

_FAST: Final = 0.25
_NETWORK_CHECK: Final = 30.0
"""Seconds between looks at a network that works; every look starts a process."""


def run_kubelet(lab: LabDirectory, spec: LabSpec, node: str) -> None:
    """Runs until the process is killed. It must run inside the node's namespace."""
    number = node_number(node)
    if number is None:
        raise LabError(f"{node!r} is no node of a lab")
    plan = spec.node(number)
    directory = lab.node(node)
    network = NetworkList.load(directory / "net.d" / CONFLIST)
    client = RestClient(load_client_config(str(lab.node_kubeconfig)))
    kubelet = Kubelet(client, spec, plan, network, directory)
    threading.Thread(target=kubelet.servers.run, name="servers", daemon=True).start()
    threading.Thread(target=kubelet.streams.run, name="streams", daemon=True).start()
    keeper = NodeKeeper(client, plan, network)
    keeper.register()
    threading.Thread(target=keeper.run, name="node-status", daemon=True).start()
    kubelet.start()
    signal.pause()


class NodeKeeper:
    """Keeps the Node object and its lease up to date."""

    def __init__(self, client: RestClient, plan: NodePlan, network: NetworkList) -> None:
        self._client = client
        self._recorder = Recorder(client, "kubelet", plan.name)
        self._plan = plan
        self._network = network
        self._version = f"v{__version__}-kproxy-lab"

    def register(self) -> None:
        """Makes the Node, or takes the one that is there; tries until the API server answers."""
        while True:
            try:
                self._client.create(NODES, node_body(self._plan))
                return
            except ApiError as error:
                if error.code == 409:
                    return
                log.warning("registering: %s", error)
            except TransportError as error:
                log.info("registering: %s", error)
            time.sleep(_FAST)

    def run(self) -> None:
        """Says how the node is, quickly until it is ready, then with every renewal of its lease."""
        ready = False
        looked, problem = -_NETWORK_CHECK, ""
        while True:
            try:
                self._renew()
                if not ready or time.monotonic() - looked > _NETWORK_CHECK:
                    looked, problem = time.monotonic(), self._problem()
                self._say(problem)
                if problem == "" and not ready:
                    log.info("the node is ready")
                ready = problem == ""
            except (ApiError, TransportError) as error:
                log.info("node status: %s", error)
            time.sleep(RENEW_SECONDS if ready else _FAST)

    def _problem(self) -> str:
        try:
            self._network.status()
        except LabError as error:
            return f"container runtime network not ready: {error}"
        return ""

    def _say(self, problem: str) -> None:
        node = self._client.get(NODES, self._plan.name).raw
        if node_is_ready(node, problem):
            return
        was, name = is_ready(node), self._plan.name
        status = node_status(self._plan, node, problem, self._version)
        status["nodeInfo"]["kernelVersion"] = platform.release()
        status["nodeInfo"]["architecture"] = platform.machine()
        self._client.patch(NODES, name, {"status": status}, subresource="status")
        if was == bool(problem):
            reason = "NodeNotReady" if problem else "NodeReady"
            # A kubelet knows its node by its name, and takes that for the uid.
            about = {"metadata": {"name": name, "uid": name}}
            self._recorder.event(about, "Node", reason, f"Node {name} status is now: {reason}")

    def _renew(self) -> None:
        spec: Json = {
            "holderIdentity": self._plan.name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": micro_timestamp(now()),
        }
        try:
            self._client.patch(LEASES, self._plan.name, {"spec": spec}, LEASE_NAMESPACE)
        except ApiError as error:
            if error.code != 404:
                raise
            body: Json = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._plan.name, "namespace": LEASE_NAMESPACE},
                "spec": spec,
            }
            self._client.create(LEASES, body, LEASE_NAMESPACE)
