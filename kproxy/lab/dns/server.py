"""The DNS servers of a node's pods: sockets in a pod's namespace, answers from informers.

A pod is one by its annotation (`lab.kproxy.io/serves: dns`), as those of the Deployment coredns are. Nothing is watched
for it until the first such pod comes to the node; it is ready once the informers have synced.
"""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from kproxy.client import RestClient, SharedInformerFactory
from kproxy.lab.dns.answers import resolve
from kproxy.lab.dns.message import RCODES, TYPES, MessageError, encode, parse_query
from kproxy.lab.resources import (
    DNS,
    DNS_NAMESPACE,
    DNS_SERVICE,
    ENDPOINT_SLICES,
    NAMESPACES,
    SERVES,
    SERVICES,
    Object,
)
from kproxy.linux.namespace import Namespace

log = logging.getLogger(__name__)

PORT: Final = 53
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_MAX_TCP: Final = 65535
_IDLE: Final = 10.0
"""Seconds that a TCP connection may say nothing."""
Log = Callable[[str], None]


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

    def stop(self) -> None:
        self._factory.shutdown(0.2)

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
        self._sockets: dict[str, list[socket.socket]] = {}

    def start(self, uid: str, netns: str, families: Iterable[int], said: Log) -> None:
        """Serves in a pod's namespace; again for the same pod does nothing.

        Raises:
            OSError: the port cannot be had.
            LinuxError: the namespace cannot be entered.
        """
        with self._lock:
            if uid in self._sockets:
                return
            if self._objects is None:
                self._objects = InformedObjects(self._client)
                threading.Thread(target=self._sync, args=(self._objects,), name="dns-sync", daemon=True).start()
        with Namespace.named(netns) as inside:
            opened = inside.call(_open, tuple(families))
        with self._lock:
            self._sockets[uid] = opened
        for index, item in enumerate(opened):
            serve = self._serve_tcp if item.type == socket.SOCK_STREAM else self._serve_udp
            threading.Thread(target=serve, args=(item, said), name=f"dns-{index}", daemon=True).start()

    def stop(self, uid: str) -> None:
        with self._lock:
            sockets = self._sockets.pop(uid, [])
        for item in sockets:
            # What waits in it returns.
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
            item.close()

    def listens(self, uid: str) -> bool:
        """Whether a pod's server has its sockets."""
        return uid in self._sockets

    def is_serving(self, uid: str) -> bool:
        """Whether a pod's server answers."""
        return self.listens(uid) and self._synced.is_set()

    def close(self) -> None:
        for uid in list(self._sockets):
            self.stop(uid)
        if self._objects is not None:
            self._objects.stop()

    def _sync(self, objects: InformedObjects) -> None:
        objects.start()
        self._synced.set()
        for uid in list(self._sockets):
            self._ready(uid)

    def _serve_udp(self, server: socket.socket, said: Log) -> None:
        while True:
            try:
                data, peer = server.recvfrom(4096)
                if not data:
                    time.sleep(0.01)  # it is being closed, or somebody sends empty datagrams
                    continue
                reply = self.reply(data, peer[0], said, over_tcp=False)
                if reply:
                    server.sendto(reply, peer)
            except OSError:
                if server.fileno() < 0:
                    return
                time.sleep(0.01)

    def _serve_tcp(self, server: socket.socket, said: Log) -> None:
        while True:
            try:
                connection, peer = server.accept()
            except OSError:
                if server.fileno() < 0:
                    return
                time.sleep(0.01)
                continue
            threading.Thread(target=self._talk, args=(connection, peer[0], said), name="dns-tcp", daemon=True).start()

    def _talk(self, connection: socket.socket, peer: str, said: Log) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as stream:
            connection.settimeout(_IDLE)
            while len(head := stream.read(2)) == 2:
                reply = self.reply(stream.read(int.from_bytes(head, "big")), peer, said, over_tcp=True)
                if not reply:
                    return
                connection.sendall(len(reply).to_bytes(2, "big") + reply)

    def reply(self, data: bytes, peer: str, said: Log, *, over_tcp: bool) -> bytes:
        """The bytes that answer a query; none if it is not to be answered."""
        try:
            query = parse_query(data)
        except MessageError as error:
            return error.reply
        objects = self._objects
        if objects is None or not self._synced.wait(_IDLE):
            return b""
        answer = resolve(query.name, query.kind, objects)
        if len(answer.answers) > 1 and len({record.kind for record in answer.answers}) == 1:
            # As CoreDNS's loadbalance: who takes the first takes each in turn.
            answer = answer._replace(answers=tuple(random.sample(answer.answers, len(answer.answers))))
        kind, way = TYPES.get(query.kind, f"TYPE{query.kind}"), "tcp" if over_tcp else "udp"
        said(f'{peer} "{kind} IN {query.name}. {way}" {RCODES[answer.rcode]} {len(answer.answers)}')
        return encode(query, answer, _MAX_TCP if over_tcp else query.size)


def _open(families: tuple[int, ...]) -> list[socket.socket]:
    opened: list[socket.socket] = []
    try:
        for family in families:
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                item = socket.socket(_FAMILIES[family], kind)
                opened.append(item)
                if family == 6:
                    item.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                item.bind(("", PORT))
                if kind == socket.SOCK_STREAM:
                    item.listen(64)
    except OSError:
        for item in opened:
            item.close()
        raise
    return opened


def dns_objects(addresses: tuple[str, ...]) -> list[dict[str, Any]]:
    """The Service kube-dns at these addresses, and the Deployment coredns behind it, named as in any cluster."""
    labels = {"k8s-app": "kube-dns"}
    meta = {"namespace": DNS_NAMESPACE, "labels": labels}
    ports = [{"name": "dns", "protocol": "UDP"}, {"name": "dns-tcp", "protocol": "TCP"}]
    families = ["IPv6" if ":" in address else "IPv4" for address in addresses]
    policy = "SingleStack" if len(addresses) == 1 else "RequireDualStack"
    service = {
        "clusterIP": addresses[0], "clusterIPs": list(addresses), "ipFamilies": families, "ipFamilyPolicy": policy,
        "ports": [{**port, "port": PORT, "targetPort": PORT} for port in ports], "selector": labels,
    }  # fmt: skip
    container = {
        "name": "coredns",
        "image": "kproxy.lab/dns",
        "ports": [{**each, "containerPort": PORT} for each in ports],
    }
    template = {
        "metadata": {"labels": labels, "annotations": {SERVES: DNS}},
        "spec": {"dnsPolicy": "Default", "containers": [container]},
    }
    deployment = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": DNS_SERVICE, **meta}, "spec": service},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "coredns", **meta}, "spec": deployment},
    ]
