"""`pods/eviction`: what `kubectl drain` asks for."""

from __future__ import annotations

from typing import Any

from tests.support.apiserver.server import Api

Json = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"


def running(api: Api, name: str, *, ready: bool = True) -> Json:
    """A Pod that its kubelet says is running."""
    spec = {"containers": [{"name": "c", "image": "i"}]}
    api.ok("POST", PODS, {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec})
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    found: Json = api.ok("PATCH", f"{PODS}/{name}/status", {"status": status}, MERGE)
    return found


def budget(api: Api, name: str = "web", **status: int) -> None:
    """A budget with the numbers that kube-controller-manager would write."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    api.ok("POST", BUDGETS, {"metadata": {"name": name}, "spec": spec})
    if status:
        numbers = {"observedGeneration": 1, "expectedPods": 2, **status}
        api.ok("PATCH", f"{BUDGETS}/{name}/status", {"status": numbers}, MERGE)


def evict(api: Api, name: str, query: str = "", **fields: Any) -> tuple[int, Json]:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **fields}
    return api("POST", f"{PODS}/{name}/eviction{query}", body)


def test_a_pod_without_a_budget_goes(api: Api) -> None:
    """[sig-apps] DisruptionController evictions: no PDB => should allow an eviction."""
    pod = running(api, "a")
    assert evict(api, "a", "?dryRun=All")[0] == 201
    assert evict(api, "a", deleteOptions={"preconditions": {"uid": "other"}})[0] == 409
    assert api.ok("GET", f"{PODS}/a")["metadata"]["uid"] == pod["metadata"]["uid"]
    status, answer = evict(api, "a")
    assert (status, answer["status"]) == (201, "Success")
    assert api("GET", f"{PODS}/a")[0] == 404
    assert evict(api, "a")[0] == 404


def test_a_budget_refuses_until_it_allows(api: Api) -> None:
    """[sig-apps] DisruptionController should block an eviction until the PDB is updated to allow it; evictions: too few
    pods, absolute => should not allow an eviction; enough pods, absolute => should allow an eviction."""
    running(api, "a")
    budget(api)
    status, answer = evict(api, "a")
    assert (status, answer["reason"]) == (429, "TooManyRequests")
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget web is still being processed by the server.",
    }
    assert answer["details"] == {"causes": [cause], "retryAfterSeconds": 10}
    numbers = {"observedGeneration": 1, "desiredHealthy": 1, "currentHealthy": 1, "disruptionsAllowed": 0}
    api.ok("PATCH", f"{BUDGETS}/web/status", {"status": numbers}, MERGE)
    status, answer = evict(api, "a")
    assert status == 429
    text = "The disruption budget web needs 1 healthy pods and has 1 currently"
    assert answer["details"]["causes"] == [{"reason": "DisruptionBudget", "message": text}]
    api.ok("PATCH", f"{BUDGETS}/web/status", {"status": {"currentHealthy": 2, "disruptionsAllowed": 1}}, MERGE)
    assert evict(api, "a", "?dryRun=All")[0] == 201
    assert api.ok("GET", f"{BUDGETS}/web")["status"]["disruptionsAllowed"] == 1
    assert evict(api, "a")[0] == 201
    left = api.ok("GET", f"{BUDGETS}/web")["status"]
    assert (left["disruptionsAllowed"], list(left["disruptedPods"])) == (0, ["a"])


def test_pods_that_do_not_serve_cost_nothing(api: Api) -> None:
    budget(api, desiredHealthy=1, currentHealthy=1, disruptionsAllowed=0)
    running(api, "unready", ready=False)
    assert evict(api, "unready")[0] == 201, "the budget is met without it"
    running(api, "unready", ready=False)
    api.ok("PATCH", f"{BUDGETS}/web/status", {"status": {"currentHealthy": 0}}, MERGE)
    assert evict(api, "unready")[0] == 429
    api.ok("PATCH", f"{BUDGETS}/web", {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}, MERGE)
    assert evict(api, "unready")[0] == 201


def test_two_budgets_are_one_too_many(api: Api) -> None:
    running(api, "a")
    budget(api, "one")
    budget(api, "two")
    status, answer = evict(api, "a")
    assert (status, "more than one PodDisruptionBudget" in answer["message"]) == (500, True)
