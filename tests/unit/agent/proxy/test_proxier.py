"""The proxier of one family: what it writes, when it compares, and that failures lose nothing."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from kproxy.agent.proxy.observer import SyncDone, SyncFailed
from kproxy.agent.proxy.proxier import FULL_SYNC_PERIOD, TRIGGER_TIME, FamilyProxier
from kproxy.agent.proxy.runner import BoundedFrequencyRunner
from kproxy.api import EndpointSlice, ObjectMeta
from kproxy.linux.iptables.executor import Executor
from kproxy.linux.sync.family_syncer import FamilySyncer
from kproxy.linux.sync.iptables.backend import Syncer
from kproxy.linux.sync.iptables.reconcile import read_dump
from kproxy.linux.sync.nftables.backend import TableSyncer
from kproxy.render import Renderer, RenderOptions
from kproxy.services import IPFamily, ServiceState
from tests.support.linux.fake import Faulty, MemoryExecutor, refused
from tests.support.linux.nft_memory import MemoryNft
from tests.support.services.builders import make_endpoint, make_service, make_slice
from tests.support.waiting import PATIENCE


class Observer:
    def __init__(self) -> None:
        self.queued_changes = 0
        self.done: list[SyncDone] = []
        self.failures: list[SyncFailed] = []

    def queued(self, family: IPFamily) -> None:
        self.queued_changes += 1

    def synced(self, done: SyncDone) -> None:
        self.done.append(done)

    def failed(self, failure: SyncFailed) -> None:
        self.failures.append(failure)


class Counting(MemoryExecutor):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__(IPFamily.IPV4)
        self.saves = self.generation = 0
        self.own_writes = 1
        self.texts: list[str] = []

    def save(self, *, counters: bool) -> str:
        self.saves += 1
        return super().save(counters=counters)

    def restore(self, text: str) -> None:
        super().restore(text)
        self.texts.append(text)
        self.generation += self.own_writes


class Subject:
    def __init__(self, executor: Executor | None = None, table: MemoryNft | None = None) -> None:
        self.now = 1000.0
        self.kernel = Counting()
        self.observer = Observer()
        options = RenderOptions(node_name="node-0")
        state = ServiceState(IPFamily.IPV4, "node-0")
        syncer: FamilySyncer = Syncer(executor or self.kernel, state, Renderer(options))
        if table is not None:
            syncer = TableSyncer(table, state, options, clock=lambda: self.now)
        self.proxier = FamilyProxier(
            IPFamily.IPV4,
            syncer,
            lambda: self.kernel.generation,
            BoundedFrequencyRunner(1.0, 30.0, lambda: 0.0),
            lambda: self.now,
            self.observer,
        )

    def advance(self, seconds: float) -> None:
        """Lets time pass, and does what becomes due on the way."""
        until = self.now + seconds
        while True:
            wait = self.proxier.step()
            if wait == 0.0:
                continue
            if wait is None or self.now + wait > until:
                break
            self.now += wait
        self.now = until
        self.proxier.step()

    def put(self, *endpoints: str, annotations: dict[str, str] | None = None) -> None:
        piece = make_slice(*map(make_endpoint, endpoints), address_type="IPv4")
        meta = piece.metadata
        piece = EndpointSlice(
            ObjectMeta(meta.name, meta.namespace, meta.labels, annotations or {}), "IPv4", piece.endpoints, piece.ports
        )
        self.proxier.inbox.put_slice(meta.key, piece)

    def nat(self, prefix: str = "KUBE-SEP-") -> list[str]:
        chains = read_dump(self.kernel, counters=False).tables.get("nat", {})
        return [rule for name, chain in chains.items() if name.startswith(prefix) for rule in chain.rules]


def running(subject: Subject | None = None) -> Subject:
    subject = subject or Subject()
    subject.proxier.inbox.put_service("shop/web", make_service("web"))
    subject.put("10.244.0.5")
    subject.proxier.enable()
    subject.advance(0.0)
    return subject


def test_a_change_writes_only_its_chains() -> None:
    subject = running()
    before = len(subject.kernel.texts)
    subject.put("10.244.0.6")
    subject.advance(1.5)
    (text,) = subject.kernel.texts[before:]
    declared = [line.split()[0] for line in text.splitlines() if line.startswith(":")]
    assert {name[:10] for name in declared} == {":KUBE-SEP-", ":KUBE-SVC-"}
    assert len(declared) == 3, "the new endpoint, the service, the old endpoint"
    done = subject.observer.done[-1]
    assert not done.report.full
    assert (done.slice_changes, done.service_changes) == (1, 0)


def test_many_changes_are_one_sync_and_no_change_writes_nothing() -> None:
    subject = running()
    before = len(subject.kernel.texts)
    for number in range(50):
        subject.put(f"10.244.0.{number + 1}")
    subject.advance(5.0)
    assert len(subject.kernel.texts) == before + 1
    subject.put("10.244.0.50")
    subject.advance(5.0)
    assert len(subject.kernel.texts) == before + 1, "the same again"


def test_the_kernel_is_read_only_when_the_rules_may_have_changed() -> None:
    subject = running()
    subject.advance(31.0)
    reads = subject.kernel.saves
    subject.advance(300.0)
    assert subject.kernel.saves == reads
    subject.advance(FULL_SYNC_PERIOD)
    assert subject.kernel.saves == reads + 1, "once an hour anyway"
    subject.kernel.restore("*nat\n:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]\nCOMMIT\n")
    subject.advance(31.0)
    assert subject.kernel.saves > reads + 1
    assert "KUBE-SEP-AAAAAAAAAAAAAAAA" in subject.observer.done[-1].drift
    assert subject.observer.done[-1].report.chains_deleted == 1


def test_after_writes_that_are_known_to_be_our_own_nothing_is_read() -> None:
    subject = Subject()
    subject.kernel.own_writes = 0  # as a ledger takes them off
    running(subject)
    subject.put("10.244.0.6")
    subject.advance(2.0)
    saves = subject.kernel.saves
    subject.advance(100.0)
    assert subject.kernel.saves == saves


def test_drift_is_told_from_a_change_that_comes_at_once() -> None:
    subject = running()
    subject.advance(28.0)
    subject.kernel.restore("*nat\n-F KUBE-POSTROUTING\nCOMMIT\n")
    subject.now += 1.9
    subject.put("10.244.0.9")
    subject.now += 2.0
    subject.advance(0.0)
    drift = subject.observer.done[-1].drift
    assert "KUBE-POSTROUTING" in drift
    assert "KUBE-SVC" not in drift
    assert any("10.244.0.9" in rule for rule in subject.nat())
    report = subject.observer.done[-1].report
    assert report.full
    assert list(map(str, report.touched)) == ["shop/web"]
    assert report.chains_written >= 3, "the new endpoint, the service, the old endpoint"


def test_a_bug_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    subject = running()
    tell = subject.observer.synced

    def fail(done: SyncDone) -> None:
        subject.observer.synced = tell  # type: ignore[method-assign]
        raise RuntimeError("a bug")

    subject.observer.synced = fail  # type: ignore[method-assign]
    subject.put("10.244.0.77")
    with caplog.at_level(logging.ERROR):
        subject.advance(10.0)
    assert "a bug" in str(caplog.records[0].exc_info)
    assert not subject.proxier.failing
    assert any("10.244.0.77" in rule for rule in subject.nat())


def test_an_object_that_cannot_be_taken_holds_back_no_other() -> None:
    subject = running()
    subject.proxier.inbox.put_service("shop/broken", "no service")  # type: ignore[arg-type]
    subject.put("10.244.0.88")
    subject.advance(2.0)
    assert any("10.244.0.88" in rule for rule in subject.nat())


def test_trigger_times_count_after_the_first_sync_and_survive_a_failure() -> None:
    subject = Subject()
    subject.proxier.inbox.put_service("shop/web", make_service("web"))
    subject.put("10.244.0.5", annotations={TRIGGER_TIME: "2026-01-01T00:00:00Z"})
    subject.proxier.enable()
    subject.advance(2.0)
    assert not subject.observer.done[-1].trigger_times
    subject.put("10.244.0.6", annotations={TRIGGER_TIME: "2026-01-02T00:00:00Z"})
    subject.advance(2.0)
    assert subject.observer.done[-1].trigger_times == ("2026-01-02T00:00:00Z",)


def test_options_are_taken_with_the_next_sync() -> None:
    subject = running()
    count = subject.observer.queued_changes
    subject.proxier.set_options(RenderOptions(node_name="node-0", masquerade_mark=1 << 10))
    subject.advance(2.0)
    assert "0x400" in "".join(subject.nat("KUBE-MARK-MASQ"))
    assert subject.observer.queued_changes == count + 1
    subject.proxier.set_options(RenderOptions(node_name="node-0", masquerade_mark=1 << 10))
    assert subject.observer.queued_changes == count + 1, "nothing new"


def test_a_look_from_outside_sees_the_state_between_syncs() -> None:
    subject = running()
    rendered = subject.proxier.rendered()
    assert "10.244.0.5" in rendered.restore_text
    subject.put("10.244.0.6")
    assert "10.244.0.6" not in subject.proxier.rendered().restore_text
    subject.advance(2.0)
    assert "10.244.0.6" in subject.proxier.rendered().restore_text
    assert "10.244.0.5" in rendered.restore_text, "what was handed out stays"
    totals = subject.observer.done[-1].rule_totals
    assert totals["nat"] == sum(
        len(chain.rules)
        for name, chain in read_dump(subject.kernel, counters=False).tables["nat"].items()
        if name.startswith("KUBE-")
    )


def test_the_thread_wakes_up_for_a_change_and_ends() -> None:
    subject = Subject()
    proxier = subject.proxier
    proxier._clock = time.monotonic
    thread = threading.Thread(target=proxier.run, daemon=True)
    thread.start()
    proxier.inbox.put_service("shop/web", make_service("web"))
    proxier.enable()
    until = time.monotonic() + PATIENCE
    while not proxier.has_synced and time.monotonic() < until:
        time.sleep(0.01)
    assert proxier.has_synced
    proxier.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_failed_sync_says_what_it_took_and_the_next_does_not_again() -> None:
    executor = Faulty(Counting(), fail_at=0, error=refused, once=False)
    subject = Subject(executor)
    subject.proxier.inbox.put_service("shop/web", make_service("web"))
    subject.put("10.244.0.5")
    subject.proxier.enable()
    subject.proxier.step()
    subject.now += 10
    subject.proxier.step()
    counts = [(each.service_changes, each.slice_changes) for each in subject.observer.failures]
    assert counts == [(1, 1), (0, 0)]


def test_a_check_gives_way_to_a_change() -> None:
    """Reading many rules takes seconds. What changes meanwhile is written at once, and the check comes after it."""
    subject = running()
    subject.advance(1.0)
    kernel, written = subject.kernel, threading.Event()

    def slow_save(*, counters: bool) -> str:
        if not written.is_set():
            subject.put("10.244.0.6")
            assert written.wait(PATIENCE), "the change waited for the check"
        return Counting.save(kernel, counters=counters)

    def restore(text: str) -> None:
        Counting.restore(kernel, text)
        written.set()

    MemoryExecutor.restore(kernel, "*nat\n-D PREROUTING 1\nCOMMIT\n")
    assert not subject.nat("PREROUTING")
    kernel.generation += 1
    kernel.save, kernel.restore = slow_save, restore  # type: ignore[method-assign]
    subject.proxier.request_check()
    subject.advance(0.0)
    assert not written.is_set()
    subject.advance(1.0)
    assert written.is_set()
    assert any("10.244.0.6" in rule for rule in subject.nat())
    subject.advance(1.0)
    assert "PREROUTING" in subject.observer.done[-1].drift
    assert subject.nat("PREROUTING")


def test_a_check_of_a_table_gives_way_to_a_change() -> None:
    written, ask = threading.Event(), [0]

    class Slow(MemoryNft):
        def list_table(self) -> str | None:
            if ask == [1] and not written.is_set():
                subject.put("10.244.0.6")
                assert written.wait(PATIENCE), "the change waited for the check"
            return super().list_table()

        def run(self, script: str) -> None:
            super().run(script)
            subject.kernel.generation += 1
            if "10.244.0.6" in script:
                written.set()

    kernel = Slow(IPFamily.IPV4)
    subject = Subject(table=kernel)
    running(subject)
    subject.advance(31.0)
    checks = len(subject.observer.done)
    kernel.run("flush map ip kube-proxy service-ips\n")
    ask[0] = 1
    subject.proxier.request_check()
    subject.advance(0.0)
    assert not written.is_set()
    subject.advance(1.0)
    assert written.is_set()
    subject.advance(1.0)
    assert [each.drift for each in subject.observer.done[checks:] if each.drift] == [
        "1 elements missing or altered (service-ips { 10.96.0.1 . tcp . 80 })"
    ]
