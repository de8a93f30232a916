"""Server-side tables (meta.k8s.io/v1 Table): the columns that a server wants shown of its objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kproxy.client.errors import ApiError
from kproxy.client.rest import RestClient
from kproxy.informer.codec import LineReader, decode_status
from kproxy.informer.objects import EventType, Status, WireError

ACCEPT: Final = ",".join(
    (
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
        "application/json",
    )
)
"""What kubectl asks for; a server without tables answers with the objects."""


class Column(msgspec.Struct, frozen=True):
    """A column; `priority` 0 is always shown, others in wide output only."""

    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0


class RowMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""


class RowObject(msgspec.Struct, frozen=True):
    metadata: RowMeta = RowMeta()


class Row(msgspec.Struct, frozen=True):
    """One object: its cells, and its metadata."""

    cells: tuple[Any, ...]
    object: RowObject | None = None

    @property
    def namespace(self) -> str:
        return self.object.metadata.namespace if self.object else ""


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class Table(msgspec.Struct, frozen=True, rename="camel"):
    """A page of objects as rows. `column_definitions` are left out of all but the first event of a watch."""

    kind: str = ""
    metadata: ListMeta = ListMeta()
    column_definitions: tuple[Column, ...] | None = None
    rows: tuple[Row, ...] | None = None


class _Event(msgspec.Struct, frozen=True):
    type: EventType
    object: msgspec.Raw


def decode_table(data: bytes) -> Table:
    """A Table. Raises WireError for anything else, an object of a server without tables included."""
    try:
        table = msgspec.json.decode(data, type=Table)
    except msgspec.DecodeError as error:
        raise WireError(f"the server sent no table: {error}") from error
    if table.kind != "Table":
        raise WireError(f"the server sent no table but a {table.kind or 'document without kind'}")
    return table


def decode_table_event(line: bytes) -> Table | Status:
    """An event of a watch for tables; Status for an ERROR event. Raises WireError."""
    try:
        event = msgspec.json.decode(line, type=_Event)
    except msgspec.DecodeError as error:
        raise WireError(f"the stream has something that is not an event: {error}") from error
    if event.type is EventType.ERROR:
        return decode_status(bytes(event.object), 500)
    if event.type is EventType.BOOKMARK:
        return Table(kind="Table")
    return decode_table(bytes(event.object))


def fetch_table(client: RestClient, path: str, query: Mapping[str, str]) -> Table:
    """The object or list at a path as one table, fetched in pages. Raises what RestClient raises."""
    pages = list(map(decode_table, client.pages(path, query, accept=ACCEPT)))
    rows = tuple(row for page in pages for row in page.rows or ())
    return msgspec.structs.replace(pages[0], rows=rows)


def watch_table(client: RestClient, path: str, query: Mapping[str, str], idle_timeout: float) -> Iterator[Table]:
    """Each change at a path as a table, until the server ends the watch. Raises what RestClient raises."""
    with client.open("GET", path, query={**query, "watch": "true"}, accept=ACCEPT, timeout=idle_timeout) as stream:
        lines = LineReader()
        while data := stream.read():
            for line in lines.feed(data):
                event = decode_table_event(line)
                if isinstance(event, Status):
                    raise ApiError(event, f"GET {path}")
                yield event
        lines.close()
