"""One rule as a value."""

from __future__ import annotations

import pytest

from kproxy.netfilter import RuleSyntaxError, parse_rule


def test_equality_is_the_kernels() -> None:
    counted = parse_rule("[5:6] -A X -p 6 -j ACCEPT")
    plain = parse_rule("-p tcp -j ACCEPT")
    assert counted == plain
    assert hash(counted) == hash(plain)
    assert plain != parse_rule("! -p tcp -j ACCEPT")
    assert plain != parse_rule("-p tcp")


@pytest.mark.parametrize("text", ["-j A\n-j B", "-c 1 2", "-A X --bogus", "-B X", "[1:2] -I X"])
def test_refused(text: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse_rule(text, source="here")
    assert caught.value.source == "here"
    assert caught.value.line == 0
    assert caught.value.exit_code == 2
    assert caught.value.text == text
