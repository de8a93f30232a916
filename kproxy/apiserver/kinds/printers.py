"""What `kubectl get` shows: the columns of each kind, and how an object fills them.

Names, types, formats and priorities are recorded from kube-apiserver v1.36.2; the cells follow
pkg/printers/internalversion of kubernetes/kubernetes. Priority 1 shows with `-o wide`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kproxy.apiserver.errors import Json
from kproxy.apiserver.schema.jsonpath import find

Cell = Any
Row = Callable[[Json, datetime], list[Cell]]
_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"


@dataclass(frozen=True, slots=True)
class Columns:
    """Column definitions, and the function that makes the cells of an object."""

    definitions: tuple[Json, ...]
    row: Row


def _columns(text: str, row: Row) -> Columns:
    """Columns from `Name:type:priority` words; `_` stands for a blank. The column Name is the name."""
    definitions = []
    for word in text.split():
        name, _, rest = word.partition(":")
        kind, _, priority = rest.partition(":")
        label = name.replace("_", " ")
        definitions.append(
            {
                "name": label,
                "type": kind or "string",
                "format": "name" if label == "Name" else "",
                "description": "",
                "priority": int(priority or 0),
            }
        )
    return Columns(tuple(definitions), row)


def parse_time(text: Any) -> datetime | None:
    """An RFC 3339 time; None if it is none."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None


def age(text: Any, now: datetime) -> str:
    """How long ago a time was, as duration.HumanDuration prints it: 5s, 3m20s, 2d4h."""
    moment = parse_time(text)
    if moment is None or moment.tzinfo is None:
        return _UNKNOWN
    return human_duration(int((now - moment).total_seconds()))


def human_duration(seconds: int) -> str:
    """k8s.io/apimachinery pkg/util/duration.HumanDuration.

    >>> [human_duration(n) for n in (-5, 0, 119, 130, 700, 7200, 10000, 100000, 900000, 40000000)]
    ['<invalid>', '0s', '119s', '2m10s', '11m', '120m', '166m', '27h', '10d', '462d']
    """
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    minutes, hours = seconds // 60, seconds // 3600
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years = days // 365
    return f"{years}y{days % 365}d" if days < 365 * 8 and days % 365 else f"{years}y"


def _meta(value: Json) -> Json:
    found: Json = value.get("metadata") or {}
    return found


def _name(value: Json) -> str:
    return str(_meta(value).get("name", ""))


def _age(value: Json, now: datetime) -> str:
    return age(_meta(value).get("creationTimestamp"), now)


def _default_row(value: Json, now: datetime) -> list[Cell]:
    return [_name(value), _meta(value).get("creationTimestamp")]


def _join(items: Sequence[str], limit: int = 0) -> str:
    if not items:
        return _NONE
    if limit and len(items) > limit:
        return ",".join(items[:limit]) + f" + {len(items) - limit} more..."
    return ",".join(items)


def labels_text(labels: Any) -> str:
    """`a=b,c=d`, sorted."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or _NONE


def selector_text(selector: Any) -> str:
    """A metav1.LabelSelector as a label selector."""
    if not selector:
        return _NONE
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for term in selector.get("matchExpressions") or ():
        key, operator, values = term.get("key"), term.get("operator"), ",".join(sorted(term.get("values") or ()))
        parts.append(
            {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": f"{key}"}.get(
                operator, f"!{key}"
            )
        )
    return ",".join(parts) or _NONE


def _external_ip(value: Json) -> str:
    spec = value["spec"]
    external = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case "LoadBalancer":
            ingress = ((value.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
            found = sorted({each.get("ip") or each.get("hostname", "") for each in ingress}) + external
            return ",".join(found) if found else "<pending>"
    return _join(external)


def _service(value: Json, now: datetime) -> list[Cell]:
    spec = value["spec"]
    ports = [
        f"{port.get('port')}:{port['nodePort']}/{port.get('protocol')}"
        if port.get("nodePort")
        else f"{port.get('port')}/{port.get('protocol')}"
        for port in spec.get("ports") or ()
    ]
    ip = (spec.get("clusterIPs") or [spec.get("clusterIP", "")])[0] or _NONE
    selector = labels_text(spec.get("selector"))
    return [_name(value), spec.get("type"), ip, _external_ip(value), _join(ports), _age(value, now), selector]


def _endpoints(value: Json, now: datetime) -> list[Cell]:
    found = []
    for subset in value.get("subsets") or ():
        addresses = [each.get("ip", "") for each in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        for port in ports:
            found += [f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}" for ip in addresses]
        if not ports:
            found += addresses
    return [_name(value), _join(found, 3), _age(value, now)]


def _endpoint_slice(value: Json, now: datetime) -> list[Cell]:
    ports = [str(port.get("port") or "*") for port in value.get("ports") or ()]
    addresses = [address for each in value.get("endpoints") or () for address in each.get("addresses") or ()]
    shown_ports = _join(ports, 3) if ports else "<unset>"
    shown = _join(addresses, 3) if addresses else "<unset>"
    return [_name(value), value.get("addressType"), shown_ports, shown, _age(value, now)]


def _namespace(value: Json, now: datetime) -> list[Cell]:
    return [_name(value), (value.get("status") or {}).get("phase", ""), _age(value, now)]


def _config_map(value: Json, now: datetime) -> list[Cell]:
    return [_name(value), len(value.get("data") or ()) + len(value.get("binaryData") or ()), _age(value, now)]


def _secret(value: Json, now: datetime) -> list[Cell]:
    return [_name(value), value.get("type"), len(value.get("data") or ()), _age(value, now)]


def _service_account(value: Json, now: datetime) -> list[Cell]:
    return [_name(value), len(value.get("secrets") or ()), _age(value, now)]


def _images(value: Json) -> list[str]:
    containers = value["spec"]["template"]["spec"].get("containers") or ()
    return [
        ",".join(each.get("name", "") for each in containers),
        ",".join(each.get("image", "") for each in containers),
    ]


def _deployment(value: Json, now: datetime) -> list[Cell]:
    status = value.get("status") or {}
    return [
        _name(value),
        f"{status.get('readyReplicas', 0)}/{value['spec'].get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _age(value, now),
        *_images(value),
        selector_text(value["spec"].get("selector")),
    ]


def _replica_set(value: Json, now: datetime) -> list[Cell]:
    status = value.get("status") or {}
    numbers = [value["spec"].get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [_name(value), *numbers, _age(value, now), *_images(value), selector_text(value["spec"].get("selector"))]


def _daemon_set(value: Json, now: datetime) -> list[Cell]:
    status = value.get("status") or {}
    fields = (
        "desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable",
    )  # fmt: skip
    nodes = labels_text(value["spec"]["template"]["spec"].get("nodeSelector"))
    selector = selector_text(value["spec"].get("selector"))
    return [_name(value), *(status.get(f, 0) for f in fields), nodes, _age(value, now), *_images(value), selector]


def _pod(value: Json, now: datetime) -> list[Cell]:
    spec, status = value["spec"], value.get("status") or {}
    states = status.get("containerStatuses") or []
    ready = sum(bool(each.get("ready")) for each in states)
    restarts = sum(each.get("restartCount", 0) for each in states)
    phase = status.get("reason") or status.get("phase", "")
    for each in states:
        state = each.get("state") or {}
        reason = (state.get("waiting") or {}).get("reason") or (state.get("terminated") or {}).get("reason")
        phase = reason or phase
    if _meta(value).get("deletionTimestamp"):
        phase = "Terminating"
    gates = spec.get("readinessGates") or ()
    true = {each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"}
    shown_gates = f"{sum(g.get('conditionType') in true for g in gates)}/{len(gates)}" if gates else _NONE
    return [
        _name(value), f"{ready}/{len(spec.get('containers') or ())}", phase, str(restarts), _age(value, now),
        status.get("podIP") or _NONE, spec.get("nodeName") or _NONE, status.get("nominatedNodeName") or _NONE,
        shown_gates,
    ]  # fmt: skip


def _node(value: Json, now: datetime) -> list[Cell]:
    status = value.get("status") or {}
    info = status.get("nodeInfo") or {}
    ready = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), None)
    state = "Unknown" if ready is None else ("Ready" if ready.get("status") == "True" else "NotReady")
    if value["spec"].get("unschedulable"):
        state += ",SchedulingDisabled"
    labels = _meta(value).get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix) and key != prefix)
    addresses = {each.get("type"): each.get("address") for each in reversed(status.get("addresses") or [])}
    return [
        _name(value), state, _join(roles), _age(value, now), info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or _NONE, addresses.get("ExternalIP") or _NONE, info.get("osImage") or _UNKNOWN,
        info.get("kernelVersion") or _UNKNOWN, info.get("containerRuntimeVersion") or _UNKNOWN,
    ]  # fmt: skip


def _event(value: Json, now: datetime) -> list[Cell]:
    involved = value.get("involvedObject") or value.get("regarding") or {}
    source = value.get("source") or value.get("deprecatedSource") or {}
    first = value.get("firstTimestamp") or value.get("deprecatedFirstTimestamp") or value.get("eventTime")
    last = value.get("lastTimestamp") or value.get("deprecatedLastTimestamp") or first
    series = value.get("series") or {}
    count = series.get("count") or value.get("count") or value.get("deprecatedCount") or 1
    last = series.get("lastObservedTime") or last
    component = source.get("component") or value.get("reportingComponent") or value.get("reportingController") or ""
    shown = f"{component}, {source['host']}" if source.get("host") else component
    message = str(value.get("message") or value.get("note") or "").strip()
    return [
        age(last, now), value.get("type", ""), value.get("reason", ""),
        f"{involved.get('kind', '').lower()}/{involved.get('name', '')}", involved.get("fieldPath", ""), shown, message,
        age(first, now), int(count), _name(value),
    ]  # fmt: skip


def _lease(value: Json, now: datetime) -> list[Cell]:
    return [_name(value), (value.get("spec") or {}).get("holderIdentity", ""), _age(value, now)]


def _policy(value: Json, now: datetime) -> list[Cell]:
    return [_name(value), selector_text(value["spec"].get("podSelector")), _age(value, now)]


def _binding(value: Json, now: datetime) -> list[Cell]:
    role = value.get("roleRef") or {}
    subjects = value.get("subjects") or ()

    def named(kind: str) -> str:
        return ", ".join(
            f"{each.get('namespace')}/{each.get('name')}" if kind == "ServiceAccount" else str(each.get("name"))
            for each in subjects
            if each.get("kind") == kind
        )

    shown = f"{role.get('kind')}/{role.get('name')}"
    return [_name(value), shown, _age(value, now), named("User"), named("Group"), named("ServiceAccount")]


def _service_cidr(value: Json, now: datetime) -> list[Cell]:
    return [_name(value), ",".join(value["spec"].get("cidrs") or ()), _age(value, now)]


def _ip_address(value: Json, now: datetime) -> list[Cell]:
    parent = (value.get("spec") or {}).get("parentRef") or {}
    parts = [parent.get("resource"), parent.get("group"), parent.get("namespace"), parent.get("name")]
    return [_name(value), "/".join(part for part in parts if part), _age(value, now)]


DEFAULT: Final = Columns(
    (
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
        {"name": "Created At", "type": "date", "format": "", "description": "", "priority": 0},
    ),
    _default_row,
)
_BINDING: Final = _columns("Name Role Age Users::1 Groups::1 ServiceAccounts::1", _binding)
KINDS: Final[dict[str, Columns]] = {
    "ClusterRoleBinding": _BINDING,
    "ConfigMap": _columns("Name Data Age", _config_map),
    "CustomResourceDefinition": DEFAULT,
    "DaemonSet": _columns(
        "Name Desired:integer Current:integer Ready:integer Up-to-date:integer Available:integer Node_Selector Age "
        "Containers::1 Images::1 Selector::1",
        _daemon_set,
    ),
    "Deployment": _columns("Name Ready Up-to-date Available Age Containers::1 Images::1 Selector::1", _deployment),
    "EndpointSlice": _columns("Name AddressType Ports Endpoints Age", _endpoint_slice),
    "Endpoints": _columns("Name Endpoints Age", _endpoints),
    "Event": _columns(
        "Last_Seen Type Reason Object Subobject::1 Source::1 Message First_Seen::1 Count::1 Name::1", _event
    ),
    "IPAddress": _columns("Name ParentRef Age", _ip_address),
    "Lease": _columns("Name Holder Age", _lease),
    "Namespace": _columns("Name Status Age", _namespace),
    "NetworkPolicy": _columns("Name Pod-Selector Age", _policy),
    "Node": _columns(
        "Name Status Roles Age Version Internal-IP::1 External-IP::1 OS-Image::1 Kernel-Version::1 "
        "Container-Runtime::1",
        _node,
    ),
    "Pod": _columns("Name Ready Status Restarts Age IP::1 Node::1 Nominated_Node::1 Readiness_Gates::1", _pod),
    "ReplicaSet": _columns(
        "Name Desired:integer Current:integer Ready:integer Age Containers::1 Images::1 Selector::1", _replica_set
    ),
    "RoleBinding": _BINDING,
    "Secret": _columns("Name Type Data:integer Age", _secret),
    "Service": _columns("Name Type Cluster-IP External-IP Port(s) Age Selector::1", _service),
    "ServiceAccount": _columns("Name Secrets:integer Age", _service_account),
    "ServiceCIDR": _columns("Name CIDRs Age", _service_cidr),
}


def custom_columns(printer_columns: Sequence[Json]) -> Columns:
    """The columns of a custom resource: those of its CRD, or its age."""
    if not printer_columns:
        printer_columns = [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]
    definitions = [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}]
    definitions += [
        {
            "name": column.get("name", ""),
            "type": column.get("type", "string"),
            "format": column.get("format", ""),
            "description": column.get("description", ""),
            "priority": column.get("priority", 0),
        }
        for column in printer_columns
    ]

    def row(value: Json, now: datetime) -> list[Cell]:
        cells: list[Cell] = [_name(value)]
        for column in printer_columns:
            found = find(value, column.get("jsonPath", ""))
            cells.append(_custom_cell(found, column.get("type", "string"), now))
        return cells

    return Columns(tuple(definitions), row)


def _custom_cell(found: list[Any], kind: str, now: datetime) -> Cell:
    if not found or found[0] is None:
        return "" if kind == "string" else None
    value = found[0]
    match kind:
        case "date":
            return age(value, now)
        case "integer":
            return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "number":
            return value if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "boolean":
            return value if isinstance(value, bool) else None
    if len(found) > 1:
        return ",".join(map(str, found))
    if isinstance(value, dict | list):
        import msgspec

        return msgspec.json.encode(value).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)
