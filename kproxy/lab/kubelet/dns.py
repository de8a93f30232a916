"""The DNS server of a pod: a program of `PodServers`, with answers from informers.

A pod is one by its annotation (`lab.kproxy.io/serves: dns`), as those of the Deployment coredns are. Nothing is watched
for it until the first such pod comes to the node; it is ready once the informers have synced.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Iterable
from typing import Any, Final

from kproxy.client import RestClient, SharedInformerFactory
from kproxy.family import host_of
from kproxy.lab.kubelet.servers import Answer, Port
from kproxy.lab.resources import DNS_NAMESPACE, DNS_PORT, DNS_SERVICE, ENDPOINT_SLICES, NAMESPACES, SERVICES, Object

PORTS: Final = (Port(DNS_PORT, "UDP"), Port(DNS_PORT))
_IDLE: Final = 10.0
"""Seconds that a TCP connection may say nothing."""


class InformedObjects:
    """The cluster's objects, by informers of their own."""

    def __init__(self, client: RestClient) -> None:
        self._factory = SharedInformerFactory(client)
        self._namespaces = self._factory.informer(NAMESPACES)
        self._services = self._factory.informer(SERVICES, indexers={"address": _service_addresses})
        self._slices = self._factory.informer(
            ENDPOINT_SLICES, indexers={"service": _service_of, "address": _endpoint_addresses}
        )
        self._starting = threading.Lock()
        self.synced = False

    def start(self) -> None:
        """Returns once all is known."""
        with self._starting:
            if not self.synced:
                self._factory.start()
                self._factory.wait_for_cache_sync()
                self.synced = True

    def has_namespace(self, name: str) -> bool:
        return self._namespaces.indexer.get_by_key(name) is not None

    def service(self, namespace: str, name: str) -> Object | None:
        found = self._services.indexer.get_by_key(f"{namespace}/{name}")
        return found.raw if found is not None else None

    def slices(self, namespace: str, name: str) -> Iterable[Object]:
        return [item.raw for item in self._slices.indexer.by_index("service", f"{namespace}/{name}")]

    def with_address(self, address: str) -> Iterable[tuple[str, Object]]:
        yield from (("Service", item.raw) for item in self._services.indexer.by_index("address", address))
        yield from (("EndpointSlice", item.raw) for item in self._slices.indexer.by_index("address", address))

    def dns_addresses(self) -> Iterable[str]:
        service = self.service(DNS_NAMESPACE, DNS_SERVICE)
        return list(service["spec"].get("clusterIPs") or ()) if service is not None else []


def _service_addresses(item: Any) -> Iterable[str]:
    return [address for address in item.raw["spec"].get("clusterIPs") or () if address != "None"]


def _service_of(item: Any) -> Iterable[str]:
    meta = item.raw["metadata"]
    return [f"{meta['namespace']}/{(meta.get('labels') or {}).get('kubernetes.io/service-name', '')}"]


def _endpoint_addresses(item: Any) -> Iterable[str]:
    return {address for each in item.raw.get("endpoints") or () for address in each.get("addresses") or ()}


class Dns:
    """A program of `PodServers`; `said` gets a line for each query."""

    def __init__(self, objects: InformedObjects, said: Callable[[str], None]) -> None:
        from kproxy.lab.dns.answers import reply_to  # most nodes need no DNS library

        self._objects, self._said, self._reply_to = objects, said, reply_to

    @property
    def prepared(self) -> bool:
        return self._objects.synced

    async def prepare(self) -> None:
        await asyncio.to_thread(self._objects.start)

    def answer(self, protocol: str, peer: str, local: str, data: bytes) -> bytes:
        return self._reply_to(data, host_of(peer), self._objects, self._said, over_tcp=protocol == "TCP")

    async def converse(self, reader: StreamReader, writer: StreamWriter, answer: Answer) -> None:
        while True:
            async with asyncio.timeout(_IDLE):
                size = await reader.readexactly(2)
                reply = answer(await reader.readexactly(int.from_bytes(size, "big")))
            if not reply:
                return
            writer.write(len(reply).to_bytes(2, "big") + reply)
            await writer.drain()
