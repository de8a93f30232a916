"""What to warn the writer of an object of, kind by kind, though it is accepted.

Source: WarningsOnCreate and WarningsOnUpdate of the strategies in kubernetes/kubernetes pkg/registry, and pkg/api.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from kproxy.api.addresses import canonical_cidr, canonical_ip
from kproxy.api.fielderror import show
from kproxy.api.validation.names import check_dns_label
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.podwarnings import NODE_LABELS, claim_warnings, pod_warnings, term_warnings

Warner = Callable[[Json, Json | None], Iterator[str]]
_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_MOUNTABLE: Final = "kubernetes.io/enforce-mountable-secrets"
_HINTS: Final = "service.kubernetes.io/topology-aware-hints"
_OLD_VOLUMES: Final = (
    "photonPersistentDisk",
    "scaleIO",
    "flocker",
    "storageos",
    "quobyte",
    "glusterfs",
    "cephfs",
    "rbd",
)


def warnings_for(storage: str, value: Json, old: Json | None) -> list[str]:
    """Warnings of an object of a kind, by the name of its table; `old` is what an update replaces."""
    warner = WARNINGS.get(storage)
    return list(warner(value, old)) if warner is not None else []


def _pod(value: Json, old: Json | None) -> Iterator[str]:
    if old is None:
        yield from _name(value, "this is used in the Pod's hostname")
    yield from pod_warnings(value["spec"], value["metadata"], "")


def _name(value: Json, used: str) -> Iterator[str]:
    wrong = check_dns_label(value["metadata"].get("name", ""))
    if wrong:
        text = f"{used}, which can result in surprising behavior; a DNS label is recommended"
        yield f"metadata.name: {text}: [{' '.join(wrong)}]"


def _template(path: str, named: bool, value: Json, old: Json | None) -> Iterator[str]:
    """Of the pod template at a path, when it is new or the spec that holds it has changed."""
    if old is None and named:
        yield from _name(value, "this is used in Pod names and hostnames")
    if old is not None and old["metadata"].get("generation") == value["metadata"].get("generation"):
        return
    template: Any = value
    for part in path.split("."):
        template = (template or {}).get(part)
    if template:
        yield from pod_warnings(template.get("spec") or {}, template.get("metadata") or {}, f"{path}.")


def _controller(value: Json, old: Json | None) -> Iterator[str]:
    """A ReplicationController's template is called `template` here, without the spec around it."""
    for text in _template("spec.template", True, value, old):
        yield text.removeprefix("spec.")


def _stateful(value: Json, old: Json | None) -> Iterator[str]:
    yield from _template("spec.template", False, value, old)
    if old is not None and old["metadata"].get("generation") == value["metadata"].get("generation"):
        return
    spec = value["spec"]
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        yield from claim_warnings(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")
    if (spec.get("revisionHistoryLimit") or 0) < 0:
        yield "spec.revisionHistoryLimit: a negative value retains all historical revisions"


def _service(value: Json, old: Json | None) -> Iterator[str]:
    spec, kind = value["spec"], value["spec"].get("type")
    if _HINTS in (value["metadata"].get("annotations") or {}):
        yield f"annotation {_HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    outside = spec.get("externalIPs") or []
    if headless:
        ignored = {
            "loadBalancerIP": spec.get("loadBalancerIP"),
            "externalIPs": outside,
            "SessionAffinity": spec.get("sessionAffinity") != "None",
        }
        yield from (f"spec.{name} is ignored for headless services" for name, given in ignored.items() if given)
    elif kind != "ExternalName":
        for index, each in enumerate(spec.get("clusterIPs") or ()):
            yield from _address(each, f"spec.clusterIPs[{index}]")
    for index, each in enumerate(outside):
        yield from _address(each, f"spec.externalIPs[{index}]")
    if outside and not headless and kind != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.get("loadBalancerIP"):
        yield from _address(spec["loadBalancerIP"], "spec.loadBalancerIP")
    for index, each in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        yield from _network(each, f"spec.loadBalancerSourceRanges[{index}]")
    if kind == "ExternalName" and outside:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if kind != "ExternalName" and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _address(text: str, path: str) -> Iterator[str]:
    """k8s.io/apimachinery pkg/util/validation GetWarningsForIP, of an address that is valid."""
    canonical = canonical_ip(text)
    if ":" in text and canonical not in (None, text):
        yield f"{path}: IPv6 address {show(text)} should be in RFC 5952 canonical format ({show(canonical)})"


def _network(text: str, path: str) -> Iterator[str]:
    """GetWarningsForCIDR, of a network that is valid."""
    canonical = canonical_cidr(text.strip())
    if ":" in text and canonical not in (None, text):
        yield f"{path}: IPv6 CIDR value {show(text)} should be in RFC 5952 canonical format ({show(canonical)})"


def _account(value: Json, old: Json | None) -> Iterator[str]:
    if old is None and _MOUNTABLE in (value["metadata"].get("annotations") or {}):
        text = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        yield f"metadata.annotations[{_MOUNTABLE}]: {text}"


def _old_class(value: Json) -> Iterator[str]:
    if _STORAGE_CLASS in (value["metadata"].get("annotations") or {}):
        text = 'deprecated since v1.8; use "storageClassName" attribute instead'
        yield f"metadata.annotations[{_STORAGE_CLASS}]: {text}"


def _claim(value: Json, old: Json | None) -> Iterator[str]:
    yield from _old_class(value)
    yield from claim_warnings(value["spec"], "spec")


def _volume(value: Json, old: Json | None) -> Iterator[str]:
    spec = value["spec"]
    affinity = (spec.get("nodeAffinity") or {}).get("required") or {}
    for index, term in enumerate(affinity.get("nodeSelectorTerms") or ()):
        yield from term_warnings(term, f"spec.nodeAffinity.required.nodeSelectorTerms[{index}]")
    yield from _old_class(value)
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        text = "Instead, the recommended approach is to use dynamic provisioning."
        yield f"spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. {text}"
    for message in pod_warnings({"volumes": [{name: {} for name in _OLD_VOLUMES if name in spec}]}, {}, ""):
        yield message.replace("spec.volumes[0].", "spec.")


def _ingress(value: Json, old: Json | None) -> Iterator[str]:
    if old is None and "kubernetes.io/ingress.class" in (value["metadata"].get("annotations") or {}):
        yield "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"


def _runtime_class(value: Json, old: Json | None) -> Iterator[str]:
    for key in (value.get("scheduling") or {}).get("nodeSelector") or ():
        if key in NODE_LABELS:
            yield f"scheduling.nodeSelector: {NODE_LABELS[key]}"


def _topologies(value: Json, old: Json | None) -> Iterator[str]:
    for index, term in enumerate(value.get("allowedTopologies") or ()):
        for number, each in enumerate(term.get("matchLabelExpressions") or ()):
            if (text := NODE_LABELS.get(each.get("key"))) is not None:
                at = f"allowedTopologies[{index}].matchLabelExpressions[{number}].key"
                yield f"{at}: {each['key']} is {text}"


WARNINGS: Final[dict[str, Warner]] = {
    "cronjobs.batch": partial(_template, "spec.jobTemplate.spec.template", True),
    "daemonsets.apps": partial(_template, "spec.template", False),
    "deployments.apps": partial(_template, "spec.template", True),
    "ingresses.networking.k8s.io": _ingress,
    "jobs.batch": partial(_template, "spec.template", True),
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume,
    "pods": _pod,
    "podtemplates": partial(_template, "template", False),
    "replicasets.apps": partial(_template, "spec.template", True),
    "replicationcontrollers": _controller,
    "runtimeclasses.node.k8s.io": _runtime_class,
    "serviceaccounts": _account,
    "services": _service,
    "statefulsets.apps": _stateful,
    "storageclasses.storage.k8s.io": _topologies,
}
"""By the name of a kind's table. An update of a status is never warned of."""
