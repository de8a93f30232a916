"""Random rules come back from their own text."""

from __future__ import annotations

from random import Random

import pytest

from kproxy.netfilter import Family
from kproxy.netfilter.nftables.check import check_nft
from kproxy.netfilter.nftables.style import BOOKWORM, TRIXIE, Style
from kproxy.netfilter.nftables.text import parse_nft, print_nft
from tests.support.kernel.dataplane_nft_rules import NftGenerator


@pytest.mark.parametrize("style", [BOOKWORM, TRIXIE], ids=["1.0.6", "1.1.3"])
@pytest.mark.parametrize("family", list(Family), ids=lambda family: f"v{family.version}")
@pytest.mark.parametrize("seed", range(3))
def test_random_rules_come_back(seed: int, family: Family, style: Style) -> None:
    written = parse_nft(NftGenerator(Random(seed), family, tables=4, wide=True).ruleset())
    made = parse_nft(print_nft(written, style))  # where a set of one network is that network
    found = parse_nft(print_nft(made, style))
    assert found == made
    assert hash(found) == hash(made)
    assert check_nft(found) == []
