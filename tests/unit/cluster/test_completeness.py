"""What manifests lack is said, and Services without cluster IPs can be given some."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from kproxy.api import Manifests, parse_manifests
from kproxy.api.load.manifests import load_contents
from kproxy.api.load.reader import RawObject
from kproxy.cluster.allocate import allocate_addresses, read_networks
from kproxy.cluster.completeness import remark_no_cluster_ips, remark_no_config, remark_no_slices
from kproxy.errors import InputError

WEB = """
apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: NS}
spec: {ports: [{port: 80}], selector: {app: web}EXTRA}
"""
SLICE = """
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: NS, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [ADDRESS], nodeName: n1}]
ports: [{port: 8080}]
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {CIDR}
status: {addresses: [{type: InternalIP, address: 192.168.0.1}]}
"""


def _web(name: str = "web", namespace: str = "default", extra: str = ", clusterIP: 10.96.0.50") -> str:
    return WEB.replace("NAME", name).replace("NS", namespace).replace("EXTRA", extra)


def _slice(namespace: str = "default", address: str = "10.244.0.5") -> str:
    return SLICE.replace("NS", namespace).replace("ADDRESS", address)


def _load(*documents: str) -> Manifests:
    return parse_manifests("\n---\n".join(documents), "f.yaml")


def test_no_slices() -> None:
    assert list(remark_no_slices(_load(_web(extra=", clusterIP: None")))) == [], "kube-proxy makes no rules of it"
    (remark,) = remark_no_slices(_load(_web()))
    assert remark.startswith("no EndpointSlices, though 1 Service has a selector: ")
    assert "kubectl get endpointslices -A -o yaml" in remark
    (remark,) = remark_no_slices(_load(_web(), _slice(), _web(namespace="shop", extra=", clusterIP: 10.96.0.51")))
    assert remark.startswith("no EndpointSlices in namespace shop, though 1 Service has a selector: ")


@pytest.mark.parametrize(
    "documents",
    [
        (_web(), _slice()),
        (_web("other"), _slice()),
        (_web(extra=", type: ExternalName, externalName: example.org"),),
        (_web().replace(", selector: {app: web}", ""),),
        (NODE.replace("CIDR", ""),),
    ],
)
def test_slices_are_not_missed(documents: tuple[str, ...]) -> None:
    assert list(remark_no_slices(_load(*documents))) == []


POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"podIP": "10.244.0.5"}}


@pytest.mark.parametrize(
    ("documents", "pods", "told"),
    [
        ((_web(),), [], False),
        ((_web(),), [POD], True),
        ((_web(),), [POD | {"spec": {"hostNetwork": True}}], False),
        ((_web(),), [POD | {"status": {}}], False),
        ((NODE.replace("CIDR", "podCIDR: 10.244.0.0/24"),), [], True),
        ((NODE.replace("CIDR", ""), _slice()), [], True),
        ((NODE.replace("CIDR", ""), _slice(address="192.168.0.1")), [], False),
        ((_slice(),), [], False),
    ],
)
def test_no_configuration(documents: tuple[str, ...], pods: list[dict[str, Any]], told: bool) -> None:
    found = list(remark_no_config(_load(*documents), pods))
    assert bool(found) is told
    assert all("clusterCIDR is unknown" in text and "--config FILE" in text for text in found)


def test_pods_are_seen_among_the_objects_that_the_loader_skips() -> None:
    objects: list[RawObject] = []
    pod = '{"metadata": {"name": "p"}, "status": {"podIP": "10.1.0.1"}}'
    text = f'{{"apiVersion": "v1", "kind": "PodList", "items": [{pod}]}}'
    load_contents({"pods.json": text.encode()}, objects.append)
    assert list(remark_no_config(Manifests(), objects))


def test_unallocated_services_are_told_in_one_line() -> None:
    one = _load(_web(extra=""))
    assert list(remark_no_cluster_ips(one, "; so do")) == [
        "f.yaml: document 1: line 2: Service default/web has no clusterIP: the API server has not allocated one, so "
        "kube-proxy ignores it; so do"
    ]
    many = _load(*(_web(f"web-{number}", extra="") for number in range(5)))
    (remark,) = remark_no_cluster_ips(many)
    assert remark.startswith("5 Services have no clusterIP (default/web-0, default/web-1, default/web-2 and 2 more): ")
    for extra in (", clusterIP: None", ", clusterIP: 10.0.0.1", ", type: ExternalName, externalName: a.b"):
        assert list(remark_no_cluster_ips(_load(_web(extra=extra)))) == []


def test_allocated_addresses_stay_when_other_services_come() -> None:
    networks = read_networks("10.96.0.0/16,fd00::/112")
    few = allocate_addresses(_load(_web("a", extra=""), _web("b", extra="")), networks)
    more = allocate_addresses(_load(*(_web(name, extra="") for name in ("c", "b", "d", "a"))), networks)
    addresses = {each.metadata.name: each.spec.cluster_ips for each in more.services}
    assert {each.metadata.name: each.spec.cluster_ips for each in few.services}.items() <= addresses.items()
    assert len(set(addresses.values())) == 4
    assert all(ipaddress.ip_address(ips[0]) in networks[0] and len(ips) == 1 for ips in addresses.values())
    assert list(remark_no_cluster_ips(more)) == []


def test_collisions_and_families() -> None:
    (small,) = read_networks("10.9.0.0/26")
    filled = allocate_addresses(_load(*(_web(f"s{number}", extra="") for number in range(52))), [small])
    addresses = {each.spec.cluster_ip for each in filled.services}
    assert len(addresses) == 52
    assert all(ipaddress.ip_address(address) in small for address in addresses)
    with pytest.raises(InputError, match="is full"):
        allocate_addresses(_load(*(_web(f"s{number}", extra="") for number in range(53))), [small])
    taken = _load(_web("a", extra=""))
    first = allocate_addresses(taken, [small]).services[0].spec.cluster_ip
    both = _load(_web("a", extra=""), _web("b", extra=f", clusterIP: {first}"))
    assert allocate_addresses(both, [small]).services[0].spec.cluster_ip != first
    dual = _load(_web(extra=", ipFamilyPolicy: RequireDualStack"))
    spec = allocate_addresses(dual, read_networks("fd00::/112,10.9.0.0/26")).services[0].spec
    assert (spec.ip_families, len(spec.cluster_ips)) == (("IPv6", "IPv4"), 2)
    with pytest.raises(InputError, match="wants IPv6"):
        allocate_addresses(_load(_web(extra=", ipFamilies: [IPv6]")), [small])


@pytest.mark.parametrize("text", ["10.96.0.0", "10.96.0.1/16", "", "10.0.0.0/16,10.1.0.0/16", "10.0.0.0/29"])
def test_networks_that_are_none(text: str) -> None:
    with pytest.raises(InputError):
        read_networks(text)
