"""How Events are counted."""

from __future__ import annotations

from kproxy.lab.events import event_of, once_more

POD = {"metadata": {"name": "web", "namespace": "default", "uid": "1"}}


def test_an_event_that_comes_again_is_counted() -> None:
    first, again, other = (
        event_of(POD, "Pod", "Failed", message, component="kubelet", host="node-1") for message in ("a", "a", "b")
    )
    assert first["metadata"] == again["metadata"] != other["metadata"]
    assert first["count"] == 1
    assert once_more(first)["count"] == 2
    assert once_more({**first, **once_more(first)})["count"] == 3
