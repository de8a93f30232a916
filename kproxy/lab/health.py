"""Asking a health port: kube-proxy's own, and the health-check node ports of Services."""

from __future__ import annotations

from typing import Final

from kproxy.client import ClientConfig, HttpClient, TransportError
from kproxy.family import join_host_port

TIMEOUT: Final = 1.0
"""Seconds."""


def is_healthy(address: str, port: int) -> bool:
    """Whether `GET /healthz` is answered with 200, asked from the namespace that the calling thread is in."""
    return health_status(address, port) == 200


def health_status(address: str, port: int) -> int:
    """The HTTP status of `GET /healthz`; 0 if nothing answers."""
    client = HttpClient(ClientConfig(f"http://{join_host_port(address, port)}"))
    try:
        return client.request("GET", "/healthz", timeout=TIMEOUT).status
    except TransportError:
        return 0
    finally:
        client.close()
