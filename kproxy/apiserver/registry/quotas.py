"""What the ResourceQuotas of a namespace allow: the usage of objects, and what a new or changed one is refused.

It is the admission plugin ResourceQuota, which is on by default (kubernetes/kubernetes
plugin/pkg/admission/resourcequota, pkg/quota/v1/evaluator/core). An object that is admitted is added to `status.used`
at once; what is freed is counted again by the controller (controllers/quotas.py, or kube-controller-manager's). Usage
is amounts by the names of `spec.hard`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kproxy.apiserver.errors import Json, forbidden
from kproxy.apiserver.kinds.pods import pod_amounts, quality
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.schema.quantity import nanos, sum_of
from kproxy.apiserver.storage.store import Entry, Store, Table

QUOTAS: Final = "resourcequotas"
Amounts = dict[str, str]

_COUNT: Final = "count/"
_NAMED: Final = frozenset(
    {"configmaps", "persistentvolumeclaims", "replicationcontrollers", QUOTAS, "secrets", "services"}
)
"""Resources whose number has a name without `count/`, too; that of Pods leaves out those that have ended."""
_CLAIMS: Final = "persistentvolumeclaims"
_DEVICES: Final = "resourceclaims.resource.k8s.io"
_CLASS_CLAIMS: Final = ".storageclass.storage.k8s.io/"
_CLASS_DEVICES: Final = ".deviceclass.resource.k8s.io/devices"
_ALL_DEVICES: Final = 32
"""Devices that a request for all of them counts as: the most that a claim can get."""
_COMPUTE: Final = frozenset(
    f"{part}{name}" for name in ("cpu", "memory") for part in ("", "requests.", "limits.")
)  # fmt: skip
"""What each container must name if a quota limits it; limits.cpu, say."""


def table_of(name: str) -> str:
    """The table whose objects use what a name in `spec.hard` stands for.

    >>> [table_of(name) for name in ("count/jobs.batch", "services.nodeports", "requests.storage", "requests.cpu")]
    ['jobs.batch', 'services', 'persistentvolumeclaims', 'pods']
    """
    if name.startswith(_COUNT):
        return name.removeprefix(_COUNT)
    first = name.partition(".")[0]
    if first in _NAMED:
        return first
    if name == "requests.storage" or _CLASS_CLAIMS in name:
        return _CLAIMS
    return _DEVICES if name.endswith(_CLASS_DEVICES) else "pods"


# --- usage ---


def usage_of(storage: str, value: Json) -> Amounts:
    """What one object uses."""
    found = {_COUNT + storage: "1"}
    if storage in _NAMED:
        found[storage] = "1"
    measure = _MEASURES.get(storage)
    return found if measure is None else found | measure(value)


def _pod_usage(value: Json) -> Amounts:
    """Nothing once the Pod has ended."""
    if (value.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return {}
    found, spec = {"pods": "1"}, value["spec"]
    for part in ("requests", "limits"):
        for name, amount in pod_amounts(spec, part).items():
            total = sum_of([amount, (spec.get("overhead") or {}).get(name, "0")])
            extended = "/" in name and not name.partition("/")[0].endswith("kubernetes.io")
            if part == "requests" or not extended:
                found[f"{part}.{name}"] = total
            if part == "requests" and not extended:
                found[name] = total
    return found


def _service_usage(value: Json) -> Amounts:
    spec = value["spec"]
    ports, kind = spec.get("ports") or [], spec.get("type")
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        ports = [each for each in ports if each.get("nodePort")]
    numbers = len(ports) if kind in ("NodePort", "LoadBalancer") else 0
    return {"services.nodeports": str(numbers), "services.loadbalancers": str(int(kind == "LoadBalancer"))}


def _claim_usage(value: Json) -> Amounts:
    spec = value["spec"]
    found = {_CLAIMS: "1"}
    if size := ((spec.get("resources") or {}).get("requests") or {}).get("storage"):
        found["requests.storage"] = size
    if name := spec.get("storageClassName"):
        found |= {f"{name}{_CLASS_CLAIMS}{key}": amount for key, amount in found.items()}
    return found


def _device_usage(value: Json) -> Amounts:
    found: dict[str, int] = {}
    for request in (value["spec"].get("devices") or {}).get("requests") or ():
        most: dict[str, int] = {}
        for each in [request.get("exactly"), *(request.get("firstAvailable") or ())]:
            if each and (name := each.get("deviceClassName")):
                number = _ALL_DEVICES if each.get("allocationMode") == "All" else each.get("count", 1)
                most[name] = max(number, most.get(name, 0))
        for name, number in most.items():
            found[name] = found.get(name, 0) + number
    return {f"{name}{_CLASS_DEVICES}": str(number) for name, number in found.items()}


_MEASURES: Final[dict[str, Callable[[Json], Amounts]]] = {
    "pods": _pod_usage, "services": _service_usage, _CLAIMS: _claim_usage, _DEVICES: _device_usage,
}  # fmt: skip


# --- scopes ---


def concerns(quota: Json, storage: str, value: Json) -> bool:
    """Whether an object is in a quota's scopes, which only Pods and claims can be."""
    spec = quota["spec"]
    terms = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    terms += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(storage in _SCOPED and _SCOPED[storage](term, value) for term in terms)


def _claim_in_scope(term: Json, claim: Json) -> bool:
    """Those that name the class now, have it, or are to get it."""
    status = claim.get("status") or {}
    names = {
        claim["spec"].get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    }  # fmt: skip
    held = [name for name in names if name] or [None]
    return term.get("scopeName") == "VolumeAttributesClass" and any(_names(term, name) for name in held)


def _names(term: Json, name: str | None) -> bool:
    """Whether a scope's term selects the name of a class."""
    among = name in (term.get("values") or ())
    operator = term.get("operator")
    return {"Exists": bool(name), "DoesNotExist": not name, "In": among}.get(str(operator), not among)


def _pod_in_scope(term: Json, pod: Json) -> bool:
    spec = pod["spec"]
    match term.get("scopeName"):
        case "Terminating":
            return "activeDeadlineSeconds" in spec
        case "NotTerminating":
            return "activeDeadlineSeconds" not in spec
        case "BestEffort":
            return quality(spec) == "BestEffort"
        case "NotBestEffort":
            return quality(spec) != "BestEffort"
        case "CrossNamespacePodAffinity":
            return any("namespaceSelector" in each or each.get("namespaces") for each in _affinity_terms(spec))
        case "PriorityClass":
            return _names(term, spec.get("priorityClassName"))
    return False


_SCOPED: Final[dict[str, Callable[[Json, Json], bool]]] = {"pods": _pod_in_scope, _CLAIMS: _claim_in_scope}


def _affinity_terms(spec: Json) -> Iterator[Json]:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = (spec.get("affinity") or {}).get(kind) or {}
        yield from rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for each in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield each.get("podAffinityTerm") or {}


# --- counting and charging ---


def used_of(store: Store, quota: Json) -> Amounts:
    """What the objects of a quota's namespace use of what it limits."""
    hard = quota["spec"].get("hard") or {}
    found: dict[str, list[str]] = {name: ["0"] for name in hard}
    for storage in {table_of(name) for name in hard} & store.tables.keys():
        for entry in store.tables[storage].heads_in(quota["metadata"]["namespace"]):
            value = entry.value
            if concerns(quota, storage, value):
                for name, amount in usage_of(storage, value).items():
                    if name in found:
                        found[name].append(amount)
    return {name: sum_of(amounts) for name, amounts in found.items()}


class Quotas:
    """Those that the store holds; nothing is checked unless `enabled`."""

    def __init__(self, store: Store, *, enabled: bool = True) -> None:
        self._store = store
        self._enabled = enabled

    @property
    def _table(self) -> Table:
        return self._store.tables[QUOTAS]

    def check(self, resource: Resource, namespace: str, value: Json, old: Json | None) -> list[tuple[Entry, Json]]:
        """The quotas that an object counts in, with what they are when it is written (`charge`).

        Raises:
            ApiError: 403, it uses more than what is left, or does not say how much it uses.
        """
        found = []
        for entry in self._table.heads_in(namespace) if namespace and self._enabled else ():
            quota = entry.value
            hard = quota["spec"].get("hard") or {}
            limited = sorted(name for name in hard if table_of(name) == resource.storage)
            if not limited or not concerns(quota, resource.storage, value):
                continue
            name, refused = quota["metadata"]["name"], value["metadata"]["name"]
            if resource.storage == "pods" and old is None and (missing := list(_unsaid(value["spec"], limited))):
                why = f"failed quota: {name}: must specify {'; '.join(missing)}"
                raise forbidden(resource.group, resource.plural, refused, why)
            added = _added(resource.storage, value, old, limited)
            status = quota.get("status") or {}
            used = status.get("used") or {} if status.get("hard") == hard else used_of(self._store, quota)
            total = {key: sum_of([used.get(key, "0"), amount]) for key, amount in added.items()}
            over = [key for key in added if nanos(added[key]) > 0 and nanos(total[key]) > nanos(hard[key])]
            if over:
                asked, before, most = (_listed(over, each) for each in (added, used, hard))
                why = f"exceeded quota: {name}, requested: {asked}, used: {before}, limited: {most}"
                raise forbidden(resource.group, resource.plural, refused, why)
            if any(nanos(amount) for amount in added.values()):
                quota["status"] = {"hard": hard, "used": used | total}
                found.append((entry, quota))
        return found

    def charge(self, charged: Iterable[tuple[Entry, Json]]) -> None:
        """Writes what `check` has found, without waiting until it is on disk."""
        for entry, quota in charged:
            self._store.put(self._table, entry.key, quota)


def _added(storage: str, value: Json, old: Json | None, limited: list[str]) -> Amounts:
    """What a write adds to the usage of what is limited."""
    mine = usage_of(storage, value)
    theirs = {} if old is None else usage_of(storage, old)
    amounts = {name: mine.get(name, "0") for name in limited}
    return {
        name: sum_of([amount, f"-{theirs[name]}"]) if name in theirs else amount for name, amount in amounts.items()
    }


def _unsaid(spec: Json, limited: list[str]) -> Iterator[str]:
    """What a quota limits and some containers do not name."""
    if spec.get("resources"):
        return
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for name in filter(_COMPUTE.__contains__, limited):
        part, _, what = name.rpartition(".")
        without = [each["name"] for each in containers if what not in (each["resources"].get(part or "requests") or ())]
        if without:
            yield f"{name} for: {','.join(without)}"


def _listed(names: list[str], amounts: Amounts) -> str:
    return ",".join(f"{name}={amounts.get(name, '0')}" for name in names)
