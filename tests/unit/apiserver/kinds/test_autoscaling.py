"""HorizontalPodAutoscalers of autoscaling/v1 and v2: the same objects, and v1 loses nothing that it cannot name."""

from __future__ import annotations

from typing import Any

from tests.support.apiserver.server import Api

Json = dict[str, Any]
V1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
V2 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
TARGET = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
PODS_METRIC = {
    "type": "Pods",
    "pods": {"metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


def cpu(share: int) -> Json:
    target = {"type": "Utilization", "averageUtilization": share}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def scaler(**spec: Any) -> Json:
    given = {"maxReplicas": 3, "scaleTargetRef": TARGET, "targetCPUUtilizationPercentage": 50, **spec}
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": given,
    }


def test_what_v1_writes_v2_shows(api: Api) -> None:
    """`kubectl autoscale` before v1.33 writes v1 only."""
    made = api.ok("POST", V1, scaler())
    assert (made["apiVersion"], made["spec"]["targetCPUUtilizationPercentage"]) == ("autoscaling/v1", 50)
    assert made["status"] == {"currentReplicas": 0, "desiredReplicas": 0}
    shown = api.ok("GET", f"{V2}/web")
    assert shown["spec"] == {"maxReplicas": 3, "minReplicas": 1, "scaleTargetRef": TARGET, "metrics": [cpu(50)]}
    assert shown["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert api.ok("GET", V1)["items"][0]["spec"] == made["spec"]


def test_a_client_of_v1_keeps_the_metrics_that_v1_has_no_field_for(api: Api) -> None:
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 5}}
    spec = {"maxReplicas": 3, "scaleTargetRef": TARGET, "metrics": [PODS_METRIC, cpu(50)], "behavior": behavior}
    api.ok("POST", V2, {"metadata": {"name": "web"}, "spec": spec})
    before = api.ok("GET", f"{V2}/web")
    old = api.ok("GET", f"{V1}/web")
    assert set(old["metadata"]["annotations"]) == {
        "autoscaling.alpha.kubernetes.io/metrics", "autoscaling.alpha.kubernetes.io/behavior",
    }  # fmt: skip
    old["spec"]["maxReplicas"] = 9
    api.ok("PUT", f"{V1}/web", old)
    after = api.ok("GET", f"{V2}/web")
    assert after["spec"] == {**before["spec"], "maxReplicas": 9}
    assert "annotations" not in after["metadata"]


def test_patches_applies_and_the_status_of_v1_reach_the_stored_object(api: Api) -> None:
    api.ok("POST", V1, scaler())
    api.ok("PATCH", f"{V1}/web", {"spec": {"targetCPUUtilizationPercentage": 60}}, MERGE)
    assert api.ok("GET", f"{V2}/web")["spec"]["metrics"] == [cpu(60)]
    api.ok("PATCH", f"{V1}/web?fieldManager=me&force=true", scaler(targetCPUUtilizationPercentage=70), APPLY)
    assert api.ok("GET", f"{V2}/web")["spec"]["metrics"] == [cpu(70)]
    status = {"currentReplicas": 2, "desiredReplicas": 3, "currentCPUUtilizationPercentage": 10}
    assert api.ok("PATCH", f"{V1}/web/status", {"status": status}, MERGE)["status"] == status
    current = api.ok("GET", f"{V2}/web")["status"]["currentMetrics"]
    assert current == [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 10}}}]


def test_an_event_can_be_applied_in_the_version_that_renames_its_fields(api: Api) -> None:
    path = "/apis/events.k8s.io/v1/namespaces/default/events/e?fieldManager=me"
    event = {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "action": "a", "reason": "r",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"}, "note": "n", "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i",
    }  # fmt: skip
    made = api.ok("PATCH", path, event, APPLY)
    assert {key: made[key] for key in event if key != "metadata"} == {k: v for k, v in event.items() if k != "metadata"}
