"""The kubelet's work queue: workers take keys, and bring the node to what the objects under them say.

client-go's pattern. Changes come as keys, never as differences; a worker reads what is known when it comes to the
key, and a failure puts the key back with a growing delay.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from kproxy.client import ApiError, BlockingWorkQueue, TransportError
from kproxy.informer import DeletedFinalStateUnknown, Unstructured
from kproxy.informer.ratelimit import ItemExponentialFailureRateLimiter
from kproxy.lab.resources import Object

log = logging.getLogger(__name__)


class Workers(ABC):
    """`start` after the informers were made; `stop` ends the workers."""

    workers = 1

    def __init__(self) -> None:
        # Failures come back within the second at first: a lab is looked at while it works.
        self.queue: BlockingWorkQueue[str] = BlockingWorkQueue(ItemExponentialFailureRateLimiter(0.01, 30.0))
        self._threads: list[threading.Thread] = []

    @abstractmethod
    def sync(self, key: str) -> float | None:
        """Brings the world to what `key` says; a number asks for the same again after so many seconds."""

    def start(self) -> None:
        for number in range(self.workers):
            thread = threading.Thread(target=self._work, name=f"kubelet-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self, timeout: float = 2.0) -> None:
        """Takes nothing more in, and waits for the workers."""
        self.queue.shut_down()
        for thread in self._threads:
            thread.join(timeout)

    def _work(self) -> None:
        while (work := self.queue.get()) is not None:
            key = work.item
            try:
                again = self.sync(key)
            except ApiError as error:
                # A conflict means that the object has changed: its event brings the key back, but not always sooner.
                if error.code not in (404, 409):
                    log.warning("%s: %s", key, error)
                self.queue.add_rate_limited(key)
            except TransportError as error:
                log.info("%s: %s", key, error)
                self.queue.add_rate_limited(key)
            except Exception:
                log.exception("%s", key)
                self.queue.add_rate_limited(key)
            else:
                self.queue.forget(key)
                if again is not None:
                    self.queue.add_after(key, again)
            finally:
                self.queue.done(key)


class ObjectHandler:
    """Calls a function with each object that is added, changed (before and after) or deleted."""

    def __init__(self, changed: Callable[[Object], None]) -> None:
        self._changed = changed

    def on_add(self, item: Unstructured, is_in_initial_list: bool) -> None:
        self._changed(item.raw)

    def on_update(self, old: Unstructured, new: Unstructured) -> None:
        self._changed(old.raw)
        self._changed(new.raw)

    def on_delete(self, item: Unstructured | DeletedFinalStateUnknown[Unstructured]) -> None:
        last = item.object if isinstance(item, DeletedFinalStateUnknown) else item
        if last is not None:
            self._changed(last.raw)
