"""From the bytes of answers to typed objects, decoded once.

A `Codec` knows one kind. Typed kinds go through the wire structs of `kproxy.api`: msgspec fills them straight from the
bytes, whole pages and events at a time, and no dict comes in between. `UnstructuredCodec` is for everything else. Equal
leaves (node and zone names, conditions, port lists) are kept once per codec, so 100,000 endpoints do not hold 100,000
copies. `LineReader` cuts a watch stream into events.

Objects in lists come without `kind`, events with it; that is how msgspec tells an object from a Status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from kproxy.api.types.core import Endpoints, Node, Service
from kproxy.api.types.discovery import EndpointPort, EndpointSlice
from kproxy.api.types.meta import ObjectMeta
from kproxy.api.types.networking import ServiceCIDR
from kproxy.api.wire import convert, structs
from kproxy.informer.objects import INITIAL_EVENTS_END, EventType, ListPage, Status, T, WatchEvent, WireError

WireT = TypeVar("WireT", bound=structs.WireObject)

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
    remaining_item_count: int | None = None


class WireList(msgspec.Struct, Generic[WireT]):
    """A list of one kind."""

    metadata: WireListMeta | None = None
    items: list[WireT] | None = None


class WireEvent(msgspec.Struct, Generic[WireT], gc=False):
    """An event of a watch of one kind."""

    type: str
    object: WireT | WireStatus


_STATUS: Final = msgspec.json.Decoder(WireStatus)


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


class Codec(Protocol[T]):
    """Bytes to objects of one kind. Every method raises WireError for bytes that are not what they should be."""

    def decode(self, data: bytes) -> T:
        """A single object."""
        ...

    def decode_list(self, data: bytes) -> ListPage[T]:
        """A page of a LIST."""
        ...

    def decode_event(self, line: bytes) -> WatchEvent[T]:
        """One event of a watch."""
        ...


class Pool:
    """One copy of each equal value.

    Attributes:
        texts: node and zone names, for convert_endpoint_slice.

    Invariant: neither dict is larger than its limit for long; past it, most must be of objects that are long gone.
    """

    __slots__ = ("_ports", "texts")

    def __init__(self) -> None:
        self.texts: dict[str | None, str | None] = {}
        self._ports: dict[tuple[EndpointPort, ...], tuple[EndpointPort, ...]] = {}

    def ports(self, ports: tuple[EndpointPort, ...]) -> tuple[EndpointPort, ...]:
        """The shared copy of a slice's ports."""
        return self._ports.setdefault(ports, ports)

    def trim(self) -> None:
        """Keeps to the limits."""
        if len(self.texts) > 100_000:
            self.texts.clear()
        if len(self._ports) > 10_000:
            self._ports.clear()


class TypedCodec(Generic[T, WireT]):
    """The Codec of a kind that `kproxy.api` reads."""

    def __init__(self, kind: type[WireT], to_value: Callable[[WireT], T]) -> None:
        self._one = msgspec.json.Decoder(kind)
        self._list = msgspec.json.Decoder(WireList[kind])  # type: ignore[valid-type]
        self._event = msgspec.json.Decoder(WireEvent[kind])  # type: ignore[valid-type]
        self._value = to_value

    def decode(self, data: bytes) -> T:
        try:
            return self._value(self._one.decode(data))
        except (msgspec.DecodeError, RecursionError) as error:
            raise WireError(f"the answer is no such object: {error}") from error

    def decode_list(self, data: bytes) -> ListPage[T]:
        try:
            spelled = self._list.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise WireError(f"the answer is no such list: {error}") from error
        value = self._value
        items = tuple([value(item) for item in spelled.items or ()])
        if not all(item.metadata.name for item in items):
            raise WireError("the list has an object without a name")
        meta = spelled.metadata or WireListMeta()
        return ListPage(items, meta.resource_version or "", meta.continue_ or "", meta.remaining_item_count)

    def decode_event(self, line: bytes) -> WatchEvent[T]:
        try:
            event = self._event.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise WireError(f"the stream has something that is not an event: {error}") from error
        kind = _event_type(event.type)
        spelled = event.object
        if isinstance(spelled, WireStatus):
            if kind is not EventType.ERROR:
                raise WireError(f"the stream has an event {kind} with a Status")
            return WatchEvent(kind, status=status_of(spelled))
        meta = spelled.metadata or structs.WireMeta()
        if kind is EventType.BOOKMARK:
            annotations = meta.annotations or {}
            return WatchEvent(
                kind,
                resource_version=meta.resource_version or "",
                initial_events_end=annotations.get(INITIAL_EVENTS_END) == "true",
            )
        if kind is EventType.ERROR or not meta.name:
            raise WireError(f"the stream has an event {kind} without a status or a name")
        return WatchEvent(kind, self._value(spelled), meta.resource_version or "")


_EVENT_TYPES: Final = {str(kind): kind for kind in EventType}


def _event_type(text: str) -> EventType:
    if text not in _EVENT_TYPES:
        raise WireError(f"the stream has an event of unknown type {text[:40]!r}")
    return _EVENT_TYPES[text]


def service_codec() -> Codec[Service]:
    """core/v1 Service."""
    return TypedCodec(structs.WireService, convert.convert_service)


def endpoint_slice_codec() -> Codec[EndpointSlice]:
    """discovery.k8s.io/v1 EndpointSlice."""
    pool = Pool()

    def value(spelled: structs.WireEndpointSlice) -> EndpointSlice:
        pool.trim()
        converted = convert.convert_endpoint_slice(spelled, pool.texts)
        ports = pool.ports(converted.ports)
        return converted if ports is converted.ports else msgspec.structs.replace(converted, ports=ports)

    return TypedCodec(structs.WireEndpointSlice, value)


def endpoints_codec() -> Codec[Endpoints]:
    """core/v1 Endpoints."""
    return TypedCodec(structs.WireEndpoints, convert.convert_endpoints)


def node_codec() -> Codec[Node]:
    """core/v1 Node."""
    return TypedCodec(structs.WireNode, convert.convert_node)


def service_cidr_codec() -> Codec[ServiceCIDR]:
    """networking.k8s.io/v1 ServiceCIDR."""
    return TypedCodec(structs.WireServiceCIDR, convert.convert_service_cidr)


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


class UnstructuredCodec:
    """The Codec of any kind, custom resources included."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(dict[str, Any])

    def decode(self, data: bytes) -> Unstructured:
        return unstructured(self._decode(data))

    def decode_list(self, data: bytes) -> ListPage[Unstructured]:
        spelled = self._decode(data)
        kind = str(spelled.get("kind", "")).removesuffix("List")
        items = spelled.get("items") or []
        try:
            meta = msgspec.convert(spelled.get("metadata") or {}, WireListMeta)
            each = msgspec.convert(items, list[dict[str, Any]])
        except msgspec.ValidationError as error:
            raise WireError(f"the answer is no list: {error}") from error
        defaults = {"apiVersion": spelled.get("apiVersion", ""), "kind": kind}
        return ListPage(
            tuple(unstructured({**defaults, **item}) for item in each),
            meta.resource_version or "",
            meta.continue_ or "",
            meta.remaining_item_count,
        )

    def decode_event(self, line: bytes) -> WatchEvent[Unstructured]:
        event = self._decode(line)
        kind = _event_type(str(event.get("type")))
        raw = event.get("object")
        if not isinstance(raw, dict):
            raise WireError("the stream has an event without an object")
        if kind is EventType.ERROR:
            return WatchEvent(kind, status=status_of(_convert(raw, WireStatus)))
        if kind is EventType.BOOKMARK:
            meta = _convert(raw.get("metadata") or {}, structs.WireMeta)
            end = (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true"
            return WatchEvent(kind, resource_version=meta.resource_version or "", initial_events_end=end)
        item = unstructured(raw)
        return WatchEvent(kind, item, item.metadata.resource_version)

    def _decode(self, data: bytes) -> dict[str, Any]:
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise WireError(f"the server sent no JSON object: {error}") from error


_ConvertedT = TypeVar("_ConvertedT")


def _convert(raw: object, kind: type[_ConvertedT]) -> _ConvertedT:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise WireError(f"the server sent something else than expected: {error}") from error


def unstructured(raw: dict[str, Any]) -> Unstructured:
    """An object of decoded JSON. Raises WireError if the metadata is not an object or has no name.

    Lists of some aggregated kinds (Table, Status) have no metadata.name; those are no objects.
    """
    meta = _convert(raw.get("metadata") or {}, structs.WireMeta)
    if not meta.name:
        raise WireError(f"an object of kind {raw.get('kind')!r} has no name")
    values = convert.convert_meta(meta, "")
    return Unstructured(values, MappingProxyType(raw))


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
