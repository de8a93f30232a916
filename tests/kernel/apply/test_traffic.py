"""Never a broken moment: traffic flows while endpoints churn, restores fail, and syncers are killed.

Clients connect and ask through a cluster IP, a node port and a load-balancer IP. Each attempt must be answered, and
by an endpoint of a state that may have been in the kernel at some moment of the attempt: from when an apply of it
began until an apply of another one ended.
"""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from kproxy.api import KubeProxyConfiguration
from kproxy.cluster.stale_flows import desired_addresses
from kproxy.linux.conntrack.flows import clean_flows
from kproxy.linux.conntrack.programmed import programmed_addresses
from kproxy.linux.errors import ApplyFailedError, RestoreFailedError
from kproxy.linux.iptables.executor import Executor, IptablesExecutor, find_iptables
from kproxy.linux.sync.iptables import reconcile
from kproxy.linux.sync.iptables.backend import Syncer
from kproxy.linux.sync.iptables.desired import desired_rules
from kproxy.linux.sync.iptables.reconcile import plan_runs, reconcile_rules
from kproxy.netfilter.hooks import Variant
from kproxy.render import Renderer, Target, render_options, render_target
from kproxy.services import IPFamily, ServiceState
from tests.support.examples import spread
from tests.support.kernel.apply_network import (
    CLUSTER_IP,
    ENDPOINTS,
    LOAD_BALANCER_IP,
    PORT,
    Network,
    Traffic,
    served_network,
    udp_query,
)
from tests.support.kernel.churned_service import History, check, choose, services, slices
from tests.support.linux.fake import Faulty, refused

pytestmark = pytest.mark.root

CONFIG = KubeProxyConfiguration(cluster_cidr="10.244.0.0/16")


def bring_to(executor: Executor, net: Network, chosen: frozenset[str], round_: int) -> None:
    """Rules first, then connection tracking, as `kproxy apply` does."""
    target = Target("node-0", None)
    rendered = render_target(target, IPFamily.IPV4, services(), slices(chosen, round_), CONFIG)
    outcome = reconcile_rules(executor, desired_rules(rendered), net.spaces["node"])
    # A client's port that is used again would follow its old entry to an endpoint that has gone.
    before, now = programmed_addresses(outcome.before), desired_addresses(rendered.state)
    clean_flows(net.spaces["node"], IPFamily.IPV4, now, before)


Act = Callable[[Executor, Network, "History", random.Random, int], None]


@pytest.fixture
def net() -> Iterator[Network]:
    with served_network() as made:
        yield made


def churn(net: Network, variant: Variant, act: Act, rounds: int) -> None:
    """Applies states one after the other under traffic."""
    rng, history = random.Random(rounds), History()
    executor = IptablesExecutor(net.spaces["node"], find_iptables(IPFamily.IPV4, variant))
    with history.applying(frozenset(ENDPOINTS[:3])):
        bring_to(executor, net, frozenset(ENDPOINTS[:3]), 0)
    traffic = Traffic()
    traffic.start(net)
    try:
        for number in range(rounds):
            act(executor, net, history, rng, number)
        time.sleep(0.05)
    finally:
        traffic.stop()
    check(traffic, history)
    with history.applying(frozenset(ENDPOINTS[:3])):
        bring_to(executor, net, frozenset(ENDPOINTS[:3]), 0)


def full_apply(executor: Executor, net: Network, history: History, rng: random.Random, number: int) -> None:
    chosen = choose(rng)
    with history.applying(chosen):
        bring_to(executor, net, chosen, number)


def failing_apply(executor: Executor, net: Network, history: History, rng: random.Random, number: int) -> None:
    """Every other time, a transaction in the middle is refused."""
    chosen = choose(rng)
    faulty = Faulty(executor, fail_at=rng.randint(0, 4) if number % 2 else None, error=refused)
    with history.applying(chosen):
        bring_to(faulty, net, chosen, number)


def killed_apply(executor: Executor, net: Network, history: History, rng: random.Random, number: int) -> None:
    """A kill between two transactions, every place in turn; then an apply that must come right."""
    chosen = choose(rng)
    with history.applying(chosen):
        bring_to(Faulty(executor, fail_at=number % 7), net, chosen, number)
    full_apply(executor, net, history, rng, number + 1)


def test_entries_of_an_apply_that_was_taken_back_go(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query between the batches of an apply that then fails: its port must not go on to that apply's endpoint."""
    monkeypatch.setattr(reconcile, "plan_runs", SMALL_BATCHES)
    executor = IptablesExecutor(net.spaces["node"], find_iptables(IPFamily.IPV4, Variant.NFT))
    first, second = frozenset(ENDPOINTS[:1]), frozenset(ENDPOINTS[1:2])
    bring_to(executor, net, first, 0)
    for role, address in (("client", (CLUSTER_IP, PORT)), ("outside", (LOAD_BALANCER_IP, PORT))):
        answers: list[set[str]] = []
        for fail_at in range(8):
            with contextlib.closing(net.spaces[role].call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)) as asker:
                asker.connect(address)

                def ask(to: socket.socket = asker) -> str:
                    return udp_query(to, "", 0).endpoint

                meanwhile: list[str] = []

                def fault(heard: list[str] = meanwhile, ask: Callable[[], str] = ask) -> RestoreFailedError:
                    heard.append(ask())
                    return refused()

                with contextlib.suppress(ApplyFailedError):  # raised unless the apply has fewer transactions
                    bring_to(Faulty(executor, fail_at=fail_at, error=fault), net, second, 1)
                if not meanwhile:
                    bring_to(executor, net, first, 0)
                    break
                answers.append(set(meanwhile))
                assert ask() in first
        assert answers[0] == first
        assert second in answers, "some query met the apply that was taken back"


ACTS = (full_apply, failing_apply, killed_apply)
LENGTHS = spread([3, 7, 300], 1, 1)
SMALL_BATCHES = partial(plan_runs, chains_per_batch=7, batches_per_run=2)


@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: str(variant.value))
@pytest.mark.parametrize("act", ACTS, ids=lambda act: str(act.__name__))
@pytest.mark.parametrize("rounds", LENGTHS)
def test_applies(
    net: Network,
    variant: Variant,
    act: Act,
    rounds: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whole applies, in small batches for nft, so that many transactions make one apply."""
    monkeypatch.setattr(reconcile, "plan_runs", SMALL_BATCHES)
    churn(net, variant, act, rounds)


@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: str(variant.value))
@pytest.mark.parametrize("rounds", [10, pytest.param(1000, marks=pytest.mark.soak)])
def test_partial_applies(net: Network, variant: Variant, rounds: int) -> None:
    """The syncer, as an agent uses it: one changed slice at a time."""
    state = ServiceState.of(IPFamily.IPV4, "node-0", services(), slices(frozenset(ENDPOINTS[:3]), 0))
    renderer = Renderer(render_options(CONFIG, IPFamily.IPV4, "node-0"))
    syncers: list[Syncer] = []

    def act(executor: Executor, net: Network, history: History, rng: random.Random, number: int) -> None:
        if not syncers:
            syncers.append(Syncer(executor, state, renderer, net.spaces["node"]))
            syncers[0].resync()
        web, *others = slices(choose(rng), number)
        if rng.random() < 0.2:
            state.update_endpoint_slice(others[0])
            syncers[0].sync()
            return
        state.update_endpoint_slice(web)
        with history.applying(frozenset(endpoint.addresses[0] for endpoint in web.endpoints)):
            syncers[0].sync()

    churn(net, variant, act, rounds)
