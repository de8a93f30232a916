"""What an apply in IPVS mode says that it left when it fails halfway. The deed itself is tested in vagrant/checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from kproxy.linux.errors import ApplyFailedError, KernelState, ToolFailedError
from kproxy.linux.iptables.executor import Iptables, IptablesExecutor
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import Finished
from kproxy.linux.sync import ipvs_host
from kproxy.linux.sync.ipvs_host import IpvsFamily, PreparedIpvs
from kproxy.netfilter.hooks import Variant
from kproxy.render import Features
from kproxy.services import IPFamily
from tests.support.linux.fake import MemoryExecutor
from tests.support.recorded import IPVS_CLUSTERS, render_ipvs


class Programs:
    """A kernel without IPVS state, whose programs print nothing. `broken` says what a command does instead."""

    def __init__(self) -> None:
        self.broken: dict[tuple[str, ...], Finished | BaseException] = {}
        self.ran: list[tuple[str, ...]] = []

    def run(self, _namespace: Namespace, command: Sequence[str], **_: object) -> Finished:
        self.ran.append(tuple(command))
        done = self.broken.get(tuple(command), Finished(0, "", ""))
        if isinstance(done, BaseException):
            raise done
        return done


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    found = Programs()
    monkeypatch.setattr(ipvs_host, "run", found.run)
    monkeypatch.setattr(ipvs_host, "read_sysctl", lambda *_: "0")
    monkeypatch.setattr(ipvs_host, "write_sysctl", lambda *_: None)
    return found


def attempt(*, dry_run: bool = False) -> None:
    family = IPFamily.IPV4
    rendered = render_ipvs(IPVS_CLUSTERS[1], family)
    with Namespace.current() as here:
        host = IpvsFamily(
            family, here, Iptables(family, Variant.NFT, "iptables-restore", "iptables-save", (1, 8, 9)), Features()
        )
        desired = ipvs_host._desired_rules(rendered)
        prepared = PreparedIpvs(
            family=family, state=rendered.state, options=rendered.options, host=host,
            executor=cast(IptablesExecutor, MemoryExecutor(family)), desired=desired, rendered=rendered,
        )  # fmt: skip
        prepared.reconcile(here, dry_run=dry_run)


FAILED = Finished(1, "", "the kernel says no")


def test_a_failure_before_the_rules_tells_that_sets_may_be_there(programs: Programs) -> None:
    programs.broken["ip", "-4", "-batch", "-"] = FAILED
    with pytest.raises(ApplyFailedError, match="the kernel says no") as caught:
        attempt()
    assert caught.value.state is KernelState.PARTLY_APPLIED
    assert "the rules are unchanged, sets, addresses and sysctls may have been added" in str(caught.value)
    assert ("ipset", "restore") in programs.ran


@pytest.mark.parametrize("fault", [FAILED, KeyboardInterrupt()], ids=["failed", "interrupted"])
def test_a_failure_after_the_rules_tells_that_they_are_there(
    programs: Programs, fault: Finished | BaseException
) -> None:
    programs.broken["ipvsadm", "-R"] = fault
    with pytest.raises(ApplyFailedError) as caught:
        attempt()
    assert caught.value.state is KernelState.PARTLY_APPLIED
    assert "the rules are as wanted" in str(caught.value)


def test_what_cannot_be_read_changes_nothing(programs: Programs) -> None:
    programs.broken["ipset", "save"] = FAILED
    with pytest.raises(ToolFailedError, match="the kernel says no"):
        attempt()
    assert ("ipset", "restore") not in programs.ran


def test_a_dry_run_writes_nothing(programs: Programs) -> None:
    attempt(dry_run=True)
    assert not {("ipset", "restore"), ("ip", "-4", "-batch", "-"), ("ipvsadm", "-R")} & set(programs.ran)
