"""The addresses of load balancers."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.lab.controllers.loadbalancer import addresses_of, is_balanced
from kproxy.lab.errors import LabError
from kproxy.lab.spec import BALANCER_RANGES


def service(*held: str, **spec: Any) -> dict[str, Any]:
    ingress = [{"ip": address} for address in held]
    return {"spec": {"type": "LoadBalancer", **spec}, "status": {"loadBalancer": {"ingress": ingress}}}


def test_a_service_keeps_its_addresses_and_new_ones_are_free() -> None:
    assert addresses_of(service(), ()) == ["198.51.100.10"]
    assert addresses_of(service(), {"198.51.100.10"}) == ["198.51.100.11"]
    assert addresses_of(service("198.51.100.40"), {"198.51.100.10"}) == ["198.51.100.40"]
    assert addresses_of(service("198.51.100.40"), {"198.51.100.40"}) == ["198.51.100.10"], "another has it"
    both = service("198.51.100.12", ipFamilies=["IPv6", "IPv4"])
    assert addresses_of(both, ()) == ["2001:db8:198::a", "198.51.100.12"]


def test_an_address_that_is_asked_for() -> None:
    assert addresses_of(service(loadBalancerIP="198.51.100.77"), ()) == ["198.51.100.77"]
    assert addresses_of(service(loadBalancerIP="198.51.100.77"), {"198.51.100.77"}) == ["198.51.100.10"]
    assert addresses_of(service(loadBalancerIP="10.0.0.1"), ()) == ["198.51.100.10"], "not of the range"


def test_no_address_is_free() -> None:
    with pytest.raises(LabError, match="no load-balancer address"):
        addresses_of(service(), {str(each) for each in BALANCER_RANGES[4]})


def test_other_load_balancers_are_left_alone() -> None:
    assert is_balanced(service())
    assert not is_balanced(service(loadBalancerClass="example.com/other"))
    assert not is_balanced(service(type="NodePort"))
