"""Evicting a Pod: `pods/eviction`, a deletion that the Pod's disruption budget may refuse.

Source: kubernetes/kubernetes pkg/registry/core/pod/storage/eviction.go. The numbers in a budget's status are those that
kube-controller-manager writes: until it has, a budget allows nothing.
"""

from __future__ import annotations

from typing import Final

from kproxy.apiserver.endpoints import negotiation
from kproxy.apiserver.endpoints.negotiation import MediaType, Response, encoded_response
from kproxy.apiserver.endpoints.request import Request
from kproxy.apiserver.errors import Json, StatusError, bad_request, internal
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import timestamp
from kproxy.apiserver.schema.decode import parse_body
from kproxy.apiserver.storage.store import Entry
from kproxy.informer import selector_matches

_BUDGETS: Final = "poddisruptionbudgets.policy"
_SUCCESS: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


async def handle_eviction(registry: Registry, request: Request, pods: Resource, negotiated: MediaType) -> Response:
    """Deletes a Pod if its disruption budget allows it.

    Raises:
        StatusError: 400 for a body that is no Eviction of this Pod, 404 without the Pod, 429 while the budget does not
            allow it, 500 if several budgets select the Pod; what a deletion refuses.
    """
    target = request.target
    eviction = parse_body(request.body, request.header("content-type"), "Eviction")
    if not isinstance(eviction, dict) or eviction.get("kind") not in (None, "", "Eviction"):
        raise bad_request("not a Eviction object")
    name = (eviction.get("metadata") or {}).get("name", "")
    if name and name != target.name:
        raise bad_request("name in URL does not match name in Eviction object")
    options = request.delete_options(eviction.get("deleteOptions"))
    options.dry_run = options.dry_run or request.dry_run()
    await registry.admit(
        pods, target.namespace, target.name, "eviction", eviction, None, request.user, request.warnings,
        dry_run=options.dry_run,
    )  # fmt: skip
    pod = registry.head(pods, target.namespace, target.name)
    written = None
    if not _needs_no_budget(pod.value):
        budget = _budget_of(registry, pod)
        if budget is not None and _must_pay(pod.value, budget.value):
            changed = _paid(budget.value, target.name, timestamp(registry.now()))
            if not options.dry_run:
                _, written = registry.store.put(registry.store.table(_BUDGETS), budget.key, changed)
    result = await registry.delete(pods, target.namespace, target.name, options)
    for future in (written, result.done):
        if future is not None:
            await future
    return encoded_response(negotiation.encode(_SUCCESS), negotiated, 201)


def _needs_no_budget(pod: Json) -> bool:
    """Whether a Pod does nothing that a budget could protect."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def _budget_of(registry: Registry, pod: Entry) -> Entry | None:
    """The disruption budget that selects a Pod."""
    budgets = [
        entry
        for entry in registry.store.table(_BUDGETS).in_namespace(pod.namespace)
        if (selector := entry.value["spec"].get("selector")) is not None and selector_matches(selector, pod.labels)
    ]
    if len(budgets) > 1:
        raise internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    return budgets[0] if budgets else None


def _must_pay(pod: Json, budget: Json) -> bool:
    """Whether a Pod counts: one that is not ready may go by the budget's unhealthyPodEvictionPolicy."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    if any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions):
        return True
    status = budget.get("status") or {}
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return False
    wanted = status.get("desiredHealthy", 0)
    return not 0 < wanted <= status.get("currentHealthy", 0)


def _paid(budget: Json, pod: str, now: str) -> Json:
    """A budget with one disruption less and the Pod noted."""
    meta, status = budget["metadata"], budget.setdefault("status", {})
    name = meta["name"]
    if status.get("observedGeneration", 0) < meta.get("generation", 0):
        raise _refused(f"The disruption budget {name} is still being processed by the server.", 10)
    allowed, disrupted = status.get("disruptionsAllowed", 0), status.get("disruptedPods") or {}
    if allowed <= 0:
        wanted, there = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _refused(f"The disruption budget {name} needs {wanted} healthy pods and has {there} currently", 0)
    status["disruptionsAllowed"] = allowed - 1
    status["disruptedPods"] = {**disrupted, pod: now}
    return budget


def _refused(why: str, wait: int) -> StatusError:
    details: Json = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    if wait:
        details["retryAfterSeconds"] = wait
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    headers = [(b"retry-after", str(wait).encode())] if wait else []
    return StatusError(429, "TooManyRequests", message, details, headers=headers)
