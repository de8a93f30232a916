"""The read-back through libiptc agrees with iptables-save: rules and counters."""

from __future__ import annotations

import socket

import pytest

from kproxy.linux.iptables.executor import IptablesExecutor, find_iptables
from kproxy.linux.iptables.legacy import legacy_tables
from kproxy.linux.iptables.libiptc import compare_read_back, read_back
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.iptables.desired import desired_rules
from kproxy.linux.sync.iptables.reconcile import read_dump, reconcile_rules
from kproxy.netfilter.hooks import Variant
from kproxy.services import IPFamily
from tests.support.examples import spread
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.linux.suite import FOREIGN, FOREIGN_V6
from tests.support.recorded import CLUSTERS, MINIKUBE, render

pytestmark = pytest.mark.root

both_families = pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: str(family.value))


@both_families
@pytest.mark.parametrize("group", spread(range(48), 1, 1))
def test_it_agrees_with_iptables_save(family: IPFamily, group: int) -> None:
    for case in [*CLUSTERS, MINIKUBE][group::48]:
        with fresh_namespace() as name, Namespace.named(name) as namespace:
            executor = IptablesExecutor(namespace, find_iptables(family, Variant.LEGACY))
            executor.restore(FOREIGN_V6 if family.is_ipv6 else FOREIGN)
            reconcile_rules(executor, desired_rules(render(case, family)))
            saved = read_dump(executor, counters=True)
            assert compare_read_back(saved, read_back(namespace, family), family) == []


def test_counters_of_traffic_agree() -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = IptablesExecutor(namespace, find_iptables(IPFamily.IPV4, Variant.LEGACY))
        reconcile_rules(executor, desired_rules(render(MINIKUBE, IPFamily.IPV4)))
        run("ip", "link", "set", "lo", "up", namespace=name)
        namespace.call(_send_to_self)
        saved = read_dump(executor, counters=True)
        counted = saved.tables["filter"]["OUTPUT"].counters
        assert any(count != "[0:0]" for count in counted)
        assert compare_read_back(saved, read_back(namespace, IPFamily.IPV4), IPFamily.IPV4) == []


def _send_to_self() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(3):
            sender.sendto(b"x", ("127.0.0.1", 9))


def test_differences_are_reported() -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = IptablesExecutor(namespace, find_iptables(IPFamily.IPV4, Variant.LEGACY))
        executor.restore("*filter\n:A - [0:0]\n[1:2] -A A -s 192.0.2.1 -j DROP\n-A A -j RETURN\nCOMMIT\n")
        saved = read_dump(executor, counters=True)
        executor.restore("*filter\n:A - [0:0]\n[1:3] -A A -s 192.0.2.1 -j DROP\n-A A -j DROP\n:B - [0:0]\nCOMMIT\n")
        told = compare_read_back(saved, read_back(namespace, IPFamily.IPV4), IPFamily.IPV4)
        assert [line.partition(":")[0] for line in told] == ["filter A rule 2", "filter A rule 1", "filter B"]


def test_a_namespace_without_legacy_tables_stays_so() -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        assert read_back(namespace, IPFamily.IPV4).tables == {}
        assert run("cat", "/proc/net/ip_tables_names", namespace=name) == ""


@both_families
def test_a_rule_whose_target_is_looked_for_makes_no_table(family: IPFamily) -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = IptablesExecutor(namespace, find_iptables(family, Variant.LEGACY))
        executor.restore(
            "*mangle\n-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu\nCOMMIT\n"
        )
        assert compare_read_back(read_dump(executor, counters=True), read_back(namespace, family), family) == []
        assert namespace.call(legacy_tables, family) == ["mangle"]
