"""Pods: the defaults that pod templates do not get, what may be changed in a Pod, and its binding to a node.

Sources: kubernetes/kubernetes pkg/apis/core/v1/defaults.go (SetDefaults_Pod), pkg/apis/core/validation
(ValidatePodUpdate), pkg/registry/core/pod (strategy.go, storage/storage.go), pkg/apis/core/v1/helper/qos.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from kproxy.api.fielderror import FieldError, forbidden, invalid, not_supported, required, show
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.podspec import default_pod_spec, pod_spec_errors
from kproxy.apiserver.kinds.strategy import STATUS, Context, Strategy
from kproxy.apiserver.schema.field_paths import Path
from kproxy.apiserver.schema.quantity import nanos

_MAY_CHANGE: Final = (
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
)
_MAX_SECONDS: Final = (1 << 31) - 1
_COMPUTE: Final = ("cpu", "memory")
_LOST: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class PodStrategy(Strategy):
    """core/v1 Pod."""

    has_generation: ClassVar[bool] = True
    returns_deleted: ClassVar[bool] = True
    kept_by_status: ClassVar[tuple[str, ...]] = ("ownerReferences",)
    spec_resets: tuple[Path, ...] = (STATUS,)

    def grace_period(self, value: Json, requested: int | None) -> int:
        """None unless a node runs the Pod (pkg/registry/core/pod/strategy.go)."""
        spec, phase = value["spec"], (value.get("status") or {}).get("phase")
        if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
            return 0
        if requested is not None:
            return max(requested, 0)
        return int(spec.get("terminationGracePeriodSeconds", 30))

    def default(self, value: Json) -> None:
        spec = value["spec"]
        default_pod_spec(spec)
        spec.setdefault("enableServiceLinks", True)
        for container in _containers(spec):
            resources = container["resources"]
            for name, quantity in (resources.get("limits") or {}).items():
                resources.setdefault("requests", {}).setdefault(name, quantity)
            if spec.get("hostNetwork"):
                for port in container.get("ports") or ():
                    port.setdefault("hostPort", port.get("containerPort", 0))
        _one_address(value["status"])

    def prepare_create(self, value: Json, context: Context) -> None:
        value["status"] = {"phase": "Pending", "qosClass": quality(value["spec"])}
        _tolerate_lost_nodes(value["spec"])

    def prepare_update(self, value: Json, old: Json, context: Context) -> None:
        value["status"] = old.get("status") or {}
        _tolerate_lost_nodes(value["spec"])

    def validate(self, value: Json) -> list[FieldError]:
        return list(pod_spec_errors(value["spec"], "spec"))

    def validate_create(self, value: Json) -> list[FieldError]:
        spec = value["spec"]
        errors = []
        if spec.get("ephemeralContainers"):
            errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
        if spec.get("schedulingGates") and spec.get("nodeName"):
            text = "cannot be set until all schedulingGates have been cleared"
            errors.append(forbidden("spec.nodeName", text))
        return errors

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        errors: list[FieldError] = []
        spec, before = value["spec"], old["spec"]
        if spec == before:
            return errors
        for kind in ("containers", "initContainers"):
            mine, theirs = spec.get(kind) or [], before.get(kind) or []
            if len(mine) != len(theirs):
                text = "pod updates may not add or remove containers"
                return [*errors, forbidden(f"spec.{kind}", text)]
        late = list(_deadline_errors(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")))
        if late and spec.get("activeDeadlineSeconds") is not None:
            return [*errors, *late]
        errors += late
        errors += _toleration_errors(spec.get("tolerations") or [], before.get("tolerations") or [])
        errors += _gate_errors(spec.get("schedulingGates") or [], before.get("schedulingGates") or [])
        if _fixed(spec, before) != _fixed(before, before):
            text = f"pod updates may not change fields other than {','.join(_MAY_CHANGE)}"
            errors.append(forbidden("spec", text))
        return errors


def _containers(spec: Json) -> Iterator[Json]:
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()


def _tolerate_lost_nodes(spec: Json) -> None:
    """Five minutes on a node that is not ready or unreachable, unless the Pod says otherwise (the admission plugin
    DefaultTolerationSeconds, on by default)."""
    held = spec.get("tolerations") or []
    said = {each.get("key", "") for each in held if each.get("effect", "") in ("", "NoExecute")}
    if "" in said or said.issuperset(_LOST):
        return
    spec["tolerations"] = [
        *held,
        *(
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in _LOST
            if key not in said
        ),
    ]


def _one_address(status: Json) -> None:
    """podIP and podIPs say the same; podIP, which older clients know, counts (pkg/apis/core/v1 conversion.go)."""
    address, several = status.get("podIP"), status.get("podIPs") or []
    if address and (not several or several[0].get("ip") != address):
        status["podIPs"] = [{"ip": address}]
    elif several and not address:
        status["podIP"] = several[0].get("ip", "")


def quality(spec: Json) -> str:
    """The quality-of-service class of a Pod."""
    whole = spec.get("resources")
    resources: list[Json] = [whole] if whole else [each.get("resources") or {} for each in _containers(spec)]
    asked: list[tuple[dict[str, int], dict[str, int]]] = [
        (_compute(each.get("requests") or {}), _compute(each.get("limits") or {})) for each in resources
    ]
    if not any(requests or limits for requests, limits in asked):
        return "BestEffort"
    guaranteed = all(set(limits) == set(_COMPUTE) and requests == limits for requests, limits in asked)
    return "Guaranteed" if guaranteed else "Burstable"


def _compute(quantities: Json) -> dict[str, int]:
    found = {name: nanos(quantities[name]) for name in _COMPUTE if name in quantities}
    return {name: amount for name, amount in found.items() if amount > 0}


# --- what an update may change ---


def _deadline_errors(mine: int | None, theirs: int | None) -> Iterator[FieldError]:
    path = "spec.activeDeadlineSeconds"
    if mine is None:
        if theirs is not None:
            yield invalid(path, None, "must not update from a positive integer to nil value")
    elif not 0 <= mine <= _MAX_SECONDS:
        yield invalid(path, mine, f"must be between 0 and {_MAX_SECONDS}, inclusive")
    elif theirs is not None and mine > theirs:
        yield invalid(path, mine, "must be less than or equal to previous value")


def _toleration_errors(mine: list[Json], theirs: list[Json]) -> Iterator[FieldError]:
    """Tolerations may be added, and their time changed."""
    known = [{key: item for key, item in each.items() if key != "tolerationSeconds"} for each in mine]
    if any({key: item for key, item in each.items() if key != "tolerationSeconds"} not in known for each in theirs):
        text = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden("spec.tolerations", text)


def _gate_errors(mine: list[Json], theirs: list[Json]) -> Iterator[FieldError]:
    before = {each.get("name") for each in theirs}
    for each in mine:
        if each.get("name") not in before:
            text = f"only deletion is allowed, but found new scheduling gate '{each.get('name')}'"
            yield forbidden("spec.schedulingGates", text)


def _fixed(spec: Json, before: Json) -> Json:
    """A Pod's spec without what an update may change, given what it was."""
    kept = dict(spec)
    for name in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        kept.pop(name, None)
    if before.get("terminationGracePeriodSeconds", 0) < 0 and kept.get("terminationGracePeriodSeconds") == 1:
        kept["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    for kind in ("containers", "initContainers"):
        if kind in kept:
            kept[kind] = [{key: item for key, item in each.items() if key != "image"} for each in kept[kind] or ()]
    if before.get("schedulingGates"):  # where it may run is not decided yet
        kept.pop("nodeSelector", None)
        affinity = {key: item for key, item in (kept.pop("affinity", None) or {}).items() if key != "nodeAffinity"}
        wanted = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        kept["affinity"] = affinity | {"preferred": wanted.get("preferredDuringSchedulingIgnoredDuringExecution")}
    return kept


# --- binding ---


def binding_errors(binding: Json) -> list[FieldError]:
    """What is wrong with a core/v1 Binding (ValidatePodBinding)."""
    target = binding.get("target") or {}
    errors = []
    if target.get("kind") not in (None, "", "Node"):
        errors.append(not_supported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        errors.append(required("target.name"))
    return errors


def bind(pod: Json, binding: Json, now: str) -> str:
    """Gives a Pod the node that a Binding names, in place, with the Binding's labels and annotations; returns what is
    against it, "" if nothing is."""
    meta, spec = pod["metadata"], pod["spec"]
    name = meta["name"]
    if meta.get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f"pod {name} is already assigned to node {show(spec['nodeName'])}"
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    spec["nodeName"] = binding["target"]["name"]
    for field in ("annotations", "labels"):
        given = (binding.get("metadata") or {}).get(field)
        if given:
            meta[field] = {**(meta.get(field) or {}), **given}
    status = pod.setdefault("status", {})
    condition: Json = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    conditions: list[Any] = [each for each in status.get("conditions") or () if each.get("type") != "PodScheduled"]
    previous: Json = next((each for each in status.get("conditions") or () if each.get("type") == "PodScheduled"), {})
    if previous.get("status") == "True":
        condition["lastTransitionTime"] = previous.get("lastTransitionTime")
    status["conditions"] = [*conditions, condition]
    return ""
