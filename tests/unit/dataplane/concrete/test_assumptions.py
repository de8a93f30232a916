"""What is assumed: answers that cannot all hold."""

from __future__ import annotations

import pytest

from kproxy.dataplane.concrete.assumptions import contradiction

LEGACY_FIRST = "iptables-legacy before nftables"
NFT_FIRST = "nftables before iptables-legacy"


@pytest.mark.parametrize(
    "assumed",
    [
        {LEGACY_FIRST: True, NFT_FIRST: True},
        {LEGACY_FIRST: False, NFT_FIRST: False},
        {LEGACY_FIRST: True, "nftables before iptables-nft": True, "iptables-nft before iptables-legacy": True},
        {LEGACY_FIRST: True, "iptables-nft before nftables": False, "iptables-nft before iptables-legacy": True},
        {"-m owner --uid-owner 0": True, "-m owner ! --uid-owner 0": True},
        {"meta skuid != 0": False, "meta skuid 0": False},
    ],
)
def test_these_contradict_one_another(assumed: dict[str, bool]) -> None:
    assert sorted(contradiction(assumed)) == sorted(assumed)


@pytest.mark.parametrize(
    "assumed",
    [
        {LEGACY_FIRST: True, NFT_FIRST: False},
        {LEGACY_FIRST: True, "nftables before iptables-nft": True, "iptables-legacy before iptables-nft": True},
        {"-m owner --uid-owner 0": True, "-m owner ! --uid-owner 0": False},
        {"-m owner --uid-owner 0 --gid-owner 0": False, "-m owner ! --uid-owner 0 --gid-owner 0": False},
        {"rpfilter": True, "socket": True},
    ],
)
def test_these_do_not(assumed: dict[str, bool]) -> None:
    assert contradiction(assumed) == ()
