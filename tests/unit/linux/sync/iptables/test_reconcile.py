"""Reconciling one family: runs, what changes for each Service, flows of what is taken back, and a kernel in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.cluster.stale_flows import desired_addresses
from kproxy.linux.conntrack.programmed import programmed_addresses
from kproxy.linux.errors import ApplyFailedError, KernelState, LinuxError
from kproxy.linux.iptables.canonical import ChainRef
from kproxy.linux.iptables.executor import Executor, parse_dump
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.iptables import reconcile
from kproxy.linux.sync.iptables.desired import desired_rules, find_difference
from kproxy.linux.sync.iptables.jumps import JumpEdit
from kproxy.linux.sync.iptables.reconcile import (
    Change,
    desired_dump,
    plan_runs,
    reconcile_rules,
    run_text,
    service_changes,
)
from kproxy.linux.sync.report import Stopwatch
from kproxy.netfilter.hooks import Variant
from kproxy.services import IPFamily
from tests.support.linux.fake import Faulty, MemoryExecutor, refused
from tests.support.linux.suite import EngineSuite
from tests.support.recorded import CLUSTERS, MINIKUBE, render


@pytest.fixture(params=[IPFamily.IPV4, IPFamily.IPV6], ids=lambda family: str(family.value))
def executor(request: pytest.FixtureRequest) -> Executor:
    """A kernel in memory."""
    return MemoryExecutor(request.param, Variant.NFT)


class TestMemory(EngineSuite):
    """All of the suite."""


RULES = desired_rules(render(CLUSTERS[1], IPFamily.IPV4))


@pytest.fixture
def cleaned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was cleaned, in words; nothing is really."""
    calls: list[str] = []
    monkeypatch.setattr(reconcile, "clean_after_failure", lambda executor, wanted, space: calls.append(space.label))
    return calls


def attempt(fail_at: int | None, namespace: Namespace | None) -> ApplyFailedError:
    executor = Faulty(MemoryExecutor(IPFamily.IPV4), fail_at=fail_at, error=refused)
    with pytest.raises(ApplyFailedError) as caught:
        reconcile_rules(executor, RULES, namespace)
    return caught.value


def test_success_leaves_connection_tracking_to_the_caller(cleaned: list[str]) -> None:
    with Namespace.current() as here:
        outcome = reconcile_rules(MemoryExecutor(IPFamily.IPV4), RULES, here)
    assert outcome.transactions
    assert cleaned == []


def test_what_was_taken_back_is_cleaned_up_after(cleaned: list[str]) -> None:
    with Namespace.current() as here:
        assert attempt(1, here).state is KernelState.RESTORED
        assert cleaned == [here.label]
        assert attempt(0, here).state is KernelState.UNCHANGED
        assert attempt(1, None).state is KernelState.RESTORED
    assert len(cleaned) == 1, "nothing was tried, or there is no namespace"


def test_when_that_fails_too_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LinuxError("no netlink today")

    monkeypatch.setattr(reconcile, "clean_after_failure", fail)
    with Namespace.current() as here:
        error = attempt(1, here)
    assert "not all removed: no netlink today" in str(error)
    assert "No such file or directory" in str(error)
    assert str(error).endswith("state: the rules that were there before are restored")
    assert error.state is KernelState.RESTORED


@pytest.mark.parametrize("case", CLUSTERS, ids=lambda case: str(case.name))
@pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: str(family.value))
def test_rules_tell_where_traffic_may_go(case: Path, family: IPFamily) -> None:
    """What is read from rules is a part of what the objects say: the rest is terminating, or on other nodes."""
    rendered = render(case, family)
    programmed = programmed_addresses(desired_dump(desired_rules(rendered)))
    wanted = desired_addresses(rendered.state)
    for address, endpoints in programmed.endpoints.items():
        assert endpoints, address
        assert endpoints <= wanted.endpoints[address]
    assert programmed.services.keys() == programmed.endpoints.keys()
    assert programmed.services.keys() <= wanted.services.keys()


EDIT = JumpEdit("nat", "PREROUTING", ("-j KUBE-OLD",), ((1, "[1:2]", "-j KUBE-SERVICES"),))


def change(services: int) -> Change:
    writes: dict[ChainRef, str] = {}
    groups: dict[str, object] = {}
    for number in range(services):
        for prefix in ("KUBE-SVC", "KUBE-SEP"):
            writes[("nat", f"{prefix}-{number:016}")] = f"-A {prefix}-{number:016} -j RETURN\n"
            groups[f"{prefix}-{number:016}"] = number
    writes[("filter", "KUBE-FORWARD")] = ""
    writes[("nat", "KUBE-MARK-MASQ")] = "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n"
    writes[("nat", "KUBE-SERVICES")] = ""
    writes[("mangle", "KUBE-PROXY-CANARY")] = ""
    deletions = [("nat", f"KUBE-SEP-{number:016}") for number in range(services, services + 3)]
    return Change(writes, [*deletions, ("nat", "KUBE-SVC-X"), ("filter", "KUBE-NODE-PORT")], (EDIT,), groups)


def test_with_legacy_the_nat_table_is_one_transaction() -> None:
    (run,) = plan_runs(change(500), Variant.LEGACY)
    assert [(batch.table, batch.purpose) for batch in run] == [
        ("filter", "refusals"),
        ("nat", "nat chains"),
        ("filter", "filter chains"),
        ("mangle", "table mangle"),
    ]
    assert run[2].deletions == ("KUBE-NODE-PORT",)


def test_a_small_change_is_one_process_and_one_transaction_of_the_nat_table() -> None:
    (run,) = plan_runs(change(2), Variant.NFT)
    assert [batch.table for batch in run] == ["filter", "nat", "filter", "mangle"]
    assert run[1].text == (
        "*nat\n"
        + "".join(f":KUBE-{kind}-{n:016} - [0:0]\n" for n in range(2) for kind in ("SVC", "SEP"))
        + ":KUBE-MARK-MASQ - [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-X - [0:0]\n"
        + "".join(f":KUBE-SEP-{n:016} - [0:0]\n" for n in range(2, 5))
        + "".join(f"-A KUBE-{kind}-{n:016} -j RETURN\n" for n in range(2) for kind in ("SVC", "SEP"))
        + "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n"
        + "-D PREROUTING -j KUBE-OLD\n[1:2] -I PREROUTING 1 -j KUBE-SERVICES\n"
        + "-X KUBE-SVC-X\n"
        + "".join(f"-X KUBE-SEP-{n:016}\n" for n in range(2, 5))
        + "COMMIT\n"
    )


def test_a_large_change_goes_leaf_first_in_steps() -> None:
    runs = plan_runs(change(20), Variant.NFT, chains_per_batch=10, batches_per_run=3)
    assert all(len(run) <= 3 for run in runs)
    flat = [batch for run in runs for batch in run]
    assert [batch.purpose for batch in flat] == [
        "refusals",
        "base chains",
        *["service chains"] * 4,
        "dispatch chains",
        "filter chains",
        "table mangle",
        "deletions",
    ]
    for batch in flat[2:6]:
        numbers = sorted(chain[9:] for chain in batch.chains)
        assert len(batch.chains) == 10
        assert numbers[::2] == numbers[1::2], "a ServicePort's chains are in one transaction"
        kinds = [chain[:8] for chain in batch.chains]
        assert kinds == sorted(kinds), "endpoint chains come first"
    assert flat[6].edits == (EDIT,)
    assert flat[-1].deletions[0] == "KUBE-SVC-X"
    assert run_text(runs[0]).count("COMMIT\n") == 3


def test_without_owners_jumps_tell_what_belongs_together() -> None:
    writes = {
        ("nat", "KUBE-SEP-A"): "-A KUBE-SEP-A -j RETURN\n",
        ("nat", "KUBE-SEP-B"): "-A KUBE-SEP-B -j RETURN\n",
        ("nat", "KUBE-SVC-B"): '-A KUBE-SVC-B -m comment --comment "x -j y" -j KUBE-SEP-B\n',
        ("nat", "KUBE-SVC-A"): "-A KUBE-SVC-A -j KUBE-SEP-A\n",
    }
    (run,) = plan_runs(Change(writes), Variant.NFT, chains_per_batch=2)
    assert [list(batch.chains) for batch in run] == [["KUBE-SEP-A", "KUBE-SVC-A"], ["KUBE-SEP-B", "KUBE-SVC-B"]]


def test_nothing_to_do_is_no_run() -> None:
    for variant in Variant:
        assert plan_runs(Change({}), variant) == []


def test_added_changed_and_removed() -> None:
    mini, other = render(MINIKUBE, IPFamily.IPV4), render(CLUSTERS[0], IPFamily.IPV4)
    dump = parse_dump(mini.save_text)
    wanted = desired_rules(other)
    changes = service_changes(wanted, dump, find_difference(wanted, dump))
    by_name = {change.service: change for change in changes}
    assert list(by_name) == sorted(by_name)
    assert by_name["default/crd-array-watcher"].change == "removed"
    assert by_name["default/crd-array-watcher"].chains_deleted == 3
    assert by_name["default/svc-1"].change == "added"
    nothing = find_difference(desired_rules(mini), dump)
    assert not nothing
    assert service_changes(desired_rules(mini), dump, nothing) == ()


def test_one_altered_rule() -> None:
    mini = render(MINIKUBE, IPFamily.IPV4)
    text = mini.save_text.replace("--to-destination 10.244.0.36:8080", "--to-destination 10.244.0.99:8080")
    wanted, dump = desired_rules(mini), parse_dump(text)
    (change,) = service_changes(wanted, dump, find_difference(wanted, dump))
    assert (change.service, change.change) == ("default/crd-array-watchers", "changed")
    assert (change.chains_written, change.rules_added, change.rules_removed) == (1, 1, 1)


def test_a_stopwatch_counts_steps_that_fail_too() -> None:
    watch = Stopwatch()
    try:
        with watch.step("a"):
            raise ValueError
    except ValueError:
        pass
    assert [step.step for step in watch.times] == ["a"]
