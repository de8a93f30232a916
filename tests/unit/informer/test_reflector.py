"""The reflector's transitions, one by one; tests/unit/informer/test_faults.py has them in all orders."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kproxy.api import Service
from kproxy.informer import Reflector, ReflectorOptions
from kproxy.informer.objects import EventType, ListPage, Status, WatchEvent
from kproxy.informer.reflector import Action, ListRequest, Read, Stop, Wait, WatchRequest
from tests.support.informer.builders import service


class Sink:
    """What the reflector said, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []

    def add(self, item: Service) -> None:
        self.calls.append(("add", [item.metadata.name]))

    def update(self, item: Service) -> None:
        self.calls.append(("update", [item.metadata.name]))

    def delete(self, item: Service) -> None:
        self.calls.append(("delete", [item.metadata.name]))

    def replace(self, items: Sequence[Service]) -> None:
        self.calls.append(("replace", [item.metadata.name for item in items]))


def make(watch_list: bool = False, page_size: int = 500) -> tuple[Reflector[Service], Sink]:
    sink = Sink()
    return Reflector(sink, lambda: 0.0, ReflectorOptions(watch_list=watch_list, page_size=page_size)), sink


def watching(version: str = "10") -> tuple[Reflector[Service], Sink]:
    """One with an open stream after a list at this version, at time 0."""
    subject, sink = make()
    subject.take_page(ListPage((service("a", 1),), version), 0.0)
    assert isinstance(subject.next_action(0.0), WatchRequest)
    subject.stream_opened(0.0)
    return subject, sink


def event(kind: EventType, name: str, version: int) -> WatchEvent[Service]:
    return WatchEvent(kind, service(name, version), str(version))


def assert_waits(action: Action, seconds: float) -> None:
    assert isinstance(action, Wait)
    assert action.seconds == pytest.approx(seconds)


GONE = Status(410, "Expired", "too old resource version")
TOO_LARGE = Status(504, "Timeout", "Too large resource version: 9", ("ResourceVersionTooLarge",))
TOO_MANY = Status(429, "TooManyRequests", "wait", retry_after=7.0)
LOST = Status(0, message="connection reset")
BROKEN = Status(500, "InternalError", "boom")


def test_the_first_list_takes_anything_and_the_watch_starts_at_its_version() -> None:
    subject, sink = make()
    assert subject.next_action(0.0) == ListRequest("0", 500, "", 60.0)
    subject.take_page(ListPage((service("a"), service("b")), "10"), 0.0)
    assert sink.calls == [("replace", ["a", "b"])]
    watch = subject.next_action(0.0)
    assert watch == WatchRequest("10", False, 300, 180.0, 330.0)
    subject.stream_opened(0.0)
    assert subject.next_action(0.0) == Read()


def test_an_expired_continue_token_leads_to_the_whole_list_at_once() -> None:
    subject, sink = make(page_size=1)
    subject.next_action(0.0)
    subject.take_page(ListPage((service("a"),), "10", "token"), 0.0)
    subject.fail(GONE, 0.0)
    assert subject.next_action(0.0) == ListRequest("0", 0, "", 60.0)
    subject.take_page(ListPage((service("b"),), "11"), 0.0)
    assert sink.calls == [("replace", ["b"])]


def test_tokens_that_expire_again_and_again_are_backed_off_from() -> None:
    subject, _ = make(page_size=1)
    waits = 0
    for _ in range(8):
        if isinstance(subject.next_action(0.0), Wait):
            waits += 1
            continue
        subject.take_page(ListPage((service("a"),), "10", "token"), 0.0)
        subject.fail(GONE, 0.0)
    assert waits


def test_pages_that_do_not_end_and_lists_without_version_are_failures() -> None:
    subject, sink = make(page_size=1)
    subject.take_page(ListPage((service("a"),), "10", "token"), 0.0)
    subject.take_page(ListPage((service("a"),), "10", "token"), 0.0)
    assert_waits(subject.next_action(0.0), 0.8)
    subject, sink = make()
    subject.take_page(ListPage((service("a"),), ""), 0.0)
    assert_waits(subject.next_action(0.0), 0.8)
    assert sink.calls == []


def test_after_410_the_list_asks_for_nothing_older_and_if_refused_for_the_newest() -> None:
    subject, _ = watching()
    assert not subject.take_event(WatchEvent(EventType.ERROR, status=GONE), 5.0)
    assert_waits(subject.next_action(5.0), 0.8)
    assert subject.next_action(5.8) == ListRequest("10", 0, "", 60.0)
    subject.fail(TOO_LARGE, 5.8)
    assert subject.next_action(5.8) == ListRequest("", 500, "", 60.0)
    subject.fail(GONE, 5.8)
    assert_waits(subject.next_action(5.8), 1.6)


@pytest.mark.parametrize(("status", "wait"), [(LOST, 0.8), (TOO_MANY, 7.0)])
def test_a_lost_connection_and_429_lead_to_a_watch_from_where_it_was(status: Status, wait: float) -> None:
    subject, _ = watching()
    subject.take_event(event(EventType.ADDED, "b", 12), 3.0)
    subject.fail(status, 5.0)
    assert_waits(subject.next_action(5.0), wait)
    watch = subject.next_action(5.0 + wait)
    assert isinstance(watch, WatchRequest)
    assert watch.resource_version == "12"


def test_a_quiet_watch_begins_again_and_is_no_failure() -> None:
    subject, _ = watching()
    subject.take_event(event(EventType.ADDED, "b", 12), 3.0)
    subject.stream_silent(183.0)
    watch = subject.next_action(183.0)
    assert isinstance(watch, WatchRequest)
    assert watch.resource_version == "12"
    assert (subject.metrics.failures, subject.last_failure) == (0, None)
    subject.fail(LOST, 193.0)
    assert subject.last_failure == LOST, "a server that is gone is noticed then"


def test_a_streaming_list_that_falls_silent_is_a_failure() -> None:
    subject, _ = make(watch_list=True)
    assert isinstance(subject.next_action(0.0), WatchRequest)
    subject.stream_opened(0.0)
    subject.stream_silent(10.0)
    assert subject.metrics.failures == 1
    assert isinstance(subject.next_action(10.0), ListRequest)


def test_retry_after_counts_up_to_five_minutes() -> None:
    subject, _ = watching()
    subject.fail(Status(429, retry_after=86400.0), 5.0)
    assert_waits(subject.next_action(5.0), 300.0)


def test_events_and_bookmarks_move_the_version_on() -> None:
    subject, sink = watching()
    for one in (
        event(EventType.ADDED, "b", 11),
        event(EventType.MODIFIED, "b", 12),
        event(EventType.DELETED, "b", 13),
        WatchEvent[Service](EventType.BOOKMARK, resource_version="20"),
    ):
        assert subject.take_event(one, 1.0)
    assert sink.calls[1:] == [("add", ["b"]), ("update", ["b"]), ("delete", ["b"])]
    assert subject.last_sync_resource_version == "20"
    subject.stream_closed(300.0)
    watch = subject.next_action(300.0)
    assert isinstance(watch, WatchRequest)
    assert watch.resource_version == "20"


def test_an_old_event_is_not_believed_and_the_newest_list_follows() -> None:
    subject, sink = watching("10")
    assert subject.take_event(event(EventType.ADDED, "b", 12), 1.0)
    assert subject.take_event(event(EventType.ADDED, "b", 12), 1.0), "the same again does no harm"
    assert not subject.take_event(event(EventType.MODIFIED, "a", 7), 1.0)
    assert ("update", ["a"]) not in sink.calls
    assert subject.next_action(1.8) == ListRequest("", 500, "", 60.0)
    assert subject.metrics.stale == 1
    subject, _ = watching("10")
    assert not subject.take_event(WatchEvent(EventType.BOOKMARK, resource_version="4"), 1.0)


def test_a_list_older_than_what_is_known_is_asked_for_again() -> None:
    subject, sink = watching("10")
    subject.fail(BROKEN, 5.0)
    subject.next_action(5.8)
    subject.take_page(ListPage((), "4"), 5.8)
    assert len(sink.calls) == 1
    assert isinstance(subject.next_action(5.8), Wait)
    assert subject.next_action(9.0) == ListRequest("", 500, "", 60.0)
    subject.take_page(ListPage((), "4"), 9.0)
    assert sink.calls[-1] == ("replace", []), "a server that was restored is believed"
    assert subject.last_sync_resource_version == "4"


def test_watches_that_end_early_do_not_loop() -> None:
    subject, _ = watching()
    subject.stream_closed(0.2)
    assert_waits(subject.next_action(0.2), 0.8)
    assert isinstance(subject.next_action(1.0), ListRequest), "without events: as in client-go, a list"
    subject, _ = watching()
    subject.take_event(event(EventType.ADDED, "b", 12), 0.1)
    subject.stream_closed(0.2)
    assert_waits(subject.next_action(0.2), 0.8)
    assert isinstance(subject.next_action(1.0), WatchRequest)
    subject, _ = watching()
    subject.stream_closed(1.0)
    assert isinstance(subject.next_action(1.0), WatchRequest)


def test_a_clock_that_goes_back_does_not_prolong_a_wait() -> None:
    subject, _ = watching()
    subject.fail(LOST, 5000.0)
    assert_waits(subject.next_action(0.0), 0.8)
    assert isinstance(subject.next_action(0.8), WatchRequest)


def test_a_streaming_list_and_the_watch_behind_it_are_one_request() -> None:
    subject, sink = make(watch_list=True)
    assert subject.next_action(0.0) == WatchRequest("", True, 300, 10.0, 330.0)
    subject.stream_opened(0.0)
    for one in (
        event(EventType.ADDED, "b", 7),
        event(EventType.ADDED, "a", 3),
        event(EventType.ADDED, "c", 4),
        event(EventType.DELETED, "c", 8),
        WatchEvent[Service](EventType.BOOKMARK, resource_version="9"),
    ):
        assert subject.take_event(one, 0.0)
    assert sink.calls == []
    assert subject.last_sync_resource_version == ""
    subject.take_event(WatchEvent(EventType.BOOKMARK, resource_version="9", initial_events_end=True), 0.0)
    assert sink.calls == [("replace", ["b", "a"])]
    assert subject.next_action(0.0) == Read()
    assert subject.take_event(event(EventType.ADDED, "d", 10), 0.0)
    assert sink.calls[-1] == ("add", ["d"])


@pytest.mark.parametrize("opened", [False, True])
def test_a_server_that_refuses_streaming_lists_is_never_asked_again(opened: bool) -> None:
    subject, _ = make(watch_list=True)
    subject.next_action(0.0)
    refusal = Status(422, "Invalid", "sendInitialEvents is forbidden")
    if opened:
        subject.stream_opened(0.0)
        subject.take_event(WatchEvent(EventType.ERROR, status=refusal), 0.0)
    else:
        subject.fail(refusal, 0.0)
    assert isinstance(subject.next_action(0.0), ListRequest)
    subject.take_page(ListPage((), "10"), 0.0)
    subject.next_action(0.0)
    subject.fail(BROKEN, 0.0)
    assert isinstance(subject.next_action(1e6), ListRequest)


def test_a_streaming_list_that_fails_otherwise_is_tried_again_after_ten_minutes() -> None:
    subject, _ = make(watch_list=True)
    subject.next_action(0.0)
    subject.stream_opened(0.0)
    subject.fail(LOST, 10.0)
    assert isinstance(subject.next_action(10.0), ListRequest), "silence before the last bookmark: it may know no better"
    subject.take_page(ListPage((), "10"), 10.0)
    subject.next_action(10.0)
    subject.fail(BROKEN, 700.0)
    again = subject.next_action(701.0)
    assert isinstance(again, WatchRequest)
    assert again.send_initial_events
    assert again.resource_version == "10"


def test_a_version_too_large_for_a_streaming_list() -> None:
    subject, _ = make(watch_list=True)
    subject.next_action(0.0)
    subject.fail(TOO_LARGE, 0.0)
    again = subject.next_action(0.8)
    assert isinstance(again, WatchRequest)
    assert again.resource_version == ""


def test_stop_ends_it_and_late_reports_are_ignored() -> None:
    subject, sink = watching()
    subject.stop()
    assert subject.next_action(0.0) == Stop()
    assert not subject.take_event(event(EventType.ADDED, "b", 12), 1.0)
    subject.take_page(ListPage((), "99"), 1.0)
    subject.fail(LOST, 1.0)
    subject.stream_closed(1.0)
    subject.stream_opened(1.0)
    assert subject.next_action(0.0) == Stop()
    assert len(sink.calls) == 1
