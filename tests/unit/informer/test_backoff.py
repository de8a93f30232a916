"""Back-off: client-go's numbers, for any clock and any dice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kproxy.informer import BackoffManager


def test_delays_double_up_to_the_cap_and_start_again_after_two_quiet_minutes() -> None:
    manager = BackoffManager(lambda: 0.0)
    now, delays = 0.0, []
    for _ in range(8):
        delays.append(manager.next(now))
        now += delays[-1]
    assert delays == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    assert manager.next(now + 121) == 0.8
    assert manager.next(now + 122) == 1.6
    assert manager.next(0.0) == 0.8, "a clock that went back starts again"


def test_jitter_at_most_doubles() -> None:
    assert BackoffManager(lambda: 0.5).next(0.0) == 0.8 * 1.5
    assert BackoffManager(lambda: 0.0).longest == 60.0


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1, exclude_max=True)), max_size=50))
def test_every_delay_is_within_bounds(steps: list[tuple[float, float]]) -> None:
    dice = iter([chance for _, chance in steps])
    manager = BackoffManager(lambda: next(dice))
    now = 0.0
    for move, _ in steps:
        now += move
        assert 0.8 <= manager.next(now) <= manager.longest
