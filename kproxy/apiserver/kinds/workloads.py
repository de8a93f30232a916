"""Workloads that hold a pod template: defaults and the checks that keep them usable.

Sources: kubernetes/kubernetes pkg/apis/apps/v1/defaults.go, pkg/apis/apps/validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from kproxy.api.fielderror import FieldError, forbidden, invalid, not_supported, required
from kproxy.api.validation.meta import validate_labels
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.field_rules import Rules, defaults, rules, selector_errors, set_defaults
from kproxy.apiserver.kinds.podspec import default_pod_spec, pod_spec_errors
from kproxy.apiserver.kinds.strategy import SPEC, StatusStrategy
from kproxy.apiserver.schema.field_paths import Path
from kproxy.informer import selector_matches

_LABELS: Path = ("f:metadata", "f:labels")


_COUNTS: Final = """
    spec.replicas                 min 0
    spec.minReadySeconds          min 0
    spec.revisionHistoryLimit     min 0
"""


class TemplateStrategy(StatusStrategy):
    """A workload with a selector and a pod template."""

    has_generation: ClassVar[bool] = True
    status_resets: ClassVar[tuple[Path, ...]] = (SPEC, _LABELS)
    kept_by_status: ClassVar[tuple[str, ...]] = ("labels",)

    updates: ClassVar[str] = ""
    """The field that says how its pods are replaced, "" if it has none."""
    defaults: ClassVar[str] = ""
    """A table of the defaults beside those of the template."""
    rolling: ClassVar[str] = ""
    """The same of a rolling update."""

    def default(self, value: Json) -> None:
        spec = value["spec"]
        set_defaults(value, defaults(self.defaults))
        if self.updates and spec[self.updates].setdefault("type", "RollingUpdate") == "RollingUpdate":
            set_defaults(spec[self.updates].setdefault("rollingUpdate", {}), defaults(self.rolling))
        default_pod_spec(spec["template"]["spec"])

    table: ClassVar[Rules]
    """What the fields beside the template's must be."""

    def validate(self, value: Json) -> list[FieldError]:
        spec = value["spec"]
        errors = self.table.errors(value, "")
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

    updates: ClassVar[str] = "strategy"
    defaults: ClassVar[str] = """
        spec.replicas                 1
        spec.revisionHistoryLimit     10
        spec.progressDeadlineSeconds  600
    """
    rolling: ClassVar[str] = """
        maxUnavailable  "25%"
        maxSurge        "25%"
    """
    table: ClassVar[Rules] = rules(f"""{_COUNTS}
        spec.strategy.type                          one-of Recreate RollingUpdate
        spec.strategy.rollingUpdate.maxSurge        surge
        spec.strategy.rollingUpdate.maxUnavailable  count
        spec.progressDeadlineSeconds                min 0
    """)

    def validate(self, value: Json) -> list[FieldError]:
        spec = value["spec"]
        errors = super().validate(value) + list(_rolling_errors(spec["strategy"], "spec.strategy", "Recreate"))
        deadline, least = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds", 0)
        if deadline is not None and deadline <= least:
            errors.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
        return errors


class ReplicaSetStrategy(TemplateStrategy):
    """apps/v1 ReplicaSet."""

    defaults: ClassVar[str] = "spec.replicas  1"
    first_status: ClassVar[Json] = {"replicas": 0}
    noun: ClassVar[str] = "ReplicaSet"
    table: ClassVar[Rules] = rules(_COUNTS)


class DaemonSetStrategy(TemplateStrategy):
    """apps/v1 DaemonSet."""

    updates: ClassVar[str] = "updateStrategy"
    defaults: ClassVar[str] = "spec.revisionHistoryLimit  10"
    rolling: ClassVar[str] = """
        maxUnavailable  1
        maxSurge        0
    """
    first_status: ClassVar[Json] = dict.fromkeys(
        ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
    )
    noun: ClassVar[str] = "daemonset"
    table: ClassVar[Rules] = rules(f"""{_COUNTS}
        spec.updateStrategy.type                          one-of OnDelete RollingUpdate
        spec.updateStrategy.rollingUpdate.maxSurge        count
        spec.updateStrategy.rollingUpdate.maxUnavailable  count
    """)

    def validate(self, value: Json) -> list[FieldError]:
        strategy = value["spec"]["updateStrategy"]
        errors = super().validate(value) + list(_rolling_errors(strategy, "spec.updateStrategy", ""))
        rolling = strategy.get("rollingUpdate") or {}
        if _some(rolling.get("maxSurge")) and _some(rolling.get("maxUnavailable")):
            text = "may not be set when maxUnavailable is non-zero"
            errors.append(invalid("spec.updateStrategy.rollingUpdate.maxSurge", rolling["maxSurge"], text))
        return errors


class StatefulSetStrategy(TemplateStrategy):
    """apps/v1 StatefulSet."""

    updates: ClassVar[str] = "updateStrategy"
    defaults: ClassVar[str] = """
        spec.podManagementPolicy                               "OrderedReady"
        spec.replicas                                          1
        spec.revisionHistoryLimit                              10
        spec.persistentVolumeClaimRetentionPolicy              {}
        spec.persistentVolumeClaimRetentionPolicy.whenDeleted  "Retain"
        spec.persistentVolumeClaimRetentionPolicy.whenScaled   "Retain"
        spec.volumeClaimTemplates[].spec.volumeMode            "Filesystem"
        spec.volumeClaimTemplates[].status.phase               "Pending"
    """
    rolling: ClassVar[str] = "partition  0"
    first_status: ClassVar[Json] = {"replicas": 0, "availableReplicas": 0}
    noun: ClassVar[str] = "StatefulSet"
    table: ClassVar[Rules] = rules(
        f"""{_COUNTS}
        spec.updateStrategy.type                         one-of OnDelete RollingUpdate
        spec.updateStrategy.rollingUpdate.partition      min 0
        spec.updateStrategy.rollingUpdate.maxUnavailable count
        spec.podManagementPolicy                         one-of OrderedReady Parallel
        spec.ordinals.start                              min 0
        spec.persistentVolumeClaimRetentionPolicy.whenDeleted  one-of Delete Retain
        spec.persistentVolumeClaimRetentionPolicy.whenScaled   one-of Delete Retain
        """
    )


def _rolling_errors(strategy: Json, path: str, other: str) -> Iterator[FieldError]:
    """A rolling update has parameters that let it begin; another strategy has none."""
    rolling = strategy.get("rollingUpdate")
    if other and strategy.get("type") == other and rolling is not None:
        yield forbidden(f"{path}.rollingUpdate", f"may not be specified when strategy `type` is '{other}'")
    elif rolling is not None and not _some(rolling.get("maxSurge")) and not _some(rolling.get("maxUnavailable")):
        yield invalid(f"{path}.rollingUpdate.maxUnavailable", 0, "may not be 0 when `maxSurge` is 0")


def _some(count: Any) -> bool:
    return count not in (None, 0, "0%")
