"""The table of resources: one row each drives discovery, REST, tables and OpenAPI.

Adding a resource is adding a row here, or in stored/ if it is only stored, and its schema in data/schemas.json; a
CustomResourceDefinition makes rows of the same type at run time (catalog.py). What a resource does beyond being stored
is its strategy.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds import builtin, pods, service, workloads
from kproxy.apiserver.kinds.printers.builtin import KINDS
from kproxy.apiserver.kinds.printers.table import AGED, DEFAULT, Columns
from kproxy.apiserver.kinds.stored import ROWS, Kind, Subresource, strategy_of
from kproxy.apiserver.kinds.stored.row import ALL_VERBS
from kproxy.apiserver.kinds.strategy import Strategy
from kproxy.apiserver.schema.types import Node, named


class FieldsOf:
    """Takes the values of fields out of an object, for field selectors.

    `zeros` are the texts of fields that Go's JSON leaves out when they are false or 0; `computed` are fields that are
    not simply the value at their path.
    """

    __slots__ = ("_computed", "_split", "_zeros", "paths")

    def __init__(
        self,
        paths: tuple[str, ...],
        zeros: Mapping[str, str] | None = None,
        computed: Mapping[str, Callable[[Json], str]] | None = None,
    ) -> None:
        self.paths = paths
        self._zeros = zeros or {}
        self._computed = {path: call for path, call in (computed or {}).items() if path in paths}
        self._split = [(path, path.split(".")) for path in paths if path not in self._computed]

    def __call__(self, value: Json) -> dict[str, str]:
        """The fields that are there, as text."""
        found = dict(self._zeros)
        for path, parts in self._split:
            item: Any = value
            for part in parts:
                item = item.get(part) if isinstance(item, dict) else None
            if isinstance(item, bool):
                item = "true" if item else "false"
            if isinstance(item, str | int):
                found[path] = str(item)
        for path, call in self._computed.items():
            found[path] = call(value)
        return found


NO_FIELDS: Final = FieldsOf(())
"""The fields of a resource that is selected by name only."""

METADATA_FIELDS: Final = ("metadata.name", "metadata.namespace")
CREATE_ONLY: Final = ("create",)
_NO_COLLECTION: Final = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One resource in one version. `storage` names the table its objects live in, which versions share."""

    group: str
    version: str
    kind: str
    plural: str
    node: Node
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    columns: Columns = DEFAULT
    strategy: Strategy = field(default_factory=Strategy)
    storage: str = ""
    list_kind: str = ""
    schema_name: str = ""
    custom: bool = False
    fields_of: FieldsOf = NO_FIELDS
    selectable: tuple[str, ...] = METADATA_FIELDS
    """The names that a field selector may use."""
    selects_as: Mapping[str, str] = field(default_factory=dict)
    """The field that each of them stands for, where that has another name."""
    scale: Json | None = None
    """Where a custom resource keeps what its scale subresource shows."""
    deprecation: str = ""
    """What every request about it is warned of."""
    api_versions: tuple[str, ...] = ()
    """Every version, with its group, that its objects can be converted to; empty: only its own."""
    stored_as: Resource | None = None
    """The built-in resource whose form its objects are stored in, if that is another."""

    @property
    def api_version(self) -> str:
        """`v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def stored(self) -> bool:
        """Whether there are objects of it; reviews are only answered."""
        return "get" in self.verbs

    @property
    def storage_version_hash(self) -> str:
        """A short hash that changes with what is stored."""
        digest = hashlib.sha256(f"{self.group}/{self.version}/{self.kind}".encode()).digest()
        return b64encode(digest[:8]).decode()

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name."""
        return next((each for each in self.subresources if each.name == name), None)


_SCALE: Final = Subresource("scale", "Scale", group="autoscaling", version="v1")
_SEVERAL: Final = {
    "Event": ("v1", "events.k8s.io/v1"),
}
"""Kinds that several versions show."""


def _resource(row: Kind, columns: Columns) -> Resource:
    """The resource of a row; `columns` are those of a kind that has none of its own."""
    parts = [*row.parts, *([_SCALE] if row.scale else ())]
    parts += [Subresource("status", row.kind)] if row.status is not None else []
    node = named(row.schema)
    labels = {name: name for name in row.fields} if row.labels is None else row.labels
    return Resource(
        row.group,
        row.version,
        row.kind,
        row.plural,
        node,
        namespaced=row.namespaced,
        singular=row.kind.lower(),
        short_names=tuple(row.short.split()),
        categories=row.categories,
        verbs=row.verbs,
        subresources=tuple(sorted(parts, key=lambda each: each.name)),
        columns=KINDS.get(row.kind, columns),
        strategy=strategy_of(row),
        storage=row.table or (f"{row.plural}.{row.group}" if row.group else row.plural),
        list_kind=f"{row.kind}List",
        schema_name=row.schema,
        fields_of=FieldsOf(row.fields, _zeros(node, row.fields), _COMPUTED),
        selectable=(*METADATA_FIELDS[: 2 if row.namespaced or not row.fields else 1], *labels),
        selects_as=labels,
        deprecation=row.deprecation,
        api_versions=_SEVERAL.get(row.kind, ()),
    )


def _zeros(node: Node, paths: tuple[str, ...]) -> dict[str, str]:
    """What an absent boolean or number of a built-in kind is selected as: Go's zero value."""
    found = {}
    for path in paths:
        at: Node | None = node
        for part in path.split("."):
            prop = at.props.get(part) if at is not None else None
            at = prop.node if prop is not None else None
        if at is not None and (text := {"boolean": "false", "integer": "0"}.get(at.kind)):
            found[path] = text
    return found


def _event_source(value: Json) -> str:
    """An Event's source (pkg/registry/core/event ToSelectableFields)."""
    return (value.get("source") or {}).get("component") or value.get("reportingComponent") or ""


def _pod_ip(value: Json) -> str:
    """The first of a Pod's addresses."""
    status = value.get("status") or {}
    addresses = status.get("podIPs") or [{"ip": status.get("podIP")}]
    return addresses[0].get("ip") or ""


_COMPUTED: Final = {"source": _event_source, "status.podIP": _pod_ip}
_EVENT_FIELDS: Final = (
    "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
    "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
    "reportingComponent", "source", "type",
)  # fmt: skip
_NEW_EVENT_LABELS: Final = {
    **{f"regarding.{name.partition('.')[2]}": name for name in _EVENT_FIELDS if name.startswith("involvedObject.")},
    "reason": "reason", "reportingController": "reportingComponent", "type": "type",
}  # fmt: skip
"""What events.k8s.io/v1 calls them (pkg/apis/events/v1/conversion.go); it has no `source`."""
_POD_FIELDS: Final = (
    "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
    "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
)  # fmt: skip
_POD_PARTS: Final = (
    Subresource("binding", "Binding", CREATE_ONLY),
    Subresource("eviction", "Eviction", CREATE_ONLY, "policy", "v1"),
    Subresource("exec", "PodExecOptions", ("create", "get")),
    Subresource("log", "Pod", ("get",)),
)
_POD_LABELS: Final = {**{name: name for name in _POD_FIELDS}, "spec.host": "spec.nodeName"}


_ALL: Final = ("all",)
_AUTHN, _AUTHZ, _RBAC = "authentication.k8s.io", "authorization.k8s.io", "rbac.authorization.k8s.io"
_ENDPOINTS_GO: Final = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
_TOKEN: Final = Subresource("token", "TokenRequest", CREATE_ONLY, _AUTHN, "v1")
_OWN: Final = (
    Kind("", "Binding", "bindings", verbs=CREATE_ONLY),
    Kind("", "ConfigMap", "configmaps", short="cm", strategy=builtin.ConfigMapStrategy),
    Kind("", "Endpoints", "endpoints", short="ep", strategy=builtin.EndpointsStrategy, deprecation=_ENDPOINTS_GO),
    Kind("", "Event", "events", short="ev", fields=_EVENT_FIELDS, strategy=builtin.EventStrategy),
    Kind("", "Namespace", "namespaces", short="ns", namespaced=False, verbs=_NO_COLLECTION, status={},
         parts=(Subresource("finalize", "Namespace", ("update",)),), fields=("status.phase",),
         strategy=builtin.NamespaceStrategy),
    Kind("", "Node", "nodes", short="no", namespaced=False, status={}, fields=("spec.unschedulable",),
         strategy=builtin.NodeStrategy),
    Kind("", "Pod", "pods", short="po", categories=_ALL, status={}, fields=_POD_FIELDS, labels=_POD_LABELS,
         parts=_POD_PARTS, strategy=pods.PodStrategy),
    Kind("", "Secret", "secrets", fields=("type",), strategy=builtin.SecretStrategy),
    Kind("", "ServiceAccount", "serviceaccounts", short="sa", parts=(_TOKEN,), strategy=builtin.ServiceAccountStrategy),
    Kind("", "Service", "services", short="svc", categories=_ALL, status={}, fields=("spec.clusterIP", "spec.type"),
         strategy=service.ServiceStrategy),
    Kind("apps", "DaemonSet", "daemonsets", short="ds", categories=_ALL, status={},
         strategy=workloads.DaemonSetStrategy),
    Kind("apps", "Deployment", "deployments", short="deploy", categories=_ALL, status={}, scale=True,
         strategy=workloads.DeploymentStrategy),
    Kind("apps", "ReplicaSet", "replicasets", short="rs", categories=_ALL, status={}, scale=True,
         fields=("status.replicas",), strategy=workloads.ReplicaSetStrategy),
    Kind("apps", "StatefulSet", "statefulsets", short="sts", categories=_ALL, status={}, scale=True,
         strategy=workloads.StatefulSetStrategy),
    Kind("events.k8s.io", "Event", "events", short="ev", table="events", fields=_EVENT_FIELDS,
         labels=_NEW_EVENT_LABELS, strategy=builtin.NewEventStrategy),
    *(Kind(_AUTHN, kind, kind.lower() + "s", namespaced=False, verbs=CREATE_ONLY)
      for kind in ("SelfSubjectReview", "TokenReview")),
    *(Kind(_AUTHZ, kind, kind.lower() + "s", namespaced=kind.startswith("Local"), verbs=CREATE_ONLY)
      for kind in ("LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview",
                   "SubjectAccessReview")),
    *(Kind(_RBAC, kind, kind.lower() + "s", namespaced=local, strategy=strategy)
      for kind, local, strategy in (
          ("ClusterRoleBinding", False, builtin.BindingStrategy), ("ClusterRole", False, builtin.RoleStrategy),
          ("RoleBinding", True, builtin.BindingStrategy), ("Role", True, builtin.RoleStrategy),
      )),
    Kind("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", short="crd crds",
         namespaced=False, categories=("api-extensions",), status={}),
    Kind("discovery.k8s.io", "EndpointSlice", "endpointslices", strategy=builtin.EndpointSliceStrategy),
)  # fmt: skip
"""Every kind that is more than stored."""


def built_in(strategies: Mapping[str, Strategy] | None = None) -> list[Resource]:
    """The rows of every resource that is always there; `strategies` are those of kinds that this package does not
    know, by kind."""
    given = strategies or {}
    rows = [_resource(row, DEFAULT) for row in _OWN] + [_resource(row, AGED) for row in ROWS]
    stored = {row.storage: row for row in rows if not row.strategy.converts}
    rows = [replace(row, stored_as=stored[row.storage]) if row.strategy.converts else row for row in rows]
    return [replace(row, strategy=given[row.kind]) if row.kind in given else row for row in rows]
