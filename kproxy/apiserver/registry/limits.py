"""What the LimitRanges of a namespace ask of its Pods and claims: defaults of containers, least and most, and ratios.

It is the admission plugin LimitRanger, which is on by default (kubernetes/kubernetes plugin/pkg/admission/limitranger).
A Pod is looked at when it is created, a claim also when it changes. Defaults come after those of the kind, so a
container with a limit and no request asks for its limit; checks come after validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kproxy.apiserver.errors import Json, forbidden
from kproxy.apiserver.kinds.pods import pod_amounts
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.schema.quantity import nanos
from kproxy.apiserver.storage.store import Table

_ANNOTATION: Final = "kubernetes.io/limit-ranger"
_CONTAINERS: Final = (("containers", "container"), ("initContainers", "init container"))


class LimitRanges:
    """Those that the table of LimitRanges holds."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def set_defaults(self, resource: Resource, namespace: str, value: Json) -> None:
        """Gives a new Pod's containers the requests and limits that they do not name, and notes it in an annotation."""
        if resource.storage == "pods":
            for limits in self._of(namespace):
                _set_defaults(value, limits)

    def check(self, resource: Resource, namespace: str, value: Json, old: Json | None) -> None:
        """Raises ApiError (403) if an object has less or more than the first LimitRange that says so allows."""
        look = _LOOKS.get(resource.storage)
        if look is None or (old is not None and (look is _pod_errors or old["metadata"].get("deletionTimestamp"))):
            return
        for limits in self._of(namespace):
            found = list(dict.fromkeys(look(value, limits)))
            if found:
                why = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
                raise forbidden(resource.group, resource.plural, value["metadata"]["name"], why)

    def _of(self, namespace: str) -> Iterator[list[Json]]:
        for entry in self._table.in_namespace(namespace):
            yield (entry.value.get("spec") or {}).get("limits") or []


def _set_defaults(value: Json, limits: list[Json]) -> None:
    rows = [each for each in limits if each.get("type") == "Container"]
    wanted = {
        part: {name: amount for row in rows for name, amount in (row.get(field) or {}).items()}
        for part, field in (("requests", "defaultRequest"), ("limits", "default"))
    }
    notes = []
    for field, noun in _CONTAINERS:
        for container in value["spec"].get(field) or ():
            for part, amounts in wanted.items():
                has = container["resources"].get(part) or {}
                new = {name: amounts[name] for name in sorted(amounts) if name not in has}
                if new:
                    container["resources"][part] = {**has, **new}
                    notes.append(f"{', '.join(new)} {part[:-1]} for {noun} {container.get('name', '')}")
    if notes:
        annotations = value["metadata"].get("annotations") or {}
        value["metadata"]["annotations"] = {**annotations, _ANNOTATION: f"LimitRanger plugin set: {'; '.join(notes)}"}


def _pod_errors(value: Json, limits: list[Json]) -> Iterator[str]:
    spec = value["spec"]
    for row in limits:
        if row.get("type") == "Container":
            for field, _ in _CONTAINERS:
                for container in spec.get(field) or ():
                    resources = container["resources"]
                    yield from _errors(row, resources.get("requests") or {}, resources.get("limits") or {})
        elif row.get("type") == "Pod":
            yield from _errors(row, pod_amounts(spec, "requests"), pod_amounts(spec, "limits"))


def _claim_errors(value: Json, limits: list[Json]) -> Iterator[str]:
    """Limits of a claim count for nothing."""
    requests = (value["spec"].get("resources") or {}).get("requests") or {}
    for row in limits:
        if row.get("type") == "PersistentVolumeClaim":
            yield from _errors({**row, "maxLimitRequestRatio": None}, requests, None)


_LOOKS: Final = {"pods": _pod_errors, "persistentvolumeclaims": _claim_errors}


def _errors(row: Json, requests: dict[str, str], limits: dict[str, str] | None) -> Iterator[str]:
    """What one row says against requests and limits; without limits, the most is that of the requests."""
    kind: Any = row["type"]
    for name, bound in sorted((row.get("min") or {}).items()):
        least = f"minimum {name} usage per {kind} is {bound}"
        if name not in requests:
            yield f"{least}.  No request is specified"
            continue
        short = next(_beyond(name, bound, -1, ("request", requests), ("limit", limits or {})), None)
        if short:
            yield least + short
    for name, bound in sorted((row.get("max") or {}).items()):
        most = f"maximum {name} usage per {kind} is {bound}"
        noun, needed = ("request", requests) if limits is None else ("limit", limits)
        if name not in needed:
            yield f"{most}.  No {noun} is specified"
            continue
        long = next(_beyond(name, bound, 1, (noun, needed), ("request", requests)), None)
        if long:
            yield most + long
    for name, bound in sorted((row.get("maxLimitRequestRatio") or {}).items()):
        ratio = f"{name} max limit to request ratio per {kind} is {bound}, but "
        low, high = nanos(requests.get(name, "0")), nanos((limits or {}).get(name, "0"))
        if not low:
            yield ratio + "no request is specified or request is 0"
        elif not high:
            yield ratio + "no limit is specified or limit is 0"
        elif high * 10**9 > nanos(bound) * low:
            yield f"{ratio}provided ratio is {high / low:f}"


def _beyond(name: str, bound: str, sign: int, *given: tuple[str, dict[str, str]]) -> Iterator[str]:
    """The end of the sentence about an amount that is less (`sign` -1) or more (1) than allowed."""
    for noun, amounts in given:
        if name in amounts and sign * (nanos(amounts[name]) - nanos(bound)) > 0:
            yield f", but {noun} is {amounts[name]}"
