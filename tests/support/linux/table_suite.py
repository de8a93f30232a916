"""What every executor of nftables mode must make true: run against nft in memory, and in namespaces against the real
one."""

from __future__ import annotations

import pytest

from kproxy.linux.errors import RestoreFailedError
from kproxy.linux.nftables.executor import NftExecutor
from kproxy.linux.nftables.readback import read_table
from kproxy.linux.nftables.table import TableText, deletion_script, difference, plan_transactions
from tests.support.linux.nft_tables import comparable, make_table, parse_script, random_tables, table_script
from tests.support.recorded import CLUSTERS

SERVICE = "service-HASHAAF7-ns/a/tcp/"
ENDPOINT = "endpoint-HASHAAEE-ns/B/tcp/"
REFUSED = {
    "a chain that a map leads to": f"flush chain {{t}} {SERVICE}\ndelete chain {{t}} {SERVICE}\n",
    "a chain that a rule leads to": "flush chain {t} services\ndelete chain {t} masquerading\n",
    "a set that a rule names": "flush set {t} cluster-ips\ndelete set {t} cluster-ips\n",
    "a map that a rule names": "delete map {t} service-ips\n",
    "a chain that is not there": "delete chain {t} nothing\n",
    "a flush of a chain that is not there": "flush chain {t} nothing\n",
    "a rule of a chain that is not there": "add rule {t} nothing drop\n",
    "a rule that leads nowhere": "add rule {t} services jump nowhere\n",
    "a rule that names no set": "add rule {t} services meta l4proto . th dport vmap @nothing\n",
    "a set that is not there": "delete set {t} nothing\n",
    "an element that is not there": "delete element {t} no-endpoint-services {{ {ip} . tcp . 1 }}\n",
    "an element with another verdict": "add element {t} no-endpoint-services {{ {key} : goto services }}\n",
    "an element of a set that is not there": "add element {t} nothing {{ {ip} }}\n",
    "an element that leads nowhere": "add element {t} service-ips {{ {ip} . tcp . 1 : goto nowhere }}\n",
    "a base chain at another hook": "add chain {t} nat-prerouting {{ type nat hook prerouting priority -7 ; }}\n",
    "a set of another type": "add set {t} cluster-ips {{ type inet_service ; }}\n",
    "an unfinished line": "add rule {t} services meta\n",
}
"""Scripts that the table of Services a, B and 1 refuses."""


def refuses(executor: NftExecutor, script: str) -> bool:
    """Whether it refuses a script."""
    try:
        executor.run(script)
    except RestoreFailedError:
        return True
    return False


class TableExecutorSuite:
    """Needs a fixture `executor`, without a table."""

    def test_scripts_are_one_transaction_and_refusals_name_their_lines(self, executor: NftExecutor) -> None:
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

    def test_what_is_refused_leaves_everything_as_it_was(self, executor: NftExecutor) -> None:
        version = executor.family.version
        executor.run(table_script(make_table("aB1", version)))
        before = comparable(executor.list_table())
        ip = "10.96.0.49" if version == 4 else "fd00::49"
        for what, script in REFUSED.items():
            text = script.format(t=executor.table, ip=ip, key=f"{ip} . tcp . 80")
            assert refuses(executor, f"add chain {executor.table} new\n{text}"), what
            assert comparable(executor.list_table()) == before, what

    def test_changes_lead_where_a_fresh_load_leads(self, executor: NftExecutor) -> None:
        expected = []
        tables = random_tables(14, 8, executor.family.version)
        for table in tables:
            executor.run(table_script(table))
            expected.append(comparable(executor.list_table()))
            assert not difference(read_table(executor, table).table, table)
            executor.run(f"delete table {table.name}\n")
        before: TableText | None = None
        for number, after in enumerate(tables):
            change = difference(before, after)
            for transaction in plan_transactions(change, 2 if number % 2 else 1000):
                executor.run(transaction)
            if change.stale_chains:
                executor.run(deletion_script(after.name, change.stale_chains))
            assert comparable(executor.list_table()) == expected[number]
            before = after

    @pytest.mark.parametrize("case", [0, 1, 4])
    def test_recorded_tables_are_read_back_as_they_are(self, executor: NftExecutor, case: int) -> None:
        text = (CLUSTERS[case] / f"kube-proxy.v{executor.family.version}.nft").read_text()
        executor.run(text)
        wanted = parse_script(text)
        listing = read_table(executor, wanted)
        assert not difference(listing.table, wanted)
        assert not listing.foreign
