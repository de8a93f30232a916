"""Namespaces, sysctls, addresses, child processes and the lock, on the real machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kproxy.linux.errors import LockHeldError, NamespaceError, PrivilegeError, ToolFailedError, ToolMissingError
from kproxy.linux.host.facts import interface_addresses, is_this_node
from kproxy.linux.iptables.executor import IptablesExecutor, find_iptables, installed, parse_version
from kproxy.linux.iptables.legacy import lock_holder, locked_here, xtables_lock
from kproxy.linux.iptables.preflight import FEATURES, Preflight, UndoingExecutor, probe, run_preflight
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run as run_in
from kproxy.linux.sysctl import SysctlError, read_sysctl, write_sysctl
from kproxy.netfilter.hooks import Variant
from kproxy.services import IPFamily
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.root


def identity() -> int:
    return os.stat("/proc/thread-self/ns/net").st_ino


def test_only_its_own_thread_enters() -> None:
    here = identity()
    with fresh_namespace() as name:
        there = os.stat(f"/run/netns/{name}").st_ino
        with Namespace.named(name) as namespace:
            seen: list[int] = []
            threads = [threading.Thread(target=lambda: seen.append(namespace.call(identity))) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert set(seen) == {there}
            assert identity() == here
            child = run_in(namespace, ["readlink", "/proc/self/ns/net"], timeout=PATIENCE)
            assert str(there) in child.stdout
        assert identity() == here
        assert not any(thread.name.startswith("netns") for thread in threading.enumerate())


def test_errors_inside_come_out() -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace, pytest.raises(ZeroDivisionError):
        namespace.call(lambda: 1 / 0)


def test_by_path() -> None:
    with fresh_namespace() as name:
        with Namespace.named(f"/run/netns/{name}") as namespace:
            inode = namespace.call(identity)
            assert interface_addresses(namespace, IPFamily.IPV4) == ()
        assert inode != identity()


def test_a_scratch_namespace_is_new_and_nameless() -> None:
    with Namespace.scratch() as namespace:
        inode = namespace.call(identity)
        assert inode != identity()
        named = set()
        for path in Path("/run/netns").glob("*"):
            with contextlib.suppress(FileNotFoundError):  # tests beside this one delete theirs
                named.add(path.stat().st_ino)
        assert inode not in named


@pytest.mark.parametrize("name", ["kp-none", "", ".", "/proc/self/ns/mnt", "/etc/hostname", "/nowhere/at/all"])
def test_what_is_no_namespace(name: str) -> None:
    with pytest.raises(NamespaceError):
        Namespace.named(name)


def test_sysctls() -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        mine = Path("/proc/sys/net/ipv4/ip_forward").read_text()
        write_sysctl(namespace, "net.ipv4.ip_forward", 1)
        assert read_sysctl(namespace, "net.ipv4.ip_forward") == "1"
        assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == mine
        with pytest.raises(SysctlError):
            read_sysctl(namespace, "net.ipv4.no_such_thing")
        with pytest.raises(SysctlError):
            write_sysctl(namespace, "net.ipv4.ip_forward", "maybe")


def test_addresses() -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        run("ip", "link", "set", "lo", "up", namespace=name)
        run("ip", "link", "add", "kpa", "type", "veth", "peer", "name", "kpb", namespace=name)
        run("ip", "addr", "add", "192.0.2.1/24", "dev", "kpa", namespace=name)
        run("ip", "addr", "add", "192.0.2.9", "peer", "198.51.100.1", "dev", "kpb", namespace=name)
        found = interface_addresses(namespace, IPFamily.IPV4)
        assert found[0] == "127.0.0.1"
        assert set(found[1:]) == {"192.0.2.1", "192.0.2.9"}
        assert "::1" in interface_addresses(namespace, IPFamily.IPV6)
        assert is_this_node(found, "192.0.2.1")
        assert not is_this_node(found, "192.0.2.2")
        assert is_this_node(found, "127.0.0.1")
        assert not is_this_node(("127.0.0.1",), "127.0.0.1")


def test_binaries() -> None:
    assert parse_version("iptables v1.8.9 (nf_tables)\n") == ((1, 8, 9), Variant.NFT)
    assert parse_version("iptables v1.4.21\n") == ((1, 4, 21), Variant.LEGACY)
    with pytest.raises(ToolFailedError):
        parse_version("hello")
    for family in IPFamily:
        assert set(installed(family)) == set(Variant)
        for variant in Variant:
            assert find_iptables(family, variant).variant is variant


def test_a_child_that_does_not_end_is_stopped() -> None:
    with Namespace.current() as here:
        with pytest.raises(ToolFailedError, match="had not ended after"):
            run_in(here, ["sleep", "30"], timeout=0.2)
        with pytest.raises(ToolMissingError, match="not in PATH"):
            run_in(here, ["no-such-program"], timeout=1)


def test_the_lock_and_its_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTABLES_LOCKFILE", str(tmp_path / "lock"))
    with xtables_lock():
        assert lock_holder() == f"process {os.getpid()} ({Path('/proc/self/comm').read_text().strip()})"
        with pytest.raises(LockHeldError, match=f"process {os.getpid()}"), xtables_lock(0.1):
            pass
    assert lock_holder() == ""


def test_iptables_itself_waits_for_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "lock"
    monkeypatch.setenv("XTABLES_LOCKFILE", str(lock))
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = IptablesExecutor(namespace, find_iptables(IPFamily.IPV4, Variant.LEGACY), lock_wait=1)
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(LockHeldError, match="was not free within 1 s"):
                executor.restore("*nat\nCOMMIT\n")
            assert executor.save(counters=False) == "", "there are no tables that anybody could be writing"
        executor.restore("*nat\nCOMMIT\n")
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(LockHeldError):
                executor.save(counters=False)


def test_a_lock_held_inside_the_namespace_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever does may be making the first table."""
    monkeypatch.setenv("XTABLES_LOCKFILE", str(tmp_path / "lock"))
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = IptablesExecutor(namespace, find_iptables(IPFamily.IPV4, Variant.LEGACY), lock_wait=0.2)
        code = (
            "import time; from kproxy.linux.iptables.legacy import xtables_lock\n"
            "with xtables_lock(): print(flush=True); time.sleep(30)"
        )
        command = ["ip", "netns", "exec", name, sys.executable, "-c", code]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
            try:
                assert holder.stdout is not None
                holder.stdout.readline()
                assert namespace.call(locked_here)
                assert not locked_here()
                with pytest.raises(LockHeldError):
                    executor.save(counters=False)
            finally:
                holder.kill()
        assert executor.save(counters=False) == ""


@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: str(variant.value))
@pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: str(family.value))
def test_this_machine_lacks_nothing(family: IPFamily, variant: Variant) -> None:
    assert run_preflight(find_iptables(family, variant), with_nfacct=True).missing == {}


@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: str(variant.value))
@pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: str(family.value))
def test_without_a_scratch_namespace_the_one_in_use_is_tried(
    family: IPFamily, variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container without CAP_SYS_ADMIN; what is missing is still found, and nothing stays."""

    def refuse() -> Namespace:
        raise PrivilegeError("cannot make a scratch network namespace")

    monkeypatch.setattr(Namespace, "scratch", refuse)
    tools = find_iptables(family, variant)
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = IptablesExecutor(namespace, tools)
        executor.restore("*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -j RETURN\nCOMMIT\n")
        assert set(probe(UndoingExecutor(executor), FEATURES).missing) == {"nfacct"}, "its counters are not there yet"
        assert run_preflight(tools, namespace, with_nfacct=True) == Preflight({})
        saved = executor.save(counters=False)
        assert "-A KUBE-SERVICES -j RETURN" in saved
        assert "PREFLIGHT" not in saved
    told = run_preflight(tools, None, with_nfacct=True)
    assert told.missing == {}
    assert "was not tried: cannot make a scratch network namespace" in told.untried
