"""urllib3's connections, which tell the running call their socket. Imported with the first connection: `kproxy.client`
can be imported where urllib3 is not installed."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util import make_headers

from kproxy.client.errors import ConfigError

running = threading.local()
"""Has the `call` of a thread that is asking."""


def _attach(connection: HTTPConnection) -> None:
    call = getattr(running, "call", None)
    if call is not None and connection.sock is not None:
        call.attach(connection.sock)


class _Connection(HTTPConnection):
    def endheaders(self, message_body: Any = None, *, encode_chunked: bool = False) -> None:
        super().endheaders(message_body, encode_chunked=encode_chunked)
        _attach(self)


class _TlsConnection(HTTPSConnection):
    def endheaders(self, message_body: Any = None, *, encode_chunked: bool = False) -> None:
        super().endheaders(message_body, encode_chunked=encode_chunked)
        _attach(self)


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def new_pool(proxy: str, options: dict[str, Any]) -> urllib3.PoolManager:
    """Connections with urllib3's options, by a proxy if its URL is not empty. Raises ConfigError."""
    manager = _proxied(proxy, options) if proxy else urllib3.PoolManager(**options)
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return manager


def _proxied(url: str, options: dict[str, Any]) -> urllib3.ProxyManager:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"proxy-url {url!r}: only http and https proxies are supported")
    headers = make_headers(proxy_basic_auth=f"{parts.username}:{parts.password or ''}") if parts.username else None
    return urllib3.ProxyManager(parts.geturl(), proxy_headers=headers, **options)
