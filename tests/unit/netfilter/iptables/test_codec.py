"""The shared codecs."""

from __future__ import annotations

import pytest

from kproxy.netfilter.family import PROTOCOL_NAMES, Family, protocol_name
from kproxy.netfilter.iptables.codec import (
    Masked,
    Range,
    choice,
    masked,
    names,
    number_range,
    parse_protocol,
    parse_uint,
    string,
)

V4 = Family.IPV4


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("80", 80), ("0x50", 80), ("010", 8), ("+5", 5), ("0X1f", 31)])
def test_uint(text: str, value: int) -> None:
    assert parse_uint(text) == value


@pytest.mark.parametrize("text", ["", "-1", "08", "0x", "1 ", "1_0", "٣", "4294967296", "9" * 50, "0x" + "f" * 50])
def test_no_uint(text: str) -> None:
    with pytest.raises(ValueError, match="a number from 0 to 4294967295 expected"):
        parse_uint(text)


def test_ranges() -> None:
    ports = number_range(65535, ordered=True)
    assert [ports.parse([text], V4) for text in ("5", "5:9", ":9", "5:")] == [
        Range(5, 5), Range(5, 9), Range(0, 9), Range(5, 65535)
    ]  # fmt: skip
    assert ports.text(Range(0, 9)) == "0:9"
    with pytest.raises(ValueError, match="lower end first"):
        ports.parse(["9:5"], V4)
    assert number_range(65535).parse(["9:5"], V4) == Range(9, 5)
    assert not Range(9, 5).contains(7)
    closed = number_range(9, "-", open_ends=False)
    for text in ("-5", "5-", "-"):
        with pytest.raises(ValueError, match="a number"):
            closed.parse([text], V4)


def test_masked() -> None:
    long, short = masked(), masked(short=True)
    assert long.text(Masked(5)) == "0x5/0xffffffff"
    assert short.text(Masked(5)) == "0x5"
    assert short.parse(["5/7"], V4) == Masked(5, 7)
    with pytest.raises(ValueError, match="a number"):
        long.parse(["5/"], V4)


def test_names_and_choices() -> None:
    flags = names(("A", "B", "C"), "letters")
    assert flags.text(flags.parse(["c,A"], V4)) == "A,C"
    with pytest.raises(ValueError, match="letters expected"):
        flags.parse(["A,,C"], V4)
    one = choice(("x", "y"), "a letter", {"ex": "x"})
    assert one.parse(["ex"], V4) == "x"
    with pytest.raises(ValueError, match="a letter expected"):
        one.parse(["X"], V4)


def test_strings_are_measured_in_bytes() -> None:
    assert string(2).parse(["ž"], V4) == "ž"
    with pytest.raises(ValueError, match="at most 2 bytes"):
        string(2).parse(["žž"], V4)
    assert string(3, cut=True).parse(["abcd"], V4) == "abc"
    with pytest.raises(ValueError, match="at least 1"):
        string(3, least=1).parse([""], V4)


@pytest.mark.parametrize(("text", "value"), [("TCP", 6), ("6", 6), ("0x6", 6), ("all", 0), ("icmpv6", 58), ("mh", 135)])
def test_protocol(text: str, value: int) -> None:
    assert parse_protocol(text) == value


def test_every_protocol_name_comes_back() -> None:
    for number in range(1, 256):
        assert parse_protocol(protocol_name(number)) == number
    assert protocol_name(200) == "200"
    assert len(PROTOCOL_NAMES) > 50
    for text in ("256", "-1", "icmp6", ""):
        with pytest.raises(ValueError, match="expected"):
            parse_protocol(text)
