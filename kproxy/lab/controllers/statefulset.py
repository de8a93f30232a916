"""StatefulSet to Pods with stable names: NAME-0, NAME-1, and so on.

As kube-controller-manager's stateful set controller. The claims of volumeClaimTemplates are not made: a lab has no
volumes, which an Event says once for each set, and the pods run without them. Not repaired: labels of a pod that
somebody has edited.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from kproxy.lab.controllers.runtime import Again, Create, Delete, Patch, Reconciler, Said, Tables, Write, status_writes
from kproxy.lab.controllers.workload import (
    REVISION_LABEL,
    delete_pod,
    own_key,
    owned_by,
    owner_reference,
    pod_of,
    resolve,
    revision_of,
    rolls,
    template_hash,
)
from kproxy.lab.events import WARNING
from kproxy.lab.resources import (
    CONTROLLER_REVISIONS,
    PODS,
    STATEFUL_SETS,
    Json,
    Object,
    condition_of,
    is_ready,
    is_terminating,
    now,
    parse_timestamp,
)

POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_KIND: Final = "StatefulSet"


def reconcile(key: str, tables: Tables) -> Iterator[Write]:
    """The pods of a StatefulSet, its revisions, and its status."""
    item = tables.get(STATEFUL_SETS, key)
    if item is None or is_terminating(item):
        return
    revisions, mine = tables.owned(CONTROLLER_REVISIONS, item), tables.owned(PODS, item)
    known = sorted(revisions, key=lambda each: (each.get("revision", 0), each["metadata"]["name"]))
    present, writes = present_revision(item, known)
    yield from writes
    was = (item.get("status") or {}).get("currentRevision")
    before = next((each for each in known if each["metadata"]["name"] == was), present)
    pods = {number: pod for pod in mine if (number := ordinal_of(item, pod)) is not None}
    for step in plan(item, pods, present["metadata"]["name"], tables.now):
        if step.what == "create":
            yield from _create(item, step.ordinal, present if wants_present(item, step.ordinal) else before)
            continue
        pod = pods[step.ordinal]
        name = pod["metadata"]["name"]
        if step.what == "replace":
            failed = (pod.get("status") or {}).get("phase") == "Failed"
            reason, word = ("RecreatingFailedPod", "failed") if failed else ("RecreatingTerminatedPod", "terminated")
            text = f"StatefulSet {key} is recreating {word} Pod {name}"
            yield Said(item, _KIND, reason, text, **({"type": WARNING} if failed else {}))
        yield delete_pod(item, _KIND, pod, _successful(item, f"delete Pod {name}"))
    status = status_of(item, list(pods.values()), before["metadata"]["name"], present["metadata"]["name"])
    yield from status_writes(STATEFUL_SETS, item, status)
    yield from _prune(
        item, known, {each["metadata"]["name"] for each in (present, before)} | set(map(revision_of, mine))
    )
    left = [seconds_to_available(item, pod, tables.now) for pod in pods.values()]
    yield from (Again(seconds) for seconds in sorted(filter(None, left))[:1])


CONTROLLER: Final = Reconciler("statefulset-controller", reconcile, ((STATEFUL_SETS, own_key), (PODS, owned_by(_KIND))))


# --- what to do next, given the pods by their ordinals (stateful_set_control.go) ---
#
# With podManagementPolicy OrderedReady one pod after another is made, from the lowest ordinal, each when those before
# it are available; surplus pods and pods of an older revision go one by one from the highest. Parallel waits neither to
# make nor to take away, only to update.


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


def is_healthy(pod: Object) -> bool:
    """Whether a pod is running and ready and not on its way out."""
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and is_ready(pod) and not is_terminating(pod)


def seconds_to_available(item: Object, pod: Object, moment: datetime.datetime) -> float | None:
    """How long until a ready pod is available (minReadySeconds); 0 if it is, None if it is not ready."""
    condition = condition_of(pod, "Ready")
    if not is_healthy(pod) or condition is None:
        return None
    least = int(item["spec"].get("minReadySeconds", 0))
    since = condition.get("lastTransitionTime")
    if not least or not since:
        return 0.0
    return max(0.0, least - (moment - parse_timestamp(str(since))).total_seconds())


def wants_present(item: Object, ordinal: int) -> bool:
    """Whether a pod that is made now is of the present template: below the partition of a rolling update it is of the
    one that the set had before."""
    return not rolls(item) or ordinal - ordinals_of(item).start >= int(_rolling(item).get("partition") or 0)


def plan(item: Object, pods: Mapping[int, Object], present: str, moment: datetime.datetime) -> Iterator[Step]:
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
        there = step is None and pod is not None and seconds_to_available(item, pod, moment) == 0
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
    if not rolls(item):
        return
    limit = _rolling(item).get("maxUnavailable")
    room = max(1, resolve(1 if limit is None else limit, len(wanted), up=True))
    for ordinal in reversed(wanted[int(_rolling(item).get("partition") or 0) :]):
        pod = pods[ordinal]
        if revision_of(pod) != present and not is_terminating(pod):
            yield Step("delete", ordinal)
            room -= 1
        elif not is_healthy(pod):
            room -= 1
        if room <= 0:
            return


def _rolling(item: Object) -> Object:
    found: Object = (item["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    return found


# --- ControllerRevisions: the templates that a set has had, oldest first (pkg/controller/history) ---


def template_of(revision: Object) -> Json:
    """The pod template that a revision keeps."""
    return {name: value for name, value in revision["data"]["spec"]["template"].items() if name != "$patch"}


def present_revision(owner: Object, known: Sequence[Object]) -> tuple[Object, list[Write]]:
    """The revision of the present template; it is made if there is none. One that comes back gets a new number, which
    is what `kubectl rollout undo` makes of it."""
    meta = owner["metadata"]
    last = int(known[-1].get("revision", 0)) if known else 0
    # As a patch of the workload: kubectl applies it as such.
    data = {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}
    equal = next((item for item in reversed(known) if item.get("data") == data), None)
    if equal is not None:
        return equal, [] if equal is known[-1] else [Patch(CONTROLLER_REVISIONS, equal, {"revision": last + 1})]
    digest = template_hash(data)
    labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
    body: Json = {
        "metadata": {
            "name": f"{meta['name']}-{digest}",
            "namespace": meta["namespace"],
            "labels": {**labels, "controller.kubernetes.io/hash": digest},
            "ownerReferences": [owner_reference(owner, _KIND)],
        },
        "data": data,
        "revision": last + 1,
    }
    return body, [Create(CONTROLLER_REVISIONS, body)]


def _prune(owner: Object, known: Sequence[Object], used: Collection[str]) -> Iterator[Write]:
    """Deletes the oldest of the revisions that are not used any more, down to revisionHistoryLimit."""
    idle = [item for item in known if item["metadata"]["name"] not in used]
    for item in idle[: max(0, len(idle) - int(owner["spec"].get("revisionHistoryLimit", 10)))]:
        yield Delete(CONTROLLER_REVISIONS, item)


# --- pods ---


def _create(item: Object, ordinal: int, revision: Object) -> Iterator[Write]:
    body, name = pod_at(item, ordinal, revision), item["metadata"]["name"]
    pod = body["metadata"]["name"]
    templates = item["spec"].get("volumeClaimTemplates") or ()
    if templates and not (item.get("status") or {}).get("observedGeneration"):
        names = ", ".join(str(template["metadata"]["name"]) for template in templates)
        text = f"a lab has no volumes: no claims of {names} are made, and the pods run without them"
        yield Said(item, _KIND, "VolumesNotProvided", text, WARNING)
    refused = f"create Pod {pod} in StatefulSet {name} failed error: {{error}}"
    yield Create(
        PODS,
        body,
        Said(item, _KIND, "SuccessfulCreate", _successful(item, f"create Pod {pod}")),
        Said(item, _KIND, "FailedCreate", refused, WARNING),
    )


def _successful(item: Object, what: str) -> str:
    return f"{what} in StatefulSet {item['metadata']['name']} successful"


def pod_at(item: Object, ordinal: int, revision: Object) -> Json:
    """The pod of an ordinal: its name is its hostname, and the set's Service its subdomain."""
    spec = item["spec"]
    body = pod_of({**item, "spec": {**spec, "template": template_of(revision)}}, _KIND)
    name = f"{item['metadata']['name']}-{ordinal}"
    del body["metadata"]["generateName"]
    body["metadata"]["name"] = name
    identity = {POD_NAME: name, POD_INDEX: str(ordinal), REVISION_LABEL: revision["metadata"]["name"]}
    body["metadata"]["labels"] |= identity
    body["spec"] |= {"hostname": name, **({"subdomain": spec["serviceName"]} if spec.get("serviceName") else {})}
    return body


def status_of(item: Object, pods: list[Object], before: str, present: str) -> Json:
    """The status of a set with these pods; once all are there and ready the present revision is the one it is on."""
    moment = now()
    staying = [pod for pod in pods if not is_terminating(pod)]
    updated = sum(revision_of(pod) == present for pod in staying)
    ready = sum(is_ready(pod) for pod in pods)
    status: Json = {
        "observedGeneration": item["metadata"].get("generation", 0),
        "replicas": len(pods),
        "readyReplicas": ready,
        "availableReplicas": sum(seconds_to_available(item, pod, moment) == 0 for pod in pods),
        "currentReplicas": sum(revision_of(pod) == before for pod in staying),
        "updatedReplicas": updated,
        "currentRevision": before,
        "updateRevision": present,
        "collisionCount": 0,
    }
    if rolls(item) and updated == len(pods) == ready == len(ordinals_of(item)):
        status |= {"currentReplicas": updated, "currentRevision": present}
    return status
