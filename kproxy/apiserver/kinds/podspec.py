"""The spec that Pods and pod templates share: its defaults and the checks that keep it usable.

Sources: kubernetes/kubernetes pkg/apis/core/v1/defaults.go (SetDefaults_PodSpec and what it holds),
pkg/apis/core/validation. Nothing runs pods here; validation covers names, images, ports and volumes, not every field
(docs/limits.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.api.fielderror import FieldError, duplicate, invalid, not_supported, required
from kproxy.api.validation.names import check_dns_label, check_port_number
from kproxy.apiserver.errors import Json
from kproxy.apiserver.schema.quantity import round_resources

_RESTART: Final = ("Always", "OnFailure", "Never")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")


def default_pod_spec(spec: Json) -> None:
    """The defaults that a Pod and a pod template share. What a Pod alone gets is in pods.py: a template that gained
    fields would be a new revision of its workload."""
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
    for name in _CONTAINERS:
        for container in spec.get(name) or ():
            _default_container(container)


def _default_container(container: Json) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(container.get("image", ""))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
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
        _default_field_ref(variable.get("valueFrom") or {})
    resources = container["resources"]
    round_resources(resources.get("limits"))
    round_resources(resources.get("requests"))


def _pull_policy(image: str) -> str:
    """What is pulled anew each time: an image without a tag, or with `latest`."""
    tag = image.rpartition("/")[2]
    return "Always" if "@" not in tag and (":" not in tag or tag.endswith(":latest")) else "IfNotPresent"


def _default_field_ref(holder: Json) -> None:
    if (reference := holder.get("fieldRef")) is not None:
        reference.setdefault("apiVersion", "v1")


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
    if (image := volume.get("image")) is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = _pull_policy(image.get("reference", ""))
    if (iscsi := volume.get("iscsi")) is not None:
        iscsi.setdefault("iscsiInterface", "default")
    if (claim := (volume.get("ephemeral") or {}).get("volumeClaimTemplate")) is not None:
        claim["spec"].setdefault("volumeMode", "Filesystem")
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _default_field_ref(item)
    for source in (volume.get("projected") or {}).get("sources") or ():
        if (token := source.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _default_field_ref(item)


def pod_spec_errors(spec: Json, path: str) -> Iterator[FieldError]:
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
