"""Reconciling one family: what happens to connection tracking when an apply is taken back. The deed itself is tested
in tests/kernel/apply/test_traffic.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.cluster.stale_flows import desired_addresses
from kproxy.linux.conntrack.programmed import programmed_addresses
from kproxy.linux.errors import ApplyFailedError, KernelState, LinuxError
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync import reconcile
from kproxy.linux.sync.desired import desired_rules
from kproxy.linux.sync.reconcile import desired_dump, reconcile_rules
from kproxy.services import IPFamily
from tests.support.linux.fake import Faulty, MemoryExecutor, refused
from tests.support.recorded import CLUSTERS, render

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
