"""Patches as functions: RFC 6902's own examples, merge keys and directives, ownership trees."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.apiserver.errors import StatusError
from kproxy.apiserver.registry.selectors import parse_label_selector
from kproxy.apiserver.schema.field_paths import duplicate, from_fields_v1, merge, show_path, to_fields_v1
from kproxy.apiserver.schema.patch import apply_json_patch, apply_merge_patch, apply_strategic_patch
from kproxy.apiserver.schema.types import named
from kproxy.informer import matches_labels

POD = named("io.k8s.api.core.v1.Pod")
SERVICE = named("io.k8s.api.core.v1.Service")


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
        ({"foo": ["a", "b"]}, [{"op": "remove", "path": "/foo/0"}], {"foo": ["b"]}),
        ({"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/d"}], {"a": {}, "c": {"d": 1}}),
        ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
        ({"a~/b": 1}, [{"op": "test", "path": "/a~0~1b", "value": 1}], {"a~/b": 1}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": {}}, [{"op": "test", "path": "/a/b", "value": None}], {"a": {}}),
    ],
)
def test_json_patch(document: Any, patch: Any, result: Any) -> None:
    assert apply_json_patch(document, patch) == result


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "remove", "path": "/nope"}],
        [{"op": "add", "path": "/foo/9", "value": 1}],
        [{"op": "add", "path": "/foo/01", "value": 1}],
        [{"op": "test", "path": "/foo", "value": 1}],
        [{"op": "test", "path": "/nope/b", "value": None}],
        [{"op": "copy", "path": "/x"}],
        [{"op": "copy", "from": 1, "path": "/x"}],
        [{"op": "remove", "path": ""}],
        [{}],
        [{"op": "replace", "path": "/x", "value": 1}],
        [{"op": "add", "path": "nope", "value": 1}],
        [{"op": "add", "path": "/x"}],
    ],
)
def test_json_patch_refuses(patch: Any) -> None:
    before = {"foo": ["bar"]}
    with pytest.raises(StatusError) as caught:
        apply_json_patch(before, patch)
    assert (caught.value.code, before) == (422, {"foo": ["bar"]})


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ({"op": "x"}, 400, "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
        ([1], 400, "json: cannot unmarshal number into Go value of type jsonpatch.Operation"),
        ([None], 422, "the server rejected our request due to an error in our request"),
        (
            [{"op": "remove", "path": "/foo"}] * 10_001, 413,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
        ),
    ],
)  # fmt: skip
def test_what_is_no_json_patch(patch: Any, code: int, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        apply_json_patch({"foo": ["bar"]}, patch)
    assert (caught.value.code, caught.value.message) == (code, message)


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ({"spec": {"$retainKeys": "x"}}, 400, "invalid patch format of retainKeys"),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}}, 400, "invalid patch format of primitive list"),
        (
            {"spec": {"$retainKeys": ["containers"], "nodeName": "n"}}, 422,
            "the server rejected our request due to an error in our request",
        ),
    ],
)  # fmt: skip
def test_strategic_directives_that_are_none(patch: Any, code: int, message: str) -> None:
    pod = {"metadata": {"finalizers": ["a"]}, "spec": {"containers": _containers("a")}}
    with pytest.raises(StatusError) as caught:
        apply_strategic_patch(pod, patch, POD)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_strategic_keeps_the_keys_that_it_names() -> None:
    pod = {"spec": {"containers": _containers("a"), "nodeName": "n"}}
    patch = {"spec": {"$retainKeys": ["containers", "hostname"], "hostname": "h", "nodeName": None}}
    assert apply_strategic_patch(pod, patch, POD)["spec"] == {"containers": _containers("a"), "hostname": "h"}


def test_copies_are_bounded_together() -> None:
    """Each copy of the whole doubles it: forty of them would be more than any memory holds."""
    patch = [{"op": "copy", "from": "/data", "path": f"/data/k{number}"} for number in range(40)]
    with pytest.raises(StatusError) as caught:
        apply_json_patch({"data": {"a": "b" * 100}}, patch)
    assert caught.value.code == 422
    few = [{"op": "copy", "from": "/data/a", "path": f"/data/k{number}"} for number in range(1000)]
    assert len(apply_json_patch({"data": {"a": "b" * 100}}, few)["data"]) == 1001


def test_a_list_of_many_items_is_merged_item_by_item() -> None:
    """As many as fit a request: comparing each with each would take hours."""
    many = [{"port": number, "name": str(number)} for number in range(100_000)]
    merged = apply_strategic_patch(
        {"spec": {"ports": many}}, {"spec": {"ports": [*many[::-1], {"port": 100_000}]}}, SERVICE
    )
    assert [each["port"] for each in merged["spec"]["ports"]] == [*range(99_999, -1, -1), 100_000]
    gone = {"spec": {"ports": [{"port": each["port"], "$patch": "delete"} for each in many]}}
    assert apply_strategic_patch({"spec": {"ports": many}}, gone, SERVICE) == {"spec": {"ports": []}}


def test_merge_patch() -> None:
    assert apply_merge_patch({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": [1]}}) == {"a": {"c": 2, "d": [1]}}
    assert apply_merge_patch({"a": [1]}, {"a": {"b": {"c": None}}}) == {"a": {"b": {}}}


def _containers(*names: str) -> Any:
    return [{"name": name, "image": name} for name in names]


def test_strategic_merges_by_key_and_keeps_order() -> None:
    pod = {"spec": {"containers": _containers("a", "b", "c")}}
    patch = {"spec": {"containers": [{"name": "b", "image": "x"}, {"name": "new", "image": "n"}]}}
    merged = apply_strategic_patch(pod, patch, POD)["spec"]["containers"]
    assert {each["name"]: each["image"] for each in merged} == {"a": "a", "b": "x", "c": "c", "new": "n"}
    order = {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}}
    assert [each["name"] for each in apply_strategic_patch(pod, order, POD)["spec"]["containers"]] == ["c", "a", "b"]


def test_strategic_directives() -> None:
    pod: Any = {
        "metadata": {"finalizers": ["a", "b"]},
        "spec": {"containers": _containers("a", "b"), "nodeSelector": {"x": "y"}},
    }
    gone = apply_strategic_patch(pod, {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}, POD)
    assert gone["spec"]["containers"] == _containers("b")
    replaced = apply_strategic_patch(pod, {"spec": {"containers": [{"$patch": "replace"}, *_containers("z")]}}, POD)
    assert replaced["spec"]["containers"] == _containers("z")
    cleared = apply_strategic_patch(pod, {"spec": {"nodeSelector": {"$patch": "replace", "q": "r"}}}, POD)
    assert cleared["spec"]["nodeSelector"] == {"q": "r"}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert apply_strategic_patch(pod, patch, POD)["metadata"]["finalizers"] == ["b"]
    with pytest.raises(StatusError):
        apply_strategic_patch(pod, {"spec": {"containers": [{"image": "x"}]}}, POD)


PATHS = st.sets(
    st.lists(st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"']), min_size=1, max_size=4).map(tuple), max_size=12
)


@given(PATHS)
def test_fields_v1_round_trip(paths: set[tuple[str, ...]]) -> None:
    assert from_fields_v1(to_fields_v1(paths)) == paths


def test_merge_of_lists_by_key() -> None:
    live = {"spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "a"}, {"port": 81, "protocol": "TCP"}]}}
    config = {"spec": {"ports": [{"port": 81, "name": "b"}, {"port": 82}]}}
    merged = merge(live, config, SERVICE)["spec"]["ports"]
    assert [(each["port"], each.get("name")) for each in merged] == [(80, "a"), (81, "b"), (82, None)]
    assert show_path(("f:spec", "f:ports", 'k:{"port":80,"protocol":"TCP"}', "f:name")) == (
        '.spec.ports[port=80,protocol="TCP"].name'
    )


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("a=1", True),
        ("a==1,b=2", True),
        ("a!=1", False),
        ("c!=1", True),
        ("a in (1,3)", True),
        ("a notin (1)", False),
        ("!c", True),
        ("!a", False),
        ("a", True),
        ("a>0", True),
        ("a<1", False),
        ("", True),
        ("e=", True),
    ],
)
def test_label_selectors(selector: str, matches: bool) -> None:
    assert matches_labels(parse_label_selector(selector), {"a": "1", "b": "2", "e": ""}) is matches


def test_a_missing_merge_key_is_named_as_go_prints_it() -> None:
    patch = {"spec": {"ports": [{"name": "x", "on": True, "none": None, "list": [1, "a"]}]}}
    with pytest.raises(StatusError) as caught:
        apply_strategic_patch({"spec": {}}, patch, SERVICE)
    wanted = "map: map[list:[1 a] name:x none:<nil> on:true] does not contain declared merge key: port"
    assert caught.value.message == wanted


def test_what_a_live_list_holds_twice_stays_until_it_is_named() -> None:
    """As structured-merge-diff: duplicates that were written without apply are nobody else's business."""
    live = {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]}}

    def env(*applied: Any) -> Any:
        config = {"spec": {"containers": [{"name": "c", "env": list(applied)}]}}
        return merge(live, config, POD)["spec"]["containers"][0]["env"]

    assert env({"name": "B"}) == [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "B"}]
    assert env({"name": "A", "value": "3"}) == [{"name": "A", "value": "3"}]


def test_what_an_applied_list_names_twice() -> None:
    ports = [{"port": 80}, {"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP"}]
    found = duplicate({"spec": {"ports": ports}}, SERVICE)
    assert found is not None
    assert (show_path(found[0]), show_path(found[1:])) == (".spec.ports", '[port=80,protocol="TCP"]')
    assert duplicate({"spec": {"ports": ports[:2], "loadBalancerSourceRanges": ["a", "a"]}}, SERVICE) is None
