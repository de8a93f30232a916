"""The inbox: the last value of each object, once."""

from __future__ import annotations

from kproxy.agent.sources.inbox import Inbox
from tests.support.services.builders import make_endpoint, make_service, make_slice


def test_the_last_value_counts() -> None:
    calls: list[int] = []
    inbox = Inbox(lambda: calls.append(1))
    old, new = make_service("web"), make_service("web", cluster_ips=("10.96.0.9",))
    piece = make_slice(make_endpoint())
    inbox.put_service("shop/web", old)
    inbox.put_service("shop/web", new)
    inbox.put_service("shop/gone", old)
    inbox.put_service("shop/gone", None)
    inbox.put_slice("shop/web-1", piece)
    assert inbox.sizes() == (2, 1)
    taken = inbox.take()
    assert taken.services == {"shop/web": new, "shop/gone": None}
    assert taken.slices == {"shop/web-1": piece}
    assert taken
    assert not inbox.take()
    assert inbox.sizes() == (0, 0)
    assert len(calls) == 5
