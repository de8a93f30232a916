"""What typed targets mean; their text is tested by the recorded rules and the properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.netfilter import (
    Family,
    RuleSyntaxError,
    Target,
    parse_rule,
)
from kproxy.netfilter.iptables import targets as t

V4, V6 = Family.IPV4, Family.IPV6
UINT32 = (1 << 32) - 1
marks = st.integers(0, UINT32)


def target(text: str, family: Family = V4) -> Target | None:
    return parse_rule(f"-j {text}", family=family).target


@given(marks, marks)
def test_mark_options_do_what_they_say(mark: int, value: int) -> None:
    def after(option: str) -> int:
        found = target(f"MARK {option}")
        assert isinstance(found, t.MarkTarget)
        return mark & ~found.xmark.mask & 0xFFFFFFFF ^ found.xmark.value

    assert after(f"--set-mark {value}") == value
    assert after(f"--or-mark {value}") == mark | value
    assert after(f"--and-mark {value}") == mark & value
    assert after(f"--xor-mark {value}") == mark ^ value
    assert after(f"--set-mark 8/{value}") == mark & ~value & UINT32 | 8
    assert after(f"--set-xmark 8/{value}") == (mark & ~value & UINT32) ^ 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ACCEPT --x", "a known option expected"),
        ("ACCEPT -j DROP", "only one of -j and -g"),
        ("MARK", "--set-xmark expected"),
        ("DNAT", "--to-destination expected"),
        ("DNAT --to-destination", "1 argument(s)"),
        ("DNAT --to-destination 1.2.3.4:0x50", "a port"),
        ("DNAT --to-destination 1.2.3.4:90-80", "a port"),
        ("NFQUEUE --queue-num 1 --queue-balance 2:3", "only one of"),
        ("TPROXY", "--on-port expected"),
        ("TTL --ttl-set 1 --ttl-inc 2", "one of"),
        ("CONNMARK --nfmask 1", "one of these expected"),
        ("LOG --log-level 9", "a syslog level"),
    ],
)
def test_refused(text: str, expected: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        target(text)
    assert expected in caught.value.expected


def test_bad_ipv6_destination() -> None:
    for text in ("[::1]-[::2]:80", "[::1", "[::1]80", "1.2.3.4", "", "[]:80"):
        with pytest.raises(RuleSyntaxError):
            target(f'DNAT --to-destination "{text}"', V6)
