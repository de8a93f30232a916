"""Every golden scenario, brought in by many histories: reordered, split, squashed, duplicated, relisted.

However the cluster came to be what it is, the kernel ends with the scenario's golden rules.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from kproxy.agent.proxy.proxier import FamilyProxier
from kproxy.agent.proxy.runner import BoundedFrequencyRunner
from kproxy.api import EndpointSlice, KubeProxyConfiguration, Manifests, Node, Service, load_config, load_manifests
from kproxy.linux.iptables.executor import parse_dump
from kproxy.linux.sync.iptables.backend import Syncer
from kproxy.render import Renderer, render_options
from kproxy.services import IPFamily, ServiceState
from tests.support import paths
from tests.support.linux.fake import MemoryExecutor
from tests.support.linux.suite import rules_in, rules_of

GOLDEN = paths.ROOT / "rules_golden"
CASES = sorted(path for path in GOLDEN.glob("*/expected/*.save"))
SMALL = 400
"""Endpoints above which one history is enough."""

Event = Callable[[FamilyProxier], None]


def ident(path: Path) -> str:
    return f"{path.parents[1].name}-{path.stem}"


def read(path: Path) -> tuple[Manifests, KubeProxyConfiguration, Node | None, IPFamily, str]:
    scenario = path.parents[1]
    cluster = load_manifests([scenario / "cluster.yaml"]).with_mirrored_slices()
    config_path = scenario / "config.yaml"
    config = load_config(str(config_path)).config if config_path.exists() else KubeProxyConfiguration()
    name, _, version = path.stem.rpartition(".")
    node = next((node for node in cluster.nodes if node.metadata.name == name), None)
    return cluster, config, node, IPFamily.IPV6 if version == "v6" else IPFamily.IPV4, name


class Subject:
    """A proxier with a kernel in memory, and a clock that only this moves."""

    def __init__(self, config: KubeProxyConfiguration, node: Node | None, family: IPFamily, name: str) -> None:
        self.now = 0.0
        self.kernel = MemoryExecutor(family)
        options = render_options(config, family, name, node)
        # It first hears of another node, in another place.
        other = msgspec.structs.replace(options, zone="elsewhere", node_ip="::1" if family.is_ipv6 else "127.0.0.1")
        self.options = options
        syncer = Syncer(self.kernel, ServiceState(family, name), Renderer(other))
        runner = BoundedFrequencyRunner(1.0, 30.0, lambda: 0.5)
        self.proxier = FamilyProxier(family, syncer, lambda: None, runner, lambda: self.now)

    def sync(self) -> None:
        """Lets time pass until everything that was put is in the kernel."""
        for _ in range(3):
            self.now += 1.5
            while self.proxier.step() == 0.0:
                pass
        assert self.proxier.has_synced
        assert not self.proxier.failing


def put_service(service: Service) -> Event:
    return lambda proxier: proxier.inbox.put_service(service.metadata.key, service)


def put_slice(piece: EndpointSlice) -> Event:
    return lambda proxier: proxier.inbox.put_slice(piece.metadata.key, piece)


def delete_service(key: str) -> Event:
    return lambda proxier: proxier.inbox.put_service(key, None)


def delete_slice(key: str) -> Event:
    return lambda proxier: proxier.inbox.put_slice(key, None)


def history_of_service(service: Service, rng: random.Random) -> Iterator[Event]:
    """A life that ends with the Service as it is."""
    other = msgspec.structs.replace(
        service, spec=msgspec.structs.replace(service.spec, ports=service.spec.ports[:1], external_ips=())
    )
    for _ in range(rng.randrange(3)):
        yield rng.choice((put_service(other), put_service(service), delete_service(service.metadata.key)))
    yield put_service(service)


def history_of_slice(piece: EndpointSlice, rng: random.Random) -> Iterator[Event]:
    """A life that ends with the slice as it is; once it may have been another Service's."""
    labels = {**piece.metadata.labels, "kubernetes.io/service-name": "another"}
    moved = msgspec.structs.replace(piece, metadata=msgspec.structs.replace(piece.metadata, labels=labels))
    smaller = msgspec.structs.replace(piece, endpoints=piece.endpoints[: rng.randrange(len(piece.endpoints) + 1)])
    for _ in range(rng.randrange(4)):
        yield rng.choice((put_slice(moved), put_slice(smaller), put_slice(piece), delete_slice(piece.metadata.key)))
    yield put_slice(piece)


def interleaved(histories: list[list[Event]], rng: random.Random) -> Iterator[Event]:
    """All events, each history's in its order."""
    left = [history[:] for history in histories if history]
    while left:
        history = rng.choice(left)
        yield history.pop(0)
        if not history:
            left.remove(history)


@pytest.mark.parametrize("path", CASES, ids=ident)
def test_every_history_ends_with_the_golden_rules(path: Path) -> None:
    cluster, config, node, family, name = read(path)
    golden = rules_in(parse_dump(path.read_text()))
    size = sum(len(piece.endpoints) for piece in cluster.endpoint_slices)
    for seed in range(6 if size <= SMALL else 1):
        rng = random.Random(f"{ident(path)} {seed}")
        subject = Subject(config, node, family, name)
        proxier = subject.proxier
        squash = rng.choice((0.0, 0.5, 0.9, 1.0)) if size <= SMALL else 0.97
        if rng.random() < 0.5:
            proxier.enable()
        histories = [list(history_of_service(service, rng)) for service in cluster.services]
        histories += [list(history_of_slice(piece, rng)) for piece in cluster.endpoint_slices]
        for event in interleaved(histories, rng):
            event(proxier)
            if rng.random() < 0.1:
                event(proxier)
            if proxier.has_synced and rng.random() >= squash:
                subject.sync()
            if rng.random() < 0.02:
                proxier.set_options(subject.options)
        proxier.set_options(subject.options)
        proxier.enable()
        if rng.random() < 0.5:
            # A relist says everything again.
            for service in cluster.services:
                put_service(service)(proxier)
            for piece in cluster.endpoint_slices:
                put_slice(piece)(proxier)
        subject.sync()
        assert rules_of(subject.kernel) == golden, f"seed {seed}"
