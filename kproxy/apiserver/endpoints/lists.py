"""get and list: from the tables in memory (`storage/store.py`), at a version, in pages.

A list is consistent: it shows the state at one revision, and its pages show the same one. A continue token holds that
revision and the key to go on after; once the history is gone the answer is 410 with a token that goes on
inconsistently, as kube-apiserver's.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kproxy.api.fielderror import FieldError, forbidden, not_supported
from kproxy.apiserver.endpoints import negotiation
from kproxy.apiserver.endpoints.negotiation import MediaType, Response, encoded_response
from kproxy.apiserver.endpoints.request import Request
from kproxy.apiserver.errors import Json, StatusError, bad_request, compacted, invalid, not_acceptable
from kproxy.apiserver.kinds.resources import METADATA_FIELDS, Resource
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.selectors import matches_fields, parse_field_selector, parse_label_selector
from kproxy.apiserver.schema.protobuf import MEDIA_TYPE as PROTOBUF
from kproxy.apiserver.storage.store import Entry, Store
from kproxy.informer import Requirement, matches_labels

_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_LARGE: Final = 256 * 1024
_MANY: Final = 256
"""Bytes and objects of a list whose conversion to another media type happens beside the event loop."""
_WAIT: Final = 3.0
"""Seconds that a read waits for a version that is not there yet."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects a list or watch is about."""

    namespace: str = ""
    labels: tuple[Requirement, ...] = ()
    fields: tuple[tuple[str, str, bool], ...] = ()

    @property
    def everything(self) -> bool:
        """Whether all of the namespace is selected."""
        return not self.labels and not self.fields

    def matches(self, entry: Entry) -> bool:
        """Whether an object is selected."""
        if self.namespace and entry.namespace != self.namespace:
            return False
        if self.labels and not matches_labels(self.labels, entry.labels):
            return False
        if self.fields:
            fields = {"metadata.name": entry.name, "metadata.namespace": entry.namespace, **entry.fields}
            return matches_fields(self.fields, fields)
        return True


def selection_of(request: Request, resource: Resource) -> Selection:
    """The selection of a request.

    Raises:
        StatusError: 400 for a bad selector.
    """
    labels = parse_label_selector(request.query.get("labelSelector", ""))
    bare = not resource.custom and resource.selectable == METADATA_FIELDS
    text = request.query.get("fieldSelector", "")
    fields = tuple(
        (resource.selects_as.get(name, name), value, equal)
        for name, value, equal in parse_field_selector(text, resource.selectable, bare)
    )
    if request.target.name and not request.target.subresource:
        fields = (*fields, ("metadata.name", request.target.name, True))
    return Selection(request.target.namespace if resource.namespaced else "", labels, fields)


def version_of(request: Request) -> int | None:
    """resourceVersion as a number; None if there is none.

    Raises:
        StatusError: 400.
    """
    text = request.query.get("resourceVersion", "")
    if not text:
        return None
    if not text.isdecimal() or not text.isascii() or int(text) >= 1 << 63:
        path = "resourceVersion: Invalid value"
        raise bad_request(
            f'invalid resource version: {path}: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def check_list_options(request: Request, *, watching: bool) -> None:
    """The rules of ListOptions (k8s.io/apimachinery pkg/apis/meta/internalversion/validation).

    Raises:
        StatusError: 400 or 422.
    """
    request.number("timeoutSeconds")  # only a watch needs it, but it is decoded, and refused, for a list too
    match = request.query.get("resourceVersionMatch", "")
    version = request.query.get("resourceVersion", "")
    initial = request.flag("sendInitialEvents")
    path = "resourceVersionMatch"
    errors: list[FieldError] = []
    if watching:
        if initial is not None:
            if not match:
                text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
                errors.append(forbidden(path, text))
            elif match != "NotOlderThan":
                errors.append(not_supported(path, match, ("NotOlderThan",)))
        elif match:
            errors.append(
                forbidden(path, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
            )
    else:
        if initial is not None:
            errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        if match:
            if not version:
                text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
                errors.append(forbidden(path, text))
            if request.query.get("continue"):
                errors.append(forbidden(path, "resourceVersionMatch is forbidden when continue is provided"))
            if match not in ("Exact", "NotOlderThan"):
                errors.append(not_supported(path, match, ("Exact", "NotOlderThan", "")))
            if match == "Exact" and version == "0":
                text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                errors.append(forbidden(path, text))
    if errors:
        raise invalid("meta.k8s.io", "ListOptions", "", errors)


async def wait_for(store: Store, revision: int) -> None:
    """Waits a moment for a version of the future.

    Raises:
        StatusError: 504 when it does not come.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _WAIT
    while store.revision < revision:
        left = deadline - loop.time()
        if left <= 0 or revision > store.next_revision + 1_000_000:
            causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
            raise StatusError(
                504, "Timeout", f"Timeout: Too large resource version: {revision}, current: {store.revision}",
                {"causes": causes, "retryAfterSeconds": 1},
            )  # fmt: skip
        await asyncio.sleep(min(left, 0.02))


def _encode_token(revision: int, start: str) -> str:
    text = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": revision, "start": f"{start}\0"})
    return urlsafe_b64encode(text).decode().rstrip("=")


def _decode_token(token: str) -> tuple[int, str]:
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except ValueError as error:
        raise bad_request(
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0"
        ) from error
    try:
        found: Any = msgspec.json.decode(raw)
        revision, start = found["rv"], found["start"]
        if not isinstance(revision, int) or not isinstance(start, str) or found.get("v") != "meta.k8s.io/v1":
            raise TypeError
    except msgspec.DecodeError as error:
        first = raw[:1].decode("latin-1")
        shown = first if "!" <= first <= "~" else f"\\u{ord(first or chr(0)):04x}"
        text = f"invalid character '{shown}' looking for beginning of value"
        raise bad_request(f"invalid continue token: continue key is not valid: {text}") from error
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise bad_request(
            "invalid continue token: continue key is not valid: incorrect encoded start resourceVersion"
        ) from error
    return revision, start.removesuffix("\0").lstrip("/")


class Lists:
    """Lists of one store."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    async def handle(self, request: Request, resource: Resource, negotiated: MediaType) -> Response:
        """A list in the media type that the client wants.

        Raises:
            StatusError: 400, 406, 410, 422 or 504.
        """
        if negotiated.shape == "PartialObjectMetadata":
            raise not_acceptable(negotiation.OFFERED)
        check_list_options(request, watching=False)
        selection = selection_of(request, resource)
        version = version_of(request)
        limit = request.number("limit") or 0
        entries, revision, start, exact = await self._state(request, resource, version)
        if selection.namespace:
            first = f"{selection.namespace}/"
            entries = [entry for entry in entries if entry.key.startswith(first)] if exact else entries
        if start:
            begin = f"{selection.namespace}/{start}" if selection.namespace else start
            entries = entries[bisect_right(entries, begin, key=lambda entry: entry.key) :]
        if not selection.everything:
            entries = [entry for entry in entries if selection.matches(entry)]
        metadata: Json = {"resourceVersion": str(revision)}
        # As with kube-apiserver's watch cache, a list at version 0 comes whole.
        unlimited = version == 0 and request.query.get("resourceVersionMatch", "") != "Exact"
        if 0 < limit < len(entries) and not (unlimited and not start):
            rest = len(entries) - limit
            entries = entries[:limit]
            last = entries[-1].key
            metadata["continue"] = _encode_token(
                revision, last.removeprefix(f"{selection.namespace}/") if selection.namespace else last
            )
            if selection.everything:
                metadata["remainingItemCount"] = rest
        if negotiated.media == PROTOBUF and not negotiated.shape:
            if sum(entry.message is None for entry in entries) > _MANY:
                body = await asyncio.to_thread(negotiation.enveloped_list, resource, entries, metadata)
            else:
                body = negotiation.enveloped_list(resource, entries, metadata)
            return Response(body, PROTOBUF)
        body = self._render(request, resource, negotiated, entries, metadata)
        if negotiated.media != negotiation.JSON and len(body) > _LARGE:
            return await asyncio.to_thread(encoded_response, body, negotiated)
        return encoded_response(body, negotiated)

    async def _state(
        self, request: Request, resource: Resource, version: int | None
    ) -> tuple[list[Entry], int, str, bool]:
        """Entries, their revision, where to go on, and whether the entries are of all namespaces."""
        store, table = self._store, self._registry.table(resource)
        namespace = request.target.namespace if resource.namespaced else ""
        token = request.query.get("continue", "")
        if token:
            if version not in (None, 0):
                raise bad_request("specifying resource version is not allowed when using continue")
            revision, start = _decode_token(token)
            if revision > store.revision or revision < -1:
                raise bad_request("invalid continue token: the version is not one of this server")
            if revision == -1 or revision == store.revision:
                return table.in_namespace(namespace), store.revision, start, False
            if revision < store.compacted:
                fresh = {"continue": _encode_token(-1, start)}
                raise StatusError(410, "Expired", _EXPIRED, metadata=fresh)
            return store.entries_at(table, revision), revision, start, True
        if version and version > store.revision:
            await wait_for(store, version)
        if (version and request.query.get("resourceVersionMatch", "") == "Exact") or (
            version and request.number("limit") and not request.query.get("resourceVersionMatch")
        ):
            if version < store.compacted:
                raise compacted()
            if version < store.revision:
                return store.entries_at(table, version), version, "", True
        return table.in_namespace(namespace), store.revision, "", False

    def _render(
        self, request: Request, resource: Resource, negotiated: MediaType, entries: list[Entry], metadata: Json
    ) -> bytes:
        if negotiated.shape == "Table":
            values = (resource.strategy.to_version(entry.value) for entry in entries)
            include = request.query.get("includeObject", "")
            return negotiation.encode(negotiation.table(resource, values, metadata, self._registry.now(), include))
        if negotiated.shape == "PartialObjectMetadataList":
            items = [negotiation.partial(entry.value) for entry in entries]
            listed = {"kind": negotiated.shape, "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}
            return negotiation.encode(listed)
        head = f'{{"kind":"{resource.list_kind}","apiVersion":"{resource.api_version}","metadata":'.encode()
        if resource.strategy.converts:
            body = b",".join([negotiation.full(resource, entry) for entry in entries])
        else:
            body = b",".join([entry.body for entry in entries])
        return b"".join((head, negotiation.encode(metadata), b',"items":[', body, b"]}"))
