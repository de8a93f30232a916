"""Workloads that hold a pod template: defaults and the checks that keep them usable.

Sources: kubernetes/kubernetes pkg/apis/apps/v1/defaults.go, pkg/apis/apps/validation.
"""

from __future__ import annotations

from typing import ClassVar

from kproxy.api.fielderror import FieldError, invalid, not_supported, required
from kproxy.api.validation.meta import validate_labels
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.podspec import default_pod_spec, pod_spec_errors
from kproxy.apiserver.kinds.rules import selector_errors
from kproxy.apiserver.kinds.strategy import SPEC, StatusStrategy
from kproxy.apiserver.schema.field_paths import Path
from kproxy.informer import selector_matches

_LABELS: Path = ("f:metadata", "f:labels")


class TemplateStrategy(StatusStrategy):
    """A workload with a selector and a pod template."""

    has_generation: ClassVar[bool] = True
    status_resets: ClassVar[tuple[Path, ...]] = (SPEC, _LABELS)
    kept_by_status: ClassVar[tuple[str, ...]] = ("labels",)

    def default(self, value: Json) -> None:
        spec = value["spec"]
        self.default_spec(spec)
        default_pod_spec(spec["template"]["spec"])

    def default_spec(self, spec: Json) -> None:
        """The defaults beside those of the template."""

    def validate(self, value: Json) -> list[FieldError]:
        spec = value["spec"]
        errors = []
        if spec.get("replicas", 0) < 0:
            errors.append(invalid("spec.replicas", spec["replicas"], "must be greater than or equal to 0"))
        selector = spec.get("selector")
        if selector is None:
            errors.append(required("spec.selector"))
        elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
            errors.append(invalid("spec.selector", selector, f"empty selector is invalid for {self.noun}"))
        else:
            errors += selector_errors(selector, "spec.selector")
        template = spec["template"]
        labels = template["metadata"].get("labels") or {}
        errors += validate_labels("spec.template.metadata.labels", labels)
        if selector and not errors and not selector_matches(selector, labels):
            text = "`selector` does not match template `labels`"
            errors.append(invalid("spec.template.metadata.labels", labels, text))
        errors += pod_spec_errors(template["spec"], "spec.template.spec")
        if template["spec"].get("restartPolicy") in ("OnFailure", "Never"):
            policy = template["spec"]["restartPolicy"]
            errors.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
        return errors

    noun: ClassVar[str] = "deployment"

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        selector = value["spec"].get("selector")
        if selector != old["spec"].get("selector"):
            return [invalid("spec.selector", selector, "field is immutable")]
        return []


class DeploymentStrategy(TemplateStrategy):
    """apps/v1 Deployment."""

    def default_spec(self, spec: Json) -> None:
        spec.setdefault("replicas", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)
        strategy = spec["strategy"]
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")


class ReplicaSetStrategy(TemplateStrategy):
    """apps/v1 ReplicaSet."""

    noun: ClassVar[str] = "ReplicaSet"

    def default_spec(self, spec: Json) -> None:
        spec.setdefault("replicas", 1)

    def initial_status(self) -> Json:
        return {"replicas": 0}


class DaemonSetStrategy(TemplateStrategy):
    """apps/v1 DaemonSet."""

    noun: ClassVar[str] = "daemonset"

    def default_spec(self, spec: Json) -> None:
        spec.setdefault("revisionHistoryLimit", 10)
        strategy = spec["updateStrategy"]
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)

    def initial_status(self) -> Json:
        names = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
        return dict.fromkeys(names, 0)


class StatefulSetStrategy(TemplateStrategy):
    """apps/v1 StatefulSet."""

    noun: ClassVar[str] = "StatefulSet"

    def default_spec(self, spec: Json) -> None:
        spec.setdefault("podManagementPolicy", "OrderedReady")
        spec.setdefault("replicas", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        strategy = spec["updateStrategy"]
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        policy = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        policy.setdefault("whenDeleted", "Retain")
        policy.setdefault("whenScaled", "Retain")
        for claim in spec.get("volumeClaimTemplates") or ():
            claim["spec"].setdefault("volumeMode", "Filesystem")
            claim["status"].setdefault("phase", "Pending")

    def initial_status(self) -> Json:
        return {"replicas": 0, "availableReplicas": 0}


class ReplicationControllerStrategy(StatusStrategy):
    """core/v1 ReplicationController, whose selector is a map and by default its template's labels."""

    has_generation: ClassVar[bool] = True

    def default(self, value: Json) -> None:
        spec = value["spec"]
        spec.setdefault("replicas", 1)
        template = spec.get("template") or {}
        if labels := (template.get("metadata") or {}).get("labels"):
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            if not value["metadata"].get("labels"):
                value["metadata"]["labels"] = dict(labels)
        if template:
            default_pod_spec(template["spec"])

    def initial_status(self) -> Json:
        return {"replicas": 0}

    def validate(self, value: Json) -> list[FieldError]:
        spec = value["spec"]
        selector, template = spec.get("selector") or {}, spec.get("template")
        errors = [] if selector else [required("spec.selector")]
        if template is None:
            return [*errors, required("spec.template")]
        labels = (template.get("metadata") or {}).get("labels") or {}
        if not selector.items() <= labels.items():
            text = "`selector` does not match template `labels`"
            errors.append(invalid("spec.template.metadata.labels", labels, text))
        return errors + list(pod_spec_errors(template["spec"], "spec.template.spec"))
