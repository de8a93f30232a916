"""What to warn of in the spec of a Pod or a pod template: what is deprecated, ineffective or likely meant otherwise.

Source: kubernetes/kubernetes pkg/api/pod/warnings.go, whose words these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kproxy.api.fielderror import show
from kproxy.apiserver.errors import Json

NODE_LABELS: Final = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
"""Labels of nodes that selectors should not use any more."""
_ANNOTATIONS: Final = {
    "scheduler.alpha.kubernetes.io/critical-pod":
        'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}  # fmt: skip
_VOLUMES: Final = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_SHOWN: Final = {"storageos": "storageOS"}
"""Fields that a warning spells in another way than the object does."""
_SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP: Final = "container.seccomp.security.alpha.kubernetes.io/"
_APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_USE_SECCOMP: Final = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_USE_APPARMOR: Final = 'deprecated since v1.30; use the "appArmorProfile" field instead'
_NO_POD: Final = "a null labelSelector results in matching no pod"
_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")


def pod_warnings(spec: Json, meta: Json, path: str) -> Iterator[str]:
    """Warnings of a Pod's spec and metadata. `path` is where the template lies that holds them, with a dot behind it;
    "" for a Pod."""
    annotations = meta.get("annotations") or {}
    yield from _placement(spec, f"{path}spec.")
    for key, text in _ANNOTATIONS.items():
        if key in annotations:
            yield f"{path}metadata.annotations[{key}]: {text}"
    volumes = spec.get("volumes") or ()
    for index, volume in enumerate(volumes):
        yield from _volume(volume, f"{path}spec.volumes[{index}]")
    for volume in volumes:
        yield from _overlaps(volume)
    yield from _repeated(spec.get("hostAliases") or (), "ip", f"{path}spec.hostAliases")
    secrets = spec.get("imagePullSecrets") or ()
    yield from _repeated(secrets, "name", f"{path}spec.imagePullSecrets")
    for index, each in enumerate(secrets):
        if not each.get("name"):
            yield f'{path}spec.imagePullSecrets[{index}].name: invalid empty name ""'
    yield from fractions(spec.get("overhead"), f"{path}spec.overhead")
    if annotations:
        yield from _profiles(spec, annotations, path)
    containers = [
        (container, f"{path}spec.{kind}[{index}]")
        for kind in _CONTAINERS
        for index, container in enumerate(spec.get(kind) or ())
    ]
    for container, where in containers:
        resources = container.get("resources") or {}
        for part in ("limits", "requests"):
            yield from fractions(resources.get(part), f"{where}.resources.{part}")
        yield from _environment(container.get("env") or (), where)
    yield from _ports(containers)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        text = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{path}spec.terminationGracePeriodSeconds: {text}"
    yield from _pod_affinity(spec.get("affinity") or {}, f"{path}spec.affinity")


def claim_warnings(spec: Json, path: str) -> Iterator[str]:
    """Warnings of the spec of a PersistentVolumeClaim."""
    resources = spec.get("resources") or {}
    for part in ("requests", "limits"):
        yield from fractions(resources.get(part), f"{path}.resources.{part}", ("storage",))


def fractions(
    quantities: Json | None, path: str, names: tuple[str, ...] = ("memory", "ephemeral-storage")
) -> Iterator[str]:
    """Amounts of bytes with a fraction. Canonical text of such an amount ends with m, u or n."""
    for name in names if quantities else ():
        text = (quantities or {}).get(name)
        if isinstance(text, str) and text[-1:] in ("m", "u", "n"):
            yield f"{path}[{name}]: fractional byte value {show(text)} is invalid, must be an integer"


def term_warnings(term: Json, path: str) -> Iterator[str]:
    """Deprecated labels in the requirements of a node selector term, or of a label selector."""
    for index, each in enumerate(term.get("matchExpressions") or ()):
        if (text := NODE_LABELS.get(each.get("key"))) is not None:
            yield f"{path}.matchExpressions[{index}].key: {each['key']} is {text}"


def _placement(spec: Json, path: str) -> Iterator[str]:
    for key in spec.get("nodeSelector") or ():
        if key in NODE_LABELS:
            yield f"{path}nodeSelector[{key}]: {NODE_LABELS[key]}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    at = f"{path}affinity.nodeAffinity."
    for index, term in enumerate((affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()):
        yield from term_warnings(term, f"{at}{_REQUIRED}.nodeSelectorTerms[{index}]")
    for index, term in enumerate(affinity.get(_PREFERRED) or ()):
        yield from term_warnings(term.get("preference") or {}, f"{at}{_PREFERRED}[{index}].preference")
    for index, each in enumerate(spec.get("topologySpreadConstraints") or ()):
        at, key = f"{path}topologySpreadConstraints[{index}]", each.get("topologyKey")
        if key in NODE_LABELS:
            yield f"{at}.topologyKey: {key} is {NODE_LABELS[key]}"
        if each.get("labelSelector") is None:
            yield f"{at}.labelSelector: {_NO_POD}"


def _pod_affinity(affinity: Json, path: str) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        for index, term in enumerate(rules.get(_REQUIRED) or ()):
            if term.get("labelSelector") is None:
                yield f"{path}.{kind}.{_REQUIRED}[{index}].labelSelector: {_NO_POD}"
        for index, term in enumerate(rules.get(_PREFERRED) or ()):
            if (term.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{path}.{kind}.{_PREFERRED}[{index}].podAffinityTerm.labelSelector: {_NO_POD}"


def _repeated(items: Iterable[Json], name: str, path: str) -> Iterator[str]:
    seen: set[Any] = set()
    for index, each in enumerate(items):
        value = each.get(name, "")
        if value in seen:
            yield f"{path}[{index}].{name}: duplicate {name} {show(value)}"
        seen.add(value)


def _profiles(spec: Json, annotations: Json, path: str) -> Iterator[str]:
    """Annotations that were fields' forerunners. Those of AppArmor are told of in templates only: of a Pod they become
    the field."""
    whole = spec.get("securityContext") or {}
    if not whole.get("seccompProfile") and _SECCOMP_POD in annotations:
        yield f"{path}metadata.annotations[{_SECCOMP_POD}]: {_USE_SECCOMP}"
    for kind in _CONTAINERS:
        for container in spec.get(kind) or ():
            own = container.get("securityContext") or {}
            key = _SECCOMP + container.get("name", "")
            if not own.get("seccompProfile") and key in annotations:
                yield f"{path}metadata.annotations[{key}]: {_USE_SECCOMP}"
            key = _APPARMOR + container.get("name", "")
            held = own.get("appArmorProfile") or whole.get("appArmorProfile")
            if path and not held and key in annotations:
                yield f"{path}metadata.annotations[{key}]: {_USE_APPARMOR}"


def _environment(variables: Iterable[Json], path: str) -> Iterator[str]:
    """A variable that is set again, unless its new value holds the old one and more."""
    seen: set[str] = set()
    for index, each in enumerate(variables):
        name, value = each.get("name", ""), each.get("value", "")
        reference = f"$({name})"
        if name in seen and (each.get("valueFrom") is not None or value == reference or reference not in value):
            text = f"hides previous definition of {show(name)}, which may be dropped when using apply"
            yield f"{path}.env[{index}]: {text}"
        seen.add(name)


def _ports(containers: Iterable[tuple[Json, str]]) -> Iterator[str]:
    """Ports that several definitions name."""
    known: dict[tuple[Any, Any], list[tuple[str, Json]]] = {}
    for container, where in containers:
        for index, port in enumerate(container.get("ports") or ()):
            path = f"{where}.ports[{index}]"
            address, outside = port.get("hostIP", ""), port.get("hostPort", 0)
            if address and not outside:
                shown = (
                    f"{{Name:{port.get('name', '')} HostPort:0 ContainerPort:{port.get('containerPort', 0)} "
                    f"Protocol:{port.get('protocol', '')} HostIP:{address}}}"
                )
                yield f"{path}: hostIP set without hostPort: {shown}"
            others = known.setdefault((port.get("containerPort"), port.get("protocol")), [])
            for at, other in others:
                theirs, beyond = other.get("hostIP", ""), other.get("hostPort", 0)
                if address == theirs and outside == beyond:
                    yield f"{path}: duplicate port definition with {at}"
                elif not outside or not beyond:
                    yield f"{path}: overlapping port definition with {at}"
                elif outside == beyond and bool(address) != bool(theirs):
                    yield f"{path}: dangerously ambiguous port definition with {at}"
            others.append((path, port))


def _volume(volume: Json, path: str) -> Iterator[str]:
    for name, text in _VOLUMES.items():
        if name in volume:
            yield f"{path}.{_SHOWN.get(name, name)}: {text}"
    claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if claim is not None:
        yield from claim_warnings(claim.get("spec") or {}, f"{path}.ephemeral.volumeClaimTemplate.spec")


_FILES: Final = {
    "configMap": ("ConfigMap", "name"),
    "secret": ("Secret", "name"),
    "downwardAPI": ("DownwardAPI", ""),
}


def _overlaps(volume: Json) -> Iterator[str]:
    """Files of one volume that take each other's place."""
    name = show(volume.get("name", ""))
    for kind, (shown, field) in _FILES.items():
        if (source := volume.get(kind)) is not None:
            of = f" {show(source.get('secretName' if kind == 'secret' else field, ''))}" if field else ""
            yield from _colliding(_paths(source), f"volume {name} ({shown}{of}): overlapping paths")
    before: list[str] = []
    sources = (volume.get("projected") or {}).get("sources") or ()
    files = sum(len(_projected(source, "")[0]) for source in sources)
    for source in sources:
        if not source:
            yield f"volume {name} (Projected) has no sources provided"
            continue
        paths, text = _projected(source, name)
        yield from _colliding(paths, text)
        if not paths or len(sources) * files > _MAX_COMPARED:
            continue
        unique = list(dict.fromkeys(paths))
        yield from _colliding(sorted([*unique, *before]), text)
        before = list(dict.fromkeys([*before, *unique]))


def _projected(source: Json, volume: str) -> tuple[list[str], str]:
    """The paths of one source of a projected volume, and what to say if they overlap."""
    for kind, (shown, field) in _FILES.items():
        if (found := source.get(kind)) is not None and found.get("items"):
            of = f" {show(found.get(field, ''))}" if field else ""
            return _paths(found), f"volume {volume} (Projected {shown}{of}): overlapping paths"
    if (token := source.get("serviceAccountToken")) is not None:
        return [token.get("path", "")], f"volume {volume} (Projected ServiceAccountToken): overlapping paths"
    if (bundle := source.get("clusterTrustBundle")) is not None:
        of = show(bundle.get("name") or bundle.get("signerName") or "")
        return [bundle.get("path", "")], f"volume {volume} (Projected ClusterTrustBundle {of}): overlapping paths"
    return [], ""


def _paths(source: Json) -> list[str]:
    return [each.get("path", "") for each in source.get("items") or ()]


def _colliding(paths: Iterable[str], text: str) -> Iterator[str]:
    """What to say of each path that is, holds or is held by one before it; takes time linear in the paths."""
    seen: list[str] = []
    root: dict[str, Any] = {}
    for path in filter(None, (each.rstrip("/") for each in paths)):
        node, found, parts = root, len(seen), path.split("/")
        for part in parts:
            node = node.setdefault(part, {})
            found = min(found, node.get(_HERE, found))
        found = min(found, node.get(_BELOW, found))
        if found < len(seen):
            yield f"{text}: {show(path)} with {show(seen[found])}"
        if _HERE not in node:
            node[_HERE] = len(seen)
            node = root
            for part in parts:
                node = node[part]
                node.setdefault(_BELOW, len(seen))
            seen.append(path)


_HERE: Final = "/here"
_BELOW: Final = "/below"
"""The first path that ends at a place, or at it or below: no part of a path has a slash."""
_MAX_COMPARED: Final = 5000
"""Sources times files of a projected volume up to which its sources are compared with each other."""
