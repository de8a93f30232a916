"""What a StatefulSet does next, given its pods by their ordinals: values only.

kubernetes/kubernetes pkg/controller/statefulset/stateful_set_control.go. With podManagementPolicy OrderedReady one pod
after another is made, from the lowest ordinal, each when those before it are available; surplus pods and pods of an
older revision go one by one from the highest. Parallel waits neither to make nor to take away, only to update.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from kproxy.lab.controllers.rolling import resolve
from kproxy.lab.resources import Object, condition_of, is_ready, is_terminating, parse_timestamp

REVISION_LABEL: Final = "controller-revision-hash"


class Step(NamedTuple):
    """One thing to do with an ordinal: `replace` deletes a pod that has ended by itself, which is then made anew."""

    what: Literal["create", "delete", "replace"]
    ordinal: int


def ordinals_of(item: Object) -> range:
    """The ordinals that a StatefulSet asks for."""
    start = int((item["spec"].get("ordinals") or {}).get("start", 0))
    return range(start, start + int(item["spec"].get("replicas", 1)))


def ordinal_of(item: Object, pod: Object) -> int | None:
    """The ordinal of a pod by its name; None if the name is none of the set's."""
    found = re.fullmatch(r"(.+)-(0|[1-9][0-9]*)", pod["metadata"]["name"])
    return int(found[2]) if found and found[1] == item["metadata"]["name"] else None


def revision_of(pod: Object) -> str:
    """The name of the revision that a pod was made from."""
    return str((pod["metadata"].get("labels") or {}).get(REVISION_LABEL, ""))


def is_healthy(pod: Object) -> bool:
    """Whether a pod is running and ready and not on its way out."""
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and is_ready(pod) and not is_terminating(pod)


def seconds_to_available(item: Object, pod: Object, now: datetime.datetime) -> float | None:
    """How long until a ready pod is available (minReadySeconds); 0 if it is, None if it is not ready."""
    condition = condition_of(pod, "Ready")
    if not is_healthy(pod) or condition is None:
        return None
    least = int(item["spec"].get("minReadySeconds", 0))
    since = condition.get("lastTransitionTime")
    if not least or not since:
        return 0.0
    return max(0.0, least - (now - parse_timestamp(str(since))).total_seconds())


def wants_present(item: Object, ordinal: int) -> bool:
    """Whether a pod that is made now is of the present template: below the partition of a rolling update it is of the
    one that the set had before."""
    strategy = item["spec"].get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return True
    return ordinal - ordinals_of(item).start >= _partition(strategy)


def plan(item: Object, pods: Mapping[int, Object], present: str, now: datetime.datetime) -> Iterator[Step]:
    """What to do now, in this order; `present` names the revision of the set's template. What must be waited for ends
    it: the next change, or the time of `seconds_to_available`, asks again."""
    ordered = item["spec"].get("podManagementPolicy", "OrderedReady") == "OrderedReady"
    wanted = ordinals_of(item)
    waits = False
    for ordinal in wanted:
        step = _step_for(ordinal, pods.get(ordinal))
        if step is not None:
            yield step
        pod = pods.get(ordinal)
        there = step is None and pod is not None and seconds_to_available(item, pod, now) == 0
        waits = waits or step is not None
        if ordered and not there:
            return
    for ordinal in sorted((number for number in pods if number not in wanted), reverse=True):
        if not is_terminating(pods[ordinal]):
            yield Step("delete", ordinal)
        waits = True
        if ordered:
            return
    # A pod that is made or taken away just now comes first; its own change brings the set back.
    if not waits:
        yield from _updates(item, pods, present, wanted)


def _step_for(ordinal: int, pod: Object | None) -> Step | None:
    if pod is None:
        return Step("create", ordinal)
    ended = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    return Step("replace", ordinal) if ended and not is_terminating(pod) else None


def _updates(item: Object, pods: Mapping[int, Object], present: str, wanted: range) -> Iterator[Step]:
    strategy = item["spec"].get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return
    limit = (strategy.get("rollingUpdate") or {}).get("maxUnavailable")
    room = max(1, resolve(1 if limit is None else limit, len(wanted), up=True))
    for ordinal in reversed(wanted[_partition(strategy) :]):
        pod = pods[ordinal]
        if revision_of(pod) != present and not is_terminating(pod):
            yield Step("delete", ordinal)
            room -= 1
        elif not is_healthy(pod):
            room -= 1
        if room <= 0:
            return


def _partition(strategy: Object) -> int:
    return int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
