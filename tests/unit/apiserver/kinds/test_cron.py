"""The times that schedules name; what is wrong with one is in test_stored.py."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.apiserver.kinds.cron import parse_schedule

UTC = datetime.UTC


def at(text: str) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "after", "following"),
    [
        ("* * * * *", "2026-03-01T10:00:00", "2026-03-01T10:01:00"),
        ("* * * * *", "2026-03-01T10:00:59.5", "2026-03-01T10:01:00"),
        ("*/15 * * * *", "2026-03-01T10:46:00", "2026-03-01T11:00:00"),
        ("5/20 * * * *", "2026-03-01T10:06:00", "2026-03-01T10:25:00"),
        ("0 3 * * *", "2026-12-31T03:00:00", "2027-01-01T03:00:00"),
        ("30 6-16/4 * * 1-5", "2026-03-06T14:30:00", "2026-03-09T06:30:00"),
        ("0 0 29 feb ?", "2026-03-01T00:00:00", "2028-02-29T00:00:00"),
        # One of the days is enough, unless one of the fields is a star: the 13th or any Friday; then a Friday only.
        ("0 0 13 * fri", "2026-03-10T00:00:00", "2026-03-13T00:00:00"),
        ("0 0 14 * fri", "2026-03-13T00:00:00", "2026-03-14T00:00:00"),
        ("0 0 * * FRI", "2026-03-14T00:00:00", "2026-03-20T00:00:00"),
        ("0 0 */2 * sun", "2026-03-14T00:00:00", "2026-03-15T00:00:00"),
        ("0 0 */2 * sun", "2026-03-15T00:00:00", "2026-03-17T00:00:00"),
        ("0 0 */1 * sun", "2026-03-15T00:00:00", "2026-03-22T00:00:00"),
        ("@hourly", "2026-03-01T10:00:00", "2026-03-01T11:00:00"),
        ("@weekly", "2026-03-11T10:00:00", "2026-03-15T00:00:00"),
        ("@yearly", "2026-03-11T10:00:00", "2027-01-01T00:00:00"),
        ("@every 1h30m", "2026-03-01T10:00:07.5", "2026-03-01T11:30:07"),
        ("@every 10ms", "2026-03-01T10:00:00", "2026-03-01T10:00:01"),
    ],
)
def test_the_next_time(schedule: str, after: str, following: str) -> None:
    assert parse_schedule(schedule).following(at(after)) == at(following)


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "following"),
    [
        ("0 9 * * *", "America/New_York", "2026-03-07T09:00:00-05:00", "2026-03-08T09:00:00-04:00"),
        ("30 2 * * *", "America/New_York", "2026-03-07T02:30:00-05:00", "2026-03-09T02:30:00-04:00"),
        ("0 * * * *", "America/New_York", "2026-03-08T01:00:00-05:00", "2026-03-08T03:00:00-04:00"),
        ("30 1 * * *", "America/New_York", "2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00"),
        ("0 0 * * *", "Antarctica/Troll", "2026-03-29T00:00:00+00:00", "2026-03-30T00:00:00+02:00"),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30", "2026-10-05T02:15:00+11:00"),
        ("0 0 * * *", "Asia/Kolkata", "2026-03-01T00:00:00+05:30", "2026-03-02T00:00:00+05:30"),
    ],
)
def test_zones_and_their_changes_of_clocks(schedule: str, zone: str, after: str, following: str) -> None:
    """What is left out is skipped, what comes twice is taken twice; a day may have 22 hours."""
    assert parse_schedule(schedule, ZoneInfo(zone)).following(at(after)) == at(following)


def test_a_schedule_without_times() -> None:
    schedule = parse_schedule("59 23 31 2 *")
    assert schedule.following(at("2026-01-01")) is None
    assert schedule.latest(at("2026-01-01"), at("2027-01-01")) is None


MOMENTS = st.datetimes(
    datetime.datetime(2026, 1, 1), datetime.datetime(2026, 3, 1), timezones=st.just(UTC)
)  # fmt: skip


@given(st.sampled_from(["*/7 * * * *", "0 3 * * 1-5", "@daily", "@every 11h", "59 23 31 1 *"]), MOMENTS, MOMENTS)
def test_the_latest_is_the_last_of_those_that_follow(
    text: str, since: datetime.datetime, until: datetime.datetime
) -> None:
    schedule = parse_schedule(text)
    found, moment = None, schedule.following(since)
    until = min(until, since + datetime.timedelta(days=9))
    while moment is not None and moment <= until:
        found, moment = moment, schedule.following(moment)
    assert schedule.latest(since, max(since, until)) == found
