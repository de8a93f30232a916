"""Pods and the workloads that hold a pod template: defaults and the checks that keep them usable.

Sources: kubernetes/kubernetes pkg/apis/core/v1/defaults.go, pkg/apis/apps/v1/defaults.go, pkg/apis/apps/validation.
Nothing runs pods here; validation covers names, images, ports, selectors and replicas, not every field of a pod
(docs/limits.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from kproxy.api.names import check_dns_label, check_label_value, check_port_number, check_qualified_name
from kproxy.api.problems import FieldError, duplicate, invalid, not_supported, required
from kproxy.api.validate_meta import validate_labels
from kproxy.apiserver.fields import Path
from kproxy.apiserver.quantity import round_resources
from kproxy.apiserver.status import Json
from kproxy.apiserver.strategy import STATUS, Context, Strategy

_RESTART = ("Always", "OnFailure", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_LABELS: Path = ("f:metadata", "f:labels")


def default_pod_spec(spec: Json) -> None:
    """The defaults that a pod and a pod template share."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if spec.get("serviceAccountName") and not spec.get("serviceAccount"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif spec.get("serviceAccount") and not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    round_resources(spec.get("overhead"))
    for part in ("limits", "requests"):
        round_resources((spec.get("resources") or {}).get(part))
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for name in ("initContainers", "containers"):
        for container in spec.get(name) or ():
            _default_container(container, bool(spec.get("hostNetwork")))


def _default_container(container: Json, host_network: bool) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        tag = container.get("image", "").rpartition("/")[2]
        latest = "@" not in tag and (":" not in tag or tag.endswith(":latest"))
        container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network:
            port.setdefault("hostPort", port.get("containerPort", 0))
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(name)) is not None:
            for field, number in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1)):
                probe.setdefault(field, number)
            probe.setdefault("failureThreshold", 3)
            _default_handler(probe)
    for handler in (container.get("lifecycle") or {}).values():
        if isinstance(handler, dict):
            _default_handler(handler)
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    resources = container["resources"]
    round_resources(resources.get("limits"))
    round_resources(resources.get("requests"))
    for name, quantity in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, quantity)


def _default_handler(handler: Json) -> None:
    if (get := handler.get("httpGet")) is not None:
        get.setdefault("path", "/")
        get.setdefault("scheme", "HTTP")
    if (grpc := handler.get("grpc")) is not None:
        grpc.setdefault("service", "")


def _default_volume(volume: Json) -> None:
    sources = [name for name in volume if name != "name"]
    if not sources:
        volume["emptyDir"] = {}
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        if (source := volume.get(name)) is not None:
            source.setdefault("defaultMode", 420)
    if (host := volume.get("hostPath")) is not None:
        host.setdefault("type", "")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if (token := source.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", 3600)


def _pod_spec_errors(spec: Json, path: str) -> Iterator[FieldError]:
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    names: set[str] = set()
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield from _container_errors(container, f"{path}.{kind}[{index}]", names)
    if spec.get("restartPolicy") not in _RESTART:
        yield not_supported(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART)
    volumes = [volume.get("name", "") for volume in spec.get("volumes") or ()]
    for index, name in enumerate(volumes):
        yield from (invalid(f"{path}.volumes[{index}].name", name, text) for text in check_dns_label(name))
        if name in volumes[:index]:
            yield duplicate(f"{path}.volumes[{index}].name", name)


def _container_errors(container: Json, path: str, names: set[str]) -> Iterator[FieldError]:
    name = container.get("name", "")
    if not name:
        yield required(f"{path}.name")
    else:
        yield from (invalid(f"{path}.name", name, text) for text in check_dns_label(name))
        if name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
    if not container.get("image"):
        yield required(f"{path}.image")
    for index, port in enumerate(container.get("ports") or ()):
        where = f"{path}.ports[{index}]"
        number = port.get("containerPort", 0)
        if not number:
            yield required(f"{where}.containerPort")
        else:
            yield from (invalid(f"{where}.containerPort", number, text) for text in check_port_number(number))
        if port.get("protocol") not in _PROTOCOLS:
            yield not_supported(f"{where}.protocol", port.get("protocol"), _PROTOCOLS)


class PodStrategy(Strategy):
    """core/v1 Pod."""

    has_generation: ClassVar[bool] = True
    spec_resets: ClassVar[tuple[Path, ...]] = (STATUS,)

    def default(self, value: Json) -> None:
        default_pod_spec(value["spec"])
        value["spec"].setdefault("enableServiceLinks", True)

    def prepare_create(self, value: Json, context: Context) -> None:
        value["status"] = {"phase": "Pending", "qosClass": _quality(value["spec"])}

    def prepare_update(self, value: Json, old: Json, context: Context) -> None:
        value["status"] = old.get("status") or {}

    def validate(self, value: Json) -> list[FieldError]:
        return list(_pod_spec_errors(value["spec"], "spec"))

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        mine, theirs = _fixed(value["spec"]), _fixed(old["spec"])
        if mine == theirs:
            return []
        text = (
            "pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
            "`spec.tolerations` (only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        )
        return [FieldError("spec", f"Forbidden: {text}")]


def _fixed(spec: Json) -> Json:
    """A pod's spec without what may change: images, deadline, tolerations, gates, and the node once."""
    kept = {name: item for name, item in spec.items() if name not in ("activeDeadlineSeconds", "tolerations")}
    for name in ("schedulingGates", "nodeName"):
        kept.pop(name, None)
    for kind in ("containers", "initContainers"):
        if kind in kept:
            kept[kind] = [{key: item for key, item in each.items() if key != "image"} for each in kept[kind] or ()]
    return kept


def _quality(spec: Json) -> str:
    resources: list[Any] = [each.get("resources") or {} for each in spec.get("containers") or ()]
    if not any(each.get("requests") or each.get("limits") for each in resources):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= set(each.get("limits") or ()) and each.get("requests") == each.get("limits")
        for each in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


class TemplateStrategy(Strategy):
    """A workload with a selector and a pod template."""

    has_generation: ClassVar[bool] = True
    spec_resets: ClassVar[tuple[Path, ...]] = (STATUS,)
    status_resets: ClassVar[tuple[Path, ...]] = (("f:spec",), _LABELS)

    def default(self, value: Json) -> None:
        spec = value["spec"]
        self.default_spec(spec)
        default_pod_spec(spec["template"]["spec"])

    def default_spec(self, spec: Json) -> None:
        """The defaults beside those of the template."""

    def prepare_create(self, value: Json, context: Context) -> None:
        value["status"] = self.empty_status()

    def prepare_update(self, value: Json, old: Json, context: Context) -> None:
        value["status"] = old.get("status") or self.empty_status()

    def empty_status(self) -> Json:
        """The status of a workload that nobody has looked at."""
        return {}

    def validate(self, value: Json) -> list[FieldError]:
        spec = value["spec"]
        errors = []
        if spec.get("replicas", 0) < 0:
            errors.append(invalid("spec.replicas", spec["replicas"], "must be greater than or equal to 0"))
        selector = spec.get("selector")
        if selector is None:
            errors.append(required("spec.selector"))
        elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
            errors.append(invalid("spec.selector", selector, f"empty selector is invalid for {self.noun}"))
        else:
            errors += selector_errors(selector, "spec.selector")
        template = spec["template"]
        labels = template["metadata"].get("labels") or {}
        errors += validate_labels("spec.template.metadata.labels", labels)
        if selector and not errors and not selector_matches(selector, labels):
            text = "`selector` does not match template `labels`"
            errors.append(invalid("spec.template.metadata.labels", labels, text))
        errors += _pod_spec_errors(template["spec"], "spec.template.spec")
        if template["spec"].get("restartPolicy") in ("OnFailure", "Never"):
            policy = template["spec"]["restartPolicy"]
            errors.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
        return errors

    noun: ClassVar[str] = "deployment"

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        selector = value["spec"].get("selector")
        if selector != old["spec"].get("selector"):
            return [invalid("spec.selector", selector, "field is immutable")]
        return []


class DeploymentStrategy(TemplateStrategy):
    """apps/v1 Deployment."""

    def default_spec(self, spec: Json) -> None:
        spec.setdefault("replicas", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)
        strategy = spec["strategy"]
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")


class ReplicaSetStrategy(TemplateStrategy):
    """apps/v1 ReplicaSet."""

    noun: ClassVar[str] = "ReplicaSet"

    def default_spec(self, spec: Json) -> None:
        spec.setdefault("replicas", 1)

    def empty_status(self) -> Json:
        return {"replicas": 0}


class DaemonSetStrategy(TemplateStrategy):
    """apps/v1 DaemonSet."""

    noun: ClassVar[str] = "daemonset"

    def default_spec(self, spec: Json) -> None:
        spec.setdefault("revisionHistoryLimit", 10)
        strategy = spec["updateStrategy"]
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)

    def empty_status(self) -> Json:
        names = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
        return dict.fromkeys(names, 0)


def selector_errors(selector: Json, path: str) -> Iterator[FieldError]:
    """Errors of a metav1.LabelSelector."""
    yield from validate_labels(f"{path}.matchLabels", selector.get("matchLabels") or {})
    for index, term in enumerate(selector.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{index}]"
        key, operator, values = term.get("key", ""), term.get("operator"), term.get("values") or []
        yield from (invalid(f"{where}.key", key, text) for text in check_qualified_name(key))
        for place, value in enumerate(values):
            yield from (invalid(f"{where}.values[{place}]", value, text) for text in check_label_value(value))
        if operator in ("In", "NotIn"):
            if not values:
                yield required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield FieldError(f"{where}.values", f"Forbidden: {text}")
        else:
            yield invalid(f"{where}.operator", operator, "not a valid selector operator")


def selector_matches(selector: Json, labels: Json) -> bool:
    """Whether a metav1.LabelSelector selects labels."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for term in selector.get("matchExpressions") or ():
        key, operator, values = term.get("key", ""), term.get("operator"), term.get("values") or ()
        present = key in labels
        if operator == "In" and not (present and labels[key] in values):
            return False
        if operator == "NotIn" and present and labels[key] in values:
            return False
        if (operator == "Exists" and not present) or (operator == "DoesNotExist" and present):
            return False
    return True
