"""The spec that Pods and pod templates share: its defaults. What its fields must be is in podrules.py.

Source: kubernetes/kubernetes pkg/apis/core/v1/defaults.go (SetDefaults_PodSpec and what it holds).
"""

from __future__ import annotations

from typing import Final

from kproxy.apiserver.errors import Json
from kproxy.apiserver.schema.quantity import round_resources

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
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _default_field_ref(item)
    for source in (volume.get("projected") or {}).get("sources") or ():
        if (token := source.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _default_field_ref(item)
