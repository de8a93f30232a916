"""The server: one process, one event loop, one writer thread.

`ApiServer` puts the parts together and runs until it is told to stop; `running_apiserver` runs one in a thread, for
tests. The HTTP protocol is uvicorn's over httptools, with limits on headers and time added, under our TLS (tls.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import random
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import uvicorn
import yaml
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from kproxy.apiserver import bootstrap, certs
from kproxy.apiserver.allocator import Allocators
from kproxy.apiserver.app import App
from kproxy.apiserver.auth import MASTERS, Authenticator, ServiceAccountTokens, User, load_token_file
from kproxy.apiserver.catalog import Catalog
from kproxy.apiserver.controllers import Controllers
from kproxy.apiserver.endpointslices import EndpointSliceController
from kproxy.apiserver.health import Health
from kproxy.apiserver.log import Log, StorageError
from kproxy.apiserver.rbac import Authorizer
from kproxy.apiserver.registry import Options, Registry, utc_now
from kproxy.apiserver.reviews import Reviews
from kproxy.apiserver.status import ApiError, Json
from kproxy.apiserver.store import Store
from kproxy.apiserver.strategy import Context
from kproxy.apiserver.tls import TLSProtocol, server_context
from kproxy.apiserver.watch import Watches
from kproxy.errors import InputError, KproxyError

MOST_HEADERS: Final = 256 * 1024
"""Bytes of a request line and headers."""
_HEADER_TIME: Final = 20.0
_KEEP_ALIVE: Final = 120
_STOPPING: Final = 5.0
_MANAGER: Final = Options(field_manager="kube-apiserver")


class ServerError(KproxyError):
    """The server cannot run: its port is taken, its data directory is in use."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a server runs with.

    `data` is its directory, `host` and `port` where it listens (port 0: any), `tokens` static tokens, `service_cidrs`
    the ranges of cluster IPs (the primary family first), `history` the seconds of history that compaction leaves.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = 6443
    tokens: dict[str, User] = field(default_factory=dict)
    service_cidrs: tuple[str, ...] = ("10.96.0.0/12", "fd00:10:96::/112")
    history: float = 300.0
    most_watches: int = 10_000
    most_connections: int = 20_000
    synchronous: str = "FULL"


class Http(HttpToolsProtocol):
    """uvicorn's protocol with limits on the size of headers and on the time until they are there."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._header_bytes = 0
        self._in_headers = True
        self._timer: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        self.app_state = {
            **self.app_state,
            "peer_certificate": transport.get_extra_info("peer_certificate"),
            "abort": transport.abort,
        }
        self._start_timer()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(_HEADER_TIME, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self.transport.is_closing():
            return
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > MOST_HEADERS:
            self._refuse_headers()

    def _refuse_headers(self) -> None:
        body = b"431 Request Header Fields Too Large"
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\nconnection: close\r\n"
            b"content-length: " + str(len(body)).encode() + b"\r\n\r\n" + body
        )
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._timer is None:
            self._start_timer()

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._header_bytes = 0
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_headers = True
        super().on_message_complete()


class ApiServer:
    """A server in the running event loop: `start`, then `stop`."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.port = configuration.port
        self._lock: IO[bytes] | None = None
        self._servers: list[asyncio.AbstractServer] = []
        self._state = ServerState()
        self._chance = random.Random(secrets.randbits(128))

    @property
    def url(self) -> str:
        """Where it listens."""
        host = self.configuration.host
        shown = f"[{host}]" if ":" in host else host
        if host in ("0.0.0.0", "::"):
            shown = "127.0.0.1" if host == "0.0.0.0" else "[::1]"
        return f"https://{shown}:{self.port}"

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
        key = certs.load_or_make_key(configuration.data / "service-accounts.key")
        self.store = Store(
            lambda committed: Log(configuration.data / "log.sqlite", committed, synchronous=configuration.synchronous)
        )
        self.store.open()
        sock = self._bind()
        self.port = sock.getsockname()[1]
        self._assemble(key)
        await self._bootstrap()
        self.controllers.start()
        self.endpoint_slices.start()
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
        allocators = Allocators(configuration.service_cidrs, self._chance)
        self.catalog = Catalog(store)
        self.registry = Registry(store, allocators, self._chance, utc_now)
        for resource in self.catalog.stored():
            self.registry.table(resource)
        self.registry.namespaces = store.table("namespaces")
        self._take_allocated(allocators)
        self.authorizer = Authorizer(store)
        self.registry.check = self.authorizer.check_escalation
        accounts = store.table("serviceaccounts")

        def find(namespace: str, name: str) -> str | None:
            entry = accounts.head(f"{namespace}/{name}")
            return None if entry is None else entry.uid

        tokens = ServiceAccountTokens(key, find)
        authenticator = Authenticator(self.authority.certificate, configuration.tokens, tokens, utc_now)
        self.watches = Watches(self.registry, configuration.most_watches)
        self.health = Health(store, lambda: self.watches.count)
        reviews = Reviews(self.registry, self.authorizer, authenticator, tokens)
        self.app = App(self.catalog, self.registry, authenticator, self.authorizer, reviews, self.watches, self.health)
        self.controllers = Controllers(self.registry, self.catalog, self.authorizer, configuration.history)
        self.endpoint_slices = EndpointSliceController(self.registry, self.catalog)

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

    # --- what is there from the start ---

    async def _bootstrap(self) -> None:
        futures: list[asyncio.Future[None]] = []

        def ensure(group: str, plural: str, namespace: str, body: Json) -> None:
            resource = self.catalog.find(group, "v1", plural)
            assert resource is not None
            try:
                written = self.registry.create(resource, namespace, body, _MANAGER)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                return
            if written.done is not None:
                futures.append(written.done)

        rbac = "rbac.authorization.k8s.io"
        for name in bootstrap.NAMESPACES:
            ensure("", "namespaces", "", {"metadata": {"name": name}})
        for role in bootstrap.cluster_roles():
            ensure(rbac, "clusterroles", "", role)
        for binding in bootstrap.cluster_role_bindings():
            ensure(rbac, "clusterrolebindings", "", binding)
        cidrs = list(self.configuration.service_cidrs)
        ensure("networking.k8s.io", "servicecidrs", "", {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs}})
        first = next(iter(self.registry.allocators.addresses.values())).first
        ensure("", "services", "default", bootstrap.kubernetes_service(first, self.port))
        for future in futures:
            await future
        await self._publish_address()

    async def _publish_address(self) -> None:
        """Writes the endpoints of the `kubernetes` Service: where this server is reached."""
        address = advertised_address(self.configuration.host)
        if address is None:
            return
        for group, plural, body in (
            ("discovery.k8s.io", "endpointslices", bootstrap.kubernetes_slice(address, self.port)),
            ("", "endpoints", bootstrap.kubernetes_endpoints(address, self.port)),
        ):
            resource = self.catalog.find(group, "v1", plural)
            assert resource is not None
            key = "default/kubernetes"
            entry = self.registry.table(resource).head(key)
            if entry is not None and entry.value.get("addressType", body.get("addressType")) != body.get("addressType"):
                written = self.registry.delete(resource, "default", "kubernetes", _no_options())
                entry = None
            if entry is None:
                written = self.registry.create(resource, "default", body, _MANAGER)
            else:
                written = self.registry.update(resource, "default", "kubernetes", body, _MANAGER)
            if written.done is not None:
                await written.done

    # --- listening ---

    async def _listen(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        configuration = uvicorn.Config(
            self.app, http=Http, ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
            date_header=True, timeout_keep_alive=_KEEP_ALIVE, proxy_headers=False,
        )  # fmt: skip
        configuration.load()
        reached = (self.configuration.host, advertised_address(self.configuration.host) or "127.0.0.1")
        hosts = [host for host in reached if host not in ("0.0.0.0", "::")]
        first = next(iter(self.registry.allocators.addresses.values())).first
        context = server_context(self.authority, certs.new_server(self.authority, (*hosts, first)))
        state, most = self._state, self.configuration.most_connections

        def make() -> asyncio.Protocol:
            inner = Http(config=configuration, server_state=state, app_state={}, _loop=loop)
            if len(state.connections) >= most:
                return _Refusing()
            return TLSProtocol(context, inner, loop)

        self._servers.append(await loop.create_server(make, sock=sock, backlog=1024))

    async def stop(self) -> None:
        """Stops listening, lets requests end, ends watches, and closes the log."""
        self.health.stopping = True
        for server in self._servers:
            server.close()
        self.watches.closing.set()
        for resource in self.catalog.stored():
            for wake in tuple(self.registry.table(resource).waiters):
                wake()
        for connection in list(self._state.connections):
            connection.shutdown()
        deadline = asyncio.get_running_loop().time() + _STOPPING
        while self._state.tasks and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        for connection in list(self._state.connections):
            connection.transport.abort()
        await self.endpoint_slices.stop()
        await self.controllers.stop()
        await asyncio.to_thread(self.store.close)
        await asyncio.sleep(0)
        self._unlock()

    # --- credentials ---

    def kubeconfig(self, user: str = "admin", groups: tuple[str, ...] = (MASTERS,)) -> str:
        """A kubeconfig with a client certificate for a user."""
        from base64 import b64encode

        identity = certs.new_client(self.authority, user, groups)

        def text(data: bytes) -> str:
            return b64encode(data).decode()

        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "kproxy",
                    "cluster": {
                        "server": self.url,
                        "certificate-authority-data": text(self.authority.certificate_pem),
                    },
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": text(identity.certificate_pem),
                        "client-key-data": text(identity.key_pem),
                    },
                }
            ],
            "contexts": [{"name": "kproxy", "context": {"cluster": "kproxy", "user": user}}],
            "current-context": "kproxy",
        }
        return yaml.safe_dump(document, sort_keys=False)


class _Refusing(asyncio.Protocol):
    """Too many connections: closes at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _no_options() -> Any:
    from kproxy.apiserver.registry import DeleteOptions

    return DeleteOptions()


def advertised_address(host: str) -> str | None:
    """The address that others reach this server by: `host`, or for a loopback or wildcard one the address of the
    default route's interface, as kube-apiserver's --advertise-address; None if there is none."""
    address = ipaddress.ip_address(host) if _is_address(host) else None
    if address is not None and not address.is_loopback and not address.is_unspecified:
        return str(address)
    six = address is not None and address.version == 6
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as probe,
    ):
        probe.connect(("2001:db8::1" if six else "192.0.2.1", 9))  # sends nothing: only looks up the route
        found = ipaddress.ip_address(probe.getsockname()[0])
        if not found.is_loopback and not found.is_unspecified and not found.is_link_local:
            return str(found)
    return None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's loop where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server in a thread: its address, its admin kubeconfig, and how to get others."""

    url: str
    kubeconfig: Path
    port: int
    ca: Path
    _server: ApiServer
    _loop: asyncio.AbstractEventLoop

    def kubeconfig_for(self, user: str, *groups: str) -> str:
        """A kubeconfig for another user."""
        return self._server.kubeconfig(user, groups)

    def call(self, function: Callable[[ApiServer], Any]) -> Any:
        """Runs a function of the server on its event loop."""

        async def run() -> Any:
            return function(self._server)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)


@contextlib.contextmanager
def running_apiserver(
    directory: Path, *, port: int = 0, token_file: Path | None = None, **options: Any
) -> Iterator[RunningServer]:
    """Runs a server on the loopback in a thread, with its data and its kubeconfig in `directory`.

    >>> with running_apiserver(tmp_path) as server:  # doctest: +SKIP
    ...     subprocess.run(["kubectl", "--kubeconfig", server.kubeconfig, "get", "svc"])
    """
    tokens = load_token_file(token_file) if token_file is not None else {}
    configuration = Configuration(directory / "data", port=port, tokens=tokens, **options)
    loop = event_loop()
    started: threading.Event = threading.Event()
    failures: list[BaseException] = []
    stop = asyncio.Event()
    servers: list[ApiServer] = []

    async def serve() -> None:
        server = ApiServer(configuration)
        servers.append(server)
        try:
            await server.start()
        except BaseException as error:
            failures.append(error)
            started.set()
            return
        started.set()
        await stop.wait()
        await server.stop()

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(serve())
        finally:
            started.set()
            loop.close()

    thread = threading.Thread(target=run, name="apiserver", daemon=True)
    thread.start()
    started.wait(30)
    if failures:
        thread.join()
        raise failures[0]
    server = servers[0]
    path = directory / "kubeconfig"
    certs.write_private(path, server.kubeconfig().encode())
    authority = directory / "ca.crt"
    authority.write_bytes(server.authority.certificate_pem)
    try:
        yield RunningServer(server.url, path, server.port, authority, server, loop)
    finally:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)
        thread.join(15)


__all__ = ["ApiServer", "Configuration", "Context", "RunningServer", "ServerError", "StorageError", "running_apiserver"]
