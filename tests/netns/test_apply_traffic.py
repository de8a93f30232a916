"""Never a broken moment: traffic flows while endpoints churn, restores fail, and appliers are killed.

Clients connect and ask through a cluster IP, a node port and a load-balancer IP. Each attempt must be answered, and
by an endpoint of a state that may have been in the kernel at some moment of the attempt: from when an apply of it
began until an apply of another one ended.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator

import pytest

from kproxy.api import KubeProxyConfiguration
from kproxy.api.core import LoadBalancerIngress, Service, ServicePort
from kproxy.api.discovery import EndpointPort, EndpointSlice
from kproxy.linux import steps
from kproxy.linux.applier import Applier
from kproxy.linux.binaries import Variant, find_iptables
from kproxy.linux.engine import Outcome, apply_rules
from kproxy.linux.errors import ApplyFailedError
from kproxy.linux.executor import Executor, IptablesExecutor
from kproxy.linux.stale import clean_flows, programmed_addresses, wanted_addresses
from kproxy.linux.wanted import wanted_rules
from kproxy.render import Renderer, Target, render_options, render_target
from kproxy.services import IPFamily, ServiceState
from tests.linux.fake import Faulty, Killed, refused
from tests.netns.apply_network import (
    CLUSTER_IP,
    ENDPOINTS,
    LOAD_BALANCER_IP,
    NODE_PORT,
    PORT,
    TARGET_PORT,
    Network,
    Servers,
    Traffic,
    network,
)
from tests.services.builders import make_endpoint, make_service, make_slice

pytestmark = [pytest.mark.root, pytest.mark.soak]

CONFIG = KubeProxyConfiguration(cluster_cidr="10.244.0.0/16")
PORTS = tuple(
    ServicePort(port=PORT, name=protocol.lower(), protocol=protocol, node_port=NODE_PORT) for protocol in ("TCP", "UDP")
)
SLICE_PORTS = tuple(EndpointPort(TARGET_PORT, protocol.lower(), protocol) for protocol in ("TCP", "UDP"))
FILLERS = 6


def services() -> list[Service]:
    """The Service that the traffic goes to, and others that make batches several."""
    others = [make_service(f"other-{number}", cluster_ips=(f"10.96.1.{number + 1}",)) for number in range(FILLERS)]
    web = make_service(
        type="LoadBalancer", ports=PORTS, cluster_ips=(CLUSTER_IP,), ingress=(LoadBalancerIngress(LOAD_BALANCER_IP),)
    )
    return [web, *others]


def slices(chosen: frozenset[str], round_: int) -> list[EndpointSlice]:
    """The chosen endpoints for the Service; other Services' endpoints change with the round."""
    web = make_slice(*(make_endpoint(ip) for ip in sorted(chosen)), ports=SLICE_PORTS)
    others = [
        make_slice(
            make_endpoint(f"10.244.7.{(round_ + number) % 200 + 1}"), service=f"other-{number}", name=f"other-{number}"
        )
        for number in range(FILLERS)
    ]
    return [web, *others]


def bring_to(executor: Executor, net: Network, chosen: frozenset[str], round_: int) -> Outcome:
    """Rules first, then connection tracking, as `kproxy apply` does."""
    target = Target("node-0", None)
    rendered = render_target(target, IPFamily.IPV4, services(), slices(chosen, round_), CONFIG)
    outcome = apply_rules(executor, wanted_rules(rendered))
    # A client's port that is used again would follow its old entry to an endpoint that has gone.
    before, now = programmed_addresses(outcome.before), wanted_addresses(rendered.state)
    clean_flows(net.spaces["node"], IPFamily.IPV4, now, before)
    return outcome


Act = Callable[[Executor, Network, "History", random.Random, int], None]


class History:
    """Which states may have been in the kernel, and when."""

    def __init__(self) -> None:
        self._states: list[tuple[float, float, frozenset[str]]] = []

    @contextlib.contextmanager
    def applying(self, chosen: frozenset[str]) -> Iterator[None]:
        """Around an apply that either succeeds, or puts back what was there, or is killed."""
        begin = time.monotonic()
        known = list(self._states)
        self._states.append((begin, float("inf"), chosen))
        try:
            yield
        except ApplyFailedError:
            self._states = [*known, (begin, time.monotonic(), chosen)]
        except Killed:
            pass
        else:
            end = time.monotonic()
            self._states = [(start, min(until, end), each) for start, until, each in known]
            self._states.append((begin, float("inf"), chosen))

    def allowed(self, began: float, ended: float) -> frozenset[str]:
        return frozenset().union(*(each for start, until, each in self._states if start <= ended and until >= began))


@pytest.fixture
def net() -> Iterator[Network]:
    with network() as made:
        servers = Servers(made.spaces["pods"])
        try:
            yield made
        finally:
            servers.close()


def choose(chance: random.Random) -> frozenset[str]:
    """One to three endpoints; the last one is in no state."""
    return frozenset(chance.sample(ENDPOINTS[:-1], chance.randint(1, 3)))


def check(traffic: Traffic, history: History) -> None:
    assert traffic.broken == []
    failed = [attempt for attempt in traffic.attempts if attempt.error]
    assert failed == []
    strayed = [a for a in traffic.attempts if a.endpoint not in history.allowed(a.began, a.ended)]
    assert strayed == []
    assert {attempt.path for attempt in traffic.attempts} == {
        f"{place} {kind}" for place in ("cluster IP", "node port", "load-balancer IP") for kind in ("tcp", "udp")
    }
    assert {attempt.endpoint for attempt in traffic.attempts} == set(ENDPOINTS[:-1])


def churn(net: Network, variant: Variant, act: Act, rounds: int) -> None:
    """Applies states one after the other under traffic."""
    chance, history = random.Random(rounds), History()
    executor = IptablesExecutor(net.spaces["node"], find_iptables(IPFamily.IPV4, variant))
    with history.applying(frozenset(ENDPOINTS[:3])):
        bring_to(executor, net, frozenset(ENDPOINTS[:3]), 0)
    traffic = Traffic()
    traffic.start(net)
    try:
        for number in range(rounds):
            act(executor, net, history, chance, number)
        time.sleep(0.05)
    finally:
        traffic.stop()
    check(traffic, history)
    with history.applying(frozenset(ENDPOINTS[:3])):
        outcome = bring_to(executor, net, frozenset(ENDPOINTS[:3]), 0)
    assert outcome.report.result in ("applied", "nothing to do")


def full_apply(executor: Executor, net: Network, history: History, chance: random.Random, number: int) -> None:
    chosen = choose(chance)
    with history.applying(chosen):
        bring_to(executor, net, chosen, number)


def failing_apply(executor: Executor, net: Network, history: History, chance: random.Random, number: int) -> None:
    """Every other time, a transaction in the middle is refused."""
    chosen = choose(chance)
    faulty = Faulty(executor, fail_at=chance.randint(0, 4) if number % 2 else None, error=refused)
    with history.applying(chosen):
        bring_to(faulty, net, chosen, number)


def killed_apply(executor: Executor, net: Network, history: History, chance: random.Random, number: int) -> None:
    """A kill between two transactions, every place in turn; then an apply that must come right."""
    chosen = choose(chance)
    with history.applying(chosen):
        bring_to(Faulty(executor, fail_at=number % 7), net, chosen, number)
    full_apply(executor, net, history, chance, number + 1)


ACTS = (full_apply, failing_apply, killed_apply)
SMALL_STEPS = 7


@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: str(variant.value))
@pytest.mark.parametrize("act", ACTS, ids=lambda act: str(act.__name__))
@pytest.mark.parametrize("rounds", [24, pytest.param(300, marks=pytest.mark.soak)])
def test_applies(
    net: Network,
    variant: Variant,
    act: Act,
    rounds: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whole applies, in small batches for nft, so that many transactions make one apply."""
    monkeypatch.setattr(steps, "CHAINS_PER_STEP", SMALL_STEPS)
    monkeypatch.setattr(steps, "STEPS_PER_RUN", 2)
    churn(net, variant, act, rounds)


@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: str(variant.value))
@pytest.mark.parametrize("rounds", [80, pytest.param(1000, marks=pytest.mark.soak)])
def test_partial_applies(net: Network, variant: Variant, rounds: int) -> None:
    """The applier, as an agent uses it: one changed slice at a time."""
    state = ServiceState.of(IPFamily.IPV4, "node-0", services(), slices(frozenset(ENDPOINTS[:3]), 0))
    renderer = Renderer(render_options(CONFIG, IPFamily.IPV4, "node-0"))
    appliers: list[Applier] = []

    def act(executor: Executor, net: Network, history: History, chance: random.Random, number: int) -> None:
        if not appliers:
            appliers.append(Applier(executor, state, renderer, net.spaces["node"]))
            appliers[0].resync()
        web, *others = slices(choose(chance), number)
        if chance.random() < 0.2:
            state.update_endpoint_slice(others[0])
            appliers[0].sync()
            return
        state.update_endpoint_slice(web)
        with history.applying(frozenset(endpoint.addresses[0] for endpoint in web.endpoints)):
            appliers[0].sync()

    churn(net, variant, act, rounds)
