"""The completion indexes of an Indexed Job: pods by index, and sets of them as text (`0-2,5`). Values only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kproxy.lab.resources import Json, Object

INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Annotation and label of a pod."""


def index_of(pod: Object) -> int | None:
    """A pod's index, None if it has none."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdigit() else None


def as_ranges(indexes: Iterable[int]) -> str:
    """Indexes as Jobs' status has them: those that follow one another from the first to the last."""
    found: list[list[int]] = []
    for index in sorted(set(indexes)):
        if found and index == found[-1][-1] + 1:
            found[-1][1:] = [index]
        else:
            found.append([index])
    return ",".join("-".join(map(str, part)) for part in found)


def number(body: Json, index: int) -> None:
    """Gives a new pod its index: annotation, label, hostname, and JOB_COMPLETION_INDEX in its containers."""
    meta, spec = body["metadata"], body["spec"]
    meta["annotations"] = {**meta["annotations"], INDEX: str(index)}
    meta["labels"] = {**meta["labels"], INDEX: str(index)}
    source = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}}
    for part in ("containers", "initContainers"):
        if spec.get(part):
            spec[part] = [{**item, "env": _with(item.get("env") or (), source)} for item in spec[part]]


def _with(variables: Iterable[Object], source: Json) -> list[Object]:
    given = list(variables)
    return given if any(item["name"] == source["name"] for item in given) else [*given, source]
