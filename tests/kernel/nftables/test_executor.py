"""The nft executor and the preflight of nftables mode against the kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.executor import NftExecutor, find_nft
from kproxy.linux.nftables.preflight import Preflight, run_preflight
from kproxy.linux.nftables.readback import read_table
from kproxy.linux.nftables.table import TableText, deletion_script, difference, plan_transactions
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
                do(transaction)
            if change.stale_chains:
                do(deletion_script(after.name, change.stale_chains))
            before = after


@pytest.mark.parametrize("family", list(IPFamily))
def test_the_preflight_finds_nothing_missing_and_leaves_nothing(family: IPFamily) -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        assert run_preflight(NftExecutor(namespace, find_nft(), family)) == Preflight()
        assert run("nft", "list", "ruleset", namespace=name) == ""
