"""Whose the chains and sets of the table are."""

from __future__ import annotations

import msgspec
import pytest

from kproxy.linux.nftables.ownership import is_our_chain, is_our_set, keep_reachable, service_of, targets_of
from tests.support.linux.nft_tables import make_table


@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("service-AA5TYN2V-kube-system/svc-4/tcp/p0", "kube-system/svc-4:p0"),
        ("external-B2K7LPLE-default/svc-1/udp/", "default/svc-1"),
        ("endpoint-EKPMQHCY-default/svc-2/tcp/p1__10.244.0.17/8001", "default/svc-2:p1"),
        ("affinity-EKPMQHCY-default/svc-2/tcp/__fd00..1/8001", "default/svc-2"),
        ("services", ""),
        ("service-ips", ""),
    ],
)
def test_names_tell_the_service(name: str, service: str) -> None:
    assert service_of(name) == service


def test_ours_and_others() -> None:
    assert all(map(is_our_chain, make_table("aB").chains))
    assert all(map(is_our_set, make_table("aB").sets))
    assert is_our_chain("mark-for-masquerade")
    assert not any(map(is_our_chain, ("mine", "service-mine", "service-x/y", "cluster-ips")))
    assert not any(map(is_our_set, ("mine", "affinity-mine", "services")))


def test_targets() -> None:
    assert targets_of("numgen random mod 2 vmap { 0 : goto a-b/c, 1 : goto d }") == {"a-b/c", "d"}
    assert targets_of('[{"counter":null},{"jump":{"target":"x"}}]') == {"x"}


def test_what_a_foreign_rule_leads_to_stays_with_what_it_leads_to() -> None:
    table = make_table("aB")
    service = next(name for name in table.chains if name.startswith("service-") and "/B/" in name)
    kept = keep_reachable(set(table.chains), [f"counter goto {service}"], table)
    assert kept == {name for name in table.chains if "/B/" in name}
    assert keep_reachable([], [f"goto {service}"], table) == set()
    assert keep_reachable(set(table.chains), ["drop"], msgspec.structs.replace(table, rules={})) == set()
