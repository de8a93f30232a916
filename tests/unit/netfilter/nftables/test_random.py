"""Random rules come back from their own text."""

from __future__ import annotations

import pytest

from kproxy.netfilter.nftables.check import check_nft
from kproxy.netfilter.nftables.style import BOOKWORM, TRIXIE, Style
from kproxy.netfilter.nftables.text import parse_nft, print_nft
from tests.support.netfilter.nft_random import random_ruleset


@pytest.mark.parametrize("style", [BOOKWORM, TRIXIE], ids=["1.0.6", "1.1.3"])
@pytest.mark.parametrize("seed", range(3))
def test_random_rules_come_back(seed: int, style: Style) -> None:
    made = random_ruleset(seed, 200)
    found = parse_nft(print_nft(made, style))
    assert found == made
    assert hash(found) == hash(made)
    assert check_nft(found) == []
