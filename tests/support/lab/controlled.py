"""An API server with controllers of a lab, and a kubelet without namespaces: pods come up, or as a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from kproxy.apiserver import running_apiserver
from kproxy.client import ApiError, RestClient, load_client_config
from kproxy.lab.controllers.runtime import Reconciler, Runtime, Tables
from kproxy.lab.resources import EVENTS, PODS, Json, Object, is_terminating
from tests.support.waiting import eventually


def running(_pod: Object) -> Json:
    """The status of a pod that is up."""
    return {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def pod_of(owner: str = "", **spec: Any) -> Json:
    """A Pod, of a ReplicaSet if `owner` is its name."""
    references = [{"uid": owner, "controller": True, "kind": "ReplicaSet", "name": owner}] if owner else []
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u", "ownerReferences": references}, "spec": spec}


class Kubelet:
    """Gives each pod the status that `status` says (None: not yet), and ends those that are deleted."""

    def __init__(self, client: RestClient) -> None:
        self.client = client
        self.status: Callable[[Object], Json | None] = running
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(0.02):
            for pod in self.client.list(PODS).items:
                with suppress(ApiError):  # it has changed since
                    self._sync(pod.raw)

    def _sync(self, pod: Object) -> None:
        meta = pod["metadata"]
        if is_terminating(pod):
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
            self.client.raw("DELETE", PODS.path(meta["namespace"], meta["name"]), body=msgspec.json.encode(body))
            return
        status, old = self.status(pod), pod.get("status") or {}
        if status is not None and {name: old.get(name) for name in status} != status:
            self.client.patch(PODS, meta["name"], {"status": status}, meta["namespace"], subresource="status")


class Controlled:
    """The client, the kubelet, and what tests ask."""

    def __init__(self, client: RestClient, kubelet: Kubelet) -> None:
        self.client = client
        self.kubelet = kubelet

    def become(self, status: Callable[[Object], Json | None]) -> None:
        """From now on pods have this status."""
        self.kubelet.status = status

    def pods(self) -> dict[str, Object]:
        """All pods by name."""
        return {item.metadata.name: item.raw for item in self.client.list(PODS, "default").items}

    def said(self, kind: str) -> set[tuple[str, str]]:
        """Reasons and messages of the events about objects of a kind."""
        items = [item.raw for item in self.client.list(EVENTS, "default").items]
        return {(item["reason"], item["message"]) for item in items if item["involvedObject"]["kind"] == kind}

    def wait(self, resource: Any, name: str, reached: Callable[[Json], bool]) -> Json:
        """An object once it is as wanted."""
        found: list[Json] = []

        def there() -> bool:
            try:
                found[:] = [self.client.get(resource, name, "default").raw]
            except ApiError:
                return False
            return reached(found[0])

        eventually(there)
        return found[0]


@contextmanager
def controlled(directory: Path, *reconcilers: Reconciler) -> Iterator[Controlled]:
    """An API server with these controllers and the kubelet."""

    def controllers(registry: Any, catalog: Any) -> list[Runtime]:
        return [Runtime(registry, catalog, Tables(registry, catalog), reconcilers)]

    with running_apiserver(directory, more_controllers=controllers) as server:
        client = RestClient(load_client_config(str(server.kubeconfig)))
        kubelet = Kubelet(client)
        try:
            yield Controlled(client, kubelet)
        finally:
            kubelet.stop()
            client.close()
