"""The agent's threads: how it starts, waits and ends. tests/netns/test_run_kernel.py runs it as a process."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy.agent.observer import NoObserver, SyncDone, SyncObserver
from kproxy.agent.options import Settings
from kproxy.agent.run import Agent
from kproxy.api import KubeProxyConfiguration, Manifests, load_manifests
from kproxy.linux.binaries import Variant
from kproxy.linux.errors import NamespaceError
from kproxy.services import IPFamily
from tests.fakeapi.server import FakeApiServer
from tests.netns.namespaces import fresh_namespace, run

pytestmark = pytest.mark.root

CLUSTER = Path(__file__).parents[2] / "rules_golden" / "minikube" / "cluster.yaml"


class Observer(NoObserver):
    def __init__(self) -> None:
        self.done: list[SyncDone] = []

    def synced(self, done: SyncDone) -> None:
        self.done.append(done)


def eventually(reached: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)


def settings(namespace: str, master: str = "", once: bool = False, files: bool = True) -> Settings:
    return Settings(
        config=KubeProxyConfiguration(),
        node_name="minikube",
        netns=namespace,
        variant=Variant.NFT,
        filenames=(str(CLUSTER),) if files else (),
        master=master,
        once=once,
    )


def cluster() -> Manifests:
    return load_manifests([CLUSTER]).with_mirrored_slices()


def test_once_ends_by_itself_and_leaves_the_process_as_it_was() -> None:
    interval = sys.getswitchinterval()
    with fresh_namespace() as namespace:
        assert Agent(settings(namespace, once=True), cluster()).run() == 0
        assert "KUBE-SVC-HW2XM7FRY33HEVYM" in run("iptables-nft-save", namespace=namespace)
    assert gc.isenabled()
    assert sys.getswitchinterval() == interval


def test_the_observer_hears_of_both_families_and_stop_ends_it() -> None:
    observer = Observer()
    states: list[str] = []

    @contextlib.contextmanager
    def surface(_agent: Agent) -> Iterator[SyncObserver]:
        states.append("open")
        yield observer
        states.append("closed")

    with fresh_namespace() as namespace:
        agent = Agent(settings(namespace), cluster(), surface)
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(agent.run()))
        thread.start()
        eventually(lambda: {done.family for done in observer.done} == set(IPFamily))
        assert {member.host.family for member in agent.members} == set(IPFamily)
        agent.stop("a test", 3)
        thread.join(30)
        assert codes == [3]
        assert states == ["open", "closed"]
        names = {each.name for each in threading.enumerate()}
        assert not names & {"IPv4", "IPv6", "files", "sources"}


def test_a_namespace_that_is_not_there_ends_everything() -> None:
    before = threading.active_count()
    with pytest.raises(NamespaceError):
        Agent(settings("kp-is-not-there"), cluster()).run()
    eventually(lambda: threading.active_count() <= before)


def test_an_api_server_by_its_url() -> None:
    with FakeApiServer() as api, fresh_namespace() as namespace:
        spec = {"clusterIP": "10.96.0.77", "clusterIPs": ["10.96.0.77"], "ports": [{"port": 80}]}
        api.put("services", {"metadata": {"name": "web"}, "spec": spec})
        assert Agent(settings(namespace, master=api.url, once=True, files=False)).run() == 0
        assert "10.96.0.77/32" in run("iptables-nft-save", namespace=namespace)
