"""One valid object of each kind: `objects.yaml`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

from kproxy.apiserver.kinds.resources import Resource, built_in

Json = dict[str, Any]


@functools.cache
def resources() -> dict[tuple[str, str], Resource]:
    """Every resource with objects, by apiVersion and kind."""
    return {(each.api_version, each.kind): each for each in built_in() if each.stored}


@functools.cache
def objects() -> tuple[Json, ...]:
    """The objects, in the order of the file."""
    text = (Path(__file__).parent / "objects.yaml").read_text()
    return tuple(yaml.load_all(text, yaml.CSafeLoader))


def collection(value: Json) -> str:
    """The path to which an object is posted."""
    resource = resources()[value["apiVersion"], value["kind"]]
    base = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
    place = "/namespaces/default" if resource.namespaced else ""
    return f"{base}{place}/{resource.plural}"
