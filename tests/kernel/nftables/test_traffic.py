"""Never a broken moment in nftables mode either, nor while one mode replaces the other.

The clients are those of tests/kernel/apply/test_traffic.py: TCP and UDP through a cluster IP, a node port and a
load-balancer IP, from new ports and from one port, and connections that are held throughout. Endpoints change with each
apply, and the mode with every second one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from kproxy.api import KubeProxyConfiguration
from kproxy.linux.sync.apply import apply_node
from kproxy.linux.sync.backend import NodeRequest
from kproxy.render import Target
from tests.support.kernel.apply_network import ENDPOINTS, Network, Traffic, served_network
from tests.support.kernel.churned_service import History, check, choose, services, slices
from tests.support.kernel.namespaces import run

pytestmark = pytest.mark.root

EVERYWHERE = ("0.0.0.0/0",)
"""Node ports on all addresses, which nftables mode does not have by itself."""


@pytest.fixture
def net() -> Iterator[Network]:
    with served_network() as made:
        yield made


def bring_to(net: Network, chosen: frozenset[str], round_: int, mode: str) -> bool:
    """Applies a state in a mode; whether anything had to be written."""
    config = KubeProxyConfiguration(cluster_cidr="10.244.0.0/16", mode=mode, node_port_addresses=EVERYWHERE)
    request = NodeRequest(Target("node-0", None), config, services(), slices(chosen, round_))
    return apply_node(request, net.spaces["node"]).changed


def keep_changing(net: Network, rounds: int, modes: tuple[str, ...]) -> None:
    rng, history = random.Random(rounds), History()
    first = frozenset(ENDPOINTS[:3])
    with history.applying(first):
        bring_to(net, first, 0, modes[0])
    traffic = Traffic()
    traffic.start(net)
    try:
        for number in range(rounds):
            chosen = choose(rng)
            with history.applying(chosen):
                bring_to(net, chosen, number, modes[number // 2 % len(modes)])
        for chosen in (first, frozenset(ENDPOINTS[2:-1])):
            with history.applying(chosen):
                bring_to(net, chosen, rounds, modes[-1])
            time.sleep(0.3)
    finally:
        traffic.stop()
    check(traffic, history)
    assert not bring_to(net, frozenset(ENDPOINTS[2:-1]), rounds, modes[-1])


@pytest.mark.soak  # tests/kernel/run/test_switching_modes.py has the same by `kproxy run`
@pytest.mark.parametrize("last", ["nftables", "iptables"])
def test_the_modes_replace_one_another_under_traffic(net: Network, last: str) -> None:
    modes = ("iptables", "nftables") if last == "nftables" else ("nftables", "iptables")
    keep_changing(net, 6, modes)
    node = net.spaces["node"].label.split()[-1]
    assert ("KUBE-SERVICES" in run("iptables-nft-save", namespace=node)) is (last == "iptables")
    assert ("kube-proxy" in run("nft", "list", "tables", namespace=node)) is (last == "nftables")


@pytest.mark.parametrize(
    "rounds", [pytest.param(20, marks=pytest.mark.slow), pytest.param(300, marks=pytest.mark.soak)]
)
def test_endpoints_change_under_traffic(net: Network, rounds: int) -> None:
    keep_changing(net, rounds, ("nftables",))
