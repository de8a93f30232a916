"""Events: what controllers, scheduler and kubelets did and why, for `kubectl describe` and `kubectl get events`.

As client-go's tools/record: an event that comes again (same source, object, reason and message) is the old one with a
higher count. Events that are many are not combined or left out: a lab is small.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import OrderedDict
from typing import Final, NamedTuple

import msgspec

from kproxy.client import ApiError, RestClient, TransportError
from kproxy.lab.resources import EVENTS, KINDS, Json, Object, now, timestamp

log = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
_KEPT: Final = 4096
"""Events that a source remembers; client-go's cache has as many."""
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

    def next(
        self, item: Object, kind: str, reason: str, message: str, type: str = NORMAL, part: str = ""
    ) -> EventWrite:
        """What to write of something that is said of an object, whose kind is one of `KINDS`. `part` is the field that
        is meant (`spec.containers{web}`)."""
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
        message, moment = message[:1024], timestamp(now())
        key = (
            *(about[name] for name in ("kind", "namespace", "name", "uid", "apiVersion")),
            part,
            type,
            reason,
            message,
        )
        said = self.count(key, f"{meta['name']}.{time.time_ns():x}", moment)
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

    def count(self, key: tuple[str, ...], name: str, moment: str) -> WrittenEvent:
        """The event of a key, counted up; a new one has `name` and counts one."""
        known = self._written.get(key)
        found = (
            WrittenEvent(name, moment, 1) if known is None else WrittenEvent(known.name, known.first, known.count + 1)
        )
        self._written[key] = found
        self._written.move_to_end(key)
        if len(self._written) > _KEPT:
            self._written.popitem(last=False)
        return found


class Recorder:
    """Writes the events of one component (client-go's EventRecorder), in the background, in their order: whoever
    reports one never waits for the API server."""

    def __init__(self, client: RestClient, component: str, host: str = "") -> None:
        self._client = client
        self._correlator = Correlator(component, host)
        self._queue: queue.Queue[EventWrite] = queue.Queue(_WAITING)
        self._begun = False
        self._lock = threading.Lock()

    def event(self, item: Object, kind: str, reason: str, message: str, *, type: str = NORMAL, part: str = "") -> None:
        """Says something of an object, as `Correlator.next` has it."""
        with self._lock:
            if not self._begun:
                self._begun = True
                threading.Thread(target=self._run, name="events", daemon=True).start()
            try:
                self._queue.put_nowait(self._correlator.next(item, kind, reason, message, type, part))
            except queue.Full:
                log.warning("event dropped: %s %s", reason, message)

    def _run(self) -> None:
        while True:
            event, tries = self._queue.get(), _TRIES
            while tries:
                try:
                    self._write(event)
                    break
                except TransportError as error:
                    # The API server may be reached again.
                    tries -= 1
                    log.info("event: %s", error)
                    time.sleep(_PAUSE)
                except ApiError as error:
                    log.warning("event refused: %s", error)
                    break

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
