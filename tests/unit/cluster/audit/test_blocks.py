"""Cutting a dump's rules with the help of another's gives what cutting them alone does."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.cluster.audit.blocks import cut_blocks
from kproxy.cluster.audit.dump import Dump

LINES = st.lists(st.sampled_from([f"-A {chain} -j {to}\n" for chain in ("A", "AB", "B") for to in "xyz"]), max_size=12)


@given(LINES, LINES, LINES, LINES)
@settings(deadline=None)
def test_help_changes_nothing(start: list[str], one: list[str], other: list[str], end: list[str]) -> None:
    text, like = ("".join([*start, *middle, *end]) for middle in (one, other))
    alone, help_ = cut_blocks(text), cut_blocks(like)
    assert alone is not None
    assert help_ is not None
    assert "".join(alone.rules) == text
    assert cut_blocks(text, help_) == alone


def test_what_is_no_rule_is_not_cut() -> None:
    like = cut_blocks("-A A -j x\n-A B -j x\n-A C -j x\n")
    assert like is not None
    for text in ("-A A -j x\nhello\n-A C -j x\n", "-A A -j x\n-A C -j x", "x", "-A A -j x\n\n-A B -j x\n-A C -j x\n"):
        assert cut_blocks(text) is cut_blocks(text, like) is None
    assert cut_blocks("", like) == cut_blocks("")


def test_a_dump_is_the_same_with_another_beside_it() -> None:
    rules = "".join(f"-A KUBE-SEP-{n:04} -j DNAT --to-destination 10.0.0.{n % 250}:80\n" for n in range(300))
    head = "*nat\n:POSTROUTING ACCEPT [7:9]\n" + "".join(f":KUBE-SEP-{n:04} - [0:0]\n" for n in range(300))
    one = Dump("n1", f"# n1\n{head}-A POSTROUTING -j MASQUERADE\n{rules}COMMIT\n")
    text = (
        f"# n2\n{head}-A POSTROUTING -s 10.1.0.0/16 -j MASQUERADE\n{rules.replace('10.0.0.77:', '10.9.9.9:')}COMMIT\n"
    )
    for like in (one, Dump("none", ""), None):
        found = Dump("n2", text, like=like)
        assert found.chains["nat", "KUBE-SEP-0077"] == "-A KUBE-SEP-0077 -j DNAT --to-destination 10.9.9.9:80\n"
        assert found.chains["nat", "POSTROUTING"] == "-A POSTROUTING -s 10.1.0.0/16 -j MASQUERADE\n"
        assert (len(found.chains), found.policies) == (301, {("nat", "POSTROUTING"): "ACCEPT"})
        assert found.chains["nat", "KUBE-SEP-0299"] == one.chains["nat", "KUBE-SEP-0299"]
