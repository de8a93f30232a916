"""Reconciling kube-proxy's table with the kernel: every start, every failure, and what others have in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from kproxy.linux.errors import ApplyFailedError, KernelState, RestoreFailedError, ToolFailedError
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.executor import NftExecutor, find_nft
from kproxy.linux.nftables.table import TableText, deletion_script, plan_transactions
from kproxy.linux.sync.nftables import reconcile
from kproxy.linux.sync.nftables.desired import DesiredTable
from kproxy.linux.sync.nftables.reconcile import TableOutcome, reconcile_table
from kproxy.linux.sync.report import APPLIED, NOTHING, WOULD_CHANGE
from kproxy.services import IPFamily
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.linux.nft_tables import comparable, make_table, random_tables, table_script

pytestmark = pytest.mark.root


class Failing(NftExecutor):
    """Fails at one of its scripts, or has something done after it."""

    fail_at = 0
    too_late = False
    error: BaseException = RestoreFailedError("nft -f", "made up", (), "ip kube-proxy", 0)
    intrude: dict[int, str]
    scripts: list[str]

    def run(self, script: str) -> None:
        self.scripts.append(script)
        if len(self.scripts) == self.fail_at:
            if self.too_late:
                super().run(script)
            raise self.error
        super().run(script)
        if len(self.scripts) in self.intrude:
            super().run(self.intrude[len(self.scripts)])


@contextmanager
def made(family: IPFamily = IPFamily.IPV4) -> Iterator[Failing]:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = Failing(namespace, find_nft(), family)
        executor.scripts, executor.intrude = [], {}
        yield executor


def apply(executor: NftExecutor, table: TableText, *, dry_run: bool = False) -> TableOutcome:
    return reconcile_table(executor, DesiredTable(executor.family, table), executor.namespace, dry_run=dry_run)


@pytest.mark.parametrize("family", list(IPFamily))
def test_any_start_leads_to_the_desired_table_and_a_second_time_does_nothing(family: IPFamily) -> None:
    version = 6 if family.is_ipv6 else 4
    with made(family) as executor:
        for table in random_tables(3, 4, version):
            executor.run(f"add table {table.name}\ndelete table {table.name}\n{table_script(table)}")
            expected = comparable(executor.list_table())
            for start in (make_table("", version), make_table("aBc1D", version, 60, 2)):
                executor.run(f"delete table {table.name}\n{table_script(start)}")
                assert apply(executor, table).report.result == APPLIED
                assert comparable(executor.list_table()) == expected
            # A dormant one is woken once all is right, also where base chains are missing.
            for start in (make_table("", version), table):
                executor.run(f"delete table {table.name}\n{table_script(start)}")
                executor.run(deletion_script(table.name, ["filter-forward"]))
                executor.run(f"add table {table.name} {{ flags dormant ; }}\n")
                executor.scripts.clear()
                assert apply(executor, table).report.result == APPLIED
                assert executor.scripts[0].startswith(f"add table {table.name}")
                assert comparable(executor.list_table()) == expected
            again = apply(executor, table).report
            assert (again.result, again.transactions, again.services) == (NOTHING, 0, ())


def test_the_report_says_what_changed_for_each_service() -> None:
    with made() as executor:
        apply(executor, make_table("ab1"))
        executor.scripts.clear()
        dry = apply(executor, make_table("ac1"), dry_run=True).report
        assert executor.scripts == []
        report = apply(executor, make_table("ac1")).report
        assert dry.result == WOULD_CHANGE
        assert report.services == dry.services
        assert [msgspec.to_builtins(service) for service in report.services] == [
            {
                "service": f"ns/{name}",
                "change": change_,
                "chainsWritten": new,
                "chainsDeleted": 1 - new,
                "rulesAdded": new,
                "rulesRemoved": 1 - new,
                "elementsAdded": 2 * new,
                "elementsRemoved": 2 - 2 * new,
            }
            for name, change_, new in (("b", "removed", 0), ("c", "added", 1))
        ]
        assert (report.transactions, report.chains_deleted, report.elements_added) == (2, 1, 2)


def test_a_refusal_leaves_everything_as_it_was() -> None:
    with made() as executor:
        apply(executor, make_table("ab1"))
        before = comparable(executor.list_table())
        table = make_table("aC")
        wrong = msgspec.structs.replace(table, rules={**table.rules, "services": ("jump nowhere",)})
        with pytest.raises(ApplyFailedError, match=r"line \d+: jump nowhere") as raised:
            apply(executor, wrong)
        assert raised.value.state is KernelState.UNCHANGED
        assert comparable(executor.list_table()) == before


@pytest.mark.parametrize("start", ["", "ab1"])
def test_a_failure_at_any_transaction_leaves_no_packet_a_half_state(
    start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "plan_transactions", lambda wanted: plan_transactions(wanted, 3))
    with made() as executor:
        if start:
            apply(executor, make_table(start))
        before = comparable(executor.list_table())
        executor.scripts.clear()
        apply(executor, make_table("acD1"))
        count = len(executor.scripts)
        after = comparable(executor.list_table())
        assert count > 3
        for fail_at in range(1, count + 1):
            executor.fail_at = 0
            executor.run(f"add table {executor.table}\ndelete table {executor.table}\n")
            if start:
                apply(executor, make_table(start))
            executor.scripts.clear()
            executor.fail_at = fail_at
            deletes = start and fail_at == count
            if deletes:
                apply(executor, make_table("acD1"))  # deleting stale chains is tried again
                assert comparable(executor.list_table()) == after
                continue
            with pytest.raises(ApplyFailedError) as raised:
                apply(executor, make_table("acD1"))
            assert raised.value.state is (KernelState.UNCHANGED if fail_at == 1 else KernelState.RESTORED)
            assert comparable(executor.list_table()) == before


def test_a_failure_after_a_dormant_table_was_woken_says_so() -> None:
    with made() as executor:
        apply(executor, make_table("ab"))
        executor.run(f"add table {executor.table} {{ flags dormant ; }}\n")
        assert apply(executor, make_table("ab"), dry_run=True).report.result == WOULD_CHANGE
        executor.scripts.clear()
        executor.fail_at = 2
        with pytest.raises(
            ApplyFailedError, match="partly applied: the table was dormant and is not any more"
        ) as raised:
            apply(executor, make_table("abc"))
        assert raised.value.state is KernelState.PARTLY_APPLIED
        assert not executor.is_dormant()


def test_another_programs_write_in_between_fails_the_verification_and_is_undone() -> None:
    with made() as executor:
        apply(executor, make_table("ab"))
        before = comparable(executor.list_table())
        executor.scripts.clear()
        executor.intrude[1] = f"flush chain {executor.table} services\n"
        with pytest.raises(ApplyFailedError, match="1 chains other than wanted \\(services\\)") as raised:
            apply(executor, make_table("abc"))
        assert raised.value.state is KernelState.RESTORED
        assert comparable(executor.list_table()) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ToolFailedError("nft was ended by signal 9")])
def test_when_it_is_not_known_what_was_carried_out_the_table_is_read(error: BaseException) -> None:
    with made() as executor:
        executor.fail_at, executor.error = 1, error
        with pytest.raises(ApplyFailedError, match=r"interrupted|signal 9") as raised:
            apply(executor, make_table("a"))
        assert raised.value.state is KernelState.UNCHANGED
        apply(executor, make_table("a"))
        before = comparable(executor.list_table())
        executor.scripts.clear()
        executor.too_late = True
        with pytest.raises(ApplyFailedError, match=r"interrupted|signal 9") as raised:
            apply(executor, make_table("ab"))
        assert raised.value.state is KernelState.RESTORED
        assert comparable(executor.list_table()) == before


def test_objects_of_others_stay_with_what_they_lead_to() -> None:
    with made() as executor:
        apply(executor, make_table("aB"))
        t, chain = executor.table, "service-HASHAAF7-ns/a/tcp/"
        executor.run(
            f"add chain {t} mine\nadd rule {t} mine counter\nadd rule {t} mine goto {chain}\n"
            f"add table ip other\nadd chain ip other x\nadd rule ip other x drop\n"
        )
        report = apply(executor, make_table("B")).report
        assert report.foreign == ("chain mine",)
        assert [(kept.table, kept.chain) for kept in report.kept] == [(t, chain)]
        listed = run("nft", "list", "ruleset", namespace=executor.namespace.label.split()[-1])
        assert f"goto {chain}" in listed
        assert "table ip other {\n\tchain x {\n\t\tdrop" in listed
        again = apply(executor, make_table("B")).report
        assert (again.result, len(again.kept)) == (NOTHING, 1)
        executor.run(f"delete chain {t} mine\n")
        assert apply(executor, make_table("B")).report.chains_deleted == 1
