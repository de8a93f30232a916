"""The table of resources: one row each drives discovery, REST, tables and OpenAPI.

Adding a resource is adding a row here, or in stored/ if it is only stored, and its schema in data/schemas.json; a
CustomResourceDefinition makes rows of the same type at run time (catalog.py). What a resource does beyond being stored
is its strategy.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds import printers
from kproxy.apiserver.kinds.builtin import STRATEGIES
from kproxy.apiserver.kinds.printers import Columns
from kproxy.apiserver.kinds.stored import ROWS, Stored, strategy_of
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

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
NO_COLLECTION: Final = ("create", "delete", "get", "list", "patch", "update", "watch")
METADATA_FIELDS: Final = ("metadata.name", "metadata.namespace")
STATUS_VERBS: Final = ("get", "patch", "update")
CREATE_ONLY: Final = ("create",)


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource: its name, the kind it speaks, and its verbs."""

    name: str
    kind: str
    verbs: tuple[str, ...] = STATUS_VERBS
    group: str = ""
    version: str = ""


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
    columns: Columns = printers.DEFAULT
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


CORE: Final = "io.k8s.api.core.v1."
STATUS: Final = "status"
_SCALE: Final = Subresource("scale", "Scale", group="autoscaling", version="v1")


_SEVERAL: Final = {
    "Event": ("v1", "events.k8s.io/v1"),
}
"""Kinds that several versions show."""


def _row(
    group: str,
    kind: str,
    plural: str,
    schema: str,
    *,
    status: bool = False,
    scale: bool = False,
    others: Iterable[Subresource] = (),
    fields: tuple[str, ...] = (),
    labels: Mapping[str, str] | None = None,
    storage: str = "",
    short: str = "",
    categories: tuple[str, ...] = (),
    namespaced: bool = True,
    verbs: tuple[str, ...] = ALL_VERBS,
    singular: str | None = None,
    columns_: Columns | None = None,
    deprecation: str = "",
    version: str = "v1",
    strategy: Strategy | None = None,
) -> Resource:
    subresources = [*others]
    if scale:
        subresources.append(_SCALE)
    if status:
        subresources.append(Subresource("status", kind))
    node = named(schema)
    labels = {name: name for name in fields} if labels is None else labels
    selectable = METADATA_FIELDS if namespaced or not fields else METADATA_FIELDS[:1]
    return Resource(
        group,
        version,
        kind,
        plural,
        node,
        namespaced=namespaced,
        singular=kind.lower() if singular is None else singular,
        short_names=tuple(short.split()),
        categories=categories,
        verbs=verbs,
        subresources=tuple(sorted(subresources, key=lambda each: each.name)),
        columns=columns_ or printers.KINDS.get(kind, printers.DEFAULT),
        strategy=strategy or STRATEGIES.get(kind if group != "events.k8s.io" else "NewEvent", Strategy)(),
        storage=storage or (f"{plural}.{group}" if group else plural),
        list_kind=f"{kind}List",
        schema_name=schema,
        fields_of=FieldsOf(fields, _zeros(node, fields), _COMPUTED),
        selectable=(*selectable, *labels),
        selects_as=labels,
        deprecation=deprecation,
        api_versions=_SEVERAL.get(kind, ()),
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
_REVIEW: Final = "io.k8s.api.authorization.v1."
_AUTHN: Final = "io.k8s.api.authentication.v1."
_RBAC: Final = "io.k8s.api.rbac.v1."
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


def built_in(strategies: Mapping[str, Strategy] | None = None) -> list[Resource]:
    """The rows of every resource that is always there; `strategies` are those of kinds that this package does not
    know, by kind."""
    given = strategies or {}
    rows = _core() + _groups() + [_stored(row) for row in ROWS]
    stored = {row.storage: row for row in rows if not row.strategy.converts}
    rows = [replace(row, stored_as=stored[row.storage]) if row.strategy.converts else row for row in rows]
    return [replace(row, strategy=given[row.kind]) if row.kind in given else row for row in rows]


def _stored(row: Stored) -> Resource:
    return _row(
        row.group, row.kind, row.plural, row.schema, version=row.version, short=row.short, categories=row.categories,
        namespaced=row.namespaced, status=row.status is not None, fields=row.fields, strategy=strategy_of(row),
        columns_=printers.KINDS.get(row.kind, printers.AGED),
    )  # fmt: skip


def _core() -> list[Resource]:
    return [
        _row("", "Binding", "bindings", CORE + "Binding", verbs=CREATE_ONLY),
        _row("", "ConfigMap", "configmaps", CORE + "ConfigMap", short="cm"),
        _row(
            "", "Endpoints", "endpoints", CORE + "Endpoints", short="ep", singular="endpoints",
            deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
        _row("", "Event", "events", CORE + "Event", short="ev", fields=_EVENT_FIELDS),
        _row(
            "", "Namespace", "namespaces", CORE + "Namespace", short="ns", namespaced=False, verbs=NO_COLLECTION,
            status=True, others=[Subresource("finalize", "Namespace", ("update",))], fields=("status.phase",),
        ),
        _row(
            "", "Node", "nodes", CORE + "Node", short="no", namespaced=False, status=True,
            fields=("spec.unschedulable",),
        ),
        _row("", "Pod", "pods", CORE + "Pod", short="po", categories=("all",), status=True,
             fields=_POD_FIELDS, labels=_POD_LABELS, others=_POD_PARTS),
        _row("", "Secret", "secrets", CORE + "Secret", fields=("type",)),
        _row(
            "", "ServiceAccount", "serviceaccounts", CORE + "ServiceAccount", short="sa",
            others=[Subresource("token", "TokenRequest", CREATE_ONLY, "authentication.k8s.io", "v1")],
        ),
        _row(
            "", "Service", "services", CORE + "Service", short="svc", categories=("all",), status=True,
            fields=("spec.clusterIP", "spec.type"),
        ),
    ]  # fmt: skip


def _groups() -> list[Resource]:
    """The groups that every cluster's clients know."""
    return [
        _row(
            "apps", "DaemonSet", "daemonsets", "io.k8s.api.apps.v1.DaemonSet", short="ds", categories=("all",),
            status=True,
        ),
        _row(
            "apps", "Deployment", "deployments", "io.k8s.api.apps.v1.Deployment", short="deploy", categories=("all",),
            status=True, scale=True,
        ),
        _row(
            "apps", "ReplicaSet", "replicasets", "io.k8s.api.apps.v1.ReplicaSet", short="rs", categories=("all",),
            status=True, scale=True, fields=("status.replicas",),
        ),
        _row(
            "apps", "StatefulSet", "statefulsets", "io.k8s.api.apps.v1.StatefulSet", short="sts", categories=("all",),
            status=True, scale=True,
        ),
        _row(
            "events.k8s.io", "Event", "events", "io.k8s.api.events.v1.Event", short="ev", storage="events",
            fields=_EVENT_FIELDS, labels=_NEW_EVENT_LABELS,
            columns_=printers.KINDS["Event"],
        ),
        _row(
            "authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", _AUTHN + "SelfSubjectReview",
            namespaced=False, verbs=CREATE_ONLY,
        ),
        _row(
            "authentication.k8s.io", "TokenReview", "tokenreviews", _AUTHN + "TokenReview", namespaced=False,
            verbs=CREATE_ONLY,
        ),
        _row(
            "authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews",
            _REVIEW + "LocalSubjectAccessReview", verbs=CREATE_ONLY,
        ),
        *(
            _row("authorization.k8s.io", kind, kind.lower() + "s", _REVIEW + kind, namespaced=False, verbs=CREATE_ONLY)
            for kind in ("SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview")
        ),
        *(
            _row("rbac.authorization.k8s.io", kind, kind.lower() + "s", _RBAC + kind, namespaced=local)
            for kind, local in (
                ("ClusterRoleBinding", False), ("ClusterRole", False), ("RoleBinding", True), ("Role", True),
            )
        ),
        _row(
            "apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions",
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition", short="crd crds",
            namespaced=False, categories=("api-extensions",), status=True,
        ),
        _row("discovery.k8s.io", "EndpointSlice", "endpointslices", "io.k8s.api.discovery.v1.EndpointSlice"),
    ]  # fmt: skip
