"""SharedInformerFactory: one informer per resource and selector, shared by all that ask for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from kproxy.client.informer import Informer
from kproxy.client.resources import Resource
from kproxy.client.rest import RestClient
from kproxy.informer.actions import ReflectorOptions
from kproxy.informer.objects import T
from kproxy.informer.store import IndexFunc

_Key = tuple[str, str, str, str]


class SharedInformerFactory:
    """Makes and runs informers, as client-go's.

    `namespace` "" is all; `resync_period` is in seconds, 0 for never.
    """

    def __init__(
        self,
        client: RestClient,
        *,
        namespace: str = "",
        resync_period: float = 0.0,
        options: ReflectorOptions | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._resync_period = resync_period
        self._options = options
        self._informers: dict[_Key, Informer[Any]] = {}

    def informer(
        self,
        resource: Resource[T],
        *,
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, IndexFunc[T]] | None = None,
    ) -> Informer[T]:
        """The informer of a resource with these selectors, made at the first call; `indexers` are added to it."""
        key = (resource.group_version, resource.plural, label_selector, field_selector)
        found = cast("Informer[T] | None", self._informers.get(key))
        if found is None:
            found = Informer(
                self._client,
                resource,
                namespace=self._namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                options=self._options,
                resync_period=self._resync_period,
            )
            self._informers[key] = found
        known = found.indexer.indexers()
        found.indexer.add_indexers({name: do for name, do in (indexers or {}).items() if known.get(name) is not do})
        return found

    def start(self) -> None:
        """Starts the informers that do not run yet."""
        for informer in self._informers.values():
            informer.start()

    def wait_for_cache_sync(
        self, timeout: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> Mapping[str, bool]:
        """Waits until all that were started have synced, at most `timeout` seconds; says which have, by resource.

        Nothing is waited for that was made since `start` was last called, as in client-go: it says False.
        """
        until = None if timeout is None else clock() + timeout
        synced: dict[str, bool] = {}
        for informer in self._informers.values():
            left = None if until is None else max(0.0, until - clock())
            done = informer.started and informer.wait_for_sync(left)
            synced[informer.resource.qualified] = done and synced.get(informer.resource.qualified, True)
        return synced

    def shutdown(self, timeout: float = 5.0) -> bool:
        """Stops all; False if a thread is still in a handler after `timeout` seconds each."""
        stopped = [informer.stop(timeout) for informer in self._informers.values()]
        return all(stopped)
