"""The lab's API server: `kproxy.apiserver` with the lab's controllers, one listener on this machine's loopback and one
on the fabric.

The first is for people: `kubectl --kubeconfig` works from anywhere on the machine. The second is for nodes and pods,
and is what the `kubernetes` Service leads to. Both have the same port.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from typing import Final

from kproxy.apiserver.auth.certs import write_private
from kproxy.apiserver.controllers.base import Controller
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.server import ApiServer, Configuration, new_event_loop
from kproxy.family import join_host_port
from kproxy.lab.controllers import daemonset, deployment, job, loadbalancer, nodes, scheduler, statefulset
from kproxy.lab.controllers.runtime import Runtime, Tables
from kproxy.lab.errors import LabError
from kproxy.lab.kubelet.streaming import SOCKET
from kproxy.lab.spec import LabSpec
from kproxy.lab.state import LabDirectory, LabRecord
from kproxy.linux.namespace import Namespace

_MODULES: Final = (daemonset, deployment, job, loadbalancer, nodes, scheduler, statefulset)
_RECONCILERS: Final = (deployment.SETS, *(module.CONTROLLER for module in _MODULES))
_PATIENCE: Final = 60.0
"""Seconds for the fabric's namespace to be there."""


def serve(lab: LabDirectory, record: LabRecord) -> None:
    """Serves until the process is killed; a port of 0 picks one. Writes both kubeconfigs once it listens."""
    spec, port = record.spec, record.port

    def on_fabric(chosen: int) -> list[socket.socket]:
        _wait_for(lab, spec)
        with Namespace.named(spec.fabric) as fabric:
            return [fabric.call(_listen, address, chosen) for address in spec.gateways]

    def endpoint_socket(family: int) -> socket.socket:
        with Namespace.named(spec.fabric) as fabric:
            return fabric.call(socket.socket, family)

    def controllers(registry: Registry, catalog: Catalog) -> list[Controller]:
        tables = Tables(registry, catalog)
        return [Runtime(registry, catalog, tables, _RECONCILERS), loadbalancer.Routes(tables, spec)]

    configuration = Configuration(
        lab.path / "apiserver",
        "127.0.0.1",
        port,
        service_cidrs=spec.service_cidrs,
        # The lab lives under /run: there is no disk to wait for, and a killed process loses nothing that it has
        # written.
        synchronous="OFF",
        advertise=spec.api_address,
        more_sockets=on_fabric,
        kubelet=lambda node: _connect(lab, node),
        more_controllers=controllers,
        open_socket=endpoint_socket,
    )
    sys.setswitchinterval(0.001)
    new_event_loop().run_until_complete(_serve(lab, record, configuration))


async def _connect(lab: LabDirectory, node: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to a node's kubelet. Raises OSError."""
    descriptor = os.open(lab.node(node), os.O_PATH | os.O_DIRECTORY)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{descriptor}/{SOCKET}")
    finally:
        os.close(descriptor)


def _wait_for(lab: LabDirectory, spec: LabSpec) -> None:
    """Waits until the fabric has its addresses. `lab up` starts this process first, because it takes longest."""
    deadline = time.monotonic() + _PATIENCE
    while not (lab.path / "network").exists():
        if time.monotonic() > deadline:
            raise LabError(f"namespace {spec.fabric} did not come")
        time.sleep(0.01)


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.setblocking(False)
    return listener


async def _serve(lab: LabDirectory, record: LabRecord, configuration: Configuration) -> None:
    server = ApiServer(configuration)
    await server.start()
    text, address = server.kubeconfig(), record.spec.api_address
    nodes = text.replace(server.url, f"https://{join_host_port(address, server.port)}")
    write_private(lab.node_kubeconfig, nodes.encode())
    # Last: that it is there says that the server listens.
    write_private(lab.kubeconfig, text.encode(), record.owner)
    await asyncio.Event().wait()
