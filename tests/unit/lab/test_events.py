"""How Events are counted."""

from __future__ import annotations

from kproxy.lab.events import Correlator

KEY = ("Pod", "default", "web", "uid", "v1")


def test_an_event_that_comes_again_is_counted() -> None:
    memory = Correlator("kubelet")
    assert memory.count((*KEY, "a"), "web.1", "t1").count == 1
    second = memory.count((*KEY, "a"), "web.2", "t2")
    assert (second.name, second.first, second.count) == ("web.1", "t1", 2)
    assert memory.count((*KEY, "b"), "web.3", "t3").name == "web.3"
