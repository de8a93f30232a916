"""StatefulSet to Pods with stable names: NAME-0, NAME-1, and so on (`ordinals` says which and when).

As kube-controller-manager's stateful set controller. The claims of volumeClaimTemplates are made and stay Pending: a
lab has no volumes, which an Event says once for each set, and the pods run without them. Not repaired: labels and
volumes of a pod that somebody has edited.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kproxy.client import ApiError, RestClient, SharedInformerFactory
from kproxy.lab.controllers.base import Controller
from kproxy.lab.controllers.claims import (
    ORPHAN_INDEX,
    OWNER_INDEX,
    claim,
    orphan_index,
    owned_or_wanted_by,
    owner_index,
    owner_reference,
)
from kproxy.lab.controllers.expectations import Expectations
from kproxy.lab.controllers.ordinals import (
    REVISION_LABEL,
    Step,
    ordinal_of,
    ordinals_of,
    plan,
    revision_of,
    seconds_to_available,
    wants_present,
)
from kproxy.lab.controllers.pods import PodControl
from kproxy.lab.controllers.revisions import Revisions, template_of
from kproxy.lab.controllers.template import pod_of
from kproxy.lab.controllers.writes import write_status
from kproxy.lab.events import WARNING
from kproxy.lab.resources import (
    CLAIMS,
    CONTROLLER_REVISIONS,
    PODS,
    STATEFUL_SETS,
    Json,
    Object,
    controller_of,
    is_ready,
    is_terminating,
    key_of,
    now,
)

POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_KIND: Final = "StatefulSet"


class StatefulSetController(Controller):
    """Keeps the pods of every StatefulSet."""

    name = "statefulset"
    component = "statefulset-controller"

    def __init__(self, client: RestClient, factory: SharedInformerFactory) -> None:
        super().__init__(client, factory)
        self._sets = self.follow(STATEFUL_SETS, lambda item: [key_of(item)])
        self._pods = self.follow(
            PODS, owned_or_wanted_by(_KIND, self._sets), **{OWNER_INDEX: owner_index, ORPHAN_INDEX: orphan_index}
        )
        known = factory.informer(CONTROLLER_REVISIONS, indexers={OWNER_INDEX: owner_index})
        self._revisions = Revisions(client, known, _KIND)
        self._control = PodControl(client, self.recorder, _KIND)
        self._expectations = Expectations()
        self._warned: set[str] = set()
        """Uids of the sets of which it was said that they get no volumes."""

    def sync(self, key: str) -> float | None:
        found = self._sets.indexer.get_by_key(key)
        if found is None or is_terminating(found.raw):
            return None
        item = found.raw
        present = self._revisions.present(item)
        before = self._before(item, present)
        pods = self._claimed(item)
        if any(
            self._expectations.is_deleted(pod["metadata"]["uid"]) for pod in pods.values() if not is_terminating(pod)
        ):
            return None  # the informer shows soon that it is on its way out
        moment = now()
        for step in plan(item, pods, present["metadata"]["name"], moment):
            self._do(item, step, pods, present if wants_present(item, step.ordinal) else before)
        self._write_status(item, pods.values(), before, present)
        used = {present["metadata"]["name"], before["metadata"]["name"], *map(revision_of, pods.values())}
        self._revisions.prune(item, used)
        left = [seconds_to_available(item, pod, moment) for pod in pods.values()]
        return min((seconds for seconds in left if seconds), default=None)

    def _before(self, item: Object, present: Object) -> Object:
        """The revision that the set is on its way from; the present one if it is all there."""
        name = (item.get("status") or {}).get("currentRevision")
        return next((each for each in self._revisions.of(item) if each["metadata"]["name"] == name), present)

    def _claimed(self, item: Object) -> dict[int, Object]:
        """The set's pods by ordinal."""
        owned = [each.raw for each in self._pods.indexer.by_index(OWNER_INDEX, str(item["metadata"]["uid"]))]
        orphans = [each.raw for each in self._pods.indexer.by_index(ORPHAN_INDEX, item["metadata"]["namespace"])]
        mine = claim(self.client, item, _KIND, owned, [pod for pod in orphans if ordinal_of(item, pod) is not None])
        numbered = {ordinal_of(item, pod): pod for pod in mine}
        return {number: pod for number, pod in numbered.items() if number is not None}

    # --- pods ---

    def _do(self, item: Object, step: Step, pods: dict[int, Object], revision: Object) -> None:
        if step.what == "create":
            pods[step.ordinal] = self._create(item, step.ordinal, revision)
            return
        pod = pods[step.ordinal]
        if step.what == "replace":
            failed = (pod.get("status") or {}).get("phase") == "Failed"
            reason, word = ("RecreatingFailedPod", "failed") if failed else ("RecreatingTerminatedPod", "terminated")
            text = f"StatefulSet {key_of(item)} is recreating {word} Pod {pod['metadata']['name']}"
            self.recorder.event(item, _KIND, reason, text, **({"type": WARNING} if failed else {}))
        self._delete(item, pod)

    def _create(self, item: Object, ordinal: int, revision: Object) -> Object:
        body = pod_at(item, ordinal, revision)
        name, namespace = body["metadata"]["name"], item["metadata"]["namespace"]
        try:
            self._create_claims(item, ordinal)
            created = self.client.create(PODS, body, namespace).raw
        except ApiError as error:
            known = self._pods.indexer.get_by_key(f"{namespace}/{name}")
            if error.code != 409 or (known is not None and not _is_of(item, known.raw)):
                text = f"create Pod {name} in StatefulSet {item['metadata']['name']} failed error: {error.message}"
                self.recorder.event(item, _KIND, "FailedCreate", text, type=WARNING)
            raise  # of a conflict without a word: the informer shows the pod soon
        self.recorder.event(item, _KIND, "SuccessfulCreate", _successful(item, f"create Pod {name}"))
        return created

    def _create_claims(self, item: Object, ordinal: int) -> None:
        templates = item["spec"].get("volumeClaimTemplates") or ()
        for template in templates:
            body = claim_at(item, template, ordinal)
            try:
                self.client.create(CLAIMS, body, item["metadata"]["namespace"])
            except ApiError as error:
                if error.code != 409:
                    raise
                continue
            name = f"{item['metadata']['name']}-{ordinal}"
            text = (
                f"create Claim {body['metadata']['name']} Pod {name} in StatefulSet {item['metadata']['name']} success"
            )
            self.recorder.event(item, _KIND, "SuccessfulCreate", text)
        uid = str(item["metadata"]["uid"])
        if templates and uid not in self._warned:
            self._warned.add(uid)
            names = ", ".join(str(template["metadata"]["name"]) for template in templates)
            text = f"a lab has no volumes: claims of {names} stay Pending, and the pods run without them"
            self.recorder.event(item, _KIND, "VolumesNotProvided", text, type=WARNING)

    def _delete(self, item: Object, pod: Object) -> None:
        meta = pod["metadata"]
        self._expectations.deleted(str(meta["uid"]))
        self._control.delete(item, pod, _successful(item, f"delete Pod {meta['name']}"))

    # --- status ---

    def _write_status(self, item: Object, pods: Iterable[Object], before: Object, present: Object) -> None:
        status = status_of(item, list(pods), before["metadata"]["name"], present["metadata"]["name"])
        write_status(self.client, STATEFUL_SETS, item, status)


def _successful(item: Object, what: str) -> str:
    return f"{what} in StatefulSet {item['metadata']['name']} successful"


def _is_of(item: Object, pod: Object) -> bool:
    return bool((controller_of(pod) or {}).get("uid") == item["metadata"]["uid"])


def pod_at(item: Object, ordinal: int, revision: Object) -> Json:
    """The pod of an ordinal: its name is its hostname, the set's Service its subdomain, and its claims its volumes."""
    spec = item["spec"]
    body = pod_of({**item, "spec": {**spec, "template": template_of(revision)}}, _KIND)
    name = f"{item['metadata']['name']}-{ordinal}"
    body["metadata"]["name"] = name
    identity = {POD_NAME: name, POD_INDEX: str(ordinal), REVISION_LABEL: revision["metadata"]["name"]}
    body["metadata"]["labels"] |= identity
    body["spec"] |= {"hostname": name, **({"subdomain": spec["serviceName"]} if spec.get("serviceName") else {})}
    claimed = {
        each["metadata"]["name"]: {"claimName": claim_at(item, each, ordinal)["metadata"]["name"]}
        for each in spec.get("volumeClaimTemplates") or ()
    }
    if claimed:
        others = [volume for volume in body["spec"].get("volumes") or () if volume["name"] not in claimed]
        own = [{"name": volume, "persistentVolumeClaim": source} for volume, source in claimed.items()]
        body["spec"]["volumes"] = [*own, *others]
    return body


def claim_at(item: Object, template: Object, ordinal: int) -> Json:
    """The claim of a template for an ordinal; it outlives its pod, and the set unless whenDeleted is Delete."""
    given, name = template["metadata"], item["metadata"]["name"]
    labels = {**(given.get("labels") or {}), **(item["spec"]["selector"].get("matchLabels") or {})}
    meta: Json = {"name": f"{given['name']}-{name}-{ordinal}", "labels": labels}
    if given.get("annotations"):
        meta["annotations"] = dict(given["annotations"])
    policy = item["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    if policy.get("whenDeleted") == "Delete":
        owner = owner_reference(item, _KIND)
        meta["ownerReferences"] = [{key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}]
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": dict(template["spec"])}


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
    rolling = (item["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate"
    if rolling and updated == len(pods) == ready == len(ordinals_of(item)):
        status |= {"currentReplicas": updated, "currentRevision": present}
    return status
