"""What tells cheaply whether anybody else wrote: the generation of nf_tables, and a fingerprint of legacy tables."""

from __future__ import annotations

import socket

import pytest

from kproxy.linux.errors import LinuxError
from kproxy.linux.iptables.executor import COMMAND, IptablesExecutor, find_iptables
from kproxy.linux.iptables.legacy import legacy_fingerprint
from kproxy.linux.namespace import Namespace
from kproxy.linux.nfnetlink import Ledger, nft_generation
from kproxy.linux.nftables.executor import NftExecutor, find_nft
from kproxy.netfilter.hooks import Variant
from kproxy.services import IPFamily
from tests.support.kernel.namespaces import fresh_namespace, run

pytestmark = pytest.mark.root

CHAINS = "*nat\n:A - [0:0]\n-A A -j ACCEPT\nCOMMIT\n*filter\n:A - [0:0]\n-A A -j ACCEPT\nCOMMIT\n"


def test_the_generation_rises_with_writes_only() -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        first = nft_generation(namespace) or 0
        run("iptables-nft", "-t", "nat", "-N", "X", namespace=name)
        run("ip6tables-nft", "-N", "Z", namespace=name)
        run("iptables-nft-save", namespace=name)
        run("iptables-legacy", "-w", "-N", "Y", namespace=name)
        assert nft_generation(namespace) == first + 2


def test_transactions_of_our_own_are_taken_off() -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        ledger = Ledger()
        iptables = [IptablesExecutor(namespace, find_iptables(f, Variant.NFT), ledger=ledger) for f in IPFamily]
        nft = NftExecutor(namespace, find_nft(), IPFamily.IPV6, ledger=ledger)
        right = nft.fingerprint()
        assert right is not None
        iptables[0].restore(CHAINS)
        iptables[1].restore(CHAINS)
        scripts = [f"add table {nft.table}\n", f"add chain {nft.table} a\n"]
        for script in scripts:
            nft.run(script)
        with pytest.raises(LinuxError):
            nft.run(f"add chain {nft.table} b\nadd rule {nft.table} c accept\n")
        assert nft.fingerprint() == iptables[0].fingerprint() == right
        run("iptables-nft", "-N", "X", namespace=name)
        iptables[0].restore(CHAINS)
        assert iptables[1].fingerprint() not in (None, right)
        right = ledger.others(namespace)
        with ledger.writing(namespace, 1):
            run("iptables-nft", "-N", "Y", namespace=name)
            run("iptables-nft", "-N", "Z", namespace=name)
            assert ledger.others(namespace) is None, "a transaction is under way"
        assert ledger.others(namespace) != right


def send_one(family: IPFamily) -> None:
    kind, to = (socket.AF_INET6, "::1") if family.is_ipv6 else (socket.AF_INET, "127.0.0.1")
    with socket.socket(kind, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", (to, 9))


@pytest.mark.parametrize("family", IPFamily)
def test_legacy_tables_have_a_fingerprint(family: IPFamily) -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = IptablesExecutor(namespace, find_iptables(family, Variant.LEGACY))
        empty = executor.fingerprint()
        executor.restore(CHAINS.replace("COMMIT", "-A OUTPUT -j ACCEPT\nCOMMIT"))
        first, ours = legacy_fingerprint(namespace, family), executor.fingerprint()
        assert first is not None
        run("ip", "link", "set", "lo", "up", namespace=name)
        namespace.call(send_one, family)
        assert legacy_fingerprint(namespace, family) == first, "packets are counted"
        command = f"{COMMAND[family]}-legacy"
        run(command, "-w", "-D", "A", "-j", "ACCEPT", namespace=name)
        run(command, "-w", "-A", "A", "-j", "DROP", namespace=name)
        assert legacy_fingerprint(namespace, family) != first
        run(command, "-w", "-R", "A", "1", "-j", "ACCEPT", namespace=name)
        assert legacy_fingerprint(namespace, family) == first
        assert executor.fingerprint() == ours != empty
        executor.restore(CHAINS)
        assert executor.fingerprint() != ours, "what was right before we wrote is not right any more"
