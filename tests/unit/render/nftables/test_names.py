"""Names of chains and sets."""

from __future__ import annotations

from kproxy.render.nftables.names import (
    MAX_BASE,
    endpoint_base,
    is_service_chain,
    service_port_base,
)
from kproxy.services import Endpoint, ServicePortName

NAME = ServicePortName("ns1", "svc1", "p80", "TCP")


def test_names_as_recorded() -> None:
    assert service_port_base(ServicePortName("default", "svc-1", "", "UDP")) == "B2K7LPLE-default/svc-1/udp/"
    name = ServicePortName("kube-system", "svc-4", "p0", "UDP")
    six = Endpoint("[fd00:10:244::db]:53", "fd00:10:244::db")
    assert endpoint_base(name, six) == "FLPJ6BVZ-kube-system/svc-4/udp/p0__fd00.10.244..db/53"


def test_a_long_name_is_cut_and_keeps_its_hash() -> None:
    name = ServicePortName("n" * 63, "s" * 63, "p" * 63, "SCTP")
    endpoint = Endpoint("[fd00:1111:2222:3333:4444:5555:6666:7777]:65535", "fd00:1111:2222:3333:4444:5555:6666:7777")
    other = Endpoint("[fd00:1111:2222:3333:4444:5555:6666:7777]:65534", endpoint.ip)
    assert not service_port_base(name).endswith("...")
    cut = endpoint_base(name, endpoint)
    assert len(cut) == MAX_BASE
    assert cut.endswith("...")
    assert cut[8:] == endpoint_base(name, other)[8:]
    assert cut[:8] != endpoint_base(name, other)[:8]


def test_a_slash_tells_chains_of_services() -> None:
    assert is_service_chain(f"service-{service_port_base(NAME)}")
    assert not is_service_chain("service-endpoints-check")
