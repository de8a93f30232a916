"""core/v1 and events.k8s.io/v1 Events are the same objects under other names; they are stored in core's.

Source: k8s.io/kubernetes pkg/apis/events/v1/conversion.go.
"""

from __future__ import annotations

from typing import Final

from kproxy.apiserver.errors import Json

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


def from_new_event(value: Json) -> Json:
    """An events.k8s.io/v1 Event as core/v1 has it."""
    renamed = {_TO_CORE.get(key, key): item for key, item in value.items()}
    return {**_ALWAYS_CORE, **renamed}


def to_new_event(value: Json) -> Json:
    """A core/v1 Event as events.k8s.io/v1 has it."""
    renamed = {_TO_NEW.get(key, key): item for key, item in value.items()}
    return {key: item for key, item in renamed.items() if item is not None or key == "eventTime"}
