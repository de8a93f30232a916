"""autoscaling/v1 HorizontalPodAutoscalers: those of v2 with one metric, the CPU, and the rest in annotations.

What v1 has no fields for (other metrics, behaviour, conditions) stands in annotations while an object is shown in v1,
so that a client of v1 that reads and writes it back loses nothing. Their text is JSON of v2's fields.

Source: kubernetes/kubernetes pkg/apis/autoscaling/v1/conversion.go.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.stored.row import StoredStrategy

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
_PARKED: Final = (
    ("metrics", "spec", "metrics"),
    ("behavior", "spec", "behavior"),
    ("conditions", "status", "conditions"),
    ("current-metrics", "status", "currentMetrics"),
)
"""The annotation, and the field of v2 that it holds."""


class OldAutoscalerStrategy(StoredStrategy):
    """HorizontalPodAutoscaler of autoscaling/v1, stored as v2."""

    converts: ClassVar[bool] = True

    def from_version(self, value: Json) -> Json:
        parked = _unpark(value.get("metadata") or {})
        spec, status = dict(value.get("spec") or {}), dict(value.get("status") or {})
        metrics = list(parked.get("metrics") or ())
        if (target := spec.pop("targetCPUUtilizationPercentage", None)) is not None:
            metrics.append(_cpu({"target": {"type": "Utilization", "averageUtilization": target}}))
        current = list(parked.get("current-metrics") or ())
        if (used := status.pop("currentCPUUtilizationPercentage", None)) is not None:
            current.append(_cpu({"current": {"averageUtilization": used}}))
        if metrics:
            spec["metrics"] = metrics
        if parked.get("behavior") is not None:
            spec["behavior"] = parked["behavior"]
        if parked.get("conditions"):
            status["conditions"] = parked["conditions"]
        if not status.get("currentReplicas"):
            status.pop("currentReplicas", None)
        return {**value, "spec": spec, "status": {**status, "currentMetrics": current or None}}

    def to_version(self, value: Json) -> Json:
        spec, status = dict(value["spec"]), dict(value.get("status") or {})
        parts = {"spec": spec, "status": status}
        texts = {}
        for name, part, field in _PARKED:
            held = parts[part].pop(field, None)
            if field in ("metrics", "currentMetrics"):
                inner = "target" if field == "metrics" else "current"
                cpu = next((each for each in held or () if _utilization(each, inner) is not None), None)
                if cpu is not None:
                    known = "targetCPUUtilizationPercentage" if part == "spec" else "currentCPUUtilizationPercentage"
                    parts[part][known] = _utilization(cpu, inner)
                    held = [each for each in held or () if each is not cpu]
            if held:
                texts[_PREFIX + name] = msgspec.json.encode(held).decode()
        status.setdefault("currentReplicas", 0)
        status.setdefault("desiredReplicas", 0)
        meta = dict(value["metadata"])
        if texts:
            meta["annotations"] = {**(meta.get("annotations") or {}), **texts}
        return {**value, "metadata": meta, "spec": spec, "status": status}


def _cpu(fields: Json) -> Json:
    return {"type": "Resource", "resource": {"name": "cpu", **fields}}


def _utilization(metric: Json, inner: str) -> int | None:
    """The share of the CPU that a metric asks for or tells of; None of another metric."""
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    share: int | None = (resource.get(inner) or {}).get("averageUtilization")
    return share


def _unpark(meta: Json) -> dict[str, Any]:
    """Takes the annotations that hold fields of v2 out of the metadata; what is no JSON is left out."""
    annotations = dict(meta.get("annotations") or {})
    found = {}
    for name, _, _ in _PARKED:
        text = annotations.pop(_PREFIX + name, None)
        if text is not None:
            try:
                found[name] = msgspec.json.decode(text)
            except msgspec.DecodeError:
                continue
    if annotations:
        meta["annotations"] = annotations
    else:
        meta.pop("annotations", None)
    return found
