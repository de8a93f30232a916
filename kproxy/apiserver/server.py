"""The server: one process, one event loop, one writer thread.

`ApiServer` puts the parts together and runs until it is told to stop; testing.py runs one in a thread, for tests.
Requests come through TLS (auth/certs.py) and HTTP (http/protocol.py) to http/app.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import random
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import uvicorn
from uvicorn.server import ServerState
from uvloop import new_event_loop

from kproxy.apiserver.auth import certs
from kproxy.apiserver.auth.authentication import (
    MASTERS,
    Authenticator,
    ServiceAccountTokens,
    User,
)
from kproxy.apiserver.auth.rbac import Authorizer
from kproxy.apiserver.controllers.base import Controller
from kproxy.apiserver.controllers.endpointslices import EndpointSliceController
from kproxy.apiserver.controllers.flags import ACCOUNTS, CONTROLLERS, ENDPOINT_SLICES
from kproxy.apiserver.controllers.lifecycle import Controllers
from kproxy.apiserver.controllers.system_objects import SystemObjects, advertised_address
from kproxy.apiserver.endpoints.health import Health
from kproxy.apiserver.endpoints.podstreams import PodStreams
from kproxy.apiserver.endpoints.reviews import Reviews
from kproxy.apiserver.endpoints.watch import Watches
from kproxy.apiserver.http.app import App
from kproxy.apiserver.http.protocol import Http, Refusing, WebSocket, end_connections
from kproxy.apiserver.kinds.allocator import Allocators
from kproxy.apiserver.kubelet import Connect
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.webhooks.call import Caller, OpenSocket
from kproxy.apiserver.registry.webhooks.dispatch import Webhooks
from kproxy.apiserver.registry.writes import utc_now
from kproxy.apiserver.storage.log import Log
from kproxy.apiserver.storage.store import Store
from kproxy.errors import InputError, KproxyError
from kproxy.family import join_host_port

_KEEP_ALIVE: Final = 120
_STOPPING: Final = 5.0


class ServerError(KproxyError):
    """The server cannot run: its port is taken, its data directory is in use."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a server runs with.

    `data` is its directory, `host` and `port` where it listens (port 0: any), `tokens` static tokens, `service_cidrs`
    the ranges of cluster IPs (the primary family first), `history` the seconds of history that compaction leaves.
    `advertise` is the address that the `kubernetes` Service leads to, None for one that is found out; `more_sockets`
    opens further listening sockets for the port, in other network namespaces, say. `publish_root_ca` puts the CA's
    certificate into a ConfigMap of every namespace, as kube-controller-manager does. `kubelet` reaches the kubelets,
    which execute commands and keep logs; None for none. `open_socket` makes the sockets that
    reach endpoints of Services, which webhooks may be. `controllers` are those that run (`controllers.flags`);
    `more_controllers` makes others. `tell` gets what an operator should know.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = 6443
    tokens: dict[str, User] = field(default_factory=dict)
    service_cidrs: tuple[str, ...] = ("10.96.0.0/12", "fd00:10:96::/112")
    history: float = 300.0
    max_watches: int = 10_000
    max_connections: int = 20_000
    synchronous: str = "FULL"
    advertise: str | None = None
    publish_root_ca: bool = False
    controllers: frozenset[str] = CONTROLLERS
    more_controllers: Callable[[Registry, Catalog], Sequence[Controller]] = lambda _registry, _catalog: ()
    more_sockets: Callable[[int], Sequence[socket.socket]] | None = None
    kubelet: Connect | None = None
    open_socket: OpenSocket = socket.socket
    tell: Callable[[str], None] = lambda _text: None


class ApiServer:
    """A server in the running event loop: `start`, then `stop`."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.port = configuration.port
        self._lock: IO[bytes] | None = None
        self._servers: list[asyncio.AbstractServer] = []
        self._state = ServerState()
        self._rng = random.Random(secrets.randbits(128))

    @property
    def url(self) -> str:
        """The URL that the server listens on."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.configuration.host, self.configuration.host)
        return f"https://{join_host_port(host, self.port)}"

    async def start(self) -> None:
        """Opens the data, and listens.

        Raises:
            KproxyError: the directory or the port cannot be used.
        """
        self._open_directory()
        try:
            await self._start()
        except BaseException:
            self._unlock()
            raise

    def _open_directory(self) -> None:
        data = self.configuration.data
        try:
            data.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = (data / "lock").open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ServerError(f"{data}: another server uses this directory") from error
        except OSError as error:
            raise InputError(f"{data}: {error.strerror or error}") from error

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def _start(self) -> None:
        configuration = self.configuration
        self.authority = certs.load_or_make_authority(configuration.data)
        # The certificate alone, to hand out: ca.pem holds the key too.
        (configuration.data / "ca.crt").write_bytes(self.authority.certificate_pem)
        key = certs.load_or_make_key(configuration.data / "service-accounts.key")
        self.store = Store(
            lambda committed: Log(configuration.data / "log.sqlite", committed, synchronous=configuration.synchronous),
            configuration.tell,
        )
        self.store.open()
        sock = self._bind()
        self.port = sock.getsockname()[1]
        self._assemble(key)
        await self.system_objects.start()
        self.controllers.start()
        for each in self._chosen:
            each.start()
        await self._listen(sock)

    def _bind(self) -> socket.socket:
        host = self.configuration.host
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, self.configuration.port))
            sock.setblocking(False)
        except OSError as error:
            self.store.close()
            raise ServerError(
                f"cannot listen on {host}:{self.configuration.port}: {error.strerror or error}"
            ) from error
        return sock

    def _assemble(self, key: Any) -> None:
        store, configuration = self.store, self.configuration
        allocators = Allocators(configuration.service_cidrs, self._rng)
        self.catalog = Catalog(store)
        for resource in self.catalog.stored():
            store.table(resource.storage, resource.fields_of)
        self._take_allocated(allocators)
        self.authorizer = Authorizer(store)
        webhooks = Webhooks(store, self.catalog, Caller(store, configuration.open_socket))
        self.registry = Registry(store, allocators, self._rng, utc_now, self.authorizer, webhooks)

        def find(plural: str, namespace: str, name: str) -> str | None:
            entry = store.table(plural).head(f"{namespace}/{name}" if namespace else name)
            return None if entry is None else entry.uid

        tokens = ServiceAccountTokens(key, find)
        authenticator = Authenticator(self.authority.certificate, configuration.tokens, tokens, utc_now)
        self.watches = Watches(self.registry, self.catalog, configuration.max_watches)
        self.health = Health(store, lambda: self.watches.count)
        reviews = Reviews(self.registry, self.authorizer, authenticator, tokens)
        pods = self.catalog.builtin("", "pods")
        pod_streams = PodStreams(self.registry, pods, self.authorizer, configuration.kubelet)
        self.app = App(
            self.catalog, self.registry, authenticator, self.authorizer, reviews, self.watches, self.health,
            pod_streams,
        )  # fmt: skip
        self.controllers = Controllers(
            self.registry, self.catalog, self.authorizer, configuration.history, configuration.controllers
        )
        self._chosen = list(configuration.more_controllers(self.registry, self.catalog))
        if ENDPOINT_SLICES in configuration.controllers:
            self._chosen.insert(0, EndpointSliceController(self.registry, self.catalog))
        self.system_objects = SystemObjects(
            self.registry, self.catalog, cidrs=configuration.service_cidrs, port=self.port,
            address=self._advertised(),
            root_ca=self.authority.certificate_pem.decode() if configuration.publish_root_ca else "",
            accounts=ACCOUNTS in configuration.controllers,
        )  # fmt: skip

    def _take_allocated(self, allocators: Allocators) -> None:
        """Takes what the stored Services have."""
        for entry in self.store.table("services").entries.values():
            spec = entry.value.get("spec") or {}
            for ip in spec.get("clusterIPs") or ():
                with contextlib.suppress(Exception):
                    allocators.addresses["IPv6" if ":" in ip else "IPv4"].take(ip)
            for port in [spec.get("healthCheckNodePort"), *(p.get("nodePort") for p in spec.get("ports") or ())]:
                if port:
                    with contextlib.suppress(Exception):
                        allocators.ports.take(port)

    # --- listening ---

    async def _listen(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        configuration = uvicorn.Config(
            self.app, http=Http, ws=WebSocket, ws_per_message_deflate=False, lifespan="off", log_config=None,
            access_log=False, server_header=False, date_header=True, timeout_keep_alive=_KEEP_ALIVE,
            proxy_headers=False,
        )  # fmt: skip
        configuration.load()
        reached = (self.configuration.host, self._advertised() or "127.0.0.1")
        hosts = [host for host in reached if host not in ("0.0.0.0", "::")]
        first = next(iter(self.registry.allocators.addresses.values())).first
        context = certs.server_context(self.authority, certs.new_server(self.authority, (*hosts, first)))
        state, limit = self._state, self.configuration.max_connections

        def make() -> asyncio.Protocol:
            if len(state.connections) >= limit:
                return Refusing()
            return Http(config=configuration, server_state=state, app_state={}, _loop=loop)

        opened = self.configuration.more_sockets
        for each in (sock, *(opened(self.port) if opened is not None else ())):
            server = await loop.create_server(
                make, sock=each, backlog=1024, ssl=context, ssl_handshake_timeout=certs.HANDSHAKE
            )
            self._servers.append(server)

    def _advertised(self) -> str | None:
        return self.configuration.advertise or advertised_address(self.configuration.host)

    async def stop(self) -> None:
        """Stops listening, lets requests end, ends watches, and closes the log."""
        self.health.stopping = True
        for server in self._servers:
            server.close()
        self.watches.close()
        await end_connections(self._state, _STOPPING)
        for each in self._chosen:
            await each.stop()
        await self.system_objects.stop()
        await self.controllers.stop()
        await asyncio.to_thread(self.store.close)
        await asyncio.sleep(0)
        self._unlock()

    # --- credentials ---

    def kubeconfig(self, user: str = "admin", groups: tuple[str, ...] = (MASTERS,)) -> str:
        """A kubeconfig with a client certificate for a user."""
        return certs.kubeconfig_text(self.url, self.authority, user, groups)


__all__ = ["ApiServer", "Configuration", "ServerError", "new_event_loop"]
