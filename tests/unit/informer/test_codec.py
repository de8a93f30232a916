"""Decoding: typed objects from bytes, events, garbage; against what a real server was recorded to send."""

from __future__ import annotations

import contextlib
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.client.resources import SERVICES
from kproxy.informer.codec import LineReader, UnstructuredCodec, decode_status, endpoint_slice_codec
from kproxy.informer.objects import EventType, Status, WireError
from tests.support.informer.builders import line, spelled

SLICE = {
    "metadata": {"name": "web-1", "namespace": "shop", "resourceVersion": "5"},
    "addressType": "IPv4",
    "endpoints": [
        {"addresses": ["10.0.0.1"], "nodeName": "node-one"},
        {"addresses": ["10.0.0.2"], "nodeName": "node-one"},
    ],
    "ports": [{"name": "http", "port": 80}],
}


def test_lists_come_without_kind_and_events_with_it() -> None:
    codec = SERVICES.codec
    bare = {name: value for name, value in spelled("a", 3).items() if name != "kind"}
    page = codec.decode_list(
        json.dumps(
            {"metadata": {"resourceVersion": "9", "continue": "t", "remainingItemCount": 4}, "items": [bare]}
        ).encode()
    )
    assert [item.metadata.key for item in page.items] == ["default/a"]
    assert (page.resource_version, page.continue_token) == ("9", "t")
    event = codec.decode_event(line("MODIFIED", spelled("a", 3)))
    assert event.type is EventType.MODIFIED
    assert event.object == page.items[0]
    assert event.resource_version == "3"
    assert codec.decode(json.dumps(spelled("a", 3)).encode()) == page.items[0]
    assert codec.decode_list(b'{"metadata":{"resourceVersion":"9"},"items":null}').items == ()


def test_bookmarks_and_errors() -> None:
    for codec in (SERVICES.codec, UnstructuredCodec()):
        mark = {"kind": "Service", "metadata": {"resourceVersion": "7", "creationTimestamp": None}}
        event = codec.decode_event(line("BOOKMARK", mark))
        assert (event.object, event.resource_version, event.initial_events_end) == (None, "7", False)
        mark["metadata"] = {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}
        assert codec.decode_event(line("BOOKMARK", mark)).initial_events_end
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old", "metadata": {}}
        assert codec.decode_event(line("ERROR", status)).status == Status(410, "Expired", "too old")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b'{"type":"ADDED"}',
        b'{"type":"ADDED","object":{"kind":"Service","metadata":{}}}',
        b'{"type":"ADDED","object":{"kind":"Node","metadata":{"name":"a"}}}',
        b'{"type":"ADDED","object":{"kind":"Status","code":1}}',
        b'{"type":"ERROR","object":{"kind":"Service","metadata":{"name":"a"}}}',
        b'{"type":"ODD","object":{"kind":"Service","metadata":{"name":"a"}}}',
        b'{"type":"ADDED","object":{"kind":"Service","metadata":{"name":"a"},"spec":{"ports":[{"port":"x"}]}}}',
        b'{"type":"ADDED","object":{"kind":"Service","metadata":{"name":"a"}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_event_is_a_wire_error(data: bytes) -> None:
    with pytest.raises(WireError):
        SERVICES.codec.decode_event(data)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for codec in (SERVICES.codec, UnstructuredCodec()):
        for decode in (codec.decode, codec.decode_list, codec.decode_event):
            with contextlib.suppress(WireError):
                decode(data)
    assert decode_status(data, 503).code


def test_equal_leaves_are_shared() -> None:
    codec = endpoint_slice_codec()
    other = json.loads(json.dumps(SLICE))
    other["metadata"]["name"] = "web-2"
    page = codec.decode_list(json.dumps({"metadata": {"resourceVersion": "5"}, "items": [SLICE, other]}).encode())
    one, two = page.items
    assert one.endpoints[0].node_name is two.endpoints[1].node_name
    assert one.endpoints[0].conditions is two.endpoints[0].conditions


def test_unstructured_items_of_lists_get_their_kind() -> None:
    codec = UnstructuredCodec()
    page = codec.decode_list(
        b'{"kind":"FruitList","apiVersion":"example.org/v1","metadata":{"resourceVersion":"3"},'
        b'"items":[{"metadata":{"name":"apple","namespace":"d","labels":{"a":"b"}},"spec":{"sweet":true}}]}'
    )
    (item,) = page.items
    assert (item.kind, item.api_version, item.metadata.key) == ("Fruit", "example.org/v1", "d/apple")
    assert item.raw["spec"] == {"sweet": True}
    for data in (b'{"items":[1]}', b'{"items":[{}]}', b'{"metadata":7}', b"[]"):
        with pytest.raises(WireError):
            codec.decode_list(data)
    for data in (b'{"type":"ADDED","object":1}', b'{"type":"BOOKMARK","object":{"metadata":1}}'):
        with pytest.raises(WireError):
            codec.decode_event(data)


def test_status_of_bodies_that_are_none() -> None:
    assert decode_status(b"<html> Bad\n gateway</html>", 502) == Status(502, "", "<html> Bad gateway</html>")
    assert decode_status(b"", 500, 3.0) == Status(500, "", "the server gave no reason", (), 3.0)
    body = b'{"kind":"Status","message":"m","details":{"retryAfterSeconds":2,"causes":[{"reason":"X"}]}}'
    assert decode_status(body, 504) == Status(504, "", "m", ("X",), 2.0)
    assert decode_status(body, 504, 9.0).retry_after == 9.0


@given(st.lists(st.text(alphabet="ab\u20ac", min_size=1), max_size=8), st.lists(st.integers(0, 40), max_size=12))
def test_lines_come_out_whole_however_they_are_cut(lines: list[str], cuts: list[int]) -> None:
    data = b"".join(text.encode() + b"\n" for text in lines)
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    reader = LineReader()
    found = [one for start, end in itertools.pairwise(places) for one in reader.feed(data[start:end])]
    reader.close()
    assert found == [text.encode() for text in lines]


def test_half_an_event_and_endless_ones_are_wire_errors() -> None:
    reader = LineReader()
    assert list(reader.feed(b'\n{"a":1}\n{"b"')) == [b'{"a":1}']
    with pytest.raises(WireError, match="inside an event"):
        reader.close()
    with pytest.raises(WireError, match="more than 10 bytes"):
        list(LineReader(10).feed(b"x" * 11))
