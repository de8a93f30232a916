"""Applying manifests to a lab, and waiting for what they ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from kproxy.client import ApiError, ApiResource, PatchType, RestClient, discover, dynamic_resource, load_client_config
from kproxy.client.resources import Resource
from kproxy.cluster.inputs import Tell
from kproxy.informer import Unstructured
from kproxy.lab.errors import LabError, LabInputError
from kproxy.lab.events import WARNING
from kproxy.lab.lifecycle.manifests import KUSTOMIZATION, Manifest
from kproxy.lab.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    DNS,
    DNS_NAMESPACE,
    DNS_PORT,
    DNS_SERVICE,
    EVENTS,
    NODES,
    PODS,
    REPLICA_SETS,
    SERVES,
    STATEFUL_SETS,
    Json,
    Object,
    condition_of,
    controller_of,
    is_active,
    is_ready,
    key_of,
)
from kproxy.lab.state import LabDirectory

MANAGER: Final = "kproxy-lab"
CRD: Final = ("apiextensions.k8s.io", "CustomResourceDefinition")
_BEFORE_OTHERS: Final = ("Namespace", CRD[1])
_DEFINED: Final = 30.0
"""Seconds for the API server to serve a CustomResourceDefinition."""
_NO_VOLUMES: Final = "pods have no persistent volumes"
_NO_ADMISSION: Final = "no request is judged by it"

INERT: Final = MappingProxyType(
    {
        ("", "PersistentVolume"): _NO_VOLUMES,
        ("", "PersistentVolumeClaim"): _NO_VOLUMES,
        ("", "ReplicationController"): "no pods are made of it",
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): _NO_ADMISSION,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): _NO_ADMISSION,
        ("apiregistration.k8s.io", "APIService"): "no request is passed on",
        ("batch", "CronJob"): "no Jobs are made of it; `kubectl create job --from=cronjob/NAME` makes one",
        ("autoscaling", "HorizontalPodAutoscaler"): "nothing is scaled by it",
        ("certificates.k8s.io", "CertificateSigningRequest"): "nobody signs it",
        ("networking.k8s.io", "Ingress"): "no ingress controller runs here",
        ("networking.k8s.io", "NetworkPolicy"): "no packet is refused by it",
        ("policy", "PodDisruptionBudget"): "nothing counts its pods, so none can be evicted",
        ("resource.k8s.io", "ResourceClaim"): "no device is given",
        ("storage.k8s.io", "StorageClass"): _NO_VOLUMES,
    }
)
"""By group and kind: what does not happen. What only informs others, as a ConfigMap does, is not here."""
CUSTOM: Final = "the lab runs none of its controllers; an image of one is an echo server, as all are"
"""The same of custom resources."""


def lab_client(lab: LabDirectory) -> RestClient:
    """A client of the lab's API server, with all rights."""
    return RestClient(load_client_config(str(lab.kubeconfig)))


def apply_manifests(client: RestClient, manifests: Sequence[Manifest], tell: Tell) -> list[str]:
    """Server-side apply of every object; returns `kind/name` of each.

    Kinds that the server does not serve are skipped, those of CustomResourceDefinitions among the manifests are served
    by then. `tell` hears of what was skipped, and of what is stored though nothing in a lab acts on it: a sentence for
    each kind.

    Raises:
        LabInputError: the server refused some; all refusals at once.
    """
    done: list[str] = []
    problems: list[str] = []
    known = discover(client)
    early = [item for item in manifests if item.kind in _BEFORE_OTHERS]
    skipped: dict[tuple[str, str], list[Manifest]] = {}
    stored: dict[tuple[str, str], list[Manifest]] = {}
    for items in (early, [item for item in manifests if item not in early]):
        for item in items:
            found = _served(known, item)
            if found is None:
                skipped.setdefault((str(item.body["apiVersion"]), item.kind), []).append(item)
                continue
            try:
                done.append(_apply(client, found, item))
            except ApiError as error:
                problems.append(f"{item.where}: {error.message}")
            stored.setdefault((item.group, item.kind), []).append(item)
        definitions = stored.get(CRD, [])
        if items is early and definitions and not problems:
            _wait_for_definitions(client, definitions)
            known = discover(client)
    if problems:
        raise LabInputError("\n".join(problems))
    for (api_version, kind), items in skipped.items():
        tell(_skipped(known, api_version, kind, items))
    defined = set(map(_defines, stored.get(CRD, ())))
    for key, items in stored.items():
        why = INERT.get(key, CUSTOM if key in defined else "")
        if why:
            tell(f"{_first(items)}: {key[1]} is stored and not acted on: {why}")
    return done


def _served(known: Sequence[ApiResource], item: Manifest) -> ApiResource | None:
    wanted = (item.group, item.version, item.kind)
    return next((each for each in known if (each.group, each.version, each.kind) == wanted), None)


def _first(items: Sequence[Manifest]) -> str:
    """Where the first of some objects is, and how many more there are."""
    return f"{items[0].where}{f' (and {len(items) - 1} more)' if len(items) > 1 else ''}"


def _skipped(known: Sequence[ApiResource], api_version: str, kind: str, items: Sequence[Manifest]) -> str:
    group = items[0].group
    others = [f"{each.group}/{each.version}" for each in known if (each.group, each.kind) == (group, kind)]
    hint = f"; {', '.join(others)} is" if others else ""
    if kind == KUSTOMIZATION:
        hint = "; `kubectl kustomize DIRECTORY | kproxy lab up -f -` applies what it makes"
    return f"{_first(items)}: skipped: no lab serves {api_version}/{kind}{hint}"


def _defines(item: Manifest) -> tuple[str, str]:
    """The group and kind of a CustomResourceDefinition."""
    spec = item.body["spec"]
    return str(spec["group"]), str(spec["names"]["kind"])


def _wait_for_definitions(client: RestClient, manifests: Sequence[Manifest]) -> None:
    """Waits until custom resources can be made. Raises LabError."""
    names = {item.body["metadata"]["name"]: item for item in manifests}
    resource = dynamic_resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", False)
    deadline = time.monotonic() + _DEFINED
    while True:
        for item in client.list(resource).items:
            condition = condition_of(item.raw, "Established")
            if condition is not None and condition.get("status") == "True":
                names.pop(item.metadata.name, None)
        if not names:
            return
        if time.monotonic() > deadline:
            name, manifest = next(iter(names.items()))
            raise LabError(f"{manifest.where}: CustomResourceDefinition {name} is not established")
        time.sleep(0.02)


def _apply(client: RestClient, found: ApiResource, item: Manifest) -> str:
    body = {name: value for name, value in item.body.items() if name != "status"}
    meta = dict(body["metadata"])
    for name in ("managedFields", "resourceVersion", "uid", "creationTimestamp"):
        meta.pop(name, None)
    body["metadata"] = meta
    namespace = str(meta.get("namespace") or "default") if found.namespaced else ""
    if found.namespaced:
        meta["namespace"] = namespace
    client.patch(
        found.resource(), meta["name"], body, namespace, patch_type=PatchType.APPLY, field_manager=MANAGER, force=True
    )
    return f"{found.kind.lower()}/{meta['name']}"


class Progress(msgspec.Struct, frozen=True):
    """How far a lab has come: what is ready, what there should be, and what is missing in words."""

    nodes: int
    wanted_nodes: int
    pods: int
    wanted_pods: int
    missing: tuple[str, ...]


class _Workload(NamedTuple):
    """How a kind of workload says how far it has come: fields of its status."""

    resource: Resource[Unstructured]
    desired: Callable[[Object], int]
    counts: tuple[str, ...]
    """None of them is less than what is desired once it is ready; the last is the one that is told."""


def _replicas(item: Object) -> int:
    return int(item["spec"].get("replicas", 1))


_WORKLOADS: Final = (
    _Workload(DEPLOYMENTS, _replicas, ("updatedReplicas", "availableReplicas")),
    _Workload(REPLICA_SETS, _replicas, ("readyReplicas",)),
    _Workload(STATEFUL_SETS, _replicas, ("replicas", "availableReplicas")),
    _Workload(
        DAEMON_SETS,
        lambda item: int((item.get("status") or {}).get("desiredNumberScheduled", 0)),
        ("updatedNumberScheduled", "numberAvailable"),
    ),
)


def read_progress(client: RestClient, nodes: Sequence[str]) -> Progress:
    """What `lab up` waits for: how many nodes, pods and workloads are ready."""
    there = {item.metadata.name: item.raw for item in client.list(NODES).items}
    unready = [name for name in nodes if name not in there or not is_ready(there[name])]
    missing = [f"node {name} is not ready" for name in unready]
    # What runs to its end, or has, is not waited for.
    pods = [item.raw for item in client.list(PODS).items if is_active(item.raw) and not _is_of_job(item.raw)]
    owned = 0
    for kind in _WORKLOADS:
        for item in client.list(kind.resource).items:
            if (controller_of(item.raw) or {}).get("kind") == "Deployment":
                continue
            desired, status = kind.desired(item.raw), item.raw.get("status") or {}
            owned += desired
            seen = status.get("observedGeneration", 0) >= item.raw["metadata"].get("generation", 0)
            if not seen or min(status.get(count, 0) for count in kind.counts) < desired:
                have, name = status.get(kind.counts[-1], 0), kind.resource.plural.removesuffix("s")
                missing.append(f"{name} {item.metadata.key} has {have} of {desired} pods available")
    alone = [pod for pod in pods if not pod["metadata"].get("ownerReferences")]
    missing += [f"pod {key_of(pod)} is not ready" for pod in alone if not is_ready(pod)]
    ready = sum(map(is_ready, pods))
    return Progress(len(nodes) - len(unready), len(nodes), ready, owned + len(alone), tuple(missing))


class NotReadyError(LabError):
    """What a lab should have is not ready in time."""


def _is_of_job(pod: Object) -> bool:
    return (controller_of(pod) or {}).get("kind") == "Job"


def complaints(client: RestClient) -> list[str]:
    """What was last said of each pod that is not ready, and is a warning: why a workload is not."""
    unready = {item.metadata.uid: item.raw for item in client.list(PODS).items if not is_ready(item.raw)}
    last: dict[str, Object] = {}
    for event in client.list(EVENTS).items:
        uid = (event.raw.get("involvedObject") or {}).get("uid", "")
        if uid in unready and event.raw.get("type") == WARNING:
            last[uid] = max(last.get(uid, event.raw), event.raw, key=lambda each: str(each.get("lastTimestamp") or ""))
    return [f"pod {key_of(unready[uid])}: {each['reason']}: {each['message']}" for uid, each in last.items()]


def dns_objects(addresses: tuple[str, ...]) -> list[Json]:
    """The Service kube-dns at these addresses, and the Deployment coredns behind it, named as in any cluster."""
    labels = {"k8s-app": "kube-dns"}
    meta = {"namespace": DNS_NAMESPACE, "labels": labels}
    ports = [{"name": "dns", "protocol": "UDP"}, {"name": "dns-tcp", "protocol": "TCP"}]
    families = ["IPv6" if ":" in address else "IPv4" for address in addresses]
    policy = "SingleStack" if len(addresses) == 1 else "RequireDualStack"
    service = {
        "clusterIP": addresses[0], "clusterIPs": list(addresses), "ipFamilies": families, "ipFamilyPolicy": policy,
        "ports": [{**port, "port": DNS_PORT, "targetPort": DNS_PORT} for port in ports], "selector": labels,
    }  # fmt: skip
    container = {
        "name": "coredns",
        "image": "kproxy.lab/dns",
        "ports": [{**each, "containerPort": DNS_PORT} for each in ports],
    }
    template = {
        "metadata": {"labels": labels, "annotations": {SERVES: DNS}},
        "spec": {"dnsPolicy": "Default", "containers": [container]},
    }
    deployment = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": DNS_SERVICE, **meta}, "spec": service},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "coredns", **meta}, "spec": deployment},
    ]
