"""The shared codecs."""

from __future__ import annotations

import pytest

from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import (
    parse_uint,
    string,
)

V4 = Family.IPV4


@pytest.mark.parametrize("text", ["", "-1", "08", "0x", "1 ", "1_0", "٣", "4294967296", "9" * 50, "0x" + "f" * 50])
def test_no_uint(text: str) -> None:
    with pytest.raises(ValueError, match="a number from 0 to 4294967295 expected"):
        parse_uint(text)


def test_strings_are_measured_in_bytes() -> None:
    assert string(2).parse(["ž"], V4) == "ž"
    with pytest.raises(ValueError, match="at most 2 bytes"):
        string(2).parse(["žž"], V4)
    assert string(3, cut=True).parse(["abcd"], V4) == "abc"
    with pytest.raises(ValueError, match="at least 1"):
        string(3, least=1).parse([""], V4)
