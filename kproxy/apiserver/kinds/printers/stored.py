"""The columns of the other kinds of `kinds.stored`: jobs, ingresses, admission policies, certificates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.printers.table import (
    DEFAULT,
    NONE,
    UNKNOWN,
    UNSET,
    Cell,
    Columns,
    age,
    age_of,
    columns,
    human_duration,
    images,
    join,
    labels_text,
    metadata_of,
    name_of,
    parse_time,
    selector_text,
)  # fmt: skip

_AGE: Final = "@"
_EMPTY: Final[Json] = {"spec": {"template": {"spec": {}}}}


def _at(value: Json, path: str) -> Any:
    item: Any = value
    for part in path.split("."):
        item = item.get(part) if isinstance(item, dict) else None
    return item


def fields(text: str, *paths: str, absent: Cell = NONE) -> Columns:
    """Columns that are a field each, after the name; `@` is the age, `#path` how many items there are."""

    def cell(value: Json, path: str, now: datetime) -> Cell:
        if path == _AGE:
            return age_of(value, now)
        if path[0] == "#":
            return len(_at(value, path[1:]) or ())
        found = _at(value, path)
        return absent if found is None or found == "" else found

    return columns(text, lambda value, now: [name_of(value), *(cell(value, path, now) for path in paths)])


def _true(condition: str, value: Json) -> bool:
    conditions = (value.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == condition and each.get("status") == "True" for each in conditions)


def _controller_revision(value: Json, now: datetime) -> list[Cell]:
    owner = next((each for each in metadata_of(value).get("ownerReferences") or () if each.get("controller")), None)
    shown = NONE
    if owner is not None:
        group = owner.get("apiVersion", "").rpartition("/")[0]
        shown = f"{owner.get('kind', '').lower()}{'.' + group if group else ''}/{owner.get('name')}"
    return [name_of(value), shown, value.get("revision", 0), age_of(value, now)]


def _pod_template(value: Json, now: datetime) -> list[Cell]:
    template: Json = value.get("template") or {"spec": {}}
    return [name_of(value), *images({"spec": {"template": template}}), labels_text(_at(template, "metadata.labels"))]


_JOB_STATES: Final = (
    ("Complete", "Complete"), ("Failed", "Failed"), ("", "Terminating"), ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"), ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)  # fmt: skip
"""The condition that makes each state of a Job, in the order in which they count; "": it is being deleted."""


def _job(value: Json, now: datetime) -> list[Cell]:
    spec, status = value["spec"], value.get("status") or {}
    succeeded, parallelism = status.get("succeeded", 0), spec.get("parallelism") or 0
    if spec.get("completions") is not None:
        done = f"{succeeded}/{spec['completions']}"
    else:
        done = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    started = parse_time(status.get("startTime"))
    ended = parse_time(status.get("completionTime")) or now
    deleted = bool(metadata_of(value).get("deletionTimestamp"))
    state = next((state for kind, state in _JOB_STATES if (_true(kind, value) if kind else deleted)), "Running")
    lasted = human_duration(int((ended - started).total_seconds())) if started else ""
    return [
        name_of(value), state, done, lasted, age_of(value, now), *images(value), selector_text(spec.get("selector")),
    ]  # fmt: skip


def _cron_job(value: Json, now: datetime) -> list[Cell]:
    spec, status = value["spec"], value.get("status") or {}
    last = age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE
    suspend = spec.get("suspend")
    return [
        name_of(value), spec.get("schedule", ""), spec.get("timeZone") or NONE,
        UNSET if suspend is None else str(suspend), len(status.get("active") or ()), last, age_of(value, now),
        *images(spec.get("jobTemplate") or _EMPTY), selector_text(_at(spec, "jobTemplate.spec.selector")),
    ]  # fmt: skip


def _resource_quota(value: Json, now: datetime) -> list[Cell]:
    status = value.get("status") or {}
    used, shown = status.get("used") or {}, ([], [])  # type: tuple[Json, tuple[list[str], list[str]]]
    for name, hard in sorted((status.get("hard") or {}).items()):
        shown[name.startswith("limits")].append(f"{name}: {used.get(name, '0')}/{hard}")
    return [name_of(value), ", ".join(shown[0]), ", ".join(shown[1]), age_of(value, now)]


def _signing_request(value: Json, now: datetime) -> list[Cell]:
    spec, status = value["spec"], value.get("status") or {}
    seconds = spec.get("expirationSeconds")
    conditions = [each.get("type") for each in status.get("conditions") or ()]
    states = [each for each in ("Denied", "Approved", "Failed") if each in conditions] or ["Pending"]
    if status.get("certificate"):
        states.append("Issued")
    return [
        name_of(value), age_of(value, now), spec.get("signerName") or NONE, spec.get("username") or NONE,
        human_duration(seconds) if seconds is not None else NONE, ",".join(states),
    ]  # fmt: skip


def _ingress(value: Json, now: datetime) -> list[Cell]:
    spec = value["spec"]
    name = spec.get("ingressClassName")
    if name is None:
        name = (metadata_of(value).get("annotations") or {}).get("kubernetes.io/ingress.class", NONE)
    hosts = [rule["host"] for rule in spec.get("rules") or () if rule.get("host")]
    places = (_at(value, "status.loadBalancer") or {}).get("ingress") or ()
    addresses = sorted({each.get("ip") or each.get("hostname") or "" for each in places} - {""})
    shown = join(hosts, 3) if hosts else "*"
    ports = "80, 443" if spec.get("tls") else "80"
    return [name_of(value), name, shown, ",".join(addresses), ports, age_of(value, now)]


def _ingress_class(value: Json, now: datetime) -> list[Cell]:
    spec = value.get("spec") or {}
    found = spec.get("parameters")
    shown = NONE
    if found:
        group = f".{found['apiGroup']}" if found.get("apiGroup") else ""
        shown = f"{found.get('kind')}{group}/{found.get('name')}"
    return [name_of(value), spec.get("controller", ""), shown, age_of(value, now)]


def _policy(rules: str) -> Callable[[Json, datetime], list[Cell]]:
    def row(value: Json, now: datetime) -> list[Cell]:
        spec = value.get("spec") or {}
        kind = spec.get("paramKind")
        shown = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET
        return [name_of(value), len(spec.get(rules) or ()), shown, age_of(value, now)]

    return row


def _policy_binding(value: Json, now: datetime) -> list[Cell]:
    spec = value.get("spec") or {}
    found = spec.get("paramRef")
    shown = UNSET
    if found:
        place = f"{found['namespace']}/" if found.get("namespace") else "*/"
        shown = place + (found.get("name") or selector_text(found.get("selector")))
    return [name_of(value), spec.get("policyName", ""), shown, age_of(value, now)]


def _flow_schema(value: Json, now: datetime) -> list[Cell]:
    spec = value.get("spec") or {}
    conditions = (value.get("status") or {}).get("conditions") or ()
    dangling = next((each.get("status") for each in conditions if each.get("type") == "Dangling"), "?")
    return [
        name_of(value), _at(spec, "priorityLevelConfiguration.name") or "", spec.get("matchingPrecedence", 0),
        _at(spec, "distinguisherMethod.type") or NONE, age_of(value, now), dangling,
    ]  # fmt: skip


def _priority_level(value: Json, now: datetime) -> list[Cell]:
    spec = value.get("spec") or {}
    level = spec.get("limited") or spec.get("exempt") or {}
    queuing = _at(level, "limitResponse.queuing") or {}
    numbers = [queuing.get(name, NONE) for name in ("queues", "handSize", "queueLengthLimit")]
    shares = level.get("nominalConcurrencyShares", NONE)
    return [name_of(value), spec.get("type", ""), shares, *numbers, age_of(value, now)]


def _api_service(value: Json, now: datetime) -> list[Cell]:
    service = _at(value, "spec.service")
    conditions = (value.get("status") or {}).get("conditions") or ()
    found = next((each for each in conditions if each.get("type") == "Available"), None)
    available = UNKNOWN if found is None else found.get("status", "")
    if found is not None and available != "True":
        available = f"{available} ({found.get('reason', '')})"
    shown = f"{service.get('namespace')}/{service.get('name')}" if service else "Local"
    return [name_of(value), shown, available, age_of(value, now)]


def _metric(source: Json, current: Json) -> str:
    """What a HorizontalPodAutoscaler aims at by one metric, and what it is now."""
    kind = source.get("type", "")
    field = kind[:1].lower() + kind[1:]
    target, now = _at(source, f"{field}.target") or {}, _at(current, f"{field}.current") or {}
    if target.get("averageUtilization") is not None:
        used = now.get("averageUtilization")
        name = _at(source, f"{field}.name")
        return f"{name}: {UNKNOWN if used is None else f'{used}%'}/{target['averageUtilization']}%"
    average = " (avg)" if target.get("averageValue") is not None else ""
    wanted = target.get("averageValue") or target.get("value")
    prefix = f"{_at(source, f'{field}.name')}: " if field.lower().endswith("resource") else ""
    return f"{prefix}{now.get('averageValue') or now.get('value') or UNKNOWN}/{wanted}{average}"


def _autoscaler(value: Json, now: datetime) -> list[Cell]:
    spec, status = value["spec"], value.get("status") or {}
    target, states = spec.get("scaleTargetRef") or {}, status.get("currentMetrics") or []
    shown = [
        _metric(each, states[index] if index < len(states) else {})
        for index, each in enumerate(spec.get("metrics") or ())
    ]
    least = spec.get("minReplicas")
    return [
        name_of(value), f"{target.get('kind')}/{target.get('name')}", join(shown, 2),
        UNSET if least is None else str(least), spec.get("maxReplicas", 0), status.get("currentReplicas", 0),
        age_of(value, now),
    ]  # fmt: skip


_BINDING: Final = columns("Name PolicyName ParamRef Age", _policy_binding)
_WEBHOOKS: Final = fields("Name Webhooks:integer Age", "#webhooks", "@")
PRINTERS: Final[dict[str, Columns]] = {
    "APIService": columns("Name Service Available Age", _api_service),
    "CertificateSigningRequest": columns(
        "Name Age SignerName Requestor RequestedDuration Condition", _signing_request
    ),
    "ControllerRevision": columns("Name Controller Revision Age", _controller_revision),
    "CronJob": columns(
        "Name Schedule Timezone Suspend Active:integer Last_Schedule Age Containers::1 Images::1 Selector::1", _cron_job
    ),
    "FlowSchema": columns(
        "Name PriorityLevel MatchingPrecedence DistinguisherMethod Age MissingPL", _flow_schema
    ),
    "HorizontalPodAutoscaler": columns("Name Reference Targets MinPods MaxPods Replicas Age", _autoscaler),
    "Ingress": columns("Name Class Hosts Address Ports Age", _ingress),
    "IngressClass": columns("Name Controller Parameters Age", _ingress_class),
    "Job": columns("Name Status Completions Duration Age Containers::1 Images::1 Selector::1", _job),
    "LimitRange": DEFAULT,
    "MutatingAdmissionPolicy": columns("Name Mutations:integer ParamKind Age", _policy("mutations")),
    "MutatingAdmissionPolicyBinding": _BINDING,
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "PodTemplate": columns("Name Containers Images Pod_Labels", _pod_template),
    "PriorityClass": columns(
        "Name Value:integer Global-Default:boolean Age PreemptionPolicy",
        lambda value, now: [
            name_of(value), value.get("value", 0), bool(value.get("globalDefault")), age_of(value, now),
            value.get("preemptionPolicy", ""),
        ],
    ),
    "PriorityLevelConfiguration": columns(
        "Name Type NominalConcurrencyShares Queues HandSize QueueLengthLimit Age", _priority_level
    ),
    "ResourceQuota": columns("Name Request Limit Age", _resource_quota),
    "ValidatingAdmissionPolicy": columns("Name Validations:integer ParamKind Age", _policy("validations")),
    "ValidatingAdmissionPolicyBinding": _BINDING,
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "VolumeAttributesClass": fields("Name DriverName Age", "driverName", "@"),
}  # fmt: skip
