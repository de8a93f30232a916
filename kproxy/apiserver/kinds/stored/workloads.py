"""Jobs, which a lab runs; CronJobs, autoscalers, templates and revisions of workloads, which nothing here acts on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.api.fielderror import FieldError, invalid, required
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.podspec import default_pod_spec, pod_spec_errors
from kproxy.apiserver.kinds.stored.row import Kind
from kproxy.apiserver.kinds.strategy import Context

_MAX_INT32: Final = (1 << 31) - 1
_JOB_SPEC: Final = """
    spec.parallelism                                   min 0
    spec.completions                                   min 0
    spec.activeDeadlineSeconds                         min 0
    spec.backoffLimit                                  min 0
    spec.ttlSecondsAfterFinished                       min 0
    spec.completionMode                                one-of NonIndexed Indexed
    spec.podReplacementPolicy                          one-of Failed TerminatingOrFailed
    spec.selector                                      selector
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


def _job_errors(value: Json) -> Iterator[FieldError]:
    spec = value["spec"]
    pod = spec["template"]["spec"]
    yield from pod_spec_errors(pod, "spec.template.spec")
    if pod.get("restartPolicy") == "Always":
        yield required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        yield required("spec.completions", "when completion mode is Indexed")
    if spec.get("selector") is None:
        yield required("spec.selector")
        return
    labels = spec["template"]["metadata"].get("labels") or {}
    wanted = spec["selector"].get("matchLabels") or {}
    if not wanted.items() <= labels.items():
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


ROWS: Final = (
    Kind("", "PodTemplate", "podtemplates", generation=("template",)),
    Kind("", "ReplicationController", "replicationcontrollers", short="rc", categories=("all",),
           status={"replicas": 0}, generation=("spec",), fields=("status.replicas",), orphans=True,
           defaults="spec.replicas  1"),
    Kind("apps", "ControllerRevision", "controllerrevisions", fixed=("data",)),
    Kind("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", version="v2", short="hpa",
           categories=("all",), status={"currentMetrics": None, "desiredReplicas": 0}, defaults="spec.minReplicas  1"),
    Kind("batch", "CronJob", "cronjobs", short="cj", categories=("all",), status={}, generation=("spec",),
           complete=lambda value: default_pod_spec(value["spec"]["jobTemplate"]["spec"]["template"]["spec"]),
           defaults="""
        spec.concurrencyPolicy           "Allow"
        spec.suspend                     false
        spec.successfulJobsHistoryLimit  3
        spec.failedJobsHistoryLimit      1
    """),
    Kind("batch", "Job", "jobs", categories=("all",), status={}, generation=("spec",), complete=_complete_job,
           begin=_begin_job, errors=_job_errors, fields=("status.successful",), orphans=True,
           fixed=("spec.selector", "spec.template", "spec.completionMode", "spec.podFailurePolicy",
                  "spec.backoffLimitPerIndex", "spec.managedBy", "spec.successPolicy"), defaults="""
        spec.completionMode      "NonIndexed"
        spec.suspend             false
        spec.manualSelector      false
        spec.podFailurePolicy.rules[].onPodConditions[].status  "True"
    """, rules=_JOB_SPEC),
)  # fmt: skip
