"""Schedules of CronJobs: which there are, and the times that they name.

Five fields, a word as `@daily`, or `@every 1h30m`, as github.com/robfig/cron's ParseStandard reads them. A day must fit
both of its fields if one of them is `*` or `?`, and else only one of them. An hour that a change of the clocks leaves
out has no times; one that comes twice has them twice.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Final

import msgspec

from kproxy.api.kubeproxyconfig.duration import parse_duration

_RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_NAMES: Final = {
    3: ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    4: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}
_WORDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MINUTE: Final = datetime.timedelta(minutes=1)
_HOUR: Final = datetime.timedelta(hours=1)
_LONGEST: Final = datetime.timedelta(days=5 * 366)
"""A schedule that names no time within these years names none."""
_SHIFT: Final = 3
"""More hours than any zone's clocks are put forward at once."""


class Fields(msgspec.Struct, frozen=True):
    """The five fields of a schedule, in a time zone."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    both: bool
    """Whether a day must fit `days` and `weekdays`."""
    zone: datetime.tzinfo

    def following(self, after: datetime.datetime) -> datetime.datetime | None:
        """The first time after this one; None if there is none within five years."""
        moment = after.astimezone(datetime.UTC).replace(second=0, microsecond=0) + _MINUTE
        end = moment + _LONGEST
        while moment < end:
            local = moment.astimezone(self.zone)
            if not self._has_day(local):
                # To the last hours of the day and on by single ones: a day may be shorter than others.
                moment += max(1, 24 - _SHIFT - local.hour) * _HOUR - local.minute * _MINUTE
            elif local.hour not in self.hours:
                moment += _HOUR - local.minute * _MINUTE
            elif local.minute not in self.minutes:
                moment += _MINUTE
            else:
                return moment
        return None

    def latest(self, since: datetime.datetime, until: datetime.datetime) -> datetime.datetime | None:
        """The last time after `since` that is not after `until`."""
        span = _HOUR
        while True:
            start, found = max(since, until - span), None
            moment = self.following(start)
            while moment is not None and moment <= until:
                found, moment = moment, self.following(moment)
            if found is not None or start == since:
                return found
            span *= 8

    def _has_day(self, local: datetime.datetime) -> bool:
        fits = (local.day in self.days, local.isoweekday() % 7 in self.weekdays)
        return local.month in self.months and (all(fits) if self.both else any(fits))


class Every(msgspec.Struct, frozen=True):
    """A time after each interval, from whenever it is counted."""

    interval: datetime.timedelta

    def following(self, after: datetime.datetime) -> datetime.datetime:
        """One interval later."""
        return after.replace(microsecond=0) + self.interval

    def latest(self, since: datetime.datetime, until: datetime.datetime) -> datetime.datetime | None:
        """The last time, counted from `since`, that is not after `until`."""
        first = self.following(since)
        return None if first > until else first + (until - first) // self.interval * self.interval


def parse_schedule(text: str, zone: datetime.tzinfo = datetime.UTC) -> Fields | Every:
    """A schedule; ValueError, in robfig/cron's terms, if it is none.

    >>> parse_schedule("30 6 * * mon").following(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)).isoformat()
    '2026-01-05T06:30:00+00:00'
    >>> parse_schedule("* * * *")
    Traceback (most recent call last):
    ValueError: expected exactly 5 fields, found 4: [* * * *]
    """
    if text.startswith("@every "):
        try:
            nanoseconds = parse_duration(text.removeprefix("@every "))
        except ValueError as error:
            raise ValueError(f"failed to parse duration {text}: {error}") from None
        return Every(datetime.timedelta(seconds=max(1, nanoseconds // 1_000_000_000)))
    if text.startswith("@") and text not in _WORDS:
        raise ValueError(f"unrecognized descriptor: {text}")
    parts = _WORDS.get(text, text).split()
    if len(parts) != len(_RANGES):
        raise ValueError(f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]")
    minutes, hours, days, months, weekdays = (frozenset(_numbers(part, index)) for index, part in enumerate(parts))
    both = any(each in ("*", "?", "*/1", "?/1") for part in (parts[2], parts[4]) for each in part.split(","))
    return Fields(minutes, hours, days, months, weekdays, both, zone)


def _numbers(field: str, index: int) -> Iterator[int]:
    """What a field names: `*/5`, `1,3-5`, `mon-fri`, `10/20` (from 10 on every twentieth)."""
    low, high = _RANGES[index]
    for text in field.split(","):
        span, slash, step = text.partition("/")
        if slash and not (_is_number(step) and int(step) > 0):
            raise ValueError(f"failed to parse int from {step}")
        if span in ("*", "?"):
            bounds = [low, high]
        else:
            bounds = [_number(word, index) for word in span.split("-")]
        if len(bounds) > 2:
            raise ValueError(f"too many hyphens: {text}")
        if bounds[0] < low:
            raise ValueError(f"beginning of range ({bounds[0]}) below minimum ({low}): {text}")
        if bounds[-1] > high:
            raise ValueError(f"end of range ({bounds[-1]}) above maximum ({high}): {text}")
        if bounds[0] > bounds[-1]:
            raise ValueError(f"beginning of range ({bounds[0]}) beyond end of range ({bounds[-1]}): {text}")
        last = high if slash and len(bounds) == 1 else bounds[-1]
        yield from range(bounds[0], last + 1, int(step or 1))


def _number(word: str, index: int) -> int:
    names = _NAMES.get(index, [])
    if word.lower() in names:
        return names.index(word.lower()) + _RANGES[index][0]
    if not _is_number(word):
        raise ValueError(f"failed to parse int from {word}")
    return int(word)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
