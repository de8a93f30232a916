"""Reading rules, in save order and in any order."""

from __future__ import annotations

import pytest

from kproxy.netfilter import Family, Jump, Negatable, Network, Rule
from kproxy.netfilter.iptables.matches import CommentMatch, MarkMatch, TcpMatch
from kproxy.netfilter.iptables.reader import RuleReader

COMMENT = '-m comment --comment "ns/n:p cluster IP"'
SAVED = f"! -s 10.244.0.0/16 -d 10.96.2.1/32 -p tcp {COMMENT} -m tcp --dport 55 -j KUBE-MARK-MASQ"
RESTORE = f"{COMMENT} -m tcp -p tcp -d 10.96.2.1 --dport 55 ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ"


def test_both_orders() -> None:
    saved = RuleReader(Family.IPV4, keep_spelling=True).read(SAVED)
    restore = RuleReader(Family.IPV4).read(RESTORE)
    assert saved == restore
    assert saved.source == Negatable(Network.parse("10.244.0.0/16", Family.IPV4), True)
    assert saved.protocol == Negatable(6)
    assert [type(match) for match in saved.matches] == [CommentMatch, TcpMatch]
    assert saved.target == Jump("KUBE-MARK-MASQ")
    assert restore.spec() == SAVED
    assert saved.spelling is None


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("-p 6", "-p tcp"),
        ("-d 1.1.1.1/32 -s 2.2.2.2/32", "-s 2.2.2.2/32 -d 1.1.1.1/32"),
        ("-s 2.2.2.2/32  -j X", "-s 2.2.2.2/32 -j X"),
        ("-m tcp  -j X", "-m tcp -j X"),
        ("-m mark --mark 1 -j X ", "-m mark --mark 0x1 -j X"),
        ("-j X -m mark --mark 0x1", "-m mark --mark 0x1 -j X"),
        ("-m comment --comment a/b", '-m comment --comment "a/b"'),
        ('-m comment --comment "ab"', "-m comment --comment ab"),
        ("-m tcp -p tcp", "-p tcp -m tcp"),
        ("-m nfacct --nfacct-name x", "-m nfacct --nfacct-name  x"),
    ],
)
def test_spelling_is_kept(text: str, spec: str) -> None:
    rule = RuleReader(Family.IPV4, keep_spelling=True).read(text)
    assert rule.spelling == text
    assert rule.spec() == spec
    assert rule == RuleReader(Family.IPV4, keep_spelling=True).read(spec)
    assert RuleReader(Family.IPV4).read(text).spelling is None


@pytest.mark.parametrize(
    "text",
    ["", "-m comment --comment -m -j X", '-m comment --comment "-j X" -m mark --mark 0x1', "-m bogus  --x   y -j X",
     "-m nfacct --nfacct-name  x", '-m comment --comment "a \\"-m b\\" c"', "-g X", "-s 0.0.0.0/1", "! -f -m tcp",
     "-m recent --set --name a b --mask 255.255.255.255 --rsource"],
)  # fmt: skip
def test_canonical_text_needs_no_spelling(text: str) -> None:
    rule = RuleReader(Family.IPV4, keep_spelling=True).read(text)
    assert rule.spelling is None
    assert rule.spec() == text


def test_shapes_do_not_leak() -> None:
    """Two lines of one shape keep their own words; a failed line leaves nothing behind."""
    reader = RuleReader(Family.IPV4)
    assert reader.read("-p tcp --dport 1 -j A").spec() == "-p tcp -m tcp --dport 1 -j A"
    assert reader.read("-p tcp --dport 2 -j B").spec() == "-p tcp -m tcp --dport 2 -j B"
    assert reader.read("-p udp --dport 2 -j B").spec() == "-p udp -m udp --dport 2 -j B"
    assert reader.read("-p 17 --dport 2 -j B").spec() == "-p udp -m udp --dport 2 -j B"
    assert reader.read("-p 6 --dport 2 -j B").spec() == "-p tcp -m tcp --dport 2 -j B"
    for _ in range(2):
        with pytest.raises(ValueError, match="a number"):
            reader.read("-p tcp --dport x -j B")
    assert reader.read("-m mark --mark 1 -j mark").spec() == "-m mark --mark 0x1 -j mark"
    assert reader.read("-j X") != reader.read("-g X")
    assert reader.read('-m "mark" --mark 1').matches == (MarkMatch(reader.read("-m mark --mark 1").matches[0].mark),)  # type: ignore[attr-defined]
    assert reader.read("-m foo --mark 1").spec() == "-m foo --mark 1"


def test_what_tests_nothing_is_dropped() -> None:
    reader = RuleReader(Family.IPV4)
    assert reader.read("-s 0/0 -d 0.0.0.0/0 -i + -o + -p all") == Rule()
    assert reader.read("! -s 0.0.0.0/0").spec() == "! -s 0.0.0.0/0"
    with pytest.raises(ValueError, match="not all of them"):
        reader.read("! -p all")
