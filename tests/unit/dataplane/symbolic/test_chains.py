"""The symbolic functions against the concrete evaluator, for rules of iptables."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.dataplane.agreement import check
from tests.support.examples import tried


@tried(8, 400)
@given(st.integers(0, 1 << 40))
def test_random_rule_sets_at_random_points(seed: int) -> None:
    check(seed, 6)


@tried(4, 60)
@given(st.integers(0, 1 << 40))
def test_header_fields(seed: int) -> None:
    check(seed, 4, fields=True)


def test_points_are_compared_at_all() -> None:
    assert sum(check(seed, 6) for seed in range(3)) > 60
