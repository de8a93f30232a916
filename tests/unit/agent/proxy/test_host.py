"""What is set up once on a host."""

from __future__ import annotations

import pytest

from kproxy.agent.proxy.host import close_host, conntrack_limit, open_namespace, prepare_host, set_up_host, sysctls
from kproxy.api.kubeproxyconfig.duration import Duration
from kproxy.api.kubeproxyconfig.types import Conntrack, IPTables, KubeProxyConfiguration
from kproxy.linux.sync.iptables.backend import HostFamily
from kproxy.linux.sysctl import read_sysctl
from kproxy.netfilter.hooks import Variant
from kproxy.services import IPFamily
from tests.support.kernel.namespaces import fresh_namespace

NO_TIMEOUTS = Conntrack(tcp_established_timeout=Duration(), tcp_close_wait_timeout=Duration(), max_per_core=0)


def test_the_limit_of_connections() -> None:
    assert conntrack_limit(Conntrack(max_per_core=32768, min=131072), 2) == 131072
    assert conntrack_limit(Conntrack(max_per_core=32768, min=131072), 8) == 262144
    assert conntrack_limit(Conntrack(max_per_core=0, min=131072), 8) == 0


def test_which_sysctls() -> None:
    def names(config: KubeProxyConfiguration, netns: str | None = "x") -> list[str]:
        return [name.rpartition(".")[2] for name, _, _ in sysctls(config, netns)]

    assert names(KubeProxyConfiguration()) == [
        "route_localnet", "nf_conntrack_tcp_timeout_established", "nf_conntrack_tcp_timeout_close_wait",
    ]  # fmt: skip
    assert "nf_conntrack_max" in names(KubeProxyConfiguration(), None), "only the machine's own namespace may"
    assert names(KubeProxyConfiguration(conntrack=NO_TIMEOUTS)) == ["route_localnet"]
    off = KubeProxyConfiguration(conntrack=NO_TIMEOUTS, iptables=IPTables(localhost_node_ports=False))
    assert names(off) == []
    for addresses in (("primary",), ("10.0.0.0/8",)):
        assert names(KubeProxyConfiguration(conntrack=NO_TIMEOUTS, node_port_addresses=addresses)) == []
    liberal = Conntrack(Conntrack().max_per_core, tcp_be_liberal=True, udp_timeout=Duration.of("40s"))
    assert {"nf_conntrack_tcp_be_liberal", "nf_conntrack_udp_timeout"} <= set(
        names(KubeProxyConfiguration(conntrack=liberal))
    )


@pytest.mark.root
def test_a_namespace_is_set_up_and_looked_at() -> None:
    with fresh_namespace() as name:
        set_up_host(KubeProxyConfiguration(), name)
        with open_namespace(name) as namespace:
            assert read_sysctl(namespace, "net.ipv4.conf.all.route_localnet") == "1"
            assert read_sysctl(namespace, "net.netfilter.nf_conntrack_tcp_timeout_established") == "86400"
        host = prepare_host("iptables", name, variant=Variant.LEGACY)
        assert host.variant == "legacy"
        assert {family.family for family in host.families} == set(IPFamily)
        for family in host.families:
            assert isinstance(family, HostFamily)
            assert (family.rewrite, len(family.canary_tables)) == (None, 3)
        close_host(host)
