"""The Service that traffic goes to while its endpoints change, and what must come of the traffic.

Each attempt must be answered, and by an endpoint of a state that may have been in the kernel at some moment of the
attempt: from when an apply of it began until an apply of another one ended.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator

from kproxy.api.types.core import LoadBalancerIngress, Service, ServicePort
from kproxy.api.types.discovery import EndpointPort, EndpointSlice
from kproxy.linux.errors import ApplyFailedError
from tests.support.kernel.apply_network import (
    CLUSTER_IP,
    ENDPOINTS,
    LOAD_BALANCER_IP,
    NODE_PORT,
    PORT,
    TARGET_PORT,
    Traffic,
)
from tests.support.linux.fake import Killed
from tests.support.services.builders import make_endpoint, make_service, make_slice

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


def choose(rng: random.Random) -> frozenset[str]:
    """One to three endpoints; the last one is in no state."""
    return frozenset(rng.sample(ENDPOINTS[:-1], rng.randint(1, 3)))


def check(traffic: Traffic, history: History) -> None:
    assert traffic.broken == []
    failed = [attempt for attempt in traffic.attempts if attempt.error]
    assert failed == []
    strayed = [a for a in traffic.attempts if a.endpoint not in history.allowed(a.began, a.ended)]
    assert strayed == []
    assert {attempt.path for attempt in traffic.attempts} == {
        f"{place} {kind}"
        for place in ("cluster IP", "node port", "load-balancer IP")
        for kind in ("tcp", "udp", "udp from one port")
    }
    assert {attempt.endpoint for attempt in traffic.attempts} == set(ENDPOINTS[:-1])
