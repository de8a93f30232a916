"""metav1.Duration: parse and print as Go does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.api.kubeproxyconfig.duration import Duration, format_duration, parse_duration

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "nanoseconds", "printed"),
    [
        ("0", 0, "0s"),
        ("-0", 0, "0s"),
        ("+0", 0, "0s"),
        ("0s", 0, "0s"),
        ("30s", 30 * SECOND, "30s"),
        ("+30s", 30 * SECOND, "30s"),
        ("1m30s", 90 * SECOND, "1m30s"),
        ("90s", 90 * SECOND, "1m30s"),
        ("15m", 900 * SECOND, "15m0s"),
        ("2h22m", 8520 * SECOND, "2h22m0s"),
        ("24h", 86400 * SECOND, "24h0m0s"),
        ("1h0.5s", 3600 * SECOND + SECOND // 2, "1h0m0.5s"),
        ("1.5h", 5400 * SECOND, "1h30m0s"),
        (".5s", SECOND // 2, "500ms"),
        ("1.s", SECOND, "1s"),
        ("1.500ms", 1_500_000, "1.5ms"),
        ("250ms", 250_000_000, "250ms"),
        ("7us", 7_000, "7µs"),
        ("7µs", 7_000, "7µs"),
        ("7μs", 7_000, "7µs"),
        ("3ns", 3, "3ns"),
        ("-5s", -5 * SECOND, "-5s"),
        ("-1m1ms", -60_001_000_000, "-1m0.001s"),
        ("0.9ns", 0, "0s"),
        ("9223372036854775807ns", 2**63 - 1, "2562047h47m16.854775807s"),
        ("-9223372036854775808ns", -(2**63), "-2562047h47m16.854775808s"),
        ("0000000000000000000000000001s", SECOND, "1s"),
    ],
)
def test_parse_and_print(text: str, nanoseconds: int, printed: str) -> None:
    assert parse_duration(text) == nanoseconds
    assert format_duration(nanoseconds) == printed
    assert str(Duration.of(text)) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("30", 'time: missing unit in duration "30"'),
        ("1m30", 'time: missing unit in duration "1m30"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("1S", 'time: unknown unit "S" in duration "1S"'),
        ("1 s", 'time: unknown unit " s" in duration "1 s"'),
        ("1m-5s", 'time: unknown unit "m-" in duration "1m-5s"'),
        ("s", 'time: invalid duration "s"'),
        (".s", 'time: invalid duration ".s"'),
        ("--1s", 'time: invalid duration "--1s"'),
        (" 1s", 'time: invalid duration " 1s"'),
        ("١s", 'time: invalid duration "\\xd9\\xa1s"'),
        ('"', 'time: invalid duration "\\""'),
        ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
        ("-9223372036854775809ns", 'time: invalid duration "-9223372036854775809ns"'),
        ("2562048h", 'time: invalid duration "2562048h"'),
        ("2562047h3600s3600s", 'time: invalid duration "2562047h3600s3600s"'),
        ("99999999999999999999h", 'time: invalid duration "99999999999999999999h"'),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="time: ") as caught:
        parse_duration(text)
    assert str(caught.value) == message


@given(st.integers(-(2**63), 2**63 - 1))
def test_printed_text_parses_back(nanoseconds: int) -> None:
    # Go reads fractions of hours and minutes in floating point, but prints a fraction of seconds only: exact.
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


@given(st.text(alphabet="0123456789.+-hmsnuµ d", max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        nanoseconds = parse_duration(text)
    except ValueError:
        return
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


def test_durations_compare_and_count_seconds() -> None:
    assert Duration.of("1s") < Duration.of("1m")
    assert Duration.of("1500ms").seconds == 1.5
