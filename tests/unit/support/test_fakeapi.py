"""The small API server answers as a real one was recorded to (tests/reference/kubectl/)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.client.recorded import body
from tests.support.fakeapi.discovery import discovery_document, plain_resources
from tests.support.fakeapi.server import kind_of
from tests.support.fakeapi.storage import KINDS, Selectors, StatusError, Storage, bookmark

SERVICES, CONFIGMAPS = kind_of("services"), kind_of("configmaps")


def recorded(start: str) -> Any:
    return json.loads(body(start))


def filled(count: int) -> Storage:
    storage = Storage()
    for number in range(count):
        storage.put(CONFIGMAPS, {"metadata": {"name": f"c{number}"}})
    return storage


def test_statuses() -> None:
    storage = Storage()
    with pytest.raises(StatusError) as error:
        storage.get(SERVICES, "demo/nosuch")
    assert error.value.body == recorded("kubectl get svc nosuch -n demo: GET /api/v1/namespaces/demo/services/nosuch")
    storage.version = 245
    with pytest.raises(StatusError) as error:
        storage.page(CONFIGMAPS, resource_version="99999999")
    assert error.value.body == recorded("list at a version of the future")
    with pytest.raises(StatusError) as error:
        storage.page(CONFIGMAPS, continue_token="garbage")
    theirs = recorded("bad continue token")
    assert error.value.body["message"] in theirs["message"]
    assert {**error.value.body, "message": ""} == {**theirs, "message": ""}


def test_pages() -> None:
    ours, theirs = filled(6).page(CONFIGMAPS, limit=2), recorded("list, limit 2")
    assert ours.keys() == theirs.keys()
    assert ours["metadata"].keys() == theirs["metadata"].keys()
    assert ours["metadata"]["remainingItemCount"] == theirs["metadata"]["remainingItemCount"]
    assert "kind" not in ours["items"][0]
    assert "kind" not in theirs["items"][0]


def test_pages_are_of_one_moment() -> None:
    storage = filled(4)
    first = storage.page(CONFIGMAPS, limit=3)
    storage.delete(CONFIGMAPS, "default/c3")
    token = first["metadata"]["continue"]
    rest = storage.page(CONFIGMAPS, limit=3, continue_token=token)
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c3"]
    storage.compact()
    with pytest.raises(StatusError) as error:
        storage.page(CONFIGMAPS, limit=3, continue_token=token)
    assert error.value.body["reason"] == "Expired"


def test_history() -> None:
    storage = filled(2)
    storage.put(CONFIGMAPS, {"metadata": {"name": "c0"}})
    storage.delete(CONFIGMAPS, "default/c0")
    assert [change.type for change in storage.changes(CONFIGMAPS, 100)] == ["ADDED", "ADDED", "MODIFIED", "DELETED"]
    assert storage.changes(SERVICES, 100) == []
    assert storage.changes(CONFIGMAPS, storage.version) == []
    storage.compact()
    with pytest.raises(StatusError, match="too old resource version"):
        storage.changes(CONFIGMAPS, 100)
    assert [event["object"]["metadata"]["name"] for event in storage.initial(CONFIGMAPS, "", Selectors())] == ["c1"]
    assert bookmark(CONFIGMAPS, 7, initial_events_end=True)["object"]["kind"] == "ConfigMap"


def test_discovery() -> None:
    for path in ("/api", "/apis"):
        theirs = recorded(f"kubectl api-versions: GET {path}?")
        ours = discovery_document(path, aggregated=True)
        assert {name: ours[name] for name in ("kind", "apiVersion", "metadata")} == {
            name: theirs[name] for name in ("kind", "apiVersion", "metadata")
        }
        rows = {item["resource"]: item for group in theirs["items"] for item in group["versions"][0]["resources"]}
        for item in (item for group in ours["items"] for item in group["versions"][0]["resources"]):
            if item["resource"] in rows:
                same = ("resource", "responseKind", "scope", "singularResource")
                assert [item[name] for name in same] == [rows[item["resource"]][name] for name in same]
                assert item["shortNames"] == rows[item["resource"]].get("shortNames", [])
    plain, theirs = plain_resources("", "v1"), recorded("plain discovery")
    rows = {item["name"]: item for item in theirs["resources"]}
    for item in plain["resources"]:
        assert item["kind"] == rows[item["name"]]["kind"]
        assert item["namespaced"] == rows[item["name"]]["namespaced"]
    assert discovery_document("/apis", aggregated=False).keys() == recorded("plain groups").keys()
    assert len({kind.qualified for kind in KINDS}) == len(KINDS)
