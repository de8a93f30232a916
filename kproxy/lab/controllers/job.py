"""Job to Pods that run to their end: completions, parallelism, back-off, indexes, suspension, deadlines.

As kube-controller-manager's job controller. Pods are counted as long as they are there (a finished one that somebody
deletes is run again), so they carry no finalizer. A failed pod is followed by another after a second, then two, then
four; in a cluster it is ten at first. Not heeded: podFailurePolicy, successPolicy, and limits by index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kproxy.lab.controllers.runtime import Again, Delete, Reconciler, Said, Tables, Write, status_writes
from kproxy.lab.controllers.workload import create_pod, delete_pod, own_key, owned_by, pod_of
from kproxy.lab.events import NORMAL, WARNING
from kproxy.lab.resources import (
    JOBS,
    PODS,
    Json,
    Object,
    condition_of,
    is_active,
    is_ready,
    is_terminating,
    is_true,
    now,
    parse_timestamp,
    timestamp,
    with_condition,
)

INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Annotation and label of a pod."""
_KIND: Final = "Job"
_BACK_OFF: Final = 1.0
_MAX_BACK_OFF: Final = 600.0
_OWN: Final = ("", "kubernetes.io/job-controller")
_REACHED: Final = ("CompletionsReached", "Reached expected number of succeeded pods")


# --- indexes ---


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


# --- what to do ---


class Counted(msgspec.Struct, frozen=True):
    """A Job's pods by how they are."""

    active: tuple[Object, ...]
    succeeded: tuple[Object, ...]
    failed: tuple[Object, ...]
    terminating: int

    @property
    def done(self) -> set[int]:
        """The indexes that have succeeded."""
        return {index for pod in self.succeeded if (index := index_of(pod)) is not None}


def count(pods: Iterable[Object]) -> Counted:
    found: dict[str, list[Object]] = {"active": [], "Succeeded": [], "Failed": []}
    ending = 0
    for pod in pods:
        phase = (pod.get("status") or {}).get("phase")
        if phase in found:
            found[phase].append(pod)
        elif is_active(pod):
            found["active"].append(pod)
        else:
            ending += 1
    return Counted(tuple(found["active"]), tuple(found["Succeeded"]), tuple(found["Failed"]), ending)


def verdict(item: Object, pods: Counted, seconds: float) -> tuple[str, str, str] | None:
    """How a Job ends now: type, reason and message of its condition; None if it goes on. It has run for `seconds`."""
    spec = item["spec"]
    limit, deadline = int(spec.get("backoffLimit", 6)), spec.get("activeDeadlineSeconds")
    restarts = sum(_restarts(pod) for pod in pods.active)
    if len(pods.failed) > limit or (restarts and restarts >= max(1, limit)):
        return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    if deadline is not None and seconds >= deadline and not spec.get("suspend"):
        return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
    if spec.get("completionMode") == "Indexed":
        complete = len({index for index in pods.done if index < spec["completions"]}) >= spec["completions"]
    elif spec.get("completions") is None:
        # Any success says that the work is done; those that still run are let end.
        complete = bool(pods.succeeded) and not pods.active
    else:
        complete = len(pods.succeeded) >= spec["completions"]
    return ("Complete", *_REACHED) if complete else None


def missing(item: Object, pods: Counted) -> int:
    """How many pods should run beside those that do; negative if fewer should."""
    spec = item["spec"]
    if spec.get("suspend"):
        return -len(pods.active)
    parallel = int(spec.get("parallelism", 1))
    if spec.get("completions") is None:
        wanted = len(pods.active) if pods.succeeded else parallel
    elif spec.get("completionMode") == "Indexed":
        wanted = min(parallel, spec["completions"] - len(pods.done))
    else:
        wanted = min(parallel, spec["completions"] - len(pods.succeeded))
    return min(wanted, parallel) - len(pods.active)


def _restarts(pod: Object) -> int:
    return sum(int(each.get("restartCount") or 0) for each in (pod.get("status") or {}).get("containerStatuses") or ())


def _ended(pod: Object) -> float:
    """When a pod's last container ended, in seconds since 1970."""
    times = [
        ((each.get("state") or {}).get("terminated") or {}).get("finishedAt")
        for each in (pod.get("status") or {}).get("containerStatuses") or ()
    ]
    found = [parse_timestamp(text).timestamp() for text in times if text]
    return max(found, default=parse_timestamp(str(pod["metadata"]["creationTimestamp"])).timestamp())


def reconcile(key: str, tables: Tables) -> Iterator[Write]:
    """The pods of a Job, and its status."""
    item = tables.get(JOBS, key)
    if item is None or is_terminating(item) or item["spec"].get("managedBy", "") not in _OWN:
        return
    if is_true(item, "Complete") or is_true(item, "Failed"):
        yield from _clean_up(item, tables)
        return
    pods = count(tables.owned(PODS, item))
    begun = (item.get("status") or {}).get("startTime")
    seconds = (tables.now - parse_timestamp(begun)).total_seconds() if begun else 0.0
    target = _target(item) or verdict(item, pods, seconds)
    if target is not None:
        yield from (delete_pod(item, _KIND, pod) for pod in pods.active)
        yield from _status(item, pods, target)
        return
    yield from _pods(item, pods, tables)
    yield from _status(item, pods, None)
    deadline = item["spec"].get("activeDeadlineSeconds")
    if deadline is not None and not item["spec"].get("suspend"):
        yield Again(max(0.1, deadline - seconds))


CONTROLLER: Final = Reconciler("job-controller", reconcile, ((JOBS, own_key), (PODS, owned_by(_KIND))))


def _clean_up(item: Object, tables: Tables) -> Iterator[Write]:
    """Deletes a Job that ended ttlSecondsAfterFinished ago."""
    lives = item["spec"].get("ttlSecondsAfterFinished")
    ended = condition_of(item, "Complete" if is_true(item, "Complete") else "Failed")
    if lives is None or ended is None:
        return
    left = float(lives) - (tables.now - parse_timestamp(ended["lastTransitionTime"])).total_seconds()
    yield Again(left) if left > 0 else Delete(JOBS, item, propagation="Foreground")


def _pods(item: Object, pods: Counted, tables: Tables) -> Iterator[Write]:
    """Makes or deletes pods; after a failure not before its back-off."""
    change = missing(item, pods)
    if change < 0:
        # Those that have come least far.
        ordered = sorted(pods.active, key=lambda pod: (is_ready(pod), str(pod["metadata"]["creationTimestamp"])))
        yield from (delete_pod(item, _KIND, pod) for pod in ordered[:-change])
    if change <= 0:
        return
    if pods.failed:
        since = tables.now.timestamp() - max(map(_ended, pods.failed))
        left = min(_MAX_BACK_OFF, _BACK_OFF * 2.0 ** (len(pods.failed) - 1)) - since
        if left > 0:
            yield Again(left)
            return
    if item["spec"].get("completionMode") != "Indexed":
        yield from (create_pod(item, _KIND, pod_of(item, _KIND)) for _ in range(change))
        return
    taken = pods.done | {index for pod in pods.active if (index := index_of(pod)) is not None}
    free = [index for index in range(item["spec"]["completions"]) if index not in taken]
    for index in free[:change]:
        body, name = pod_of(item, _KIND), item["metadata"]["name"]
        number(body, index)
        body["metadata"]["generateName"] = f"{name[:50]}-{index}-"
        body["spec"].setdefault("hostname", f"{name}-{index}")
        yield create_pod(item, _KIND, body)


# --- status ---


def _status(item: Object, pods: Counted, target: tuple[str, str, str] | None) -> Iterator[Write]:
    """The write of the status, if it has changed, and what is said of that."""
    over = target is not None and not pods.active and not pods.terminating
    writes = status_writes(JOBS, item, status_of(item, pods, target, over=over))
    yield from writes
    suspended, was = bool(item["spec"].get("suspend")), is_true(item, "Suspended")
    if writes and target is not None and over:
        complete = target[0] == "Complete"
        text, reason = ("Job completed", "Completed") if complete else (target[2], target[1])
        yield Said(item, _KIND, reason, text, NORMAL if complete else WARNING)
    elif writes and suspended != was:
        reason = "Suspended" if suspended else "Resumed"
        yield Said(item, _KIND, reason, f"Job {reason.lower()}")


def _target(item: Object) -> tuple[str, str, str] | None:
    """How a Job will end once all its pods have, as its conditions say already."""
    for before, after in (("FailureTarget", "Failed"), ("SuccessCriteriaMet", "Complete")):
        if is_true(item, before):
            found = condition_of(item, before) or {}
            return after, str(found.get("reason", "")), str(found.get("message", ""))
    return None


def status_of(item: Object, pods: Counted, target: tuple[str, str, str] | None, *, over: bool) -> Json:
    """A Job's status; `target` says how it ends, and it is `over` when no pod of it runs any more."""
    old = item.get("status") or {}
    moment, conditions = timestamp(now()), list(old.get("conditions") or [])
    suspended = bool(item["spec"].get("suspend"))
    if suspended and not is_true(item, "Suspended"):
        conditions = with_condition(conditions, "Suspended", "True", "JobSuspended", "Job suspended")
    elif not suspended and is_true(item, "Suspended"):
        conditions = with_condition(conditions, "Suspended", "False", "JobResumed", "Job resumed")
    status: Json = {
        "active": len(pods.active),
        "ready": sum(map(is_ready, pods.active)),
        "succeeded": len(pods.succeeded),
        "failed": len(pods.failed),
        "terminating": pods.terminating,
        "startTime": None if suspended and target is None else old.get("startTime") or moment,
        "uncountedTerminatedPods": {},
    }
    if item["spec"].get("completionMode") == "Indexed":
        status["completedIndexes"] = as_ranges(pods.done)
        status["succeeded"] = len(pods.done)
    if target is not None:
        kind, reason, message = target
        before = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
        if condition_of({"status": {"conditions": conditions}}, before) is None:
            conditions = with_condition(conditions, before, "True", reason, message)
        if over:
            conditions = with_condition(conditions, kind, "True", reason, message)
        if over and kind == "Complete":
            status["completionTime"] = moment
    if not suspended and is_true(item, "Suspended"):
        status["startTime"] = moment
    status["conditions"] = conditions
    return status
