"""Chain names: the hashes of the article and of the recorded clusters."""

from __future__ import annotations

import pytest

from kproxy.render.iptables.chains import endpoint_chain_name, service_port_hash
from kproxy.services import ServicePortName


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (ServicePortName("default", "crd-array-watcher", "", "TCP"), "HW2XM7FRY33HEVYM"),
        (ServicePortName("kube-system", "kube-dns", "dns", "UDP"), "TCOU7JCQXEZGVUNU"),
        (ServicePortName("kube-system", "kube-dns", "metrics", "TCP"), "JD5MR3NA4I4DYORP"),
    ],
)
def test_service_port_hash(name: ServicePortName, wanted: str) -> None:
    assert service_port_hash(name) == wanted


def test_endpoint_chain_name() -> None:
    name = ServicePortName("default", "crd-array-watcher", "", "TCP")
    assert endpoint_chain_name(name, "10.244.0.35:8080") == "KUBE-SEP-PLQTWCYKKRRVAV4U"
    assert len(endpoint_chain_name(name, "[fd00::1]:8080")) <= 28, "iptables allows no more"


def test_the_protocol_is_part_of_the_hash() -> None:
    tcp = ServicePortName("a", "b", "p", "TCP")
    assert service_port_hash(tcp) != service_port_hash(tcp._replace(protocol="UDP"))
