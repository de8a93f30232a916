"""Events of core/v1 and events.k8s.io/v1: the same objects under other names, stored under core's.

Source: kubernetes/kubernetes pkg/apis/core/validation/events.go, pkg/apis/events/v1/conversion.go.
"""

from __future__ import annotations

from typing import ClassVar, Final

from kproxy.api.fielderror import FieldError, invalid
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


class EventStrategy(Strategy):
    """core/v1 Event, which events.k8s.io/v1 shows under other names."""

    def check_name(self, name: str) -> tuple[str, ...]:
        return path_name(name)

    qualified_finalizers: ClassVar[bool] = False
    create_on_update: ClassVar[bool] = True

    def validate(self, value: Json) -> list[FieldError]:
        namespace = value["metadata"].get("namespace", "")
        involved = value["involvedObject"].get("namespace", "")
        new = bool(value.get("eventTime"))
        of_cluster = namespace == "default" or (new and namespace == "kube-system")
        if (involved != namespace and not new) if involved else not of_cluster:
            return [invalid("involvedObject.namespace", involved, "does not match event.namespace")]
        return []


class NewEventStrategy(EventStrategy):
    """events.k8s.io/v1 Event."""

    qualified_finalizers: ClassVar[bool] = True
    converts: ClassVar[bool] = True

    def from_version(self, value: Json) -> Json:
        return {**_ALWAYS_CORE, **{_TO_CORE.get(key, key): item for key, item in value.items()}}

    def to_version(self, value: Json) -> Json:
        renamed = {_TO_NEW.get(key, key): item for key, item in value.items()}
        return {key: item for key, item in renamed.items() if item not in (None, "") or key in _TIMES}
