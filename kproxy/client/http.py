"""The one HTTP client: one API server over urllib3, with calls that another thread can end.

urllib3 because it is maintained, has no event loop to run beside, hands on each piece of a stream as it comes, and is
what the official client brings along. A call that waits, for headers or for the next piece of a stream, is ended by
shutting its socket down (`Call.cancel`); that is why connections here tell the call which socket they use.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

from kproxy import __version__
from kproxy.client.config import ClientConfig
from kproxy.client.credentials import ClientCertificate
from kproxy.client.errors import (
    CancelledError,
    ConfigError,
    SilenceError,
    TransportError,
    describe_failure,
    http_errors,
    is_silence,
    is_the_proxys,
)
from kproxy.extras import require

if TYPE_CHECKING:
    import urllib3

CONNECT_TIMEOUT: Final = 10.0
"""Seconds for name, connection and TLS."""

PIECE: Final = 256 * 1024
"""Bytes read at a time at most."""

# A peer that vanished without a word is noticed after about a minute, also by a watch that has nothing to say.
KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)


class Call:
    """One request and its answer, which `cancel` ends from any thread and at any time.

    Invariant: `_socket` is a duplicate of the connection's descriptor, so that shutting it down can hit no other
    connection, whatever happens to the first descriptor meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._connection: Any = None
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """Ends the call: the thread that waits for it gets CancelledError. Twice does no harm."""
        with self._lock:
            self._cancelled = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def attach(self, connection: Any) -> None:
        """The call uses this socket from now on. Raises CancelledError."""
        with self._lock:
            if self._cancelled:
                raise CancelledError("the call was ended")
            self._release()
            self._socket = socket.socket(fileno=os.dup(connection.fileno()))
            self._connection = connection

    def set_timeout(self, seconds: float) -> None:
        """From now on an answer under way may be silent for so long; only for the thread that reads it."""
        with self._lock:
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.settimeout(seconds)

    def finish(self) -> None:
        """The call uses its socket no longer."""
        with self._lock:
            self._release()

    def _release(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._connection = None


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class Stream:
    """An answer that comes in pieces. One thread reads; any thread may `cancel` the call it was given."""

    def __init__(self, raw: urllib3.BaseHTTPResponse, call: Call, address: str = "") -> None:
        self._raw = raw
        self._call = call
        self._address = address
        self.status = raw.status
        self.headers = _headers(raw)

    def read(self) -> bytes:
        """The next piece as soon as it is there; b"" at the orderly end.

        Raises TransportError, of which SilenceError if nothing came in time, and CancelledError.
        """
        try:
            data = self._raw.read1(PIECE)
        except http_errors() as error:
            self.close()
            raise _failure(error, self._call, self._address) from error
        if not data:
            self.close()
            if self._call.cancelled:
                raise CancelledError("the call was ended")
        return data

    def read_all(self) -> bytes:
        """The rest. Raises TransportError and CancelledError."""
        pieces = []
        while piece := self.read():
            pieces.append(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Gives the stream up; only for the thread that reads it."""
        self._call.finish()
        with contextlib.suppress(*http_errors()):
            self._raw.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class HttpClient:
    """Connections to one API server, shared by all threads.

    Invariant: `_pool` was made for the certificate `_pair`; another certificate gets connections of its own.
    """

    def __init__(self, config: ClientConfig, user_agent: str = f"kproxy/{__version__}") -> None:
        require("client", "asking an API server")
        parts = _split(config.server)
        self._config = config
        self._user_agent = user_agent
        self._base = config.server.rstrip("/")
        self._is_tls = parts.scheme == "https"
        self._address = _address(parts.scheme, parts.hostname or "", parts.port)
        self._proxy = config.proxy_url or _environment_proxy(parts.scheme, parts.hostname or "")
        self._lock = threading.Lock()
        self._pool: urllib3.PoolManager | None = None
        self._pair: ClientCertificate | None = None

    def request(
        self,
        method: str,
        target: str,
        *,
        accept: str = "application/json",
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float = 60.0,
        call: Call | None = None,
    ) -> Response:
        """A call with its whole answer, whatever its status.

        Args:
            target: path and query, from "/".
            timeout: seconds of silence after which it has failed.
            call: lets other threads end it.

        Raises TransportError, CredentialError, ConfigError and CancelledError.
        """
        stream = self.stream(
            method, target, accept=accept, body=body, content_type=content_type, timeout=timeout, call=call
        )
        return Response(stream.status, stream.headers, stream.read_all())

    def stream(
        self,
        method: str,
        target: str,
        *,
        accept: str = "application/json",
        body: bytes | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        call: Call | None = None,
    ) -> Stream:
        """The same, the answer piece by piece; the caller must read it to its end or close it.

        Args:
            headers: more that are sent.
        """
        call = call or Call()
        credential = self._config.credential
        from urllib3 import HTTPHeaderDict

        sent = HTTPHeaderDict({"Accept": accept, "User-Agent": self._user_agent, **(headers or {})})
        for name, value in self._config.impersonation.headers():
            sent.add(name, value)
        if body is not None:
            sent["Content-Type"] = content_type
        for attempt in (1, 2):
            authorization = credential.authorization()
            if authorization:
                sent["Authorization"] = authorization
            stream = self._send(method, self._base + target, sent, body, timeout, call)
            if stream.status != 401 or attempt == 2 or not credential.rejected(authorization):
                break
            stream.read_all()
        return stream

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return self._address

    def websocket(self, target: str, protocols: Sequence[str], timeout: float) -> Any:
        """A WebSocket (websocket-client's), for one thread.

        Args:
            target: path and query, from "/".
            protocols: those that are offered.
            timeout: seconds of silence after which it has failed.

        Raises websocket.WebSocketException, OSError, CredentialError and ConfigError.
        """
        import websocket

        credential = self._config.credential
        options: dict[str, Any] = {"timeout": timeout, "suppress_origin": True, "subprotocols": list(protocols)}
        options["sockopt"] = KEEPALIVE
        if self._is_tls:
            options["sslopt"] = {"context": self._ssl_context(credential.certificate())}
            if self._config.tls_server_name:
                options["sslopt"]["server_hostname"] = self._config.tls_server_name
        if self._proxy:
            parts = urlsplit(self._proxy if "://" in self._proxy else f"http://{self._proxy}")
            options |= {"http_proxy_host": parts.hostname, "http_proxy_port": parts.port, "proxy_type": "http"}
            if parts.username:
                options["http_proxy_auth"] = (parts.username, parts.password or "")
        else:
            options["http_no_proxy"] = ["*"]
        url = f"ws{self._base.removeprefix('http')}{target}"
        for attempt in (1, 2):
            authorization = credential.authorization()
            headers = [f"User-Agent: {self._user_agent}"]
            headers += [f"{name}: {value}" for name, value in self._config.impersonation.headers()]
            headers += [f"Authorization: {authorization}"] if authorization else []
            try:
                return websocket.create_connection(url, header=headers, **options)
            except websocket.WebSocketBadStatusException as error:
                if error.status_code != 401 or attempt == 2 or not credential.rejected(authorization):
                    raise
        raise AssertionError("not reached")

    def close(self) -> None:
        with self._lock:
            if self._pool is not None:
                self._pool.clear()

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout: float, call: Call
    ) -> Stream:
        from urllib3 import Timeout

        from kproxy.client.pools import running

        pool = self._connections()
        running.call = call
        try:
            if call.cancelled:
                raise CancelledError("the call was ended")
            raw = pool.urlopen(
                method,
                url,
                body=body,
                headers=headers,
                retries=False,
                redirect=False,
                preload_content=False,
                timeout=Timeout(connect=CONNECT_TIMEOUT, read=timeout),
            )
        except http_errors() as error:
            call.finish()
            raise _failure(error, call, self._address) from error
        finally:
            running.call = None
        return Stream(raw, call, self._address)

    def _connections(self) -> urllib3.PoolManager:
        pair = self._config.credential.certificate() if self._is_tls else None
        with self._lock:
            if self._pool is None or pair != self._pair:
                self._pool = self._new_pool(pair)
                self._pair = pair
            return self._pool

    def _new_pool(self, pair: ClientCertificate | None) -> urllib3.PoolManager:
        from kproxy.client.pools import new_pool

        # Watches keep their connections for minutes: the pool is there to keep those of short calls open.
        options: dict[str, Any] = {"num_pools": 4, "maxsize": 8, "block": False, "socket_options": list(KEEPALIVE)}
        if self._is_tls:
            options["ssl_context"] = self._ssl_context(pair)
            if self._config.tls_server_name:
                options["server_hostname"] = self._config.tls_server_name
                if not self._config.insecure_skip_tls_verify:
                    options["assert_hostname"] = self._config.tls_server_name
        return new_pool(self._proxy, options)

    def _ssl_context(self, pair: ClientCertificate | None) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cadata=self._config.ca)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"certificate-authority cannot be used: {error}") from error
        if self._config.insecure_skip_tls_verify:
            from urllib3 import disable_warnings
            from urllib3.exceptions import InsecureRequestWarning

            disable_warnings(InsecureRequestWarning)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if pair is not None:
            pair.load_into(context)
        return context


def _split(server: str) -> SplitResult:
    """The parts of an API server's URL. Raises ConfigError."""
    try:
        parts = urlsplit(server)
        _ = parts.port  # looked at now: it raises if that is not a port
    except ValueError as error:
        raise ConfigError(f"server {server!r}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"server {server!r} is no http or https URL")
    return parts


def _environment_proxy(scheme: str, host: str) -> str:
    """What HTTPS_PROXY, HTTP_PROXY and NO_PROXY say; loopback goes without, as in Go."""
    if host == "localhost" or host.startswith("127.") or host == "::1" or urllib.request.proxy_bypass(host):
        return ""
    return urllib.request.getproxies().get(scheme, "")


def _headers(raw: urllib3.BaseHTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in raw.headers.items()}


def _address(scheme: str, host: str, port: int | None) -> str:
    return f"{f'[{host}]' if ':' in host else host}:{port or (443 if scheme == 'https' else 80)}"


def _failure(error: Exception, call: Call, address: str) -> TransportError | CancelledError:
    if call.cancelled:
        return CancelledError("the call was ended")
    if is_silence(error):
        return SilenceError(describe_failure(error), address)
    proxy = "the proxy: " if is_the_proxys(error) else ""
    return TransportError(proxy + describe_failure(error, address.rpartition(":")[0]), address)
