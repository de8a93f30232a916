"""The calls that kproxy needs of an API server: get, list, watch, create, update, patch, delete.

The same calls serve typed and dynamic resources (resources.py): a `Resource` says where it is and how it is decoded.
Bodies are given as JSON values; what comes back is an object of the resource. Errors of the server are `ApiError`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Generic
from urllib.parse import urlencode

import msgspec

from kproxy.client.config import ClientConfig
from kproxy.client.errors import ApiError, SilenceError, TransportError
from kproxy.client.http import Call, HttpClient, Response, Stream
from kproxy.client.resources import Resource
from kproxy.informer.codec import Codec, LineReader, decode_status
from kproxy.informer.objects import ListPage, Status, T, WatchEvent, WireError

JSON: Final = "application/json"

PAGE: Final = 500
"""Objects of a page of a list."""

Body = Mapping[str, Any]
PatchBody = Body | list[Any]


class PatchType(StrEnum):
    """The content types of PATCH (apimachinery types.PatchType)."""

    MERGE = "application/merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class _ListMeta(msgspec.Struct):
    continue_token: str | None = msgspec.field(name="continue", default=None)


class _Page(msgspec.Struct):
    metadata: _ListMeta | None = None


class WatchStream(Generic[T]):
    """The events of one watch, as they come.

    Iterating ends when the server ends the stream. It raises WireError for garbage and for half an event, SilenceError
    after `idle_timeout` without a byte, another TransportError for a connection that was lost, fell silent inside an
    event or outlived `total_timeout`, CancelledError after `Call.cancel`. An ERROR event is an event like others.
    """

    def __init__(
        self, stream: Stream, call: Call, codec: Codec[T], deadline: float | None, clock: Callable[[], float]
    ) -> None:
        self._stream = stream
        self._call = call
        self._codec = codec
        self._deadline = deadline
        self._clock = clock
        self._lines = LineReader()

    def batches(self) -> Iterator[list[WatchEvent[T]]]:
        """The events, those that came together in one list; lists may be empty."""
        try:
            while data := self._read():
                if self._deadline is not None and self._clock() > self._deadline:
                    raise TransportError("the watch went on for longer than the server was asked to")
                yield [self._codec.decode_event(line) for line in self._lines.feed(data)]
            self._lines.close()
        finally:
            self.close()

    def _read(self) -> bytes:
        try:
            return self._stream.read()
        except SilenceError as error:
            if self._lines.inside_event:
                raise TransportError("the server fell silent inside an event", error.address) from error
            raise

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        for batch in self.batches():
            yield from batch

    def set_idle_timeout(self, seconds: float) -> None:
        """From now on it may be silent for so long; only for the thread that reads it."""
        self._call.set_timeout(seconds)

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> WatchStream[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RestClient:
    """One API server; may be used by any thread.

    All methods raise ApiError for what the server refuses, TransportError when there is no answer, WireError for an
    answer that cannot be decoded, and ConfigError or CredentialError if the credentials are no good. `namespace` None
    is the configuration's; "" is all namespaces.
    """

    def __init__(self, config: ClientConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.config = config
        self.http = HttpClient(config)
        self._clock = clock

    def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        answer = self.raw("GET", resource.path(self._namespace(namespace), name))
        return resource.codec.decode(answer.data)

    def list_page(
        self,
        resource: Resource[T],
        namespace: str | None = "",
        *,
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout: float = 60.0,
        call: Call | None = None,
    ) -> ListPage[T]:
        """One page of a list; `limit` 0 is all of it. `resource_version` "" is the newest, "0" whatever is at hand."""
        query = {
            "limit": str(limit) if limit else "",
            "continue": continue_token,
            "resourceVersion": resource_version,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        answer = self.raw("GET", resource.path(self._namespace(namespace)), query=query, timeout=timeout, call=call)
        return resource.codec.decode_list(answer.data)

    def list(
        self,
        resource: Resource[T],
        namespace: str | None = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ListPage[T]:
        """A whole list, fetched in pages, as one page; its version is that of all its items."""
        query = {"labelSelector": label_selector, "fieldSelector": field_selector}
        data = self.pages(resource.path(self._namespace(namespace)), query)
        found = list(map(resource.codec.decode_list, data))
        return ListPage(tuple(item for page in found for item in page.items), found[0].resource_version)

    def pages(self, path: str, query: Mapping[str, str]) -> Sequence[bytes]:
        """A list as it came, in pages of PAGE objects.

        A continue token that expires leads to the whole list in one answer, as in client-go's pager.
        """
        pages: list[bytes] = []
        limit, token = str(PAGE), ""
        while True:
            try:
                asked = {"limit": limit, **query, "continue": token}
                pages.append(self.raw("GET", path, query=asked).data)
                meta = msgspec.json.decode(pages[-1], type=_Page).metadata
            except msgspec.MsgspecError as error:
                raise WireError(f"{path} is answered with what is no list: {error}") from error
            except ApiError as error:
                if not (error.status.is_expired and token):
                    raise
                pages, limit, token = [], "", ""
                continue
            previous, token = token, meta.continue_token or "" if meta else ""
            if not token or token == previous:
                return pages

    def watch(
        self,
        resource: Resource[T],
        namespace: str | None = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 0,
        bookmarks: bool = True,
        send_initial_events: bool = False,
        idle_timeout: float = 180.0,
        total_timeout: float | None = None,
        call: Call | None = None,
    ) -> WatchStream[T]:
        """Opens a watch: everything that happens after `resource_version`.

        `timeout_seconds` asks the server to end it then. `send_initial_events` asks for a streaming list first, which
        ends with a bookmark that says so. The stream fails after `idle_timeout` seconds of silence, and at the first
        piece that comes more than `total_timeout` seconds from now.
        """
        query = {
            "watch": "true",
            "resourceVersion": resource_version,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "timeoutSeconds": str(timeout_seconds) if timeout_seconds else "",
            "allowWatchBookmarks": "true" if bookmarks else "",
            "sendInitialEvents": "true" if send_initial_events else "",
            "resourceVersionMatch": "NotOlderThan" if send_initial_events else "",
        }
        call = call or Call()
        deadline = None if total_timeout is None else self._clock() + total_timeout
        path = resource.path(self._namespace(namespace))
        stream = self.open("GET", path, query=query, timeout=idle_timeout, call=call)
        return WatchStream(stream, call, resource.codec, deadline, self._clock)

    def create(self, resource: Resource[T], body: Body, namespace: str | None = None) -> T:
        """Creates an object in the namespace given, else its own, else the configuration's; returns what was stored."""
        stated = (body.get("metadata") or {}).get("namespace")
        found = self._namespace(str(stated) if namespace is None and stated else namespace)
        answer = self.raw("POST", resource.path(found), body=msgspec.json.encode(body))
        return resource.codec.decode(answer.data)

    def patch(
        self,
        resource: Resource[T],
        name: str,
        body: PatchBody,
        namespace: str | None = None,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> T:
        """Changes parts of an object. APPLY is server-side apply, which needs a `field_manager`."""
        path = resource.path(self._namespace(namespace), name, subresource)
        query = {"fieldManager": field_manager, "force": "true" if force else ""}
        answer = self.raw("PATCH", path, query=query, body=msgspec.json.encode(body), content_type=patch_type)
        return resource.codec.decode(answer.data)

    def delete(self, resource: Resource[T], name: str, namespace: str | None = None) -> None:
        """Deletes an object, or marks it if it has finalizers."""
        self.raw("DELETE", resource.path(self._namespace(namespace), name))

    def raw(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout: float = 60.0,
        call: Call | None = None,
    ) -> Response:
        """Any call. Values of `query` that are "" are left out. Raises ApiError for a status of 400 and more."""
        target = _target(path, query or {})
        answer = self.http.request(
            method, target, accept=accept, body=body, content_type=content_type, timeout=timeout, call=call
        )
        if answer.status >= 300:
            raise _error(answer, method, target)
        return answer

    def open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        accept: str = JSON,
        timeout: float = 60.0,
        call: Call | None = None,
    ) -> Stream:
        """Any call whose answer is to be read piece by piece. Raises ApiError as `raw` does."""
        target = _target(path, query)
        stream = self.http.stream(method, target, accept=accept, timeout=timeout, call=call)
        if stream.status != 200:
            raise _error(Response(stream.status, stream.headers, stream.read_all()), method, target)
        return stream

    def close(self) -> None:
        self.http.close()

    def _namespace(self, namespace: str | None) -> str:
        return self.config.namespace if namespace is None else namespace


def failure_status(error: Exception) -> Status:
    """The error that a reflector gets for an error of any call here."""
    return error.status if isinstance(error, ApiError) else Status(0, message=str(error) or type(error).__name__)


def _target(path: str, query: Mapping[str, str]) -> str:
    text = urlencode([(name, value) for name, value in query.items() if value])
    return f"{path}?{text}" if text else path


def _error(answer: Response, method: str, target: str) -> ApiError:
    header = answer.headers.get("retry-after", "")
    # Seconds only, as client-go; a date would need the server's clock to be ours.
    retry_after = float(header) if header.isascii() and header.isdigit() else None
    return ApiError(decode_status(answer.data, answer.status, retry_after), f"{method} {target}")
