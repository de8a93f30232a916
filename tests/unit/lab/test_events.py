"""Events, and the resources of the kinds that they are about."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from kproxy.apiserver.kinds.resources import built_in
from kproxy.lab import events
from kproxy.lab.events import Recorder, event_of, once_more
from kproxy.lab.resources import KINDS

POD = {"metadata": {"name": "web", "namespace": "default", "uid": "1"}}


def test_an_event_that_comes_again_is_counted() -> None:
    first, again, other = (
        event_of(POD, "Pod", "Failed", message, component="kubelet", host="node-1") for message in ("a", "a", "b")
    )
    assert first["metadata"] == again["metadata"] != other["metadata"]
    assert first["count"] == 1
    assert once_more(first)["count"] == 2
    assert once_more({**first, **once_more(first)})["count"] == 3


class NoServer:
    """A client that hangs until it is told to go on; `asked` when it is first called."""

    def __init__(self) -> None:
        self.asked, self.goes_on = threading.Event(), threading.Event()

    def create(self, *_: Any) -> None:
        self.asked.set()
        assert self.goes_on.wait(60)


def test_while_nobody_takes_them_events_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(events, "_MOST_WAITING", 2)
    server = NoServer()
    recorder = Recorder(server, "kubelet")  # type: ignore[arg-type]
    recorder.event(POD, "Pod", "Failed", "first")
    assert server.asked.wait(60)
    with caplog.at_level(logging.WARNING):
        for number in range(4):
            recorder.event(POD, "Pod", "Failed", f"again {number}")
    server.goes_on.set()
    assert caplog.messages == ["event dropped: Failed again 2", "event dropped: Failed again 3"]


def test_kinds_and_their_resources_belong_together() -> None:
    known = {(each.group, each.version, each.kind): (each.plural, each.namespaced) for each in built_in()}
    for kind, resource in KINDS.items():
        assert known[resource.group, resource.version, kind] == (resource.plural, resource.namespaced)
