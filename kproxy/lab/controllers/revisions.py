"""ControllerRevisions: the templates that a StatefulSet has had, oldest first.

kubernetes/kubernetes pkg/controller/history. A template that comes back gets its old revision with a new number, which
is what `kubectl rollout undo` makes of it.
"""

from __future__ import annotations

from collections.abc import Collection

from kproxy.client import ApiError, RestClient
from kproxy.client.informer import Informer
from kproxy.informer import Unstructured
from kproxy.lab.controllers.claims import OWNER_INDEX, owner_reference
from kproxy.lab.controllers.template import template_hash
from kproxy.lab.controllers.writes import delete_object
from kproxy.lab.resources import CONTROLLER_REVISIONS, Json, Object


def template_of(revision: Object) -> Json:
    """The pod template that a revision keeps."""
    return {name: value for name, value in revision["data"]["spec"]["template"].items() if name != "$patch"}


class Revisions:
    """The revisions of workloads of one kind; `known` is an informer of them with `OWNER_INDEX`."""

    def __init__(self, client: RestClient, known: Informer[Unstructured], kind: str) -> None:
        self._client = client
        self._known = known
        self._kind = kind

    def of(self, owner: Object) -> list[Object]:
        """A workload's revisions in their order."""
        found = [item.raw for item in self._known.indexer.by_index(OWNER_INDEX, str(owner["metadata"]["uid"]))]
        return sorted(found, key=lambda item: (item.get("revision", 0), item["metadata"]["name"]))

    def present(self, owner: Object) -> Object:
        """The revision of the present template; made if there is none, renumbered if it is not the last. Raises
        ApiError."""
        meta, known = owner["metadata"], self.of(owner)
        last = int(known[-1].get("revision", 0)) if known else 0
        # As a patch of the workload: kubectl applies it as such.
        data = {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}
        equal = next((item for item in reversed(known) if item.get("data") == data), None)
        if equal is not None and equal is known[-1]:
            return equal
        if equal is not None:
            patch = {"revision": last + 1}
            return self._client.patch(CONTROLLER_REVISIONS, equal["metadata"]["name"], patch, meta["namespace"]).raw
        digest = template_hash(data)
        labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
        body: Json = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": f"{meta['name']}-{digest}",
                "labels": {**labels, "controller.kubernetes.io/hash": digest},
                "ownerReferences": [owner_reference(owner, self._kind)],
            },
            "data": data,
            "revision": last + 1,
        }
        try:
            return self._client.create(CONTROLLER_REVISIONS, body, meta["namespace"]).raw
        except ApiError as error:
            if error.code != 409:
                raise
            # It was just made, and the informer does not show it yet.
            return self._client.get(CONTROLLER_REVISIONS, body["metadata"]["name"], meta["namespace"]).raw

    def prune(self, owner: Object, used: Collection[str]) -> None:
        """Deletes the oldest of the revisions that are not used any more, down to revisionHistoryLimit."""
        idle = [item for item in self.of(owner) if item["metadata"]["name"] not in used]
        for item in idle[: max(0, len(idle) - int(owner["spec"].get("revisionHistoryLimit", 10)))]:
            delete_object(self._client, CONTROLLER_REVISIONS, item)
