"""From the bytes of answers to typed objects, decoded once.

A `Codec` knows one kind. Typed kinds go through the wire structs of `kproxy.api`: msgspec fills them straight from the
bytes, whole pages at a time, and no dict comes in between. `UnstructuredCodec` is for everything else. `LineReader`
cuts a watch stream into events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import msgspec

from kproxy.api.types.discovery import EndpointSlice
from kproxy.api.types.meta import ObjectMeta
from kproxy.api.wire import convert, structs
from kproxy.informer.objects import INITIAL_EVENTS_END, EventType, ListPage, Status, T, WatchEvent, WireError

WireT = TypeVar("WireT")

LONGEST_EVENT: Final = 64 * 1024 * 1024
"""Bytes. etcd takes objects of up to 1.5 MB; what is longer by far is no event."""


class WireCause(structs.Wire):
    reason: str | None = None


class WireStatusDetails(structs.Wire):
    causes: list[WireCause] | None = None
    retry_after_seconds: float | None = None


class WireStatus(structs.Wire, tag_field="kind", tag="Status"):
    """metav1.Status."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: WireStatusDetails | None = None


class WireListMeta(structs.Wire):
    resource_version: str | None = None
    continue_: str | None = msgspec.field(name="continue", default=None)


class WireList(msgspec.Struct, Generic[WireT], rename="camel"):
    """A list of one kind."""

    api_version: str | None = None
    kind: str | None = None
    metadata: WireListMeta | None = None
    items: list[WireT] | None = None


class WireEvent(msgspec.Struct, gc=False):
    """An event of a watch."""

    type: EventType
    object: msgspec.Raw


class WireBookmark(structs.Wire):
    """Of an object, what a bookmark has."""

    metadata: structs.WireMeta | None = None


_STATUS: Final = msgspec.json.Decoder(WireStatus)
_EVENT: Final = msgspec.json.Decoder(WireEvent)
_BOOKMARK: Final = msgspec.json.Decoder(WireBookmark)


def status_of(spelled: WireStatus, code: int = 500, retry_after: float | None = None) -> Status:
    """The Status; `code` and `retry_after` are what the HTTP answer said, for what the body leaves out."""
    details = spelled.details or WireStatusDetails()
    return Status(
        spelled.code or code,
        spelled.reason or "",
        spelled.message or "",
        tuple(cause.reason or "" for cause in details.causes or ()),
        retry_after if retry_after is not None else details.retry_after_seconds,
    )


def decode_status(data: bytes, code: int, retry_after: float | None = None) -> Status:
    """The Status of an error answer; made of the text if the body is not a Status, as from a proxy."""
    try:
        return status_of(_STATUS.decode(data), code, retry_after)
    except (msgspec.DecodeError, RecursionError):
        text = " ".join(data[:500].decode("utf-8", "replace").split())
        return Status(code, "", text or "the server gave no reason", (), retry_after)


_DecodedT = TypeVar("_DecodedT")


def _read(decoder: msgspec.json.Decoder[_DecodedT], data: bytes | msgspec.Raw, what: str) -> _DecodedT:
    """Raises WireError, which says of what the bytes were to be read."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(f"{what}: {error}") from error


class Codec(Generic[T]):
    """Bytes to objects of one kind. Every method raises WireError for bytes that are not what they should be.

    Args:
        kind: what msgspec makes of an object, and `to_value` a value of that.
    """

    def __init__(self, kind: type[Any], to_value: Callable[[Any], T]) -> None:
        self._one: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
        self._list: msgspec.json.Decoder[WireList[Any]] = msgspec.json.Decoder(WireList[kind])  # type: ignore[valid-type]
        self._value = to_value

    def decode(self, data: bytes) -> T:
        """A single object."""
        return self._value(_read(self._one, data, "the answer is no such object"))

    def decode_list(self, data: bytes) -> ListPage[T]:
        """A page of a LIST."""
        spelled = _read(self._list, data, "the answer is no such list")
        items = tuple(self._items(spelled))
        if not all(item.metadata.name for item in items):
            raise WireError("the list has an object without a name")
        meta = spelled.metadata or WireListMeta()
        return ListPage(items, meta.resource_version or "", meta.continue_ or "")

    def _items(self, spelled: WireList[Any]) -> Iterable[T]:
        return map(self._value, spelled.items or ())

    def decode_event(self, line: bytes) -> WatchEvent[T]:
        """One event of a watch."""
        event = _read(_EVENT, line, "the stream has something that is not an event")
        what = f"the stream has an event {event.type} with something else than expected"
        if event.type is EventType.ERROR:
            return WatchEvent(event.type, status=status_of(_read(_STATUS, event.object, what)))
        if event.type is EventType.BOOKMARK:
            meta = _read(_BOOKMARK, event.object, what).metadata or structs.WireMeta()
            end = (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true"
            return WatchEvent(event.type, resource_version=meta.resource_version or "", initial_events_end=end)
        item = self._value(_read(self._one, event.object, what))
        if not item.metadata.name:
            raise WireError(f"the stream has an event {event.type} of an object without a name")
        return WatchEvent(event.type, item, item.metadata.resource_version)


_MOST_TEXTS: Final = 100_000
"""Texts that are kept once; past it, most must be of objects that are long gone."""


def endpoint_slice_codec() -> Codec[EndpointSlice]:
    """discovery.k8s.io/v1 EndpointSlice, with one copy of each equal node and zone name."""
    texts: dict[str | None, str | None] = {}

    def value(spelled: structs.WireEndpointSlice) -> EndpointSlice:
        if len(texts) > _MOST_TEXTS:
            texts.clear()
        return convert.convert_endpoint_slice(spelled, texts)

    return Codec(structs.WireEndpointSlice, value)


class Unstructured(msgspec.Struct, frozen=True):
    """An object of any kind: its metadata as a value, and all of it as it came. `raw` must not be changed."""

    metadata: ObjectMeta
    raw: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.raw.get("kind", ""))

    @property
    def api_version(self) -> str:
        return str(self.raw.get("apiVersion", ""))


class UnstructuredCodec(Codec[Unstructured]):
    """The Codec of any kind, custom resources included."""

    def __init__(self) -> None:
        super().__init__(dict[str, Any], _unstructured)

    def _items(self, spelled: WireList[Any]) -> Iterable[Unstructured]:
        kind = (spelled.kind or "").removesuffix("List")
        defaults = {"apiVersion": spelled.api_version or "", "kind": kind}
        return (_unstructured({**defaults, **item}) for item in spelled.items or ())


def _unstructured(raw: dict[str, Any]) -> Unstructured:
    """An object of decoded JSON. Raises WireError if the metadata is not an object or has no name.

    Lists of some aggregated kinds (Table, Status) have no metadata.name; those are no objects.
    """
    try:
        meta = msgspec.convert(raw.get("metadata") or {}, structs.WireMeta)
    except msgspec.ValidationError as error:
        raise WireError(f"the server sent something else than expected: {error}") from error
    if not meta.name:
        raise WireError(f"an object of kind {raw.get('kind')!r} has no name")
    return Unstructured(convert.convert_meta(meta, ""), MappingProxyType(raw))


class LineReader:
    """Cuts the bytes of a watch stream into lines, which are events.

    Invariant: `_parts` holds what came since the last line end, without one.
    """

    def __init__(self, longest: int = LONGEST_EVENT) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._longest = longest

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that `data` completes. Raises WireError if one is too long to be an event."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = b"".join([*self._parts, line]) if self._parts else line
            self._parts.clear()
            self._size = 0
            if whole.strip():
                yield whole
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > self._longest:
                raise WireError(f"the stream has an event of more than {self._longest} bytes")

    @property
    def inside_event(self) -> bool:
        """Whether a part of an event has come, and not its end."""
        return bool(self._size and b"".join(self._parts).strip())

    def close(self) -> None:
        """The stream has ended. Raises WireError if it did inside an event."""
        if self.inside_event:
            raise WireError("the stream ended inside an event")
