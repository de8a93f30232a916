"""What the fields of a Pod's spec must be, as tables (rules.py).

Source: kubernetes/kubernetes pkg/apis/core/validation. Fields that only a feature gate opens are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kproxy.api.fielderror import FieldError, duplicate, forbidden, invalid, not_found, not_supported, required
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.field_rules import rules
from kproxy.apiserver.schema.quantity import nanos

_HANDLER: Final = rules("""
    exec.command                needed
    httpGet.path                needed
    httpGet.port                set; port
    httpGet.scheme              one-of HTTP HTTPS
    httpGet.httpHeaders[].name  needed; header
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
_SECURITY: Final = rules("""
    runAsUser               range 0 2147483647
    runAsGroup              range 0 2147483647
    seccompProfile.type     needed; one-of Localhost RuntimeDefault Unconfined
    appArmorProfile.type    needed; one-of Localhost RuntimeDefault Unconfined
""")
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
    env[].valueFrom.configMapKeyRef.key needed; config-key
    env[].valueFrom.configMapKeyRef.name  needed
    env[].valueFrom.secretKeyRef.key    needed; config-key
    env[].valueFrom.secretKeyRef.name   needed
    env[].valueFrom.resourceFieldRef.resource  needed
    envFrom[]                           one-source prefix
    envFrom[].prefix                    env-name
    envFrom[].configMapRef.name         needed; subdomain
    envFrom[].secretRef.name            needed; subdomain
    resources.limits                    amounts
    resources.requests                  amounts
    livenessProbe                       <probe>
    readinessProbe                      <probe>
    startupProbe                        <probe>
    lifecycle.preStop                   <handler>
    lifecycle.postStart                 <handler>
    terminationMessagePath              needed
    terminationMessagePolicy            one-of FallbackToLogsOnError File
    volumeMounts                        unique mountPath
    volumeMounts[].name                 needed
    volumeMounts[].mountPath            needed
    volumeMounts[].subPath              relative
    volumeMounts[].subPathExpr          relative
    volumeMounts[].mountPropagation     one-of Bidirectional HostToContainer None
    volumeDevices[].name                needed
    volumeDevices[].devicePath          needed; no-backsteps
    securityContext                     <security>
    securityContext.procMount           one-of Default Unmasked
    resizePolicy[].restartPolicy        needed; one-of NotRequired RestartContainer
""",
    probe=_PROBE,
    handler=_HANDLER,
    security=_SECURITY,
)
_FILES: Final = rules("""
    defaultMode      range 0 511
    items[].key      needed
    items[].path     needed; relative
    items[].mode     range 0 511
""")
_DOWNWARD: Final = rules("""
    defaultMode                        range 0 511
    items[].path                       needed; relative
    items[].mode                       range 0 511
    items[].fieldRef.fieldPath         needed
    items[].resourceFieldRef.resource  needed
    items[].resourceFieldRef.containerName  needed
""")
CLAIM: Final = rules("""
    accessModes                 needed; unique
    accessModes[]               one-of ReadOnlyMany ReadWriteMany ReadWriteOnce ReadWriteOncePod
    selector                    selector
    resources.requests          needed; amounts
    resources.requests.storage  needed
    volumeMode                  one-of Block Filesystem
    storageClassName            subdomain
    dataSource.kind             needed
    dataSource.name             needed
""")
_VOLUME: Final = rules(
    """
    name                             needed; label
    .                                one-source name
    emptyDir.sizeLimit               amount
    hostPath.path                    needed; no-backsteps
    hostPath.type          one-of BlockDevice CharDevice Directory DirectoryOrCreate File FileOrCreate Socket ''
    nfs.server                       needed
    nfs.path                         needed; absolute
    secret                           <files>
    secret.secretName                needed
    configMap                        <files>
    configMap.name                   needed
    downwardAPI                      <downward>
    persistentVolumeClaim.claimName  needed
    csi.driver                       needed; subdomain
    ephemeral.volumeClaimTemplate       set
    ephemeral.volumeClaimTemplate.spec  <claim>
    image.pullPolicy                 one-of Always IfNotPresent Never
    projected.defaultMode            range 0 511
    projected.sources[]              one-source
    projected.sources[].secret       <files>
    projected.sources[].secret.name  needed
    projected.sources[].configMap    <files>
    projected.sources[].configMap.name  needed
    projected.sources[].downwardAPI  <downward>
    projected.sources[].serviceAccountToken.path               needed; relative
    projected.sources[].serviceAccountToken.expirationSeconds  range 600 4294967296
    iscsi.targetPortal               needed
    iscsi.iqn                        needed
    iscsi.lun                        range 0 255
    rbd.monitors                     needed
    rbd.image                        needed
    cephfs.monitors                  needed
    glusterfs.endpoints              needed
    glusterfs.path                   needed
    gitRepo.repository               needed
    gcePersistentDisk.pdName         needed
    awsElasticBlockStore.volumeID    needed
    azureDisk.diskName               needed
    azureDisk.diskURI                needed
    azureFile.secretName             needed
    azureFile.shareName              needed
    cinder.volumeID                  needed
    flexVolume.driver                needed
    portworxVolume.volumeID          needed
    quobyte.registry                 needed
    quobyte.volume                   needed
    scaleIO.gateway                  needed
    vsphereVolume.volumePath         needed
""",
    files=_FILES,
    downward=_DOWNWARD,
    claim=CLAIM,
)
_NODE_TERM: Final = rules("""
    matchExpressions[].key       needed; qualified
    matchExpressions[].operator  needed; one-of DoesNotExist Exists Gt In Lt NotIn
    matchFields[].key            needed
    matchFields[].operator       needed; one-of In NotIn
""")
NODE_SELECTOR: Final = rules(
    """
    nodeSelectorTerms    needed
    nodeSelectorTerms[]  <term>
""",
    term=_NODE_TERM,
)
_POD_TERM: Final = rules("""
    topologyKey          needed; qualified
    labelSelector        selector
    namespaceSelector    selector
    namespaces[]         label
""")
_POD_AFFINITY: Final = rules(
    """
    requiredDuringSchedulingIgnoredDuringExecution[]           <term>
    preferredDuringSchedulingIgnoredDuringExecution[].weight   set; range 1 100
    preferredDuringSchedulingIgnoredDuringExecution[].podAffinityTerm  <term>
""",
    term=_POD_TERM,
)
TOLERATION: Final = rules("""
    key          qualified
    operator     one-of Equal Exists
    effect       one-of NoExecute NoSchedule PreferNoSchedule
""")
POD_SPEC: Final = rules("""
    containers                       needed
    containers[]                     <container>
    initContainers[]                 <container>
    initContainers[].restartPolicy   one-of Always Never OnFailure
    volumes                          unique name
    volumes[]                        <volume>
    restartPolicy                    one-of Always Never OnFailure
    dnsPolicy                        one-of ClusterFirst ClusterFirstWithHostNet Default None
    dnsConfig.nameservers            at-most 3
    dnsConfig.nameservers[]          ip
    dnsConfig.searches               at-most 32
    dnsConfig.options[].name         needed
    activeDeadlineSeconds            range 1 2147483647
    nodeSelector                     labels
    nodeName                         subdomain
    hostname                         label
    subdomain                        label
    serviceAccountName               subdomain
    priorityClassName                subdomain
    runtimeClassName                 subdomain
    preemptionPolicy                 one-of Never PreemptLowerPriority
    os.name                          needed; one-of linux windows
    overhead                         amounts
    hostAliases[].ip                 needed; ip
    hostAliases[].hostnames[]        subdomain
    readinessGates[].conditionType   needed; qualified
    schedulingGates                  unique name
    schedulingGates[].name           needed; qualified
    tolerations[]                    <toleration>
    topologySpreadConstraints[].maxSkew             set; min 1
    topologySpreadConstraints[].minDomains          min 1
    topologySpreadConstraints[].topologyKey         needed; qualified
    topologySpreadConstraints[].whenUnsatisfiable   needed; one-of DoNotSchedule ScheduleAnyway
    topologySpreadConstraints[].labelSelector       selector
    topologySpreadConstraints[].nodeAffinityPolicy  one-of Honor Ignore
    topologySpreadConstraints[].nodeTaintsPolicy    one-of Honor Ignore
    securityContext                           <security>
    securityContext.fsGroup                   range 0 2147483647
    securityContext.fsGroupChangePolicy       one-of Always OnRootMismatch
    securityContext.supplementalGroups[]      range 0 2147483647
    securityContext.supplementalGroupsPolicy  one-of Merge Strict
    securityContext.sysctls                   unique name
    securityContext.sysctls[].name            needed; sysctl
    affinity.podAffinity                      <affinity>
    affinity.podAntiAffinity                  <affinity>
    affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution  <node>
    affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[].weight      set; range 1 100
    affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[].preference  <term>
""", container=_CONTAINER, volume=_VOLUME, toleration=TOLERATION, security=_SECURITY, affinity=_POD_AFFINITY,
    node=NODE_SELECTOR, term=_NODE_TERM)  # fmt: skip
_KINDS: Final = ("initContainers", "containers")
_ENV_FIELDS: Final = re.compile(
    r"metadata\.(name|namespace|uid|(labels|annotations)\['[^']+'\])|spec\.(nodeName|serviceAccountName)|"
    r"status\.(hostIPs?|podIPs?)"
)
_FILE_FIELDS: Final = re.compile(r"metadata\.(name|namespace|uid|labels|annotations)(\['[^']+'\])?")
_FIELD_TEXT: Final = 'supported values: "metadata.name", "metadata.namespace", "metadata.uid"'
_RESOURCES: Final = re.compile(r"(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-.+)")


def pod_spec_errors(spec: Json, path: str) -> Iterator[FieldError]:
    """What is wrong with the spec of a Pod or of a pod template."""
    yield from POD_SPEC.errors(spec, path)
    names: set[str] = set()
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for kind in _KINDS:
        for index, container in enumerate(spec.get(kind) or ()):
            where, name = f"{path}.{kind}[{index}]", container.get("name", "")
            if name and name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
            yield from _container_errors(container, where, volumes, kind == "initContainers")
    yield from _whole_errors(spec, path)


_NOT_EPHEMERAL: Final = ("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources")


def ephemeral_errors(spec: Json, path: str) -> Iterator[FieldError]:
    """What is wrong with the ephemeral containers of a Pod."""
    names = {each.get("name") for kind in _KINDS for each in spec.get(kind) or ()}
    running = {each.get("name") for each in spec.get("containers") or ()}
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for index, container in enumerate(spec.get("ephemeralContainers") or ()):
        where, name = f"{path}[{index}]", container.get("name", "")
        yield from _CONTAINER.errors(container, where)
        if name and name in names:
            yield duplicate(f"{where}.name", name)
        names.add(name)
        yield from _container_errors(container, where, volumes, init=False)
        target = container.get("targetContainerName")
        if target and target not in running:
            yield not_found(f"{where}.targetContainerName", target)
        for field in _NOT_EPHEMERAL:
            if container.get(field):
                yield forbidden(f"{where}.{field}", "cannot be set for an Ephemeral Container")
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    at = f"{where}.volumeMounts[{number}].{field}"
                    yield forbidden(at, "cannot be set for an Ephemeral Container")


def _container_errors(container: Json, path: str, volumes: set[str | None], init: bool) -> Iterator[FieldError]:
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") and mount["name"] not in volumes:
            yield not_found(f"{path}.volumeMounts[{index}].name", mount["name"])
        if mount.get("subPath") and mount.get("subPathExpr"):
            yield invalid(f"{path}.volumeMounts[{index}].subPathExpr", mount["subPathExpr"], _EXCLUSIVE)
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    for name, amount in (resources.get("requests") or {}).items():
        if amount != limits.get(name, amount) and nanos(amount) > nanos(limits[name]):
            text = f"must be less than or equal to {name} limit of {limits[name]}"
            yield invalid(f"{path}.resources.requests", amount, text)
    for index, variable in enumerate(container.get("env") or ()):
        if not (source := variable.get("valueFrom")):
            continue
        where = f"{path}.env[{index}].valueFrom"
        if variable.get("value"):
            yield invalid(where, "", "may not be specified when `value` is not empty")
        field, resource = (source.get("fieldRef") or {}).get("fieldPath"), source.get("resourceFieldRef") or {}
        if field and not _ENV_FIELDS.fullmatch(field):
            yield invalid(f"{where}.fieldRef.fieldPath", field, f"error converting fieldPath: {_FIELD_TEXT}")
        if resource.get("resource") and not _RESOURCES.fullmatch(resource["resource"]):
            yield not_supported(f"{where}.resourceFieldRef.resource", resource["resource"], ("limits.cpu",))
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


_EXCLUSIVE: Final = "subPathExpr and subPath are mutually exclusive"


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
    for index, volume in enumerate(spec.get("volumes") or ()):
        if not ("downwardAPI" in volume or "projected" in volume):
            continue
        sources = [(f"{path}.volumes[{index}].downwardAPI", volume.get("downwardAPI") or {})]
        for number, each in enumerate((volume.get("projected") or {}).get("sources") or ()):
            place = f"{path}.volumes[{index}].projected.sources[{number}].downwardAPI"
            sources.append((place, each.get("downwardAPI") or {}))
        for place, source in sources:
            for number, item in enumerate(source.get("items") or ()):
                field = (item.get("fieldRef") or {}).get("fieldPath")
                if field and not _FILE_FIELDS.fullmatch(field):
                    yield invalid(f"{place}.items[{number}].fieldRef.fieldPath", field, _FIELD_TEXT)


_EMPTY_KEY: Final = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
