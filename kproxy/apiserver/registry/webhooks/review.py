"""admission.k8s.io/v1 AdmissionReview: what a webhook is asked about one write, and what its answer may say.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/request (admissionreview.go).
"""

from __future__ import annotations

import uuid
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kproxy.apiserver.auth.authentication import User
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.resources import Resource

_KIND: Final = "admission.k8s.io/v1, Kind=AdmissionReview"


class CallError(Exception):
    """Why a webhook could not be asked, or what is wrong with its answer; its failurePolicy decides."""


@dataclass(slots=True)
class Write:
    """A write that is to be admitted: `value` is None for a deletion, `old` for a new object; both are as they are
    stored, or of a subresource with a kind of its own as they were sent. `user` None: the server itself, of whom no
    webhook is asked. `options` are the CreateOptions and so on of the request. `noted` gets warnings that stand beside
    a refusal, too."""

    resource: Resource
    operation: str
    namespace: str
    name: str
    value: Json | None
    old: Json | None
    user: User | None
    options: Json
    subresource: str = ""
    dry_run: bool = False
    noted: list[str] | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def own_kind(self) -> tuple[str, str, str] | None:
        """Group, version and kind of what is sent to a subresource, if that is not the resource's."""
        form = self.resource.subresource(self.subresource)
        own = form is not None and form.kind != self.resource.kind
        return (form.group, form.version or "v1", form.kind) if form is not None and own else None

    def shown(self, value: Json | None, target: Resource) -> Json | None:
        """An object as `target`, a version of the resource, shows it; with kind and apiVersion."""
        if value is None:
            return None
        if (own := self.own_kind) is not None:
            return {**value, "apiVersion": "/".join(filter(None, own[:2])), "kind": own[2]}
        shown = target.strategy.to_version(deepcopy(value)) if target.strategy.converts else value
        return {"kind": target.kind, "apiVersion": target.api_version, **shown}


def review_of(write: Write, target: Resource) -> Json:
    """The AdmissionReview of a write, in the version that a webhook's rule names."""
    request: Json = {
        "uid": str(uuid.uuid4()),
        **_named(write, target, "kind", "resource"),
        **_named(write, write.resource, "requestKind", "requestResource"),
        "operation": write.operation,
        "userInfo": write.user.info if write.user is not None else {},
        "object": write.shown(write.value, target),
        "oldObject": write.shown(write.old, target),
        "dryRun": write.dry_run,
        "options": write.options or None,
    }
    request |= {"name": write.name, "namespace": write.namespace} if write.namespace else {"name": write.name}
    if write.subresource:
        request |= {"subResource": write.subresource, "requestSubResource": write.subresource}
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def _named(write: Write, version: Resource, kind: str, resource: str) -> Json:
    """Kind and resource of a write, in a version, under these two names."""
    group, of, name = write.own_kind or (version.group, version.version, version.kind)
    return {
        kind: {"group": group, "version": of, "kind": name},
        resource: {"group": version.group, "version": version.version, "resource": version.plural},
    }


class Answer(msgspec.Struct):
    """AdmissionResponse: `patch` are the operations of a JSON patch, `status` is what it says of a refusal."""

    uid: str = ""
    allowed: bool = False
    status: dict[str, Any] = msgspec.field(default_factory=dict)
    patch: bytes = b""
    patch_type: str | None = msgspec.field(default=None, name="patchType")
    warnings: list[str] = msgspec.field(default_factory=list)


class _Review(msgspec.Struct):
    kind: str = ""
    version: str = msgspec.field(default="", name="apiVersion")
    response: Answer | None = None


def read_answer(body: bytes, uid: str, *, mutating: bool) -> Answer:
    """The answer to the review `uid`.

    Raises:
        CallError: it is none, or says what it may not.
    """
    try:
        review = msgspec.json.decode(body, type=_Review)
    except msgspec.DecodeError as error:
        raise CallError(f"failed to call webhook: {error}") from error
    answer, why = review.response, ""
    said = f"{review.version}, Kind={review.kind}"
    if answer is None:
        raise CallError("received invalid webhook response: webhook response was absent")
    if answer.uid != uid:
        why = f'expected response.uid="{uid}", got "{answer.uid}"'
    elif said != _KIND:
        why = f"expected webhook response of {_KIND}, got {said}"
    elif not mutating and (answer.patch or answer.patch_type is not None):
        why = f"validating webhook may not return response.{'patch' if answer.patch else 'patchType'}"
    elif answer.patch and answer.patch_type is None:
        why = "webhook returned response.patch but not response.patchType"
    elif not answer.patch and answer.patch_type is not None:
        why = "webhook returned response.patchType but not response.patch"
    if why:
        raise CallError(f"received invalid webhook response: {why}")
    if answer.patch_type not in (None, "JSONPatch"):
        raise CallError(f'unsupported patch type "{answer.patch_type}"')
    return answer
