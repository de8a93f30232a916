"""The syncer of nftables mode: after any sequence of changes the kernel holds what a fresh rendering would make."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from kproxy.linux.errors import LinuxError
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.executor import NftExecutor, find_nft
from kproxy.linux.nftables.readback import read_table
from kproxy.linux.nftables.table import STALE, Change, difference, plan_transactions
from kproxy.linux.sync.nftables.backend import TableSyncer
from kproxy.linux.sync.nftables.desired import table_text
from kproxy.render import RenderOptions, render_options
from kproxy.render.nftables.renderer import Renderer
from kproxy.services import IPFamily, ServiceState
from tests.support.kernel.namespaces import fresh_namespace
from tests.support.recorded import CLUSTERS, load_nftables

pytestmark = pytest.mark.root


class Counting(NftExecutor):
    """Remembers scripts; fails when asked to."""

    scripts: list[str]
    refuses = ""

    def run(self, script: str) -> None:
        if self.refuses and self.refuses in script:
            raise LinuxError("made up")
        self.scripts.append(script)
        super().run(script)


def options_of(number: int, family: IPFamily) -> RenderOptions:
    manifests, config = load_nftables(CLUSTERS[number])
    node = next(node for node in manifests.nodes if node.metadata.name == "node-0")
    return render_options(config, family, "node-0", node, service_cidrs=manifests.service_cidrs)


def left(syncer: TableSyncer, executor: NftExecutor) -> Change:
    """How the kernel differs from a fresh rendering."""
    renderer = Renderer(syncer.options)
    renderer.render(syncer.state)
    wanted = table_text(renderer)
    return difference(read_table(executor, wanted).table, wanted)


@contextmanager
def syncer_of_a_cluster(
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[TableSyncer, Counting]]:
    """A syncer that has written nothing yet."""
    manifests, _ = load_nftables(CLUSTERS[3])
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = Counting(namespace, find_nft(), IPFamily.IPV4)
        executor.scripts = []
        state = ServiceState.of(IPFamily.IPV4, "node-0", manifests.services, manifests.endpoint_slices)
        yield TableSyncer(executor, state, options_of(3, IPFamily.IPV4), namespace, clock), executor


@pytest.mark.parametrize("family", list(IPFamily))
@pytest.mark.parametrize("seed", [1, 2])
def test_any_sequence_of_changes(family: IPFamily, seed: int) -> None:
    chance = random.Random(seed)
    now = [0.0]
    pool = [load_nftables(CLUSTERS[number])[0] for number in (3, 5, 8)]
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = Counting(namespace, find_nft(), family)
        executor.scripts = []
        state = ServiceState(family, "node-0")
        syncer = TableSyncer(executor, state, options_of(3, family), namespace, lambda: now[0])
        for step in range(14):
            manifests = chance.choice(pool)
            for service in chance.sample(manifests.services, min(3, len(manifests.services))):
                gone = chance.random() < 0.3
                state.delete_service(service.metadata.key) if gone else state.update_service(service)
            for piece in chance.sample(manifests.endpoint_slices, min(4, len(manifests.endpoint_slices))):
                gone = chance.random() < 0.3
                state.delete_endpoint_slice(piece.metadata.key) if gone else state.update_endpoint_slice(piece)
            if step == 7:
                syncer.set_options(options_of(5, family))
            report = syncer.sync(check=step % 3 == 0)
            assert report.full is (step == 0)
            found = left(syncer, executor)
            # Empty chains may wait for their deletion.
            assert not [*found.rules, *found.elements, *found.stale_elements, *found.sets, *found.stale_sets]
            now[0] += chance.choice((0.1, STALE + 0.1))
        now[0] += STALE + 0.1
        syncer.sync()
        assert not left(syncer, executor)
        table = read_table(executor).table
        assert table is not None
        assert syncer.rule_totals() == {"kube-proxy": sum(len(rules) for rules in table.rules.values())}
        executor.scripts.clear()
        assert not syncer.sync().wrote
        assert not syncer.resync().found
        assert executor.scripts == []


def test_a_change_writes_nothing_else_and_stale_chains_go_a_second_later() -> None:
    now = [0.0]
    with syncer_of_a_cluster(lambda: now[0]) as (syncer, executor):
        syncer.sync()
        gone = next(port for port in syncer.state.service_ports if syncer.state.endpoints.get(port))
        own = set(syncer._renderer.chains_of(gone))
        assert own
        executor.scripts.clear()
        syncer.state.delete_service(gone.service)
        report = syncer.sync()
        [script] = executor.scripts
        assert report.chains_deleted >= len(own)
        assert all(line.split()[0] in ("flush", "delete") for line in script.splitlines())
        assert all(gone.service in line for line in script.splitlines() if " chain " in line)
        assert not [line for line in script.splitlines() if line.startswith("delete chain")]
        syncer.sync()
        assert len(executor.scripts) == 1
        now[0] = STALE + 0.1
        executor.refuses = "delete chain"
        failed = syncer.sync()
        assert failed.cleanup_failures == 1
        assert "could not be deleted" in failed.notes[0]
        executor.refuses = ""
        assert set(left(syncer, executor).stale_chains) >= own
        syncer.resync()  # finds them
        now[0] += STALE + 0.1
        syncer.sync()
        assert not left(syncer, executor)


def test_after_a_failure_everything_is_compared() -> None:
    with syncer_of_a_cluster() as (syncer, executor):
        executor.refuses = "add"
        with pytest.raises(LinuxError, match="made up"):
            syncer.sync()
        assert syncer.needs_resync
        executor.refuses = ""
        assert syncer.sync().full
        executor.run("flush chain ip kube-proxy services\n")
        syncer.state.delete_service(load_nftables(CLUSTERS[3])[0].services[0].metadata.key)
        executor.refuses = "delete element"
        with pytest.raises(LinuxError, match="made up"):
            syncer.sync()
        executor.refuses = ""
        report = syncer.sync()
        assert report.full
        assert "services" in report.found
        assert not left(syncer, executor).rules


def test_a_first_load_that_fails_in_the_middle_is_finished_by_the_next_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came before the failure leads nowhere yet; it is found, and the rest is written."""
    monkeypatch.setattr(
        "kproxy.linux.sync.nftables.backend.plan_transactions", partial(plan_transactions, rules_per_transaction=5)
    )
    with syncer_of_a_cluster() as (syncer, executor):
        executor.refuses = "hook prerouting"
        with pytest.raises(LinuxError, match="made up"):
            syncer.sync()
        prepared = executor.scripts.copy()
        assert len(prepared) > 3
        assert not [line for script in prepared for line in script.splitlines() if line.startswith("add element")]
        assert "hook" not in (executor.list_table() or "")
        executor.refuses = ""
        executor.scripts.clear()
        assert syncer.sync().full
        assert not left(syncer, executor)
        assert not set(prepared) & set(executor.scripts)
