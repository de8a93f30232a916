"""OpenAPI v2 in protobuf, read back with a decoder that knows nothing but the wire format."""

from __future__ import annotations

from typing import Any

from kproxy.apiserver.endpoints.openapi import document, to_v2
from kproxy.apiserver.endpoints.openapi2pb import encode_document
from kproxy.apiserver.kinds.resources import built_in
from tests.support.apiserver.server import Api

MEDIA = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def fields(data: bytes) -> list[tuple[int, Any]]:
    """Number and value of each field of a message: bytes, or an int."""
    found: list[tuple[int, Any]] = []
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while position < len(data):
        tag = varint()
        assert tag & 7 in (0, 2), tag
        if tag & 7 == 0:
            found.append((tag >> 3, varint()))
        else:
            length = varint()
            found.append((tag >> 3, data[position : position + length]))
            position += length
    assert position == len(data)
    return found


def one(data: bytes, number: int) -> Any:
    """The only value of a field."""
    (found,) = [value for key, value in fields(data) if key == number]
    return found


def named(data: bytes, number: int = 1) -> dict[str, bytes]:
    """NamedX messages by name."""
    return {one(value, 1).decode(): one(value, 2) for key, value in fields(data) if key == number}


def test_the_document() -> None:
    """Numbers: gnostic's openapiv2/OpenAPIv2.proto."""
    v2 = to_v2(document([each for each in built_in() if each.kind in ("Service", "Node")]))
    data = encode_document(v2)
    assert one(data, 1) == b"2.0"
    assert one(one(data, 2), 1) == b"Kubernetes"
    paths, definitions = named(one(data, 8), 2), named(one(data, 9))
    assert set(paths) == set(v2["paths"])
    assert set(definitions) == set(v2["definitions"])
    name = "io.k8s.api.core.v1.ServicePort"
    port = definitions[name]
    properties = named(one(port, 25))
    assert set(properties) == set(v2["definitions"][name]["properties"])
    assert [value for number, value in fields(port) if number == 19] == [b"port"]
    assert one(one(properties["port"], 22), 1) == b"integer"
    assert one(properties["port"], 2) == b"int32"
    extensions = {
        one(value, 1).decode() for number, value in fields(definitions["io.k8s.api.core.v1.Service"]) if number == 31
    }
    assert "x-kubernetes-group-version-kind" in extensions


def test_operations() -> None:
    v2 = to_v2(document([each for each in built_in() if each.kind == "Service"]))
    paths = named(one(encode_document(v2), 8), 2)
    item = paths["/api/v1/namespaces/{namespace}/services/{name}"]
    numbers = {number for number, _ in fields(item)}
    assert {2, 8, 9} <= numbers  # get, patch, parameters
    patch = one(item, 8)
    consumes = [value.decode() for number, value in fields(patch) if number == 7]
    assert "application/apply-patch+yaml" in consumes
    answers = named(one(patch, 9), 1)
    assert "200" in answers


def test_it_is_served(shared: Api) -> None:
    response = shared.raw("GET", "/openapi/v2", Accept=MEDIA)
    assert "protobuf" in response.headers["Content-Type"]
    assert one(response.read(), 1) == b"2.0"
