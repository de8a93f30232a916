"""The generation of nf_tables rules: it stays while nobody writes, reading included, and rises with every write."""

from __future__ import annotations

import pytest

from kproxy.linux.iptables.generation import nft_generation
from kproxy.linux.namespace import Namespace
from tests.support.kernel.namespaces import fresh_namespace, run

pytestmark = pytest.mark.root


def test_rises_with_writes_only() -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        first = nft_generation(namespace)
        assert first is not None
        run("iptables-nft", "-t", "nat", "-N", "X", namespace=name)
        second = nft_generation(namespace)
        assert second is not None
        assert second > first
        run("iptables-nft-save", namespace=name)
        run("iptables-legacy", "-w", "-N", "Y", namespace=name)
        assert nft_generation(namespace) == second
        run("ip6tables-nft", "-N", "Z", namespace=name)
        third = nft_generation(namespace)
        assert third is not None
        assert third > second
