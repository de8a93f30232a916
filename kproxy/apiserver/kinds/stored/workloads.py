"""Jobs and CronJobs, autoscalers, templates and revisions of workloads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.api.fielderror import FieldError, invalid, required
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.cron import parse_schedule
from kproxy.apiserver.kinds.podrules import pod_spec_errors
from kproxy.apiserver.kinds.podspec import default_pod_spec
from kproxy.apiserver.kinds.stored.row import Stored, indented
from kproxy.apiserver.kinds.strategy import Context

_MAX_INT32: Final = (1 << 31) - 1
_JOB_SPEC: Final = """
    parallelism                                   min 0
    completions                                   min 0
    activeDeadlineSeconds                         min 0
    backoffLimit                                  min 0
    backoffLimitPerIndex                          min 0
    maxFailedIndexes                              min 0
    ttlSecondsAfterFinished                       min 0
    completionMode                                one-of NonIndexed Indexed
    podReplacementPolicy                          one-of Failed TerminatingOrFailed
    managedBy                                     prefixed; bytes 63
    selector                                      selector
    podFailurePolicy.rules                        at-most 20
    podFailurePolicy.rules[].action               needed; one-of Count FailIndex FailJob Ignore
    podFailurePolicy.rules[].onExitCodes.operator needed; one-of In NotIn
    podFailurePolicy.rules[].onExitCodes.values   needed; at-most 255; unique
    podFailurePolicy.rules[].onPodConditions      at-most 20
    podFailurePolicy.rules[].onPodConditions[].type    needed; qualified
    podFailurePolicy.rules[].onPodConditions[].status  needed; one-of True False Unknown
    successPolicy.rules                           needed; at-most 20
    successPolicy.rules[].succeededCount          min 1
"""


def _complete_job(value: Json) -> None:
    spec = value["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else _MAX_INT32)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    labels = spec["template"]["metadata"].get("labels")
    if labels and not value["metadata"].get("labels"):
        value["metadata"]["labels"] = dict(labels)
    default_pod_spec(spec["template"]["spec"])


def _begin_job(value: Json, context: Context) -> None:
    """The selector of a Job that does not bring its own: its UID (pkg/registry/batch/job generateSelector)."""
    spec, meta = value["spec"], value["metadata"]
    if spec.get("manualSelector"):
        return
    named = {"batch.kubernetes.io/controller-uid": meta["uid"], "batch.kubernetes.io/job-name": meta.get("name", "")}
    labels = spec["template"]["metadata"].setdefault("labels", {})
    for key, text in named.items():
        labels.setdefault(key, text)
        labels.setdefault(key.rpartition("/")[2], text)
    if spec.get("selector") is None:
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": meta["uid"]}}
    if not meta.get("labels"):  # kube-apiserver's defaults run again when it reads what it has stored
        meta["labels"] = dict(labels)


def _job_spec_errors(spec: Json, path: str) -> Iterator[FieldError]:
    pod = spec["template"]["spec"]
    yield from pod_spec_errors(pod, f"{path}.template.spec")
    if pod.get("restartPolicy") == "Always":
        yield required(f"{path}.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    if spec.get("completionMode") == "Indexed":
        if spec.get("completions") is None:
            text = "when completion mode is Indexed"
            yield required(f"{path}.completions", text)
    else:
        for name in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if spec.get(name) is not None:
                yield invalid(f"{path}.{name}", spec[name], "requires indexed completion mode")


def _job_errors(value: Json) -> Iterator[FieldError]:
    spec = value["spec"]
    yield from _job_spec_errors(spec, "spec")
    if spec.get("selector") is None:
        yield required("spec.selector")
        return
    labels = spec["template"]["metadata"].get("labels") or {}
    wanted = spec["selector"].get("matchLabels") or {}
    if not wanted.items() <= labels.items():
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _cron_job_errors(value: Json) -> Iterator[FieldError]:
    spec = value["spec"]
    if len(value["metadata"].get("name") or "") > 52:
        yield invalid("metadata.name", value["metadata"]["name"], "must be no more than 52 characters")
    schedule = spec.get("schedule", "")
    if "TZ" in schedule:
        text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield invalid("spec.schedule", schedule, text)
    elif schedule:
        try:
            parse_schedule(schedule)
        except ValueError as error:
            yield invalid("spec.schedule", schedule, str(error))
    if spec.get("timeZone") is not None and (why := _zone_error(spec["timeZone"])):
        yield invalid("spec.timeZone", spec["timeZone"], why)
    yield from _job_spec_errors(spec["jobTemplate"]["spec"], "spec.jobTemplate.spec")


def _zone_error(name: str) -> str:
    from zoneinfo import available_timezones

    if not name:
        return "timeZone must be nil or non-empty string"
    if name.lower() == "local":
        return "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
    return "" if name in available_timezones() | {"UTC", "Etc/UTC"} else f"unknown time zone {name}"


def _template_of(value: Json) -> None:
    default_pod_spec(value["template"]["spec"])


def _revision_errors(value: Json) -> Iterator[FieldError]:
    if value.get("data") is None:
        yield required("data", "data is mandatory")


def _default_metrics(value: Json) -> None:
    spec = value["spec"]
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = spec.get("behavior")
    if behavior is None:
        return
    percent = {"type": "Percent", "value": 100, "periodSeconds": 15}
    for name, policies in (("scaleUp", [{"type": "Pods", "value": 4, "periodSeconds": 15}, percent]),
                           ("scaleDown", [percent])):  # fmt: skip
        given = behavior.get(name) or {}
        start = {"stabilizationWindowSeconds": 0} if name == "scaleUp" else {}
        behavior[name] = {**start, "selectPolicy": "Max", "policies": policies} | given


ROWS: Final = (
    Stored("", "PodTemplate", "podtemplates", generation=("template",), complete=_template_of,
           rules="template.metadata.labels  labels",
           errors=lambda value: pod_spec_errors(value["template"]["spec"], "template.spec")),
    Stored("apps", "ControllerRevision", "controllerrevisions", fixed=("data",), errors=_revision_errors,
           rules="revision  min 0"),
    Stored("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", version="v2", short="hpa",
           categories=("all",), status={"currentMetrics": None, "desiredReplicas": 0}, complete=_default_metrics,
           defaults="spec.minReplicas  1", rules="""
        spec.maxReplicas               min 1
        spec.minReplicas               min 1
        spec.scaleTargetRef.kind       needed
        spec.scaleTargetRef.name       needed
        spec.metrics[].type            needed; one-of ContainerResource External Object Pods Resource
        spec.behavior.scaleUp.selectPolicy                one-of Disabled Max Min
        spec.behavior.scaleDown.selectPolicy              one-of Disabled Max Min
        spec.behavior.scaleUp.stabilizationWindowSeconds  range 0 3600
        spec.behavior.scaleDown.stabilizationWindowSeconds  range 0 3600
    """),
    Stored("batch", "CronJob", "cronjobs", short="cj", categories=("all",), status={}, generation=("spec",),
           complete=lambda value: default_pod_spec(value["spec"]["jobTemplate"]["spec"]["template"]["spec"]),
           errors=_cron_job_errors, defaults="""
        spec.concurrencyPolicy           "Allow"
        spec.suspend                     false
        spec.successfulJobsHistoryLimit  3
        spec.failedJobsHistoryLimit      1
    """, rules="""
        spec.schedule                    needed
        spec.concurrencyPolicy           one-of Allow Forbid Replace
        spec.startingDeadlineSeconds     min 0
        spec.successfulJobsHistoryLimit  min 0
        spec.failedJobsHistoryLimit      min 0
    """ + indented(_JOB_SPEC, "spec.jobTemplate.spec")),
    Stored("batch", "Job", "jobs", categories=("all",), status={}, generation=("spec",), complete=_complete_job,
           begin=_begin_job, errors=_job_errors, fields=("status.successful",), orphans=True,
           fixed=("spec.selector", "spec.template", "spec.completionMode", "spec.podFailurePolicy",
                  "spec.backoffLimitPerIndex", "spec.managedBy", "spec.successPolicy"), defaults="""
        spec.completionMode      "NonIndexed"
        spec.suspend             false
        spec.manualSelector      false
        spec.podFailurePolicy.rules[].onPodConditions[].status  "True"
    """, rules=indented(_JOB_SPEC, "spec")),
)  # fmt: skip
