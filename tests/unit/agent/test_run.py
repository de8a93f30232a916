"""The agent's threads: how it starts, waits and ends. tests/kernel/run/test_run.py runs it as a process."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kproxy.agent.config.options import Settings
from kproxy.agent.proxy.host import prepare_host
from kproxy.agent.proxy.observer import NoObserver, SyncDone, SyncObserver
from kproxy.agent.run import Agent
from kproxy.agent.sources.files import FileWatch
from kproxy.agent.status.server import serve_status
from kproxy.api import KubeProxyConfiguration, Manifests, load_manifests
from kproxy.linux.errors import LockHeldError, NamespaceError, ToolFailedError
from kproxy.linux.iptables.executor import IptablesExecutor
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.backend import Host
from kproxy.netfilter.hooks import Variant
from kproxy.services import IPFamily
from tests.support import paths
from tests.support.agent.recorded_http import ask
from tests.support.fakeapi.server import FakeApiServer
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.root

CLUSTER = paths.ROOT / "rules_golden" / "minikube" / "cluster.yaml"


class Observer(NoObserver):
    def __init__(self) -> None:
        self.done: list[SyncDone] = []

    def synced(self, done: SyncDone) -> None:
        self.done.append(done)


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


def ends(agent: Agent) -> int:
    """The exit code of an agent that must end by itself."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(agent.run()))
    thread.start()
    thread.join(PATIENCE)
    if not codes:
        agent.stop("the test is over")
        thread.join(PATIENCE)
        pytest.fail("it did not end")
    return codes[0]


def cluster() -> Manifests:
    return load_manifests([CLUSTER]).with_mirrored_slices()


def test_once_ends_by_itself_and_leaves_the_process_as_it_was() -> None:
    interval = sys.getswitchinterval()
    with fresh_namespace() as namespace:
        assert Agent(settings(namespace, once=True), cluster()).run() == 0
        assert "KUBE-SVC-HW2XM7FRY33HEVYM" in run("iptables-nft-save", namespace=namespace)
    assert gc.isenabled()
    assert sys.getswitchinterval() == interval


def test_once_tries_again_after_a_failure_and_gives_up_when_it_lasts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    restore = IptablesExecutor.restore
    refusals = 2

    def refuse(executor: IptablesExecutor, text: str) -> None:
        nonlocal refusals
        if executor.family is IPFamily.IPV4 and refusals and "KUBE-SERVICES" in text:
            refusals -= 1
            raise ToolFailedError("iptables-restore: line 7 failed")
        restore(executor, text)

    monkeypatch.setattr(IptablesExecutor, "restore", refuse)
    with fresh_namespace() as namespace:
        assert ends(Agent(settings(namespace, once=True), cluster())) == 0
        assert refusals == 0
        assert "KUBE-SVC-HW2XM7FRY33HEVYM" in run("iptables-nft-save", namespace=namespace)
    refusals = 10**6
    monkeypatch.setattr("kproxy.agent.run.PERSEVERANCE", 0.5)
    with fresh_namespace() as namespace, caplog.at_level(logging.INFO):
        assert ends(Agent(settings(namespace, once=True), cluster())) == 1
    (ending,) = [record for record in caplog.records if record.getMessage() == "ending"]
    assert ending.__dict__["fields"]["reason"] == "the rules could not be programmed"
    assert 10**6 - refusals > 1, "it tried more than once"


def test_once_is_no_success_while_rules_of_the_other_mode_stay(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kproxy.linux.sync.cleanup.find_program", lambda _name: None)
    with fresh_namespace() as namespace, caplog.at_level(logging.INFO):
        run("nft", "add table ip kube-proxy", namespace=namespace)
        assert Agent(settings(namespace, once=True), cluster()).run() == 1
        assert "KUBE-SVC-HW2XM7FRY33HEVYM" in run("iptables-nft-save", namespace=namespace)
    (ending,) = [record for record in caplog.records if record.getMessage() == "ending"]
    assert ending.__dict__["fields"]["reason"] == "the rules are programmed, those of the other mode are left"


def test_a_lock_that_is_held_at_start_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    locked = threading.Event()
    locked.set()
    tries: list[str | None] = []

    def prepare(mode: str, netns: str | None, *rest: Any) -> Host:
        tries.append(netns)
        if locked.is_set():
            raise LockHeldError("the xtables lock was not free within 5 s")
        return prepare_host(mode, netns, *rest)

    def healthz() -> int:
        with Namespace.named(namespace) as inside:
            return inside.call(ask, 10256, "/healthz").status

    monkeypatch.setattr("kproxy.agent.run.prepare_host", prepare)
    with fresh_namespace() as namespace:
        run("ip", "link", "set", "lo", "up", namespace=namespace)
        agent = Agent(settings(namespace), cluster(), serve_status)
        thread = threading.Thread(target=agent.run)
        thread.start()
        try:
            eventually(lambda: len(tries) > 1)
            assert healthz() == 503
            locked.clear()
            eventually(lambda: agent.members and all(member.proxier.has_synced for member in agent.members))
            eventually(lambda: healthz() == 200)
        finally:
            agent.stop("a test")
            thread.join(PATIENCE)
        locked.set()
        stopped = Agent(settings(namespace), cluster())
        thread = threading.Thread(target=stopped.run)
        thread.start()
        eventually(lambda: stopped.trouble)
        stopped.stop("a test")
        thread.join(PATIENCE)
        assert not thread.is_alive()
        monkeypatch.setattr("kproxy.agent.run.PERSEVERANCE", 0.0)
        with pytest.raises(LockHeldError):
            Agent(settings(namespace, once=True), cluster()).run()


def test_the_observer_hears_of_both_families_and_stop_ends_it() -> None:
    observer = Observer()
    states: list[str] = []

    @contextlib.contextmanager
    def watched(_agent: Agent) -> Iterator[SyncObserver]:
        states.append("open")
        yield observer
        states.append("closed")

    with fresh_namespace() as namespace:
        agent = Agent(settings(namespace), cluster(), watched)
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(agent.run()))
        thread.start()
        eventually(lambda: {done.family for done in observer.done} == set(IPFamily))
        assert {member.host.family for member in agent.members} == set(IPFamily)
        agent.stop("a test", 3)
        thread.join(PATIENCE)
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


def test_once_does_not_wait_for_ever_for_a_server_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    with fresh_namespace() as namespace, caplog.at_level(logging.INFO):
        chosen = msgspec.structs.replace(
            settings(namespace, master="http://127.0.0.1:9", once=True, files=False), timeout=0.5
        )
        assert ends(Agent(chosen)) == 1
        assert "KUBE-" not in run("iptables-nft-save", namespace=namespace)
    (ending,) = [record for record in caplog.records if record.getMessage() == "ending"]
    reason = ending.__dict__["fields"]["reason"]
    assert reason.startswith("nothing was programmed within 0.5 s; waited for ")
    assert "services (127.0.0.1:9: connection refused)" in reason
    assert ending.levelno == logging.ERROR


def test_garbage_is_collected_though_nothing_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproxy.agent.run.START_UP", 0.3)
    with fresh_namespace() as namespace:
        agent = Agent(settings(namespace, master="http://127.0.0.1:9", files=False))
        thread = threading.Thread(target=agent.run)
        thread.start()
        try:
            eventually(lambda: not gc.isenabled())
            eventually(gc.isenabled)
            assert not any(member.proxier.has_synced for member in agent.members)
        finally:
            agent.stop("a test")
            thread.join(PATIENCE)


def test_a_configuration_that_changes_while_it_starts_ends_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("a: 1")
    watch = FileWatch(str(file))
    file.write_text("a: 2")
    with fresh_namespace() as namespace, caplog.at_level(logging.INFO):
        assert ends(Agent(settings(namespace), cluster(), config_file=watch)) == 1
    (ending,) = [record for record in caplog.records if record.getMessage() == "ending"]
    assert "has changed" in ending.__dict__["fields"]["reason"]
