"""What errors say."""

from __future__ import annotations

from kproxy.errors import KproxyError
from kproxy.netfilter import RestoreError, Ruleset, RuleSyntaxError


def test_syntax_error() -> None:
    error = RuleSyntaxError("a chain expected", text="-A", source="f", line=3)
    assert str(error) == "f: line 3: a chain expected: '-A'"
    assert isinstance(error, KproxyError)
    assert str(RuleSyntaxError("a chain expected")) == "a chain expected"
    assert len(str(RuleSyntaxError("x", text="y" * 1000))) < 400


def test_restore_error() -> None:
    error = RestoreError("no chain X", table="nat", line=3, source="f", applied=Ruleset())
    assert str(error) == "f: line 3: table nat: no chain X"
    assert isinstance(error, KproxyError)
