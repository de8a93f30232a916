"""Job to Pods that run to their end: completions, parallelism, back-off, indexes, suspension, deadlines.

As kube-controller-manager's job controller. Pods are counted as long as they are there (a finished one that somebody
deletes is run again), so they carry no finalizer. A failed pod is followed by another after a second, then two, then
four; in a cluster it is ten at first. Not heeded: podFailurePolicy, successPolicy, and limits by index.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from kproxy.client import RestClient, SharedInformerFactory
from kproxy.lab.controllers.base import Controller
from kproxy.lab.controllers.claims import OWNER_INDEX, owned_by, owner_index
from kproxy.lab.controllers.expectations import Expectations
from kproxy.lab.controllers.indexes import as_ranges, index_of, number
from kproxy.lab.controllers.pods import PodControl
from kproxy.lab.controllers.template import pod_of
from kproxy.lab.controllers.writes import delete_object, write_status
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
    key_of,
    now,
    parse_timestamp,
    timestamp,
    with_condition,
)

_KIND: Final = "Job"
_BACK_OFF: Final = 1.0
_MAX_BACK_OFF: Final = 600.0
_OWN: Final = ("", "kubernetes.io/job-controller")
_REACHED: Final = ("CompletionsReached", "Reached expected number of succeeded pods")


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


class JobController(Controller):
    """Runs every Job."""

    name = "job"
    component = "job-controller"

    def __init__(self, client: RestClient, factory: SharedInformerFactory) -> None:
        super().__init__(client, factory)
        self._jobs = self.follow(JOBS, lambda item: [key_of(item)])
        self._pods = self.follow(PODS, owned_by(_KIND), **{OWNER_INDEX: owner_index})
        self._control = PodControl(client, self.recorder, _KIND)
        self._expectations = Expectations()

    def sync(self, key: str) -> float | None:
        found = self._jobs.indexer.get_by_key(key)
        if found is None or is_terminating(found.raw) or found.raw["spec"].get("managedBy", "") not in _OWN:
            self._expectations.forget(key)
            return None
        item = found.raw
        if is_true(item, "Complete") or is_true(item, "Failed"):
            return self._clean_up(item)
        owned = [each.raw for each in self._pods.indexer.by_index(OWNER_INDEX, str(item["metadata"]["uid"]))]
        if self._expectations.pending(key, {str(pod["metadata"]["uid"]) for pod in owned}):
            return 1.0  # the informer shows them soon; it is looked again in case that an event was lost
        pods = count(pod for pod in owned if not self._expectations.is_deleted(str(pod["metadata"]["uid"])))
        begun = (item.get("status") or {}).get("startTime")
        seconds = (now() - parse_timestamp(begun)).total_seconds() if begun else 0.0
        target = _target(item) or verdict(item, pods, seconds)
        if target is not None:
            self._delete_all(item, pods.active)
            self._write_status(item, count(owned), target)
            return None
        wait = self._manage(item, pods)
        self._write_status(item, pods, None)
        deadline = item["spec"].get("activeDeadlineSeconds")
        if deadline is not None and not item["spec"].get("suspend"):
            left = max(0.1, deadline - seconds)
            wait = left if wait is None else min(wait, left)
        return wait

    def _clean_up(self, item: Object) -> float | None:
        """Deletes a Job that ended ttlSecondsAfterFinished ago; seconds until then."""
        lives = item["spec"].get("ttlSecondsAfterFinished")
        ended = condition_of(item, "Complete" if is_true(item, "Complete") else "Failed")
        if lives is None or ended is None:
            return None
        left = float(lives) - (now() - parse_timestamp(ended["lastTransitionTime"])).total_seconds()
        if left > 0:
            return float(left)
        delete_object(self.client, JOBS, item, propagation_policy="Foreground")
        return None

    # --- pods ---

    def _manage(self, item: Object, pods: Counted) -> float | None:
        """Makes or deletes pods; seconds until one may be made that waits for its back-off."""
        change = missing(item, pods)
        if change < 0:
            # Those that have come least far.
            ordered = sorted(pods.active, key=lambda pod: (is_ready(pod), str(pod["metadata"]["creationTimestamp"])))
            self._delete_all(item, ordered[:-change])
        if change <= 0:
            return None
        if pods.failed:
            since = now().timestamp() - max(map(_ended, pods.failed))
            left = min(_MAX_BACK_OFF, _BACK_OFF * 2.0 ** (len(pods.failed) - 1)) - since
            if left > 0:
                return left
        indexed = item["spec"].get("completionMode") == "Indexed"
        taken = pods.done | {index for pod in pods.active if (index := index_of(pod)) is not None}
        free = [index for index in range(item["spec"]["completions"]) if index not in taken] if indexed else []
        for position in range(min(change, len(free)) if indexed else change):
            self._create(item, free[position] if indexed else None)
        return None

    def _create(self, item: Object, index: int | None) -> None:
        body = pod_of(item, _KIND)
        if index is not None:
            number(body, index)
            name = item["metadata"]["name"]
            body["metadata"]["name"] = f"{name[:50]}-{index}-{body['metadata']['name'].rpartition('-')[2]}"
            body["spec"].setdefault("hostname", f"{name}-{index}")
        self._expectations.created(key_of(item), self._control.create(item, body))

    def _delete_all(self, item: Object, pods: Iterable[Object]) -> None:
        for pod in pods:
            self._expectations.deleted(str(pod["metadata"]["uid"]))
            self._control.delete(item, pod)

    # --- status ---

    def _write_status(self, item: Object, pods: Counted, target: tuple[str, str, str] | None) -> None:
        over = target is not None and not pods.active and not pods.terminating
        if not write_status(self.client, JOBS, item, status_of(item, pods, target, over=over)):
            return
        suspended, was = bool(item["spec"].get("suspend")), is_true(item, "Suspended")
        if target is not None and over:
            text = "Job completed" if target[0] == "Complete" else target[2]
            reason, kind = ("Completed", NORMAL) if target[0] == "Complete" else (target[1], WARNING)
            self.recorder.event(item, _KIND, reason, text, type=kind)
        elif suspended != was:
            reason = "Suspended" if suspended else "Resumed"
            self.recorder.event(item, _KIND, reason, f"Job {reason.lower()}")


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
