"""What more than one ServicePort claims."""

from __future__ import annotations

from kproxy.services.claims import ServiceAddress, claim_in_words, claimed_twice
from kproxy.services.names import ServicePortName
from kproxy.services.serviceport import ServicePort


def port(
    name: str,
    protocol: str = "TCP",
    number: int = 80,
    external_ips: tuple[str, ...] = (),
    load_balancer_vips: tuple[str, ...] = (),
) -> ServicePort:
    return ServicePort(
        ServicePortName("shop", name, "", protocol), f"10.96.0.{ord(name)}", number, 0, external_ips, load_balancer_vips
    )


def test_external_and_load_balancer_ips_are_claimed_twice() -> None:
    a = port("a", external_ips=("198.51.100.7",), load_balancer_vips=("198.51.100.7",))
    b = port("b", load_balancer_vips=("198.51.100.7", "198.51.100.8"))
    found = claimed_twice([a, b])
    door = ServiceAddress("198.51.100.7", "tcp", 80)
    assert found == {door: (a, b)}
    assert claim_in_words(door, found[door]).startswith(
        "198.51.100.7:80/TCP is claimed by 2 Services, shop/a and shop/b"
    )


def test_another_port_or_protocol_is_another_claim() -> None:
    shared = ("2001:db8::7",)
    others = (port("b", "UDP", external_ips=shared), port("c", number=81, external_ips=shared))
    assert claimed_twice([port("a", external_ips=shared), *others]) == {}


def test_another_services_cluster_ip() -> None:
    a = port("a")
    b = port("b", external_ips=(a.cluster_ip,))
    assert claimed_twice([a, b]) == {ServiceAddress(a.cluster_ip, "tcp", 80): (a, b)}
