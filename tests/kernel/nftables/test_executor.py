"""The nft executor and the preflight of nftables mode against the kernel."""

from __future__ import annotations

import pytest

from kproxy.linux.errors import RestoreFailedError
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.binary import find_nft
from kproxy.linux.nftables.executor import NftExecutor
from kproxy.linux.nftables.preflight import Preflight, run_preflight
from kproxy.services import IPFamily
from tests.support.kernel.namespaces import fresh_namespace, run

pytestmark = pytest.mark.root


@pytest.mark.parametrize("family", list(IPFamily))
def test_scripts_are_one_transaction_and_refusals_name_their_lines(family: IPFamily) -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = NftExecutor(namespace, find_nft(), family)
        table = executor.table
        assert executor.list_table() is None
        with pytest.raises(RestoreFailedError) as raised:
            executor.run(f"add table {table}\nadd chain {table} a\nadd rule {table} a jump nowhere\n")
        assert [line.number for line in raised.value.lines] == [3]
        with pytest.raises(RestoreFailedError) as raised:
            executor.run(f"add table {table}\nadd chain {table} a {{\ndrop\nmeta what\n}}\n")
        assert [(line.number, line.text) for line in raised.value.lines] == [(4, "meta what")]
        assert executor.list_table() is None
        executor.check(f"add table {table}\n")
        assert executor.list_table() is None
        executor.run(f"add table {table}\nadd chain {table} a\n")
        text = executor.list_table()
        assert text is not None
        assert '"name": "a"' in text


@pytest.mark.parametrize("family", list(IPFamily))
def test_the_preflight_finds_nothing_missing_and_leaves_nothing(family: IPFamily) -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        assert run_preflight(NftExecutor(namespace, find_nft(), family)) == Preflight()
        assert run("nft", "list", "ruleset", namespace=name) == ""
