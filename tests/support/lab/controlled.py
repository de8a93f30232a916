"""An API server with controllers of a lab, and a kubelet without namespaces: pods come up, or as a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kproxy.apiserver import running_apiserver
from kproxy.client import ApiError, RestClient, SharedInformerFactory, load_client_config
from kproxy.lab.controllers.runtime import Reconciler, Runtime, Tables
from kproxy.lab.kubelet.workers import ObjectHandler, Workers
from kproxy.lab.resources import EVENTS, PODS, Json, Object, is_terminating, key_of
from tests.support.waiting import eventually


def running(_pod: Object) -> Json:
    """The status of a pod that is up."""
    return {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


class Kubelet(Workers):
    """Gives each pod the status that `status` says (None: not yet), and ends those that are deleted."""

    def __init__(self, client: RestClient, factory: SharedInformerFactory) -> None:
        super().__init__()
        self.client = client
        self.status: Callable[[Object], Json | None] = running
        self._pods = factory.informer(PODS)
        self._pods.add_event_handler(ObjectHandler(lambda pod: self.queue.add(key_of(pod))))

    def look(self) -> None:
        """Looks at all pods again: `status` says something else now."""
        for item in self._pods.indexer.list():
            self.queue.add(item.metadata.key)

    def sync(self, key: str) -> float | None:
        found = self._pods.indexer.get_by_key(key)
        if found is None:
            return None
        meta = found.raw["metadata"]
        if is_terminating(found.raw):
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
            self.client.raw("DELETE", PODS.path(meta["namespace"], meta["name"]), body=msgspec.json.encode(body))
            return None
        status = self.status(found.raw)
        old = found.raw.get("status") or {}
        if status is not None and {name: old.get(name) for name in status} != status:
            self.client.patch(PODS, meta["name"], {"status": status}, meta["namespace"], subresource="status")
        return None


class Controlled:
    """The client, the kubelet, and what tests ask."""

    def __init__(self, client: RestClient, kubelet: Kubelet) -> None:
        self.client = client
        self.kubelet = kubelet

    def become(self, status: Callable[[Object], Json | None]) -> None:
        """From now on pods have this status."""
        self.kubelet.status = status
        self.kubelet.look()

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
        factory = SharedInformerFactory(client)
        kubelet = Kubelet(client, factory)
        factory.start()
        try:
            factory.wait_for_cache_sync()
            kubelet.start()
            yield Controlled(client, kubelet)
        finally:
            kubelet.stop()
            factory.shutdown(0.5)
            client.close()
