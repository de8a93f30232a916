"""`kproxy get`: objects of an API server, as kubectl shows them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from kproxy.cli.connection import Connection, connection_options
from kproxy.cli.documents import yaml_text
from kproxy.cli.output import report_error
from kproxy.client import ApiError, ApiResource, RestClient, TransportError, discover
from kproxy.client.table import Column, Row, Table, fetch_table, watch_table
from kproxy.errors import InputError
from kproxy.informer import EventType, Unstructured

PADDING = 3
MINIMUM = 6
"""Spaces between columns and the least width of one with them: those of kubectl's tab writer."""

WATCH_IDLE = 24 * 3600.0
"""Seconds. A user watches, and ends it with Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Target:
    """One resource, and the names wanted of it; none is all."""

    resource: ApiResource
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for. `namespace` "" is all namespaces."""

    targets: tuple[Target, ...]
    namespace: str
    selector: str
    by_type: bool

    def requests(self, target: Target) -> Iterator[tuple[str, dict[str, str]]]:
        """Path and query of each request for a target."""
        resource = target.resource.resource()
        for name in target.names:
            yield resource.path(self.namespace, name), {}
        if not target.names:
            yield resource.path(self.namespace), {"labelSelector": self.selector}

    def where(self) -> str:
        """ " in NAMESPACE namespace", for messages; nothing if that is not how it was asked."""
        namespaced = any(target.resource.namespaced for target in self.targets)
        return f" in {self.namespace} namespace" if namespaced and self.namespace else ""


@click.command("get")
@click.argument("resources", nargs=-1, required=True, metavar="RESOURCE [NAME]...")
@click.option("-n", "--namespace", metavar="NS", help="The namespace, by default that of the context.")
@click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces.")
@click.option("-w", "--watch", is_flag=True, help="Show what there is, then every change.")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="A label selector: a=b,c!=d,e in (f,g).")
@click.option("-o", "--output", "output_format", type=click.Choice(["json", "yaml", "wide", "name"]), default=None)
@click.option("--no-headers", is_flag=True, help="No column names.")
@connection_options()
def command(
    resources: Sequence[str],
    namespace: str | None,
    all_namespaces: bool,
    watch: bool,
    selector: str,
    output_format: str | None,
    no_headers: bool,
    connection: Connection,
) -> int:
    """Show objects of an API server, as kubectl get does.

    RESOURCE is a plural, singular, short name or kind, also with its group (deployments.apps), several with commas
    between them, or TYPE/NAME.

    \b
    Examples:
      kproxy get services -A
      kproxy get svc,endpointslices -n shop -o wide
      kproxy get svc/web node/worker-1
      kproxy get endpointslices -l kubernetes.io/service-name=web -w
    """
    client = connection.client()
    config = client.config
    try:
        request = _request(client, resources, namespace or config.namespace, all_namespaces, selector)
        if watch and (len(request.targets) != 1 or len(request.targets[0].names) > 1):
            raise InputError("-w takes a single resource type and at most one name")
        if output_format in ("json", "yaml", "name"):
            return _show_objects(client, request, output_format, watch)
        return _show_tables(client, request, output_format == "wide", not no_headers, watch)
    except TransportError as error:
        report_error(TransportError(f"cannot reach the server {config.server}: {error.reason}"))
        return 1
    except ApiError as error:
        return _report(error)
    finally:
        client.close()


def _request(client: RestClient, words: Sequence[str], namespace: str, everywhere: bool, selector: str) -> Request:
    """Reads the arguments. Raises InputError and DiscoveryError."""
    slashed = ["/" in word for word in words]
    if any(slashed) and not all(slashed):
        raise InputError("there is no need to name a resource type when TYPE/NAME is given, and no mixing the two")
    found = discover(client)
    targets: list[Target] = []
    if slashed[0]:
        for word in words:
            kind, _, name = word.partition("/")
            if not kind or not name or "/" in name:
                raise InputError(f"{word!r} is no TYPE/NAME")
            targets.append(Target(found.resolve(kind), (name,)))
    else:
        for word in words[0].split(","):
            members = found.category(word) or [found.resolve(word)]
            targets += [Target(item, tuple(words[1:])) for item in members]
    named = any(target.names for target in targets)
    if any(not name for target in targets for name in target.names):
        raise InputError("a resource name may not be empty")
    if named and everywhere:
        raise InputError("a resource cannot be retrieved by name across all namespaces")
    if named and selector:
        raise InputError("a selector and a name cannot be given together")
    by_type = len({target.resource.qualified for target in targets}) > 1
    return Request(tuple(targets), "" if everywhere else namespace, selector, by_type)


def _report(error: ApiError) -> int:
    """One error of the server in kubectl's words."""
    if error.code == 401:
        click.echo("error: You must be logged in to the server (Unauthorized)", err=True)
    else:
        reason = f" ({error.reason})" if error.reason else ""
        click.echo(f"Error from server{reason}: {error.message}", err=True)
    return 1


def _show_tables(client: RestClient, request: Request, wide: bool, headers: bool, watch: bool) -> int:
    code, shown = 0, 0
    for target in request.targets:
        everywhere = target.resource.namespaced and not request.namespace
        prefix = f"{target.resource.display}/" if request.by_type else ""
        printer = TablePrinter(wide, headers, everywhere, prefix)
        version = ""
        tables = []
        for path, query in request.requests(target):
            try:
                tables.append(fetch_table(client, path, query))
            except ApiError as error:
                code = _report(error)
        if tables:
            version = tables[-1].metadata.resource_version
        if any(table.rows for table in tables):
            text = printer.text(*tables)
            click.echo("\n" + text if shown and headers else text, nl=False)
            shown += 1
        if watch and not code:
            _watch_tables(client, request, target, printer, version)
            return 0
    if not shown and not code:
        click.echo(f"No resources found{request.where()}{'.' if request.where() else ''}", err=True)
    return code


def _watch_tables(client: RestClient, request: Request, target: Target, printer: TablePrinter, version: str) -> None:
    path, query = _watch_place(request, target, version)
    for table in watch_table(client, path, query, WATCH_IDLE):
        if table.rows:
            click.echo(printer.text(table), nl=False)
            sys.stdout.flush()


def _watch_place(request: Request, target: Target, version: str) -> tuple[str, dict[str, str]]:
    query = {"resourceVersion": version, "labelSelector": request.selector}
    if target.names:
        query["fieldSelector"] = f"metadata.name={target.names[0]}"
    return target.resource.resource().path(request.namespace), query


@dataclass(slots=True)
class TablePrinter:
    """Tables as aligned text; columns stay as wide as they once were, so that rows of a watch line up.

    `prefix` goes before each name.
    """

    wide: bool
    headers: bool
    namespaces: bool
    prefix: str
    _columns: tuple[Column, ...] = ()
    _widths: list[int] = field(default_factory=list)
    _headed: bool = False

    def text(self, *tables: Table) -> str:
        """The rows of tables of one resource, below the column names the first time."""
        for table in tables:
            if table.column_definitions is not None:
                self._columns = table.column_definitions
        chosen = [at for at, column in enumerate(self._columns) if self.wide or column.priority == 0]
        lines = []
        if self.headers and not self._headed:
            self._headed = True
            names = [self._columns[at].name.upper() for at in chosen]
            lines.append(["NAMESPACE", *names] if self.namespaces else names)
        lines += [self._cells(row, chosen) for table in tables for row in table.rows or ()]
        for line in lines:
            self._widths += [0] * (len(line) - len(self._widths))
            for at, cell in enumerate(line):
                self._widths[at] = max(self._widths[at], len(cell) + PADDING, MINIMUM)
        return "".join(self._line(line) for line in lines)

    def _cells(self, row: Row, chosen: list[int]) -> list[str]:
        cells = [_cell(row.cells[at]) if at < len(row.cells) else "" for at in chosen]
        named = [at for at, column in enumerate(chosen) if self._columns[column].format == "name"]
        if self.prefix and named:
            cells[named[0]] = self.prefix + cells[named[0]]
        return [row.namespace, *cells] if self.namespaces else cells

    def _line(self, cells: list[str]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(cells[:-1], self._widths, strict=False)]
        return "".join([*padded, *cells[-1:]]) + "\n"


def _cell(value: Any) -> str:
    """A cell as kubectl prints it: only the first line of a text, JSON's words for truth."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    first = text.splitlines()[0] if text.splitlines() else ""
    return first if first == text else f"{first}..."


def _show_objects(client: RestClient, request: Request, output_format: str, watch: bool) -> int:
    code = 0
    found: list[tuple[ApiResource, Unstructured]] = []
    version = ""
    for target in request.targets:
        resource = target.resource.resource()
        try:
            if target.names:
                items = [client.get(resource, name, request.namespace) for name in target.names]
                version = items[-1].metadata.resource_version
            else:
                page = client.list(resource, request.namespace, label_selector=request.selector)
                items, version = list(page.items), page.resource_version
        except ApiError as error:
            code = _report(error)
            continue
        found += [(target.resource, item) for item in items]
    single = len(request.targets) == 1 and len(request.targets[0].names) == 1
    if output_format == "name" or (watch and found):
        for api_resource, item in found:
            click.echo(_one(api_resource, item, output_format), nl=False)
    elif not watch and not (single and not found):
        click.echo(_dump(_plain(found[0][1]) if single else _list(found), output_format), nl=False)
    if watch and not code:
        _watch_objects(client, request, output_format, version)
    return code


def _watch_objects(client: RestClient, request: Request, output_format: str, version: str) -> None:
    target = request.targets[0]
    _, query = _watch_place(request, target, version)
    with client.watch(
        target.resource.resource(),
        request.namespace,
        resource_version=version,
        label_selector=request.selector,
        field_selector=query.get("fieldSelector", ""),
        bookmarks=False,
        idle_timeout=WATCH_IDLE,
    ) as events:
        for event in events:
            if event.type is EventType.ERROR and event.status is not None:
                raise ApiError(event.status)
            if event.object is not None:
                click.echo(_one(target.resource, event.object, output_format), nl=False)
                sys.stdout.flush()


def _one(resource: ApiResource, item: Unstructured, output_format: str) -> str:
    if output_format == "name":
        return f"{resource.display}/{item.metadata.name}\n"
    return ("---\n" if output_format == "yaml" else "") + _dump(_plain(item), output_format)


def _plain(item: Unstructured) -> dict[str, Any]:
    """The object without metadata.managedFields, which kubectl does not show either."""
    raw = dict(item.raw)
    raw["metadata"] = {name: value for name, value in raw["metadata"].items() if name != "managedFields"}
    return raw


def _list(found: list[tuple[ApiResource, Unstructured]]) -> dict[str, Any]:
    items = [_plain(item) for _, item in found]
    return {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}


def _dump(value: dict[str, Any], output_format: str) -> str:
    if output_format == "json":
        return json.dumps(value, indent=4, sort_keys=True, ensure_ascii=False) + "\n"
    return yaml_text(value, sort_keys=True)
