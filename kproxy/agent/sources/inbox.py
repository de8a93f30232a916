"""What the watches brought and no sync has taken yet: the last value of each object.

Informers' threads put, the sync thread takes. Many changes of one object are one change by the time of the sync, and
an order of arrival does not matter, because `services` depends only on the last value of each object.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import msgspec

from kproxy.api.types.core import Service
from kproxy.api.types.discovery import EndpointSlice


class Taken(msgspec.Struct, frozen=True):
    """Objects by `namespace/name`; None is a deletion."""

    services: Mapping[str, Service | None]
    slices: Mapping[str, EndpointSlice | None]

    def __bool__(self) -> bool:
        return bool(self.services or self.slices)


class Inbox:
    """Thread-safe. `on_put` is called after every put, without the lock held."""

    def __init__(self, on_put: Callable[[], None] = lambda: None) -> None:
        self._lock = threading.Lock()
        self._services: dict[str, Service | None] = {}
        self._slices: dict[str, EndpointSlice | None] = {}
        self._on_put = on_put

    def put_service(self, key: str, service: Service | None) -> None:
        """An added or changed Service, or None for one that was deleted."""
        with self._lock:
            self._services[key] = service
        self._on_put()

    def put_slice(self, key: str, endpoint_slice: EndpointSlice | None) -> None:
        """An added or changed EndpointSlice, or None for one that was deleted."""
        with self._lock:
            self._slices[key] = endpoint_slice
        self._on_put()

    def take(self) -> Taken:
        """Everything that was put since the last call."""
        with self._lock:
            taken = Taken(self._services, self._slices)
            self._services, self._slices = {}, {}
        return taken

    def sizes(self) -> tuple[int, int]:
        """How many Services and EndpointSlices are waiting."""
        return len(self._services), len(self._slices)
