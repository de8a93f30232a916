"""What manifests lack that nobody would miss in silence: rules without it look right and are not.

Each remark is one sentence that says what follows, and what to add.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kproxy.api import Manifests, Service
from kproxy.api.load.reader import RawObject
from kproxy.cluster.allocate import is_unallocated
from kproxy.services.claims import claim_in_words, claimed_twice
from kproxy.services.names import IPFamily
from kproxy.services.node import host_ips
from kproxy.services.serviceport import service_ports
from kproxy.words import listed

_SHOWN: Final = 3

NO_CONFIG: Final = (
    "no kube-proxy configuration, so clusterCIDR is unknown, and the rules that masquerade what comes to cluster IPs "
    "from outside the Pods' network are missing; add --config FILE (kubectl -n kube-system get configmap kube-proxy "
    "-o jsonpath='{.data.config\\.conf}' prints it)"
)


def remark_no_cluster_ips(cluster: Manifests, hint: str = "") -> Iterator[str]:
    """Services that wait for the API server to give them cluster IPs. `hint` says what to do."""
    found = [service for service in cluster.services if is_unallocated(service)]
    if len(found) == 1:
        key = found[0].metadata.key
        where = cluster.sources.get(("Service", key))
        yield (
            f"{f'{where}: ' if where else ''}Service {key} has no clusterIP: the API server has not allocated one, so "
            f"kube-proxy ignores it{hint}"
        )
    elif found:
        names = listed([each.metadata.key for each in found], _SHOWN)
        yield (
            f"{len(found)} Services have no clusterIP ({names}): the API server has not allocated them, so kube-proxy "
            f"ignores these Services{hint}"
        )


def remark_no_slices(cluster: Manifests, hint: str = "") -> Iterator[str]:
    """Namespaces whose Services have selectors, of which a cluster has EndpointSlices, and none is there. `hint` says
    what else to do."""
    there = {each.metadata.namespace for each in cluster.endpoint_slices}
    lacking = [each for each in cluster.services if _has_slices(each) and each.metadata.namespace not in there]
    if not lacking:
        return
    count, were = len(lacking), "Service has a selector" if len(lacking) == 1 else "Services have selectors"
    where = ""
    if there:
        namespaces = sorted({each.metadata.namespace for each in lacking})
        where = f" in {'namespace' if len(namespaces) == 1 else 'namespaces'} {listed(namespaces, _SHOWN)}"
    yield (
        f"no EndpointSlices{where}, though {count} {were}: the rules are those of Services without endpoints; add what "
        f"`kubectl get endpointslices -A -o yaml` prints (`kubectl get all` leaves it out){hint}"
    )


def remark_claimed_twice(cluster: Manifests) -> Iterator[str]:
    """Addresses that more than one Service claims."""
    for family in IPFamily:
        if not any(service.spec.external_ips or service.ingress for service in cluster.services):
            return  # cluster IPs and node ports are each a Service's own
        ports = (port for service in cluster.services for port in service_ports(service, family).values())
        for door, claimants in claimed_twice(ports).items():
            yield claim_in_words(door, claimants)


def remark_no_config(cluster: Manifests, objects: Iterable[RawObject]) -> Iterator[str]:
    """That no configuration was given, if Pods have addresses."""
    if _pods_have_addresses(cluster, objects):
        yield NO_CONFIG


def _has_slices(service: Service) -> bool:
    """Whether kube-proxy makes rules of it, and its selector endpoints."""
    spec = service.spec
    return bool(spec.selector) and spec.type != "ExternalName" and spec.cluster_ip != "None"


def _pods_have_addresses(cluster: Manifests, objects: Iterable[RawObject]) -> bool:
    if any(node.pod_cidrs for node in cluster.nodes) or any(map(_is_addressed_pod, objects)):
        return True
    own = {ip for node in cluster.nodes for ip in host_ips(node)}
    return bool(own) and any(
        endpoint.node_name and endpoint.addresses[0] not in own
        for each in cluster.endpoint_slices
        for endpoint in each.endpoints
    )


def _is_addressed_pod(value: RawObject) -> bool:
    """Whether it is a Pod with an address of its own; kinds that the reader skips come as dicts."""
    if not isinstance(value, dict) or value["kind"] != "Pod":
        return False
    spec, status = value.get("spec"), value.get("status")
    shared = isinstance(spec, dict) and spec.get("hostNetwork") is True
    return isinstance(status, dict) and bool(status.get("podIP")) and not shared
