"""What `kubectl get` shows: the columns of each kind, and how an object fills them.

The columns here are recorded from kube-apiserver v1.36.2, but for Jobs and StatefulSets; these, and all cells,
follow pkg/printers/internalversion of kubernetes/kubernetes. A kind that is only stored shows its name and age
(`AGED`). Priority 1 shows with `-o wide`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.printers.table import (
    DEFAULT,
    NONE,
    UNKNOWN,
    Cell,
    Columns,
    age,
    age_of,
    aged,
    columns,
    human_duration,
    images,
    join,
    labels_text,
    metadata_of,
    name_of,
    parse_time,
    selector_text,
    spec_of,
    template_of,
)  # fmt: skip
from kproxy.family import join_host_port


def _external_ip(value: Json) -> str:
    spec = spec_of(value)
    external = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case "LoadBalancer":
            ingress = ((value.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
            found = sorted({each.get("ip") or each.get("hostname", "") for each in ingress}) + external
            return ",".join(found) if found else "<pending>"
    return join(external)


def _service(value: Json, now: datetime) -> list[Cell]:
    spec = spec_of(value)
    ports = [
        f"{port.get('port')}:{port['nodePort']}/{port.get('protocol')}"
        if port.get("nodePort")
        else f"{port.get('port')}/{port.get('protocol')}"
        for port in spec.get("ports") or ()
    ]
    ip = (spec.get("clusterIPs") or [spec.get("clusterIP", "")])[0] or NONE
    selector = labels_text(spec.get("selector"))
    return [name_of(value), spec.get("type"), ip, _external_ip(value), join(ports), age_of(value, now), selector]


def _endpoints(value: Json, now: datetime) -> list[Cell]:
    found = []
    for subset in value.get("subsets") or ():
        addresses = [each.get("ip", "") for each in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        for port in ports:
            found += [join_host_port(ip, port.get("port", 0)) for ip in addresses]
        if not ports:
            found += addresses
    return [name_of(value), join(found, 3), age_of(value, now)]


def _endpoint_slice(value: Json, now: datetime) -> list[Cell]:
    ports = [str(port.get("port") or "*") for port in value.get("ports") or ()]
    addresses = [address for each in value.get("endpoints") or () for address in each.get("addresses") or ()]
    shown_ports = join(ports, 3) if ports else "<unset>"
    shown = join(addresses, 3) if addresses else "<unset>"
    return [name_of(value), value.get("addressType"), shown_ports, shown, age_of(value, now)]


def _namespace(value: Json, now: datetime) -> list[Cell]:
    return [name_of(value), (value.get("status") or {}).get("phase", ""), age_of(value, now)]


def _config_map(value: Json, now: datetime) -> list[Cell]:
    return [name_of(value), len(value.get("data") or ()) + len(value.get("binaryData") or ()), age_of(value, now)]


def _secret(value: Json, now: datetime) -> list[Cell]:
    return [name_of(value), value.get("type"), len(value.get("data") or ()), age_of(value, now)]


def _deployment(value: Json, now: datetime) -> list[Cell]:
    status = value.get("status") or {}
    return [
        name_of(value),
        f"{status.get('readyReplicas', 0)}/{spec_of(value).get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age_of(value, now),
        *images(value),
        selector_text(spec_of(value).get("selector")),
    ]


def _replica_set(value: Json, now: datetime) -> list[Cell]:
    status = value.get("status") or {}
    numbers = [spec_of(value).get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name_of(value), *numbers, age_of(value, now), *images(value), selector_text(spec_of(value).get("selector"))]


def _stateful_set(value: Json, now: datetime) -> list[Cell]:
    ready, wanted = (value.get("status") or {}).get("readyReplicas", 0), spec_of(value).get("replicas", 0)
    return [name_of(value), f"{ready}/{wanted}", age_of(value, now), *images(value)]


def _daemon_set(value: Json, now: datetime) -> list[Cell]:
    status = value.get("status") or {}
    fields = (
        "desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable",
    )  # fmt: skip
    nodes = labels_text(template_of(value).get("nodeSelector"))
    selector = selector_text(spec_of(value).get("selector"))
    return [name_of(value), *(status.get(f, 0) for f in fields), nodes, age_of(value, now), *images(value), selector]


def _pod(value: Json, now: datetime) -> list[Cell]:
    spec, status = spec_of(value), value.get("status") or {}
    states = status.get("containerStatuses") or []
    ready = sum(bool(each.get("ready")) for each in states)
    restarts = sum(each.get("restartCount", 0) for each in states)
    phase = status.get("reason") or status.get("phase", "")
    for each in states:
        state = each.get("state") or {}
        reason = (state.get("waiting") or {}).get("reason") or (state.get("terminated") or {}).get("reason")
        phase = reason or phase
    if metadata_of(value).get("deletionTimestamp"):
        phase = "Terminating"
    gates = spec.get("readinessGates") or ()
    true = {each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"}
    shown_gates = f"{sum(g.get('conditionType') in true for g in gates)}/{len(gates)}" if gates else NONE
    return [
        name_of(value), f"{ready}/{len(spec.get('containers') or ())}", phase, str(restarts), age_of(value, now),
        status.get("podIP") or NONE, spec.get("nodeName") or NONE, status.get("nominatedNodeName") or NONE,
        shown_gates,
    ]  # fmt: skip


def _node(value: Json, now: datetime) -> list[Cell]:
    status = value.get("status") or {}
    info = status.get("nodeInfo") or {}
    ready = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), None)
    state = "Unknown" if ready is None else ("Ready" if ready.get("status") == "True" else "NotReady")
    if spec_of(value).get("unschedulable"):
        state += ",SchedulingDisabled"
    labels = metadata_of(value).get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix) and key != prefix)
    addresses = {each.get("type"): each.get("address") for each in reversed(status.get("addresses") or [])}
    return [
        name_of(value), state, join(roles), age_of(value, now), info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or NONE, addresses.get("ExternalIP") or NONE, info.get("osImage") or UNKNOWN,
        kernel, info.get("containerRuntimeVersion") or UNKNOWN,
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
        age(first, now), int(count), name_of(value),
    ]  # fmt: skip


def _lease(value: Json, now: datetime) -> list[Cell]:
    return [name_of(value), spec_of(value).get("holderIdentity", ""), age_of(value, now)]


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
    return [name_of(value), shown, age_of(value, now), named("User"), named("Group"), named("ServiceAccount")]


def _service_cidr(value: Json, now: datetime) -> list[Cell]:
    return [name_of(value), ",".join(spec_of(value).get("cidrs") or ()), age_of(value, now)]


_JOB_STATES: Final = (
    ("Complete", "Complete"), ("Failed", "Failed"), ("", "Terminating"), ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"), ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)  # fmt: skip
"""The condition that makes each state of a Job, in the order in which they count; "": it is being deleted."""


def _job(value: Json, now: datetime) -> list[Cell]:
    spec, status = spec_of(value), value.get("status") or {}
    succeeded, parallelism = status.get("succeeded", 0), spec.get("parallelism") or 0
    if spec.get("completions") is not None:
        done = f"{succeeded}/{spec['completions']}"
    else:
        done = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    started = parse_time(status.get("startTime"))
    ended = parse_time(status.get("completionTime")) or now
    deleted = bool(metadata_of(value).get("deletionTimestamp"))
    conditions = {each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"}
    state = next((state for kind, state in _JOB_STATES if (kind in conditions if kind else deleted)), "Running")
    lasted = human_duration(int((ended - started).total_seconds())) if started else ""
    return [
        name_of(value), state, done, lasted, age_of(value, now), *images(value), selector_text(spec.get("selector")),
    ]  # fmt: skip


_BINDING: Final = columns("Name Role Age Users::1 Groups::1 ServiceAccounts::1", _binding)


def _scale(value: Json, now: datetime) -> list[Cell]:
    """Of the subresource; the second number is that of all replicas, whatever the column's name says."""
    return [
        name_of(value),
        spec_of(value).get("replicas", 0),
        (value.get("status") or {}).get("replicas", 0),
        age_of(value, now),
    ]


KINDS: Final[dict[str, Columns]] = {
    "ClusterRoleBinding": _BINDING,
    "ConfigMap": columns("Name Data Age", _config_map),
    "CustomResourceDefinition": DEFAULT,
    "DaemonSet": columns(
        "Name Desired:integer Current:integer Ready:integer Up-to-date:integer Available:integer Node_Selector Age "
        "Containers::1 Images::1 Selector::1",
        _daemon_set,
    ),
    "Deployment": columns("Name Ready Up-to-date Available Age Containers::1 Images::1 Selector::1", _deployment),
    "EndpointSlice": columns("Name AddressType Ports Endpoints Age", _endpoint_slice),
    "Endpoints": columns("Name Endpoints Age", _endpoints),
    "Event": columns(
        "Last_Seen Type Reason Object Subobject::1 Source::1 Message First_Seen::1 Count::1 Name::1", _event
    ),
    "Job": columns("Name Status Completions Duration Age Containers::1 Images::1 Selector::1", _job),
    "Lease": columns("Name Holder Age", _lease),
    "Namespace": columns("Name Status Age", _namespace),
    "Node": columns(
        "Name Status Roles Age Version Internal-IP::1 External-IP::1 OS-Image::1 Kernel-Version::1 "
        "Container-Runtime::1",
        _node,
    ),
    "Pod": columns("Name Ready Status Restarts Age IP::1 Node::1 Nominated_Node::1 Readiness_Gates::1", _pod),
    "ReplicaSet": columns(
        "Name Desired:integer Current:integer Ready:integer Age Containers::1 Images::1 Selector::1", _replica_set
    ),
    "RoleBinding": _BINDING,
    "Scale": columns("Name Desired:integer Available:integer Age", _scale),
    "Secret": columns("Name Type Data:integer Age", _secret),
    "Service": columns("Name Type Cluster-IP External-IP Port(s) Age Selector::1", _service),
    "ServiceAccount": columns("Name Age", aged),
    "ServiceCIDR": columns("Name CIDRs Age", _service_cidr),
    "StatefulSet": columns("Name Ready Age Containers::1 Images::1", _stateful_set),
}
