"""What controllers of workloads do with pods: create one, delete one, and say so in an Event of the workload."""

from __future__ import annotations

from kproxy.client import ApiError, RestClient
from kproxy.lab.controllers.writes import delete_object
from kproxy.lab.events import WARNING, Recorder
from kproxy.lab.resources import PODS, Json, Object


class PodControl:
    """Creates and deletes the pods of workloads of one kind, as kube-controller-manager's PodControl does."""

    def __init__(self, client: RestClient, recorder: Recorder, kind: str) -> None:
        self._client = client
        self._recorder = recorder
        self._kind = kind

    def create(self, owner: Object, body: Json) -> str:
        """The uid of the new pod. Raises ApiError."""
        try:
            created = self._client.create(PODS, body, owner["metadata"]["namespace"])
        except ApiError as error:
            self._recorder.event(owner, self._kind, "FailedCreate", f"Error creating: {error.message}", type=WARNING)
            raise
        self._recorder.event(owner, self._kind, "SuccessfulCreate", f"Created pod: {created.metadata.name}")
        return created.metadata.uid

    def delete(self, owner: Object, pod: Object, said: str = "") -> None:
        """Deletes a pod, if it is still there and the same; `said` is the Event's message if not the usual one. Raises
        ApiError."""
        if delete_object(self._client, PODS, pod):
            text = said or f"Deleted pod: {pod['metadata']['name']}"
            self._recorder.event(owner, self._kind, "SuccessfulDelete", text)
