"""Hooks, tables and priorities agree with one another and with what iptables calls its built-in chains."""

from __future__ import annotations

import pytest

from kproxy.netfilter.family import BUILTIN_CHAINS
from kproxy.netfilter.hooks import (
    IPTABLES_PRIORITIES,
    Variant,
)


@pytest.mark.parametrize("variant", Variant)
def test_priorities_cover_the_builtin_chains(variant: Variant) -> None:
    found = {table.value: {str(hook) for hook in hooks} for table, hooks in IPTABLES_PRIORITIES[variant].items()}
    assert found == {table: set(chains) for table, chains in BUILTIN_CHAINS.items()}
