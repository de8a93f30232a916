"""The symbolic functions against the concrete evaluator, for rules of iptables."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.dataplane.agreement import check


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 40))
def test_random_rule_sets_at_random_points(seed: int) -> None:
    check(seed, 6)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1 << 40))
def test_header_fields(seed: int) -> None:
    check(seed, 4, fields=True)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 40))
def test_many_header_fields(seed: int) -> None:
    check(seed, 12, fields=True)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.integers(0, 1 << 40))
def test_many_random_rule_sets_at_random_points(seed: int) -> None:
    check(seed, 12)


def test_points_are_compared_at_all() -> None:
    assert sum(check(seed, 6) for seed in range(10)) > 200
