"""What the informers carry: objects with metadata, keys, tombstones, what LIST and WATCH answer, and how they fail.

Names and meanings are client-go's (tools/cache/store.go, tools/cache/delta_fifo.go, apimachinery's metav1.Status).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from kproxy.api.types.meta import ObjectMeta
from kproxy.errors import KproxyError


class KubernetesObject(Protocol):
    """Anything with an ObjectMeta: the typed objects of `kproxy.api`, and `Unstructured`."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=KubernetesObject)


class WireError(KproxyError):
    """Bytes from the server that are no answer: malformed, cut off, or of another type."""


class DeletedFinalStateUnknown(msgspec.Struct, Generic[T], frozen=True):
    """The tombstone of an object whose deletion only a relist showed.

    `object` is the last state that was seen, which may be older than the state it was deleted in; None if none was.
    """

    key: str
    object: T | None


@dataclass(frozen=True, slots=True)
class Status:
    """metav1.Status of a failure, and what its response headers add.

    `code` is the HTTP status; 0 means that no answer came (connection refused, reset, timed out, garbage). `causes` are
    the reasons of details.causes. `retry_after` is in seconds: the header Retry-After, or details.retryAfterSeconds.
    """

    code: int
    reason: str = ""
    message: str = ""
    causes: tuple[str, ...] = ()
    retry_after: float | None = None

    @property
    def is_expired(self) -> bool:
        """The resourceVersion or continue token is older than the server's history: relist.

        The API server says Expired for a compacted version and Gone for one that its watch cache no longer has.
        """
        return self.code == 410 or self.reason in ("Expired", "Gone")

    @property
    def is_too_large_resource_version(self) -> bool:
        """The server has not reached the version that was asked for: it was restored, or its cache is behind."""
        return _TOO_LARGE in self.causes or (self.code == 504 and "Too large resource version" in self.message)

    @property
    def is_too_many_requests(self) -> bool:
        return self.code == 429 or self.reason == "TooManyRequests"

    @property
    def is_refused_request(self) -> bool:
        """The server understood and will never do it: an unknown or forbidden option."""
        return self.code in (400, 405, 422) or self.reason in ("BadRequest", "Invalid")

    def __str__(self) -> str:
        return f"{self.code} {self.reason}: {self.message}" if self.code else self.message


_TOO_LARGE: Final = "ResourceVersionTooLarge"


def version_number(resource_version: str) -> int | None:
    """A resourceVersion as the number that newer servers promise it to be; None for one that is not.

    Versions of one resource may be compared if both are decimal numbers without leading zeros
    (kubernetes/enhancements KEP-5504); "0" and "" are no versions but ways to ask.
    """
    if resource_version.isascii() and resource_version.isdigit() and resource_version[0] != "0":
        return int(resource_version)
    return None


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
