"""A controller's worker: keys in a work queue, taken one at a time, and tried again when the API refuses.

A key waits in the queue once, however often it is added; one that is added while it is worked on comes again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Final, Generic, Protocol, TypeVar

from kproxy.apiserver.errors import StatusError
from kproxy.apiserver.registry.writes import WriteResult
from kproxy.informer import WorkQueue

log = logging.getLogger(__name__)

KeyT = TypeVar("KeyT", bound=Hashable)
_MAX_RETRIES: Final = 15


class Controller(Protocol):
    """What the server starts, once the tables are there, and stops."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...


class Worker(Generic[KeyT]):
    """Calls `sync` with each key that is added. Make it inside the event loop; `name` is for the log."""

    def __init__(self, name: str, sync: Callable[[KeyT], Awaitable[None]]) -> None:
        self._name = name
        self._sync = sync
        self._queue: WorkQueue[KeyT] = WorkQueue()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    def add(self, key: KeyT) -> None:
        self._queue.add(key, self._loop.time())
        self._wake.set()

    def add_after(self, key: KeyT, delay: float) -> None:
        """Queues a key in `delay` seconds."""
        self._queue.add_after(key, delay, self._loop.time())
        self._wake.set()

    def start(self) -> None:
        """Begins to work; what was added before waits in the queue."""
        self._task = asyncio.ensure_future(self._work())

    async def stop(self) -> None:
        """Ends the work, also in the middle of a key."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            now = self._loop.time()
            work = self._queue.get(now)
            if work is None:
                self._wake.clear()
                try:
                    async with asyncio.timeout(self._queue.next_ready(now)):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                continue
            try:
                await self._sync(work.item)
                self._queue.forget(work.item)
            except StatusError as error:
                self._refused(work.item, error)
            except Exception:
                log.exception("%s: %s", self._name, work.item)
                self._queue.forget(work.item)
            finally:
                self._queue.done(work.item, self._loop.time())

    def _refused(self, key: KeyT, error: StatusError) -> None:
        if error.code == 404:  # the object is gone
            self._queue.forget(key)
        elif self._queue.num_requeues(key) < _MAX_RETRIES:
            self._queue.add_rate_limited(key, self._loop.time())
        else:
            log.warning("%s: %s: %s", self._name, key, error)
            self._queue.forget(key)


async def durable(writes: Iterable[WriteResult]) -> None:
    """Waits until writes are on disk."""
    for write in writes:
        if write.done is not None:
            await write.done
