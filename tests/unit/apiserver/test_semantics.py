"""What the recordings do not hold: paging at a version, owners, Services, compaction, tables of many kinds."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.support.apiserver.server import Api

MAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
MERGE = "application/merge-patch+json"


def service(name: str, **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"a": name}, **spec}}


def test_pages_show_one_version(shared: Api) -> None:
    for number in range(6):
        shared.ok("POST", MAPS, {"metadata": {"name": f"p{number}", "labels": {"page": "x"}}})
    first = shared.ok("GET", f"{MAPS}?limit=4&labelSelector=page")
    shared.ok("DELETE", f"{MAPS}/p5")
    shared.ok("POST", MAPS, {"metadata": {"name": "p9", "labels": {"page": "x"}}})
    rest = shared.ok("GET", f"{MAPS}?limit=4&labelSelector=page&continue={first['metadata']['continue']}")
    assert [each["metadata"]["name"] for each in first["items"] + rest["items"]] == [f"p{n}" for n in range(6)]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    exact = shared.ok(
        "GET",
        f"{MAPS}?labelSelector=page&resourceVersionMatch=Exact&resourceVersion={first['metadata']['resourceVersion']}",
    )
    assert len(exact["items"]) == 6


def test_compacted_history_is_gone(api: Api) -> None:
    first = api.ok("POST", MAPS, {"metadata": {"name": "a"}})["metadata"]["resourceVersion"]
    page = None
    for number in range(5):
        api.ok("POST", MAPS, {"metadata": {"name": f"b{number}"}})
        page = page or api.ok("GET", f"{MAPS}?limit=1")["metadata"]["continue"]
    api.server.call(lambda server: server.store.compact(-1))
    status, answer = api("GET", f"{MAPS}?limit=1&continue={page}")
    assert (status, answer["reason"]) == (410, "Expired")
    fresh = answer["metadata"]["continue"]
    assert api("GET", f"{MAPS}?continue={fresh}")[0] == 200
    status, event = api("GET", f"{MAPS}?watch=1&resourceVersion={first}&timeoutSeconds=1")
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_owners(shared: Api) -> None:
    def made(name: str, owner: Any = None) -> Any:
        meta: Any = {"name": name}
        if owner:
            reference = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
            }
            meta["ownerReferences"] = [{**reference, "blockOwnerDeletion": True}]
        return shared.ok("POST", MAPS, {"metadata": meta})

    for policy in ("Background", "Foreground", "Orphan"):
        name = policy.lower()
        owner = made(name)
        made(f"{name}-child", owner)
        shared.ok("DELETE", f"{MAPS}/{name}?propagationPolicy={policy}")
        shared.eventually(f"{MAPS}/{name}", lambda found: found.get("code") == 404)
        if policy == "Orphan":
            child = shared.ok("GET", f"{MAPS}/{name}-child")
            assert "ownerReferences" not in child["metadata"]
        else:
            shared.eventually(f"{MAPS}/{name}-child", lambda found: found.get("code") == 404)
    dangling = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000", "name": "nobody"}}
    made("stray", dangling)
    shared.eventually(f"{MAPS}/stray", lambda found: found.get("code") == 404)


def owned(api: Api, name: str, *owners: Any, block: bool = True, finalizers: list[str] | None = None) -> Any:
    """A ConfigMap with owners."""
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]}
        | {"blockOwnerDeletion": block}
        for each in owners
    ]
    meta: Any = {"name": name, "ownerReferences": references, "finalizers": finalizers or []}
    return api.ok("POST", MAPS, {"metadata": meta})


def gone(found: Any) -> bool:
    return found.get("code") == 404  # type: ignore[no-any-return]


def test_foreground_deletion_spares_a_dependent_with_another_owner(shared: Api) -> None:
    first, second = owned(shared, "fg-first"), owned(shared, "fg-second")
    child = owned(shared, "fg-child", first, second)
    shared.ok("DELETE", f"{MAPS}/fg-first?propagationPolicy=Foreground")
    shared.eventually(f"{MAPS}/fg-first", gone)
    left = shared.ok("GET", f"{MAPS}/fg-child")["metadata"]
    assert left["uid"] == child["metadata"]["uid"]
    assert "deletionTimestamp" not in left
    assert [each["name"] for each in left["ownerReferences"]] == ["fg-second"]


def test_foreground_deletion_waits_for_blocking_dependents_only(shared: Api) -> None:
    owner = owned(shared, "fg-quick")
    owned(shared, "fg-loose", owner, block=False, finalizers=["example.com/hold"])
    shared.ok("DELETE", f"{MAPS}/fg-quick?propagationPolicy=Foreground")
    shared.eventually(f"{MAPS}/fg-quick", gone)
    shared.eventually(f"{MAPS}/fg-loose", lambda found: "deletionTimestamp" in found["metadata"])
    shared.ok("PATCH", f"{MAPS}/fg-loose", {"metadata": {"finalizers": None}}, MERGE)
    shared.eventually(f"{MAPS}/fg-loose", gone)


def test_foreground_deletion_goes_on_when_a_dependent_is_let_go(shared: Api) -> None:
    owner = owned(shared, "fg-slow")
    owned(shared, "fg-tight", owner, finalizers=["example.com/hold"])
    shared.ok("DELETE", f"{MAPS}/fg-slow?propagationPolicy=Foreground")
    shared.eventually(f"{MAPS}/fg-tight", lambda found: "deletionTimestamp" in found["metadata"])
    assert shared("GET", f"{MAPS}/fg-slow")[0] == 200
    owned(shared, "fg-late", owner)  # a dependent that comes while its owner goes is deleted, too
    shared.eventually(f"{MAPS}/fg-late", gone)
    shared.ok("PATCH", f"{MAPS}/fg-tight", {"metadata": {"ownerReferences": None}}, MERGE)
    shared.eventually(f"{MAPS}/fg-slow", gone)
    shared.ok("PATCH", f"{MAPS}/fg-tight", {"metadata": {"finalizers": None}}, MERGE)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_foreground_deletion_of_objects_that_own_each_other(count: int, shared: Api) -> None:
    """[sig-api-machinery] Garbage collector should not be blocked by dependency circle."""
    names = [f"fg-circle{count}-{index}" for index in range(count)]
    held = [owned(shared, name)["metadata"] for name in names]
    for index, name in enumerate(names):
        owner = held[index - 1]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]}
        change = {"metadata": {"ownerReferences": [reference | {"blockOwnerDeletion": True, "controller": True}]}}
        shared.ok("PATCH", f"{MAPS}/{name}", change, MERGE)
    shared.ok("DELETE", f"{MAPS}/{names[0]}?propagationPolicy=Foreground")
    for name in names:
        shared.eventually(f"{MAPS}/{name}", gone)


@pytest.mark.parametrize(("query", "stays"), [("", True), ("?propagationPolicy=Background", False)])
def test_replication_controllers_and_jobs_leave_their_dependents_unless_told_otherwise(
    query: str, stays: bool, api: Api
) -> None:
    """[sig-api-machinery] Garbage collector should orphan pods created by rc if deleteOptions.OrphanDependents is nil;
    batch/v1 Jobs do the same (pkg/registry/batch/job strategy.go, DefaultGarbageCollectionPolicy)."""
    template: dict[str, Any] = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    job = {"spec": {**template["spec"], "restartPolicy": "Never"}}
    made = [
        (api.ok("POST", f"{path}", {"metadata": {"name": "owner"}, "spec": spec}), path)
        for path, spec in (
            ("/api/v1/namespaces/default/replicationcontrollers", {"replicas": 0, "template": template}),
            ("/apis/batch/v1/namespaces/default/jobs", {"template": job}),
        )
    ]
    for owner, path in made:
        reference = {key: owner[key] for key in ("apiVersion", "kind")} | {
            "name": "owner",
            "uid": owner["metadata"]["uid"],
        }
        name = owner["kind"].lower()
        api.ok("POST", MAPS, {"metadata": {"name": name, "ownerReferences": [reference]}})
        api.ok("DELETE", f"{path}/owner{query}")
        api.eventually(f"{path}/owner", gone)
        if stays:
            assert "ownerReferences" not in api.ok("GET", f"{MAPS}/{name}")["metadata"]
        else:
            api.eventually(f"{MAPS}/{name}", gone)


def test_second_families_may_be_added_and_released_only(shared: Api) -> None:
    path = f"{SERVICES}/second"
    dual = shared.ok("POST", SERVICES, service("second", ipFamilyPolicy="PreferDualStack"))["spec"]

    def refused(change: Any) -> str:
        status, answer = shared("PATCH", path, {"spec": change}, MERGE)
        assert status == 422, answer
        return str(answer["message"])

    first = dual["clusterIPs"][0]
    assert refused({"clusterIPs": [first, "fd00:10:96::1234"]}).endswith(
        f'spec.clusterIPs[1]: Invalid value: ["{first}","fd00:10:96::1234"]: may not change once set'
    )
    assert "must be set to 'SingleStack' when releasing the secondary" in refused(
        {"clusterIPs": [first], "ipFamilies": ["IPv4"]}
    )
    assert "spec.ipFamilies[0]: Invalid value" in refused({"ipFamilies": ["IPv6", "IPv4"]})
    single = {"ipFamilyPolicy": "SingleStack", "clusterIPs": [first], "ipFamilies": ["IPv4"]}
    assert shared.ok("PATCH", path, {"spec": single}, MERGE)["spec"]["clusterIPs"] == [first]


def test_services_allocate_and_release(shared: Api) -> None:
    dual = shared.ok("POST", SERVICES, service("dual", ipFamilyPolicy="PreferDualStack"))["spec"]
    assert dual["ipFamilies"] == ["IPv4", "IPv6"]
    assert dual["clusterIPs"][1].startswith("fd00:10:96::")
    single = shared.ok("PATCH", f"{SERVICES}/dual", {"spec": {"ipFamilyPolicy": "SingleStack"}}, MERGE)["spec"]
    assert (single["clusterIPs"], single["ipFamilies"]) == (dual["clusterIPs"][:1], ["IPv4"])
    taken = shared.ok("POST", SERVICES, service("six", clusterIP=dual["clusterIPs"][1]))["spec"]
    assert taken["ipFamilies"] == ["IPv6"]
    local = shared.ok("POST", SERVICES, service("local", type="LoadBalancer", externalTrafficPolicy="Local"))["spec"]
    port = local["healthCheckNodePort"]
    assert shared("PATCH", f"{SERVICES}/local", {"spec": {"healthCheckNodePort": 31999}}, MERGE)[0] == 422
    other = service("np", type="NodePort", ports=[{"port": 80, "nodePort": port}])
    assert shared("POST", SERVICES, other)[0] == 422
    plain = shared.ok(
        "PATCH", f"{SERVICES}/local", {"spec": {"type": "ClusterIP", "externalTrafficPolicy": None}}, MERGE
    )["spec"]
    assert "healthCheckNodePort" not in plain
    assert "nodePort" not in plain["ports"][0]
    shared.ok("POST", SERVICES, other)
    change = {"spec": {"type": "ExternalName", "externalName": "a.example"}}
    name = shared.ok("PATCH", f"{SERVICES}/np", change, MERGE)["spec"]
    assert "clusterIP" not in name


def test_node_ports_stay_when_no_more_are_wanted(shared: Api) -> None:
    path = f"{SERVICES}/stays"
    before = shared.ok("POST", SERVICES, service("stays", type="LoadBalancer"))["spec"]["ports"]
    change = {"spec": {"allocateLoadBalancerNodePorts": False}}
    assert shared.ok("PATCH", path, change, MERGE)["spec"]["ports"] == before
    left_out = {"spec": {"ports": [{"port": 80}]}}
    assert shared.ok("PATCH", path, left_out, MERGE)["spec"]["ports"] == before


def test_two_protocols_share_a_node_port(shared: Api) -> None:
    ports = [{"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 53, "protocol": "UDP"}]
    made = shared.ok("POST", SERVICES, service("dns", type="NodePort", ports=ports))["spec"]["ports"]
    assert made[0]["nodePort"] == made[1]["nodePort"]


def test_events_in_both_groups(shared: Api) -> None:
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    regarding = {"kind": "Node", "name": "n1"}
    body = {
        "metadata": {"name": "e1"}, "regarding": regarding, "note": "hello", "reason": "Test", "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "test", "reportingInstance": "x",
        "action": "a",
    }  # fmt: skip
    made = shared.ok("POST", path, body)
    assert (made["note"], made["regarding"]) == ("hello", regarding)
    core = shared.ok("GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=n1")["items"]
    assert [(each["message"], each["involvedObject"]) for each in core] == [("hello", regarding)]


def test_old_events_are_in_the_namespace_of_their_object(shared: Api) -> None:
    path = "/api/v1/namespaces/kube-system/events"
    old = {"metadata": {"generateName": "old-"}, "involvedObject": {"kind": "Node", "name": "n1"}}
    assert shared("POST", path, old)[0] == 422
    shared.ok("POST", path.replace("kube-system", "default"), old)
    inside = {**old, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "kube-system"}}
    shared.ok("POST", path, inside)


def test_collections_are_neither_replaced_nor_patched(shared: Api) -> None:
    for method in ("PUT", "PATCH"):
        status, answer = shared(
            method, MAPS, {"metadata": {"name": "sneaked"}}, MERGE if method == "PATCH" else "application/json"
        )
        assert (status, answer["reason"]) == (405, "MethodNotAllowed")
    assert shared("GET", f"{MAPS}/sneaked")[0] == 404


def test_graceful_deletion_of_pods(shared: Api) -> None:
    path = "/api/v1/namespaces/default/pods"
    for name, node in (("waits", None), ("runs", "n1")):
        spec: Any = {"containers": [{"name": "c", "image": "x"}]}
        shared.ok("POST", path, {"metadata": {"name": name}, "spec": {**spec, **({"nodeName": node} if node else {})}})
        shared.ok("DELETE", f"{path}/{name}")
    assert shared("GET", f"{path}/waits")[0] == 404
    assert shared.ok("GET", f"{path}/runs")["metadata"]["deletionGracePeriodSeconds"] == 30
    shared.ok("DELETE", f"{path}/runs?gracePeriodSeconds=0")
    assert shared("GET", f"{path}/runs")[0] == 404


def test_every_kind_has_a_table(shared: Api) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    for resource in shared.server.call(lambda server: list(server.catalog.stored())):
        base = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        status, table = shared("GET", f"{base}/{resource.plural}", Accept=accept)
        assert status == 200
        assert all(len(row["cells"]) == len(table["columnDefinitions"]) for row in table["rows"])


def test_state_survives_a_restart(tmp_path: Any) -> None:
    from kproxy.apiserver import running_apiserver

    (tmp_path / "t").write_text('admin-token,admin,1,"system:masters"\n')
    with running_apiserver(tmp_path, token_file=tmp_path / "t") as server:
        made = Api(server).ok("POST", SERVICES, service("kept", type="NodePort"))
    with running_apiserver(tmp_path, token_file=tmp_path / "t") as server:
        again = Api(server)
        assert again.ok("GET", f"{SERVICES}/kept") == made
        clash = service("other", clusterIP=made["spec"]["clusterIP"])
        assert again("POST", SERVICES, clash)[0] == 422
        fresh = again.ok("POST", SERVICES, service("fresh"))["metadata"]["resourceVersion"]
        assert int(fresh) > int(made["metadata"]["resourceVersion"])


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_system_namespaces_stay(shared: Api, name: str) -> None:
    status, answer = shared("DELETE", f"/api/v1/namespaces/{name}")
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


def test_streaming_lists_are_as_new_as_asked(shared: Api) -> None:
    """The opening state waits for the version that the client has seen elsewhere; one far off is refused."""
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    version = int(shared.ok("GET", MAPS)["metadata"]["resourceVersion"])
    later = threading.Timer(0.3, shared.ok, ("POST", MAPS, {"metadata": {"name": "just-in-time"}}))
    later.start()
    text = shared.raw("GET", f"{MAPS}?{query}&resourceVersion={version + 1}").read()
    later.join()
    events = [json.loads(line) for line in text.splitlines()]
    names = [each["object"]["metadata"]["name"] for each in events if each["type"] == "ADDED"]
    assert "just-in-time" in names
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) > version
    status, answer = shared("GET", f"{MAPS}?{query}&resourceVersion={10**12}")
    assert (status, answer["reason"]) == (504, "Timeout")
    assert answer["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_a_version_of_the_future_is_waited_for(shared: Api) -> None:
    status, answer = shared("GET", f"{SERVICES}/kubernetes?resourceVersion=99999999")
    assert (status, answer["reason"]) == (504, "Timeout")
    assert shared("GET", f"{SERVICES}/kubernetes?resourceVersion=never")[0] == 400
    version = shared.ok("GET", SERVICES)["metadata"]["resourceVersion"]
    assert shared.ok("GET", f"{SERVICES}/kubernetes?resourceVersion={version}")["metadata"]["name"] == "kubernetes"
