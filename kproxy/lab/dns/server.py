"""The DNS servers of a node's pods: sockets in a pod's namespace, answers from informers.

A pod is one by its annotation (`lab.kproxy.io/serves: dns`), as those of the Deployment coredns are. Nothing is watched
for it until the first such pod comes to the node; it is ready once the informers have synced.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from kproxy.client import RestClient, SharedInformerFactory
from kproxy.lab.resources import DNS_NAMESPACE, DNS_PORT, DNS_SERVICE, ENDPOINT_SLICES, NAMESPACES, SERVICES, Object
from kproxy.linux.namespace import Namespace

_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_IDLE: Final = 10.0
"""Seconds that a TCP connection may say nothing."""
_LOOK: Final = 0.2
"""Seconds until a server hears that it shall end, at most."""
Log = Callable[[str], None]


class Reply(Protocol):
    """Answers the bytes of a query; none if it is not to be answered."""

    def __call__(self, data: bytes, peer: str, *, over_tcp: bool) -> bytes: ...


class InformedObjects:
    """The cluster's objects, by informers of their own."""

    def __init__(self, client: RestClient) -> None:
        self._factory = SharedInformerFactory(client)
        self._namespaces = self._factory.informer(NAMESPACES)
        self._services = self._factory.informer(SERVICES, indexers={"address": _service_addresses})
        self._slices = self._factory.informer(
            ENDPOINT_SLICES, indexers={"service": _service_of, "address": _endpoint_addresses}
        )

    def start(self) -> None:
        """Returns once all is known."""
        self._factory.start()
        self._factory.wait_for_cache_sync()

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


class DnsServers:
    """All of a node's DNS servers.

    Args:
        ready: called with a pod's uid when its server answers.
    """

    def __init__(self, client: RestClient, ready: Callable[[str], None]) -> None:
        self._client = client
        self._ready = ready
        self._lock = threading.Lock()
        self._objects: InformedObjects | None = None
        self._synced = threading.Event()
        self._servers: dict[str, list[socketserver.BaseServer]] = {}

    def start(self, uid: str, netns: str, families: Iterable[int], said: Log) -> None:
        """Serves in a pod's namespace; again for the same pod does nothing.

        Raises:
            OSError: the port cannot be had.
            LinuxError: the namespace cannot be entered.
        """
        from kproxy.lab.dns.answers import reply_to  # most nodes need no DNS library

        with self._lock:
            if uid in self._servers:
                return
            if self._objects is None:
                self._objects = InformedObjects(self._client)
                threading.Thread(target=self._sync, args=(self._objects,), name="dns-sync", daemon=True).start()

        def reply(data: bytes, peer: str, *, over_tcp: bool) -> bytes:
            if self._objects is None or not self._synced.wait(_IDLE):
                return b""
            return reply_to(data, peer, self._objects, said, over_tcp=over_tcp)

        def listen() -> list[socketserver.BaseServer]:
            with contextlib.ExitStack() as opened:
                kinds: Iterable[type[_Server]] = (_Udp, _Tcp)
                found = [opened.enter_context(kind(family, reply)) for family in families for kind in kinds]
                opened.pop_all()
            return [*found]

        with Namespace.named(netns) as inside:
            servers = inside.call(listen)
        with self._lock:
            self._servers[uid] = servers
        for server in servers:
            threading.Thread(target=server.serve_forever, args=(_LOOK,), name="dns", daemon=True).start()

    def stop(self, uid: str) -> None:
        with self._lock:
            servers = self._servers.pop(uid, [])
        for server in servers:
            server.shutdown()
            server.server_close()

    def listens(self, uid: str) -> bool:
        """Whether a pod's server has its sockets."""
        return uid in self._servers

    def is_serving(self, uid: str) -> bool:
        """Whether a pod's server answers."""
        return self.listens(uid) and self._synced.is_set()

    def _sync(self, objects: InformedObjects) -> None:
        objects.start()
        self._synced.set()
        for uid in list(self._servers):
            self._ready(uid)


class _Server(socketserver.TCPServer):
    """Raises OSError: the port cannot be had."""

    allow_reuse_address = True
    request_queue_size = 64
    handler: type[socketserver.BaseRequestHandler]

    def __init__(self, family: int, reply: Reply) -> None:
        self.address_family, self.reply = _FAMILIES[family], reply
        super().__init__(("", DNS_PORT), self.handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()


class _Datagram(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        data, server = self.request
        if reply := self.server.reply(data, self.client_address[0], over_tcp=False):
            with contextlib.suppress(OSError):
                server.sendto(reply, self.client_address)


class _Connection(socketserver.StreamRequestHandler):
    server: _Server
    timeout = _IDLE

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while len(head := self.rfile.read(2)) == 2:
                data = self.rfile.read(int.from_bytes(head, "big"))
                reply = self.server.reply(data, self.client_address[0], over_tcp=True)
                if not reply:
                    return
                self.wfile.write(len(reply).to_bytes(2, "big") + reply)


class _Udp(_Server, socketserver.UDPServer):
    handler = _Datagram


class _Tcp(socketserver.ThreadingMixIn, _Server):
    handler = _Connection
    daemon_threads = True
