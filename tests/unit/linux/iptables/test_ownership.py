"""What is kube-proxy's and what is not."""

from __future__ import annotations

import pytest

from kproxy.linux.iptables.ownership import is_owned
from kproxy.netfilter.text import target_of
from kproxy.render.iptables.plan import height


@pytest.mark.parametrize(
    ("table", "chain"),
    [
        ("nat", "KUBE-SERVICES"),
        ("nat", "KUBE-SVC-ABCDEFGHIJKLMNOP"),
        ("nat", "KUBE-XLB-ABCDEFGHIJKLMNOP"),
        ("nat", "KUBE-MARK-DROP"),
        ("filter", "KUBE-FIREWALL"),
        ("mangle", "KUBE-PROXY-CANARY"),
    ],
)
def test_ours(table: str, chain: str) -> None:
    assert is_owned(table, chain)


@pytest.mark.parametrize(
    ("table", "chain"),
    [
        ("nat", "KUBE-KUBELET-CANARY"),
        ("mangle", "KUBE-IPTABLES-HINT"),
        ("nat", "KUBE-HOSTPORTS"),
        ("filter", "KUBE-ROUTER-FORWARD"),
        ("filter", "KUBE-SVC-ABCDEFGHIJKLMNOP"),
        ("mangle", "KUBE-SERVICES"),
        ("raw", "KUBE-PROXY-CANARY"),
        ("nat", "DOCKER"),
    ],
)
def test_not_ours(table: str, chain: str) -> None:
    assert not is_owned(table, chain)


@pytest.mark.parametrize(
    ("rule", "target"),
    [
        ("-j KUBE-SERVICES", "KUBE-SERVICES"),
        ('-m comment --comment "say -j DROP" -j ACCEPT', "ACCEPT"),
        ('-m comment --comment "a \\" -j X" -g KUBE-SERVICES', "KUBE-SERVICES"),
        ("-j DNAT --to-destination 10.0.0.1:80", "DNAT"),
        ("-p tcp", ""),
    ],
)
def test_targets(rule: str, target: str) -> None:
    assert target_of(rule) == target


def test_chains_jump_to_lower_ones() -> None:
    order = ["KUBE-MARK-MASQ", "KUBE-SEP-X", "KUBE-SVC-X", "KUBE-EXT-X", "KUBE-FW-X", "KUBE-SERVICES"]
    assert [height(chain) for chain in order] == sorted(height(chain) for chain in order)
