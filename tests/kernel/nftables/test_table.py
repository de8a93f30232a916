"""What others did to kube-proxy's table in the kernel is read back and mended."""

from __future__ import annotations

import pytest

from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.executor import NftExecutor, find_nft
from kproxy.linux.nftables.readback import read_table
from kproxy.linux.nftables.table import deletion_script, difference, plan_transactions
from kproxy.services import IPFamily
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.linux.nft_tables import make_table, table_script

pytestmark = pytest.mark.root


def test_what_others_did_to_the_table_is_read_and_mended() -> None:
    table = make_table("aB1")
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = NftExecutor(namespace, find_nft(), IPFamily.IPV4)
        executor.run(table_script(table))
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
            executor.run(transaction)
        executor.run(deletion_script(t, change.stale_chains))
        after = read_table(executor, table)
        assert not difference(after.table, table)
        assert after.foreign == listing.foreign
        assert "counter" in run("nft", "list", "chain", *t.split(), "mine", namespace=name)
