"""The table of `kubectl get`: columns, and what the cells of several kinds have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from kproxy.apiserver.errors import Json
from kproxy.apiserver.schema.jsonpath import find

Cell = Any
Row = Callable[[Json, datetime], list[Cell]]
NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"


@dataclass(frozen=True, slots=True)
class Columns:
    """Column definitions, and the function that makes the cells of an object."""

    definitions: tuple[Json, ...]
    row: Row


def columns(text: str, row: Row) -> Columns:
    """Columns from `Name:type:priority` words; `_` stands for a blank. The column Name is the name."""
    definitions = []
    for word in text.split():
        name, _, rest = word.partition(":")
        kind, _, priority = rest.partition(":")
        label = name.replace("_", " ")
        definitions.append(
            {
                "name": label,
                "type": kind or "string",
                "format": "name" if label == "Name" else "",
                "description": "",
                "priority": int(priority or 0),
            }
        )
    return Columns(tuple(definitions), row)


def parse_time(text: Any) -> datetime | None:
    """An RFC 3339 time; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None


def age(text: Any, now: datetime) -> str:
    """How long ago a time was, as duration.HumanDuration prints it: 5s, 3m20s, 2d4h."""
    moment = parse_time(text)
    if moment is None or moment.tzinfo is None:
        return UNKNOWN
    return human_duration(int((now - moment).total_seconds()))


def human_duration(seconds: int) -> str:
    """k8s.io/apimachinery pkg/util/duration.HumanDuration.

    >>> [human_duration(n) for n in (-5, 0, 119, 130, 700, 7200, 10000, 100000, 900000, 40000000)]
    ['<invalid>', '0s', '119s', '2m10s', '11m', '120m', '166m', '27h', '10d', '462d']
    """
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    minutes, hours = seconds // 60, seconds // 3600
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years = days // 365
    return f"{years}y{days % 365}d" if days < 365 * 8 and days % 365 else f"{years}y"


def metadata_of(value: Json) -> Json:
    found: Json = value.get("metadata") or {}
    return found


def spec_of(value: Json) -> Json:
    """An object's spec; a kind that is only held to its schema may have none."""
    found: Json = value.get("spec") or {}
    return found


def template_of(value: Json) -> Json:
    """The Pod's spec in an object's template, empty if there is none."""
    found: Json = (spec_of(value).get("template") or {}).get("spec") or {}
    return found


def name_of(value: Json) -> str:
    return str(metadata_of(value).get("name", ""))


def age_of(value: Json, now: datetime) -> str:
    """How long ago an object was created."""
    return age(metadata_of(value).get("creationTimestamp"), now)


def _default_row(value: Json, now: datetime) -> list[Cell]:
    return [name_of(value), metadata_of(value).get("creationTimestamp")]


def aged(value: Json, now: datetime) -> list[Cell]:
    """The cells of a kind that shows name and age alone."""
    return [name_of(value), age_of(value, now)]


def join(items: Sequence[str], limit: int = 0) -> str:
    """Items with commas; of more than `limit` (0: none) the first, and how many more there are."""
    if not items:
        return NONE
    if limit and len(items) > limit:
        return ",".join(items[:limit]) + f" + {len(items) - limit} more..."
    return ",".join(items)


def labels_text(labels: Any) -> str:
    """`a=b,c=d`, sorted."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def selector_text(selector: Any) -> str:
    """A metav1.LabelSelector as a label selector."""
    if not selector:
        return NONE
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for term in selector.get("matchExpressions") or ():
        key, operator, values = term.get("key"), term.get("operator"), ",".join(sorted(term.get("values") or ()))
        parts.append(
            {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": f"{key}"}.get(
                operator, f"!{key}"
            )
        )
    return ",".join(parts) or NONE


def images(value: Json) -> list[str]:
    """Names and images of a pod template's containers, for `-o wide`."""
    containers = template_of(value).get("containers") or ()
    return [
        ",".join(each.get("name", "") for each in containers),
        ",".join(each.get("image", "") for each in containers),
    ]


DEFAULT: Final = Columns(
    (
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
        {"name": "Created At", "type": "date", "format": "", "description": "", "priority": 0},
    ),
    _default_row,
)
AGED: Final = columns("Name Age", aged)


_DESCRIPTION: Final = "Custom resource definition column (in JSONPath format): "


def custom_columns(printer_columns: Sequence[Json]) -> Columns:
    """The columns of a custom resource: those of its CRD, or its age.

    Source: k8s.io/apiextensions-apiserver pkg/registry/customresource/tableconvertor.
    """
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
