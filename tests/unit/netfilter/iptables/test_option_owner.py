"""Whose word is it."""

from __future__ import annotations

import pytest

from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.lexer import split_words
from kproxy.netfilter.iptables.option_owner import Layout, lay_out


def layout(text: str, family: Family = Family.IPV4) -> Layout:
    return lay_out(split_words(text), family)


def owners(text: str) -> list[tuple[str, list[str]]]:
    """The parts by name, with their words."""
    raw = split_words(text)
    parts = lay_out(raw, Family.IPV4).parts
    return [(part.pick(raw)[0], list(part.pick(raw)[1:])) for part in parts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-m comment --comment x -m tcp -p tcp -d 1.1.1.1 --dport 5 -j X",
         [("comment", ["--comment", "x"]), ("tcp", ["--dport", "5"]), ("X", [])]),
        ("-p tcp --dport 5", [("tcp", ["--dport", "5"])]),
        ("-p tcp -j LOG --dport 5 --log-prefix x", [("LOG", ["--log-prefix", "x"]), ("tcp", ["--dport", "5"])]),
        ("-p tcp -m multiport -m tcp --dport 5 --dports 6",
         [("multiport", ["--dports", "6"]), ("tcp", ["--dport", "5"])]),
        ("-m tcp -p tcp --dport 5 -m tcp --sport 6", [("tcp", ["--dport", "5"]), ("tcp", ["--sport", "6"])]),
        ("-m comment --comment -m -j X", [("comment", ["--comment", "-m"]), ("X", [])]),
        ("-m mark ! --mark 1 -j X", [("mark", ["!", "--mark", "1"]), ("X", [])]),
        ("-m statistic --mode nth -m policy --mode tunnel --proto esp -p 6",
         [("statistic", ["--mode", "nth"]), ("policy", ["--mode", "tunnel", "--proto", "esp"])]),
        ("-m bogus --a 1 2 ! --b -5 --c -j X", [("bogus", ["--a", "1", "2", "!", "--b", "-5", "--c"]), ("X", [])]),
        ("-p 33 --dport 5", [("dccp", ["--dport", "5"])]),
        ("-m recent --set --name a b c --rsource", [("recent", ["--set", "--name", "a", "b", "c", "--rsource"])]),
    ],
)  # fmt: skip
def test_owners(text: str, expected: list[tuple[str, list[str]]]) -> None:
    assert owners(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("!", "an option expected after !"),
        ("! ! -s 1.1.1.1", "an option expected after !"),
        ("-s", "a value expected after -s"),
        ("-s 1.1.1.1 --source 2.2.2.2", "--source only once expected"),
        ("! -m tcp", "no ! expected before -m"),
        ("! -j X", "no ! expected before -j"),
        ("-m -j X", "a name expected after -m"),
        ('-m ""', "a name expected after -m"),
        ("-j A -g B", "only one of -j and -g"),
        ("-g LOG", "a chain expected after -g"),
        ("-f -f", "-f only once"),
        ("--dport 5 -p tcp", "a known option expected, not --dport"),
        ("--bogus", "a known option expected, not --bogus"),
        ("word", "an option expected, not word"),
        ("-x", "an option expected, not -x"),
        ("--", "an option expected, not --"),
        ("-m comment --comment a b", "an option expected, not b"),
        ("-p tcp --tcp-flags SYN", "2 argument(s) expected"),
    ],
)
def test_refused(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        layout(text)
    assert expected in str(caught.value)
