"""What a server answers to LIST and WATCH, decoded."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Generic

import msgspec

from kproxy.informer.objects import Status, T

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""The annotation, with value "true", of the bookmark that ends a streaming initial list (KEP-3157)."""


class EventType(StrEnum):
    """watch.EventType of apimachinery."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """One event of a watch stream.

    `object` is None for BOOKMARK and ERROR; `status` is set for ERROR only. `initial_events_end` marks the bookmark
    after which a streaming list is complete.
    """

    type: EventType
    object: T | None = None
    resource_version: str = ""
    initial_events_end: bool = False
    status: Status | None = None


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """One page of a LIST; `continue_token` is "" on the last."""

    items: tuple[T, ...]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None
