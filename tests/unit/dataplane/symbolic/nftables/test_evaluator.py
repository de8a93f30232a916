"""The symbolic functions against the concrete evaluator, for rules of nftables, alone and beside those of iptables."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.dataplane.model.pipeline import IptablesRules
from kproxy.dataplane.symbolic.host_rules import SideRules
from tests.support.dataplane.agreement import check_sides
from tests.support.dataplane.compare_rules import Generator, ruleset
from tests.support.dataplane.nft_rules import NftGenerator, native
from tests.support.examples import tried


def check(seed: int, points: int, *, mixed: bool = False) -> int:
    """Two random rule sets; returns how many packets were compared."""
    random = Random(seed)
    iptables = (IptablesRules.of(ruleset(Generator(random).rules()), "legacy"),) if mixed else ()
    one, other = (SideRules(iptables, native(NftGenerator(random).text())) for _ in range(2))
    return check_sides(random, (one, other), points, f"seed {seed}")


def check_devices(seed: int, points: int) -> int:
    """Two random rule sets with chains of single devices."""
    random = Random(seed)
    one, other = (SideRules((), native(NftGenerator(random).text(devices=True))) for _ in range(2))
    return check_sides(random, (one, other), points, f"seed {seed} with devices")


@pytest.mark.parametrize("seed", range(4))
def test_chains_of_single_devices(seed: int) -> None:
    assert check_devices(seed, 2) > 10


@tried(6, 18)
@given(st.integers(0, 1 << 40))
def test_random_rule_sets_at_random_points(seed: int) -> None:
    check(seed, 2)


@tried(3, 9)
@given(st.integers(0, 1 << 40))
def test_with_iptables_beside_them(seed: int) -> None:
    check(seed, 2, mixed=True)


def test_redirect_to_the_address_that_the_packet_has() -> None:
    """The interface's address, which REDIRECT takes, is the packet's destination: then it is not translated."""
    assert check(600541, 8, mixed=True) > 50


@pytest.mark.parametrize("seed", [700448, 700866])
def test_a_looped_packet_whose_new_source_is_the_one_that_it_had(seed: int) -> None:
    """MASQUERADE takes the packet's own address, with another port: what a set says of it was asked before."""
    assert check(seed, 8, mixed=True) > 50


@pytest.mark.soak
@tried(1000, 3000)
@given(st.integers(0, 1 << 40), st.booleans())
def test_a_thousand_random_rule_sets_at_random_points(seed: int, mixed: bool) -> None:
    check(seed, 6, mixed=mixed)


def test_points_are_compared_at_all() -> None:
    assert sum(check(seed, 2) for seed in range(4)) > 50


@pytest.mark.parametrize("seed", [70065, 70100, 70128, 70141, 80088])
def test_chains_behind_the_translation_of_sources(seed: int) -> None:
    """What they ask of the source, and of the connection's translation, is asked of the packet as it leaves."""
    assert check_devices(seed, 4)
