"""What the fields of a Pod's spec must be, as tables (field_rules.py).

These are the fields that a lab's kubelet and controllers act on: names, containers, ports, probes, environment, DNS,
tolerations. Others, volumes among them, are stored as the schema allows them.
Source: kubernetes/kubernetes pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kproxy.api.fielderror import FieldError, duplicate, forbidden, invalid, required
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.field_rules import rules

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
    env[].valueFrom                     one-source
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
