"""Events of core/v1 and events.k8s.io/v1: the same objects under other names, stored under core's.

The checks see core's names; those of events.k8s.io are stricter. Source: kubernetes/kubernetes
pkg/apis/core/validation/events.go, pkg/apis/events/v1/conversion.go.
"""

from __future__ import annotations

from typing import ClassVar, Final

from kproxy.api.fielderror import FieldError, invalid, required
from kproxy.api.validation.names import check_qualified_name
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.strategy import Strategy, path_name

_NAMES: Final = (
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)
_TO_CORE: Final = dict(_NAMES)
_TO_NEW: Final = {core: new for new, core in _NAMES}
_ALWAYS_CORE: Final[Json] = {"involvedObject": {}, "source": {}, "firstTimestamp": None, "lastTimestamp": None,
                       "eventTime": None, "reportingComponent": "", "reportingInstance": ""}  # fmt: skip
_TIMES: Final = ("eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp")
"""What is `null` when it is not set."""
_MAX_LENGTHS: Final = (("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024))
_IMMUTABLE: Final = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime",
    "action", "related", "reportingInstance",
)  # fmt: skip


class EventStrategy(Strategy):
    """core/v1 Event, which events.k8s.io/v1 shows under other names."""

    def check_name(self, name: str) -> tuple[str, ...]:
        return path_name(name)

    qualified_finalizers: ClassVar[bool] = False
    create_on_update: ClassVar[bool] = True
    _controller: ClassVar[str] = "reportingComponent"
    """What errors call the reporting controller."""

    def validate(self, value: Json) -> list[FieldError]:
        namespace = value["metadata"].get("namespace", "")
        involved = value["involvedObject"].get("namespace", "")
        new = bool(value.get("eventTime"))
        errors = []
        of_cluster = namespace == "default" or (new and namespace == "kube-system")
        if (involved != namespace and not new) if involved else not of_cluster:
            errors.append(invalid("involvedObject.namespace", involved, "does not match event.namespace"))
        if not new:
            return errors
        controller = value.get("reportingComponent") or ""
        if not controller:
            errors.append(required(self._controller, ""))
        errors += [invalid(self._controller, controller, text) for text in check_qualified_name(controller)]
        for name, limit in _MAX_LENGTHS:
            text = value.get(name) or ""
            if not text and name != "message":
                errors.append(required(name, ""))
            if len(text.encode()) > limit:
                errors.append(invalid(name, "", f"can have at most {limit} characters"))
        return errors


class NewEventStrategy(EventStrategy):
    """events.k8s.io/v1 Event."""

    qualified_finalizers: ClassVar[bool] = True
    converts: ClassVar[bool] = True
    _controller = "reportingController"

    def from_version(self, value: Json) -> Json:
        return {**_ALWAYS_CORE, **{_TO_CORE.get(key, key): item for key, item in value.items()}}

    def to_version(self, value: Json) -> Json:
        renamed = {_TO_NEW.get(key, key): item for key, item in value.items()}
        return {key: item for key, item in renamed.items() if item not in (None, "") or key in _TIMES}

    def validate(self, value: Json) -> list[FieldError]:
        errors = super().validate(value)
        series = value.get("series")
        if series is not None:
            if series.get("count", 0) < 2:
                errors.append(invalid("series.count", "", "should be at least 2"))
            if not series.get("lastObservedTime"):
                errors.append(required("series.lastObservedTime", ""))
        if not value.get("eventTime"):
            errors.append(required("eventTime", ""))
        kind = value.get("type", "")
        if kind not in ("Normal", "Warning"):
            errors.append(invalid("type", "", f"has invalid value: {kind}"))
        errors += [
            invalid(name, "", "needs to be unset")
            for name in ("firstTimestamp", "lastTimestamp", "count", "source")
            if value.get(name)
        ]
        return errors

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        errors = [
            invalid(name, value.get(name), "field is immutable")
            for name in _IMMUTABLE
            if (value.get(name) or None) != (old.get(name) or None)
        ]
        if value.get("reportingComponent") != old.get("reportingComponent"):
            errors.append(invalid(self._controller, value.get("reportingComponent"), "field is immutable"))
        return errors
