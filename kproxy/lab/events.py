"""Events: what controllers, scheduler and kubelets did and why, for `kubectl describe` and `kubectl get events`.

As client-go's tools/record. An event that comes again (same source, object, reason and message) is the old one with a
higher count. More than ten of one kind in ten minutes, differing only in their messages, become one event "(combined
from similar events)". A source may say 25 things of one object at once, and then one more every five minutes.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from kproxy.client import ApiError, RestClient, TransportError
from kproxy.lab.resources import EVENTS, KINDS, Json, Object, now, timestamp

log = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
COMBINED: Final = "(combined from similar events): "
_MAX_SIMILAR: Final = 10
_SIMILAR_SECONDS: Final = 600.0
_BURST: Final = 25
_REFILL: Final = 1 / 300
"""Events a second that a source has left for one object, once its burst is used up."""
_KEPT: Final = 4096
"""Entries of each memory; client-go's LRU caches have as many."""
_WAITING: Final = 1000
_TRIES: Final = 12
_PAUSE: Final = 1.0
_NO_NAMESPACE: Final = "default"


class WrittenEvent(msgspec.Struct):
    """An event that was written: its name, when it was first said, and how often since."""

    name: str
    first: str
    count: int


class EventWrite(NamedTuple):
    """What is to be written: a patch of the event of this name (None: it is new); if there is none, the whole event."""

    namespace: str
    name: str
    counted: Json | None
    body: Json


class Correlator:
    """What a source's event becomes, given those before it: a new one, an old one counted up, or nothing. Without I/O.

    Args:
        component: the source: `kubelet`, `default-scheduler`.
        host: its node, if it has one.
    """

    def __init__(self, component: str, host: str = "") -> None:
        self._source = {"component": component, **({"host": host} if host else {})}
        self._written: OrderedDict[tuple[str, ...], WrittenEvent] = OrderedDict()
        self._similar: OrderedDict[tuple[str, ...], tuple[set[str], float]] = OrderedDict()
        self._allowance: OrderedDict[tuple[str, ...], tuple[float, float]] = OrderedDict()

    def next(
        self, item: Object, kind: str, reason: str, message: str, type: str = NORMAL, part: str = "", *, clock: float
    ) -> EventWrite | None:
        """What to write of something that is said of an object, whose kind is one of `KINDS`; None: nothing. `part` is
        the field that is meant (`spec.containers{web}`), `clock` a monotonic time in seconds."""
        meta = item["metadata"]
        about = {
            "kind": kind,
            "namespace": meta.get("namespace", ""),
            "name": meta["name"],
            "uid": meta.get("uid", ""),
            "apiVersion": KINDS[kind].group_version,
            "resourceVersion": meta.get("resourceVersion", ""),
            "fieldPath": part,
        }
        which = tuple(about[name] for name in ("kind", "namespace", "name", "uid", "apiVersion"))
        if not self.allows(which, clock):
            return None
        like = (*which, part, type, reason)
        message = self.combine(like, message[:1024], clock)
        moment = timestamp(now())
        said = self.count(
            (*like, "" if message.startswith(COMBINED) else message), f"{meta['name']}.{time.time_ns():x}", moment
        )
        namespace = meta.get("namespace") or _NO_NAMESPACE
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": said.name, "namespace": namespace},
            "involvedObject": {name: value for name, value in about.items() if value},
            "type": type,
            "reason": reason,
            "message": message,
            "source": self._source,
            "reportingComponent": self._source["component"],
            "reportingInstance": self._source.get("host", ""),
            "firstTimestamp": said.first,
            "lastTimestamp": moment,
            "count": said.count,
        }
        counted = {name: body[name] for name in ("count", "lastTimestamp", "message")} if said.count > 1 else None
        return EventWrite(namespace, said.name, counted, body)

    def allows(self, source: tuple[str, ...], clock: float) -> bool:
        """Whether a source may say one more thing of an object (a token bucket)."""
        left, since = self._allowance.get(source, (float(_BURST), clock))
        left = min(float(_BURST), left + (clock - since) * _REFILL)
        _remember(self._allowance, source, (left - 1 if left >= 1 else left, clock))
        return left >= 1

    def combine(self, kind: tuple[str, ...], message: str, clock: float) -> str:
        """The message, or one for all of its kind if too many of them differ only in it."""
        messages, last = self._similar.get(kind, (set(), clock))
        if clock - last > _SIMILAR_SECONDS:
            messages = set()
        messages.add(message)
        _remember(self._similar, kind, (messages, clock))
        return message if len(messages) < _MAX_SIMILAR else COMBINED + message

    def count(self, key: tuple[str, ...], name: str, moment: str) -> WrittenEvent:
        """The event of a key, counted up; a new one has `name` and counts one."""
        known = self._written.get(key)
        found = (
            WrittenEvent(name, moment, 1) if known is None else WrittenEvent(known.name, known.first, known.count + 1)
        )
        _remember(self._written, key, found)
        return found


def _remember(memory: OrderedDict[tuple[str, ...], Any], key: tuple[str, ...], value: object) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > _KEPT:
        memory.popitem(last=False)


class Recorder:
    """Writes the events of one component (client-go's EventRecorder), in the background, in their order: whoever
    reports one never waits for the API server."""

    def __init__(self, client: RestClient, component: str, host: str = "") -> None:
        self._client = client
        self._correlator = Correlator(component, host)
        self._queue: queue.Queue[Callable[[], EventWrite | None]] = queue.Queue(_WAITING)
        self._begun = False
        self._lock = threading.Lock()

    def event(self, item: Object, kind: str, reason: str, message: str, *, type: str = NORMAL, part: str = "") -> None:
        """Says something of an object, as `Correlator.next` has it."""
        with self._lock:
            if not self._begun:
                self._begun = True
                threading.Thread(target=self._run, name="events", daemon=True).start()
        try:
            self._queue.put_nowait(
                lambda: self._correlator.next(item, kind, reason, message, type, part, clock=time.monotonic())
            )
        except queue.Full:
            log.warning("event dropped: %s %s", reason, message)

    def _run(self) -> None:
        while True:
            try:
                event = self._queue.get()()
                if event is not None:
                    self._try(lambda event=event: self._write(event))  # type: ignore[misc]
            except ApiError as error:
                log.warning("event refused: %s", error)
            except Exception:
                log.exception("event")

    def _write(self, event: EventWrite) -> None:
        if event.counted is not None:
            try:
                self._client.patch(EVENTS, event.name, event.counted, event.namespace)
                return
            except ApiError as error:
                if error.code != 404:
                    raise
            # It was deleted, or its time is over: said anew.
        self._client.create(EVENTS, event.body, event.namespace)

    def _try(self, call: Callable[[], object]) -> None:
        """Calls; while the API server cannot be reached again, some times."""
        for number in range(_TRIES):
            try:
                call()
                return
            except TransportError as error:
                if number == _TRIES - 1:
                    log.warning("event lost: %s", error)
                    return
                time.sleep(_PAUSE)
