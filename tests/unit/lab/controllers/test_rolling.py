"""Rolling updates as arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.lab.controllers.deployment import Replicas, fenceposts, plan_rolling
from kproxy.lab.controllers.workload import resolve


@pytest.mark.parametrize(
    ("value", "replicas", "up", "wanted"),
    [("25%", 4, True, 1), ("25%", 5, True, 2), ("25%", 5, False, 1), (3, 10, True, 3), ("100%", 7, False, 7),
     ("x", 4, True, 0)],
)  # fmt: skip
def test_int_or_percent(value: object, replicas: int, up: bool, wanted: int) -> None:
    assert resolve(value, replicas, up=up) == wanted


def test_both_zero_would_never_end() -> None:
    assert fenceposts(0, 0, 3) == (0, 1)
    assert fenceposts("25%", "25%", 4) == (1, 1)


def test_the_first_steps_of_a_rollout_of_three() -> None:
    """maxSurge 1, maxUnavailable 0: one new pod, then one old one less, and so on."""
    new, old = Replicas("new", 0, 0, 0), Replicas("old", 3, 3, 3)
    assert plan_rolling(new, [old], 3, 1, 0) == {"new": 1}
    assert plan_rolling(Replicas("new", 1, 1, 0), [old], 3, 1, 0) == {}
    assert plan_rolling(Replicas("new", 1, 1, 1), [old], 3, 1, 0) == {"old": 2}


def test_pods_that_do_not_work_go_first() -> None:
    broken, fine = Replicas("a", 2, 2, 0), Replicas("b", 2, 2, 2)
    assert plan_rolling(Replicas("new", 0, 0, 0), [broken, fine], 3, 1, 1)["a"] == 0


@given(
    replicas=st.integers(0, 12),
    surge=st.integers(0, 5),
    unavailable=st.integers(0, 5),
    old=st.lists(st.integers(0, 6), max_size=3),
    ready=st.randoms(use_true_random=False),
)
def test_every_rollout_ends_and_keeps_its_promises(
    replicas: int, surge: int, unavailable: int, old: list[int], ready: object
) -> None:
    """Pods become available one round after they are asked for; at every moment enough are, and not too many exist."""
    max_surge, max_unavailable = fenceposts(surge, min(unavailable, replicas), replicas)
    wanted = {"new": 0, **{f"old-{number}": count for number, count in enumerate(old)}}
    available = dict(wanted)
    start_total, start_available = sum(wanted.values()), sum(available.values())
    for _ in range(200):
        sets = {key: Replicas(key, wanted[key], wanted[key], available[key]) for key in wanted}
        changes = plan_rolling(sets["new"], [s for key, s in sets.items() if key != "new"], replicas, max_surge,
                               max_unavailable)  # fmt: skip
        if not changes and available == wanted:
            break
        wanted.update(changes)
        available = {key: min(count, available[key]) for key, count in wanted.items()}
        assert sum(wanted.values()) <= max(start_total, replicas + max_surge)
        assert sum(available.values()) >= min(start_available, replicas - max_unavailable)
        available = dict(wanted)
    assert wanted == {key: replicas if key == "new" else 0 for key in wanted}
