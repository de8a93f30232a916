"""The nft executor and the preflight of nftables mode against the kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from kproxy.linux.errors import RestoreFailedError
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.binary import find_nft
from kproxy.linux.nftables.change import deletion_script, difference, plan_transactions
from kproxy.linux.nftables.executor import NftExecutor
from kproxy.linux.nftables.preflight import Preflight, run_preflight
from kproxy.linux.nftables.preparsed import PreparsedNft
from kproxy.linux.nftables.readback import read_table
from kproxy.linux.nftables.table import TableText
from kproxy.services import IPFamily
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.linux.nft_memory import MemoryNft
from tests.support.linux.nft_tables import random_tables
from tests.support.linux.table_suite import TableExecutorSuite
from tests.support.recorded import CLUSTERS

pytestmark = pytest.mark.root


@pytest.fixture(params=list(IPFamily), ids=lambda family: str(family.value))
def executor(request: pytest.FixtureRequest) -> Iterator[NftExecutor]:
    """nft in a fresh namespace."""
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        yield NftExecutor(namespace, find_nft(), request.param)


class TestKernel(TableExecutorSuite):
    """All of the suite."""

    def test_it_holds_what_the_tables_in_memory_hold(self, executor: NftExecutor) -> None:
        memory = MemoryNft(executor.family)

        def do(script: str) -> None:
            for each in (memory, executor):
                each.run(script)
            assert read_table(memory) == read_table(executor)

        do((CLUSTERS[1] / f"kube-proxy.v{executor.family.version}.nft").read_text())
        do(f"delete table {executor.table}\n")
        before: TableText | None = None
        for after in random_tables(15, 6, executor.family.version):
            change = difference(before, after)
            for transaction in plan_transactions(change):
                do(transaction.script)
            if change.stale_chains:
                do(deletion_script(after.name, change.stale_chains))
            before = after


@pytest.mark.parametrize("family", list(IPFamily))
def test_the_preflight_finds_nothing_missing_and_leaves_nothing(family: IPFamily) -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        assert run_preflight(NftExecutor(namespace, find_nft(), family)) == Preflight()
        assert run("nft", "list", "ruleset", namespace=name) == ""


def holds(executor: NftExecutor) -> list[str]:
    """The chains that the kernel has."""
    text = executor.list_table()
    return [] if text is None else re.findall(r'"chain": \{[^}]*"name": "([^"]*)"', text)


def test_what_nft_has_read_ahead_is_done_in_its_turn_and_not_after_a_failure(executor: NftExecutor) -> None:
    t = executor.table
    scripts = [
        f"add table {t}\nadd chain {t} a\n",
        # nft looks at the table only now: `a` was not there when it read this.
        f"add chain {t} b\nadd rule {t} a goto b\n",
        f"add chain {t} c\nadd rule {t} c goto nowhere\n",
        f"add chain {t} d\n",
    ]
    with executor.sequence(scripts):
        for script, chains in zip(scripts[:2], (["a"], ["a", "b"]), strict=True):
            executor.run(script)
            assert holds(executor) == chains
        with pytest.raises(RestoreFailedError) as failed:
            executor.run(scripts[2])
    assert [(line.number, line.text) for line in failed.value.lines] == [(2, f"add rule {t} c goto nowhere")]
    assert holds(executor) == ["a", "b"]
    # What is not of a sequence is done in between.
    with executor.sequence(scripts[3:] * 2):
        executor.run(scripts[3])
        executor.run(f"add chain {t} between\n")
        executor.run(scripts[3])
    assert holds(executor) == ["a", "b", "d", "between"]


@pytest.mark.parametrize("end", ["}\n", "goto whatever\n"])
def test_nft_that_loses_who_started_it_does_nothing(executor: NftExecutor, end: str) -> None:
    """The pipe is closed without what ends the script, as if this process had been killed."""
    t = executor.table
    body = {"}\n": f"add chain {t} a {{\n}}\n", "goto whatever\n": f"add chain {t} a\nadd rule {t} a goto whatever\n"}[
        end
    ]
    script = f"add table {t}\nadd chain {t} whatever\n{body}"
    assert script.endswith(end)
    for told in (False, True):
        waiting = PreparsedNft.start(executor.namespace, executor.nft.path, script)
        assert waiting is not None
        with waiting:
            if told:
                waiting.go_on()
            else:
                waiting.close()
            done = waiting.finish(60)
        assert (done.code == 0) is told, done.stderr
        assert bool(holds(executor)) is told
