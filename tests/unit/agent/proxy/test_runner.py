"""The bounded-frequency runner: nothing too early, nothing too late, nothing lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.agent.proxy.runner import FIRST_RETRY, LONGEST_RETRY, BoundedFrequencyRunner, Run, Wait


def make(minimum: float = 1.0, maximum: float = 30.0) -> BoundedFrequencyRunner:
    return BoundedFrequencyRunner(minimum, maximum, lambda: 0.5)


def started(minimum: float = 1.0, maximum: float = 30.0) -> BoundedFrequencyRunner:
    """One that has run at 100.0, successfully."""
    runner = make(minimum, maximum)
    runner.enable()
    run = runner.next_action(100.0)
    assert run == Run(check=True)
    runner.finished(run, True, 100.0)
    return runner


def wait_at(runner: BoundedFrequencyRunner, now: float) -> float:
    """How long it says to wait."""
    action = runner.next_action(now)
    assert isinstance(action, Wait)
    assert action.seconds is not None
    return action.seconds


def test_a_request_waits_for_the_minimum_interval_and_many_are_one() -> None:
    runner = started()
    runner.request()
    runner.request()
    assert wait_at(runner, 100.4) == pytest.approx(0.6)
    run = runner.next_action(101.0)
    assert run == Run(check=False)
    runner.finished(run, True, 101.2)
    assert wait_at(runner, 102.5) == pytest.approx(27.5), "the next check"


def test_a_request_during_a_run_is_not_lost() -> None:
    runner = started()
    runner.request()
    run = runner.next_action(110.0)
    assert isinstance(run, Run)
    runner.request()
    assert runner.next_action(110.1) == Wait(None), "one at a time"
    runner.finished(run, True, 115.0)
    assert isinstance(runner.next_action(115.0), Run)


def test_busy_times_do_not_put_off_the_check() -> None:
    runner = started()
    checks = []
    now = 100.0
    while now < 200.0:
        now += 1.0
        runner.request()
        run = runner.next_action(now)
        assert isinstance(run, Run)
        if run.check:
            checks.append(now)
        runner.finished(run, True, now)
    assert checks == [130.0, 160.0, 190.0]


def test_retries_back_off_check_and_start_over_after_a_success() -> None:
    runner = started()
    now, waits = 200.0, []
    for _ in range(9):
        runner.request()  # requests do not hurry a retry
        run = runner.next_action(now)
        assert isinstance(run, Run)
        runner.finished(run, False, now)
        assert runner.failing
        wait = runner.next_action(now)
        assert isinstance(wait, Wait)
        assert wait.seconds is not None
        waits.append(round(wait.seconds, 2))
        now += wait.seconds
    assert waits == [0.11, 0.22, 0.44, 0.88, 1.76, 3.52, 5.5, 5.5, 5.5]
    run = runner.next_action(now)
    assert run == Run(check=True)
    runner.finished(run, True, now)
    assert not runner.failing
    run = runner.next_action(now + 30.0)
    assert isinstance(run, Run)
    runner.finished(run, False, now + 30.0)
    assert wait_at(runner, now + 30.0) == pytest.approx(0.11)


def test_a_failure_that_took_long_is_not_repeated_at_once() -> None:
    runner = started()
    run = runner.next_action(200.0)
    assert isinstance(run, Run)
    runner.finished(run, False, 203.0)
    assert wait_at(runner, 203.0) == pytest.approx(3.3)


def test_waiting_for_the_lock_goes_on_as_soon_as_it_was_in_vain() -> None:
    """A lock that is let go just after the wait for it has ended must not cost the length of another wait."""
    runner = started()
    now = 200.0
    for _ in range(10):
        runner.request()
        run = runner.next_action(now)
        assert isinstance(run, Run)
        now += 5.0
        runner.finished(run, False, now, waited=True)
        assert runner.failing
        assert wait_at(runner, now) == pytest.approx(FIRST_RETRY * 1.1)
        now += FIRST_RETRY * 1.2


@given(st.lists(st.tuples(st.floats(0, 40), st.booleans(), st.booleans()), max_size=40))
def test_whatever_comes_something_is_due_soon_enough(steps: list[tuple[float, bool, bool]]) -> None:
    runner = started()
    now = last = 100.0
    failed = False
    for pause, request, ok in steps:
        now += pause
        if request:
            runner.request()
        action = runner.next_action(now)
        if isinstance(action, Run):
            assert failed or now - last >= 1.0, "never closer than the minimum interval"
            runner.finished(action, ok, now)
            last, failed = now, not ok
        else:
            assert action.seconds is not None
            limit = LONGEST_RETRY * 1.2 if failed else 1.0 if request else 30.0
            assert 0 < action.seconds <= limit + 1e-6


def test_a_check_that_gave_way_is_due_with_the_next_run() -> None:
    runner = BoundedFrequencyRunner(1.0, 30.0, lambda: 0.0)
    runner.enable()
    run = runner.next_action(100.0)
    assert isinstance(run, Run)
    runner.request()
    assert runner.requested
    runner.finished(run, True, 100.1, checked=False)
    assert runner.next_action(101.0) == Run(check=True)
