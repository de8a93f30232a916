"""Events: what controllers, scheduler and kubelets did and why, for `kubectl describe` and `kubectl get events`.

As client-go's tools/record: an event that comes again (same source, object, reason and message) is the old one with a
higher count. Its name follows from these, so that nobody has to remember it. Events that are many are not combined or
left out: a lab is small.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
from typing import Final

from kproxy.client import ApiError, RestClient, TransportError
from kproxy.lab.resources import EVENTS, KINDS, Json, Object, now, timestamp

log = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
_TRIES: Final = 12
_PAUSE: Final = 1.0
_MOST_WAITING: Final = 1000
"""Events that wait for the API server."""
_NO_NAMESPACE: Final = "default"


def event_of(
    item: Object, kind: str, reason: str, message: str, *, component: str, host: str = "", type: str = NORMAL,
    part: str = "",
) -> Json:  # fmt: skip
    """The Event that says something of an object, as it is when it comes first.

    Args:
        kind: the object's, one of `KINDS`.
        component: the source: `kubelet`, `default-scheduler`.
        host: its node, if it has one.
        part: the field that is meant (`spec.containers{web}`).
    """
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
    same = (kind, about["namespace"], meta["name"], about["uid"], part, type, reason, message, component, host)
    digest = hashlib.sha256("\0".join(same).encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.{digest}", "namespace": meta.get("namespace") or _NO_NAMESPACE},
        "involvedObject": {name: value for name, value in about.items() if value},
        "type": type,
        "reason": reason,
        "message": message,
        "source": {"component": component, **({"host": host} if host else {})},
        "reportingComponent": component,
        "reportingInstance": host,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def once_more(event: Object) -> Json:
    """The patch of an Event that comes again."""
    return {"count": int(event.get("count") or 1) + 1, "lastTimestamp": timestamp(now())}


class Recorder:
    """Writes the events of one component (client-go's EventRecorder), in the background, in their order: whoever
    reports one never waits for the API server."""

    def __init__(self, client: RestClient, component: str, host: str = "") -> None:
        self._client = client
        self._source = {"component": component, "host": host}
        self._waiting: queue.Queue[Json] = queue.Queue(_MOST_WAITING)
        threading.Thread(target=self._run, name="events", daemon=True).start()

    def event(self, item: Object, kind: str, reason: str, message: str, *, type: str = NORMAL, part: str = "") -> None:
        """Says something of an object, as `event_of` has it; it is lost if too many wait."""
        try:
            self._waiting.put_nowait(event_of(item, kind, reason, message, type=type, part=part, **self._source))
        except queue.Full:
            log.warning("event dropped: %s %s", reason, message)

    def _run(self) -> None:
        while True:
            event = self._waiting.get()
            for _ in range(_TRIES):
                try:
                    self._write(event)
                    break
                except TransportError as error:
                    # The API server may be reached again.
                    log.info("event: %s", error)
                    time.sleep(_PAUSE)
                except ApiError as error:
                    log.warning("event refused: %s", error)
                    break

    def _write(self, event: Json) -> None:
        meta = event["metadata"]
        try:
            self._client.create(EVENTS, event, meta["namespace"])
        except ApiError as error:
            if error.code != 409:
                raise
            known = self._client.get(EVENTS, meta["name"], meta["namespace"]).raw
            self._client.patch(EVENTS, meta["name"], once_more(known), meta["namespace"])
