"""Changes of kube-proxy's table against the kernel: every one leads where a fresh load leads, and is read back."""

from __future__ import annotations

import pytest

from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.binary import find_nft
from kproxy.linux.nftables.change import deletion_script, difference, plan_transactions
from kproxy.linux.nftables.executor import NftExecutor
from kproxy.linux.nftables.readback import read_table
from kproxy.linux.nftables.table import TableText
from kproxy.services import IPFamily
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.linux.nft_tables import comparable, make_table, random_tables

pytestmark = pytest.mark.root


@pytest.mark.parametrize("family", list(IPFamily))
def test_changes_lead_where_a_fresh_load_leads(family: IPFamily) -> None:
    version = 6 if family.is_ipv6 else 4
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = NftExecutor(namespace, find_nft(), family)
        expected = []
        tables = random_tables(14, 8, version)
        for table in tables:
            executor.run(table.script)
            expected.append(comparable(executor.list_table()))
            assert not difference(read_table(executor, table).table, table)
            executor.run(f"delete table {table.name}\n")
        before: TableText | None = None
        for number, after in enumerate(tables):
            change = difference(before, after)
            for transaction in plan_transactions(change, 2 if number % 2 else 1000):
                executor.run(transaction.script)
            if change.stale_chains:
                executor.run(deletion_script(after.name, change.stale_chains))
            assert comparable(executor.list_table()) == expected[number]
            before = after


def test_what_others_did_to_the_table_is_read_and_mended() -> None:
    table = make_table("aB1")
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = NftExecutor(namespace, find_nft(), IPFamily.IPV4)
        executor.run(table.script)
        t = table.name
        for line in (
            f"add chain {t} mine",
            f"add rule {t} mine counter drop",
            f"add counter {t} hits",
            f"add rule {t} services ip saddr 10.9.9.9 counter accept",
            f"flush chain {t} masquerading",
            f"delete element {t} service-ips {{ 10.96.0.97 . tcp . 80 }}",
            f"add element {t} cluster-ips {{ 10.96.9.9 }}",
            f"add chain {t} service-OLDAAAAA-ns/old/tcp/",
            f"flush chain {t} nat-prerouting",
            f"delete chain {t} nat-prerouting",
            f"add chain {t} nat-prerouting {{ type nat hook prerouting priority -7 ; policy drop ; }}",
        ):
            executor.run(f"{line}\n")
        listing = read_table(executor, table)
        assert listing.foreign == ("chain mine", "counter hits")
        change = difference(listing.table, table)
        assert set(change.rules) == {"services", "masquerading", "nat-prerouting"}
        assert change.replaced_chains == {"nat-prerouting"}
        assert [*change.elements] == [("service-ips", "10.96.0.97 . tcp . 80")]
        assert [*change.stale_elements] == [("cluster-ips", "10.96.9.9")]
        assert change.stale_chains == ("service-OLDAAAAA-ns/old/tcp/",)
        for transaction in plan_transactions(change):
            executor.run(transaction.script)
        executor.run(deletion_script(t, change.stale_chains))
        after = read_table(executor, table)
        assert not difference(after.table, table)
        assert after.foreign == listing.foreign
        assert "counter" in run("nft", "list", "chain", *t.split(), "mine", namespace=name)
