"""Hooks, tables and priorities agree with one another and with what iptables calls its built-in chains."""

from __future__ import annotations

import pytest

from kproxy.netfilter.family import BUILTIN_CHAINS
from kproxy.netfilter.hooks import (
    IPTABLES_PRIORITIES,
    NAT_PRIORITIES,
    PRIORITY_NAMES,
    Hook,
    Table,
    Variant,
)


@pytest.mark.parametrize("variant", Variant)
def test_priorities_cover_the_builtin_chains(variant: Variant) -> None:
    found = {table.value: {str(hook) for hook in hooks} for table, hooks in IPTABLES_PRIORITIES[variant].items()}
    assert found == {table: set(chains) for table, chains in BUILTIN_CHAINS.items()}


def test_tables_in_the_order_of_the_hook() -> None:
    legacy = {table: hooks[Hook.OUTPUT] for table, hooks in IPTABLES_PRIORITIES[Variant.LEGACY].items()}
    assert sorted(legacy, key=lambda table: legacy[table]) == ["raw", "mangle", "nat", "filter", "security"]
    at_input = {
        variant: IPTABLES_PRIORITIES[variant][Table.SECURITY][Hook.INPUT] < NAT_PRIORITIES[Hook.INPUT]
        for variant in Variant
    }
    assert at_input == {Variant.LEGACY: True, Variant.NFT: False}


def test_nft_names() -> None:
    assert [hook.nft_name for hook in Hook] == [
        "ingress", "prerouting", "input", "forward", "output", "postrouting", "egress",
    ]  # fmt: skip
    assert all(Hook.of_nft(hook.nft_name) is hook for hook in Hook)
    for wrong in ("PREROUTING", "prerouted", ""):
        with pytest.raises(ValueError, match="ook"):
            Hook.of_nft(wrong)


def test_names_of_priorities_by_family() -> None:
    assert PRIORITY_NAMES["inet"]["dstnat"] == -100
    assert PRIORITY_NAMES["bridge"]["dstnat"] == -300
    assert "raw" not in PRIORITY_NAMES["bridge"]
