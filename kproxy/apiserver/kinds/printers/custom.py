"""The columns of a custom resource: additionalPrinterColumns.

Source: k8s.io/apiextensions-apiserver pkg/registry/customresource/tableconvertor.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.printers.table import Cell, Columns, age, name_of
from kproxy.apiserver.schema.jsonpath import find

_DESCRIPTION: Final = "Custom resource definition column (in JSONPath format): "


def custom_columns(printer_columns: Sequence[Json]) -> Columns:
    """The columns of a custom resource: those of its CRD, or its age."""
    if not printer_columns:
        printer_columns = [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]
    definitions = [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}]
    definitions += [
        {
            "name": column.get("name", ""),
            "type": column.get("type", "string"),
            "format": column.get("format", ""),
            "description": column.get("description") or f"{_DESCRIPTION}{column.get('jsonPath', '')}",
            "priority": column.get("priority", 0),
        }
        for column in printer_columns
    ]

    def row(value: Json, now: datetime) -> list[Cell]:
        cells: list[Cell] = [name_of(value)]
        for column in printer_columns:
            found = find(value, column.get("jsonPath", ""))
            cells.append(_custom_cell(found, column.get("type", "string"), now))
        return cells

    return Columns(tuple(definitions), row)


def _custom_cell(found: list[Any], kind: str, now: datetime) -> Cell:
    if not found:
        return None
    value = found[0]  # of several, the first counts
    if value is None:
        return "" if kind == "string" else None
    match kind:
        case "date":
            return age(value, now)
        case "integer":
            return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "number":
            return value if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "boolean":
            return value if isinstance(value, bool) else None
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)
