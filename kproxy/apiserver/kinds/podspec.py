"""The spec that Pods and pod templates share: its defaults, and what its fields must be, as tables (field_rules.py).

Checked are the fields that a lab's kubelet and controllers act on: names, containers, ports, probes, environment, DNS,
tolerations. Others, volumes among them, are stored as the schema allows them.

Sources: kubernetes/kubernetes pkg/apis/core/v1/defaults.go (SetDefaults_PodSpec and what it holds), and
pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kproxy.api.fielderror import FieldError, duplicate, forbidden, invalid, required
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.field_rules import rules
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


_HANDLER: Final = rules("""
    exec.command                needed
    httpGet.path                needed
    httpGet.port                set; port
    httpGet.scheme              one-of HTTP HTTPS
    tcpSocket.port              set; port
    grpc.port                   range 1 65535
    sleep.seconds               min 0
""")
_PROBE: Final = rules(
    """
    .                               <handler>
    initialDelaySeconds             min 0
    timeoutSeconds                  min 0
    periodSeconds                   min 0
    successThreshold                min 0
    failureThreshold                min 0
    terminationGracePeriodSeconds   min 1
""",
    handler=_HANDLER,
)
_CONTAINER: Final = rules(
    """
    name                                needed; label
    image                               needed; trimmed
    imagePullPolicy                     one-of Always IfNotPresent Never
    ports                               unique name
    ports[].name                        port-name
    ports[].containerPort               needed; range 1 65535
    ports[].hostPort                    range 0 65535
    ports[].protocol                    one-of SCTP TCP UDP
    env[].name                          needed; env-name
    env[].valueFrom.fieldRef.fieldPath  needed
    livenessProbe                       <probe>
    readinessProbe                      <probe>
    startupProbe                        <probe>
    lifecycle.preStop                   <handler>
    lifecycle.postStart                 <handler>
""",
    probe=_PROBE,
    handler=_HANDLER,
)
_TOLERATION: Final = rules("""
    key          qualified
    operator     one-of Equal Exists
    effect       one-of NoExecute NoSchedule PreferNoSchedule
""")
_POD_SPEC: Final = rules("""
    containers                       needed
    containers[]                     <container>
    initContainers[]                 <container>
    initContainers[].restartPolicy   one-of Always Never OnFailure
    restartPolicy                    one-of Always Never OnFailure
    dnsPolicy                        one-of ClusterFirst ClusterFirstWithHostNet Default None
    dnsConfig.nameservers            at-most 3
    dnsConfig.nameservers[]          ip
    dnsConfig.searches               at-most 32
    activeDeadlineSeconds            range 1 2147483647
    nodeSelector                     labels
    nodeName                         subdomain
    hostname                         label
    subdomain                        label
    serviceAccountName               subdomain
    readinessGates[].conditionType   needed; qualified
    schedulingGates                  unique name
    schedulingGates[].name           needed; qualified
    tolerations[]                    <toleration>
""", container=_CONTAINER, toleration=_TOLERATION)  # fmt: skip
_KINDS: Final = ("initContainers", "containers")
_ENV_FIELDS: Final = re.compile(
    r"metadata\.(name|namespace|uid|(labels|annotations)\['[^']+'\])|spec\.(nodeName|serviceAccountName)|"
    r"status\.(hostIPs?|podIPs?)"
)
_FIELD_TEXT: Final = 'supported values: "metadata.name", "metadata.namespace", "metadata.uid"'


def pod_spec_errors(spec: Json, path: str) -> Iterator[FieldError]:
    """What is wrong with the spec of a Pod or of a pod template."""
    yield from _POD_SPEC.errors(spec, path)
    names: set[str] = set()
    for kind in _KINDS:
        for index, container in enumerate(spec.get(kind) or ()):
            where, name = f"{path}.{kind}[{index}]", container.get("name", "")
            if name and name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
            yield from _container_errors(container, where, kind == "initContainers")
    yield from _whole_errors(spec, path)


def _container_errors(container: Json, path: str, init: bool) -> Iterator[FieldError]:
    for index, variable in enumerate(container.get("env") or ()):
        if not (source := variable.get("valueFrom")):
            continue
        where = f"{path}.env[{index}].valueFrom"
        if variable.get("value"):
            yield invalid(where, "", "may not be specified when `value` is not empty")
        field = (source.get("fieldRef") or {}).get("fieldPath")
        if field and not _ENV_FIELDS.fullmatch(field):
            yield invalid(f"{where}.fieldRef.fieldPath", field, f"error converting fieldPath: {_FIELD_TEXT}")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(name)) is not None:
            yield from _handler_errors(probe, f"{path}.{name}", ("exec", "grpc", "httpGet", "tcpSocket"))
            if init and container.get("restartPolicy") != "Always":
                yield forbidden(f"{path}.{name}", "may not be set for init containers without restartPolicy=Always")
            if name != "readinessProbe" and probe.get("successThreshold", 1) != 1:
                yield invalid(f"{path}.{name}.successThreshold", probe["successThreshold"], "must be 1")
    for name in ("postStart", "preStop"):
        if (handler := (container.get("lifecycle") or {}).get(name)) is not None:
            yield from _handler_errors(handler, f"{path}.lifecycle.{name}", ("exec", "httpGet", "sleep", "tcpSocket"))


def _handler_errors(holder: Json, path: str, kinds: tuple[str, ...]) -> Iterator[FieldError]:
    found = [kind for kind in kinds if holder.get(kind) is not None]
    if not found:
        yield required(path, "must specify a handler type")
    yield from (forbidden(f"{path}.{kind}", "may not specify more than 1 handler type") for kind in found[1:])


def _whole_errors(spec: Json, path: str) -> Iterator[FieldError]:
    """What depends on several fields."""
    if spec.get("dnsPolicy") == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        yield required(f"{path}.dnsConfig.nameservers", text)
    for index, each in enumerate(spec.get("tolerations") or ()):
        where = f"{path}.tolerations[{index}]"
        if not each.get("key") and each.get("operator") != "Exists":
            yield invalid(f"{where}.operator", each.get("operator", ""), _EMPTY_KEY)
        if each.get("operator") == "Exists" and each.get("value"):
            text = "value must be empty when `operator` is 'Exists'"
            yield invalid(f"{where}.operator", each, text)
        if each.get("tolerationSeconds") is not None and each.get("effect") != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(f"{where}.effect", each.get("effect", ""), text)
    if spec.get("hostNetwork"):
        for kind in _KINDS:
            for index, container in enumerate(spec.get(kind) or ()):
                for number, port in enumerate(container.get("ports") or ()):
                    if port.get("hostPort", 0) not in (0, port.get("containerPort")):
                        where = f"{path}.{kind}[{index}].ports[{number}].hostPort"
                        yield invalid(where, port["hostPort"], "must match `containerPort` when `hostNetwork` is true")


_EMPTY_KEY: Final = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
