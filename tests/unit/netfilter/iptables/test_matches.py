"""What typed matches mean; their text is tested by the recorded rules and the properties."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from kproxy.netfilter import Address, Family, Masked, Negatable, OpaqueMatch, Range, RuleSyntaxError, parse_rule
from kproxy.netfilter.iptables.matches.addrtype import AddrtypeMatch
from kproxy.netfilter.iptables.matches.comment import CommentMatch
from kproxy.netfilter.iptables.matches.conntrack import ConntrackMatch
from kproxy.netfilter.iptables.matches.icmp import IcmpMatch, IcmpType
from kproxy.netfilter.iptables.matches.ipset import SetMatch, SetReference
from kproxy.netfilter.iptables.matches.limit import LimitMatch
from kproxy.netfilter.iptables.matches.link import PhysdevMatch
from kproxy.netfilter.iptables.matches.local import NfacctMatch
from kproxy.netfilter.iptables.matches.mark import MarkMatch
from kproxy.netfilter.iptables.matches.multiport import MultiportMatch
from kproxy.netfilter.iptables.matches.recent import RecentMatch
from kproxy.netfilter.iptables.matches.transport import TcpFlags, TcpMatch


def match(text: str, family: Family = Family.IPV4) -> Any:
    rule = parse_rule(f"-m {text}", family=family)
    assert len(rule.matches) == 1
    return rule.matches[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("comment --comment x", CommentMatch("x")),
        ("mark ! --mark 0x4000/0x4000", MarkMatch(Negatable(Masked(0x4000, 0x4000), True))),
        ("addrtype --dst-type LOCAL", AddrtypeMatch(dst_type=Negatable(frozenset({"LOCAL"})))),
        ("conntrack --ctstate RELATED,ESTABLISHED",
         ConntrackMatch(ctstate=Negatable(frozenset({"ESTABLISHED", "RELATED"})))),
        ("conntrack --ctstatus NONE", ConntrackMatch(ctstatus=Negatable(frozenset()))),
        ("tcp --dport 80", TcpMatch(dport=Negatable(Range(80, 80)))),
        ("tcp --syn", TcpMatch(flags=Negatable(TcpFlags(0x17, 0x02)))),
        ("icmp --icmp-type any", IcmpMatch(Negatable(IcmpType(255, Range(0, 255))))),
        ("set ! --match-set s src,dst", SetMatch(Negatable(SetReference("s", ("src", "dst")), True))),
        ("physdev ! --physdev-is-bridged", PhysdevMatch(is_bridged=False)),
        ("limit --limit 5/minute", LimitMatch("5/min")),
        ("icmp --icmp-type echo-request", IcmpMatch(Negatable(IcmpType(8)))),
        ("nfacct --nfacct-name x", NfacctMatch("x")),
        ("recent --name N --set",
         RecentMatch(Negatable("set"), "N", Address(Family.IPV4, 0xFFFFFFFF), "source")),
        ("multiport --dports 80,90:99", MultiportMatch(dports=Negatable((Range(80, 80), Range(90, 99))))),
    ],
)  # fmt: skip
def test_values(text: str, value: object) -> None:
    assert match(text) == value


def test_probability_is_exact() -> None:
    third = match("statistic --mode random --probability 0.3333333333")
    assert third.probability == Negatable(715827883)
    assert third.chance == Fraction(715827883, 1 << 31)
    assert third == match("statistic --mode random --probability 0.33333333349")
    assert match("statistic --mode random ! --probability 0.25").chance == Fraction(3, 4)
    assert match("statistic --mode nth --every 3 --packet 1").chance is None


def test_flags_and_types() -> None:
    syn = match("tcp --syn").flags.value
    assert (syn.mask, syn.comp) == (0x17, 0x02)
    code = match("icmp --icmp-type 3/4").icmp_type.value
    assert (code.type, code.codes) == (3, Range(4, 4))
    assert match("icmp6 --icmpv6-type 255", Family.IPV6).icmp_type.value.codes == Range(0, 255)


def test_defaults_follow_the_family() -> None:
    assert match("recent --set", Family.IPV6).mask == Address(Family.IPV6, (1 << 128) - 1)


@pytest.mark.parametrize(
    "text",
    [
        "recent --set --frobnicate 5",
        "limit --limit often",
        "icmp --icmp-type ping",
        "sctp --dport 80 --chunk-types any INIT",
        "set --match-set s src --packets-gt 5",
        "hashlimit --hashlimit-above 1mb/s --hashlimit-name x",
        "hashlimit --hashlimit-upto 10/sec --hashlimit-name x --hashlimit-rate-match --hashlimit-rate-interval 5",
        "conntrack --ctorigsrc 10.0.0.0/255.0.255.0",
        "policy --dir in --pol ipsec --proto esp --mode tunnel",
        "bogus",
        'bogus --x "a b"  ! --y -5',
    ],
)
def test_what_is_not_understood_stays_opaque(text: str) -> None:
    found = match(text)
    assert isinstance(found, OpaqueMatch)
    assert found.to_save() == f"-m {text}"
    name, _, rest = text.partition(" ")
    assert (found.name, found.text) == (name, rest)


def test_opaque_words() -> None:
    assert match('bogus --x "a b" ! --y').words == ("--x", "a b", "!", "--y")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("comment", "--comment expected"),
        ("comment ! --comment x", "no ! expected before --comment"),
        ("comment --comment x --comment y", "only one of its kind"),
        (f"comment --comment {'x' * 256}", "at most 255 bytes"),
        ("mark --mark", "1 argument(s) expected after --mark"),
        ("tcp --dport http", "a number from 0 to 65535"),
        ("multiport --dports 1 --sports 2", "only one of these expected: --sports, --dports"),
        ("multiport --dports 5:5", "lower end first"),
        ("multiport --ports 1:2,3:4,5:6,7:8,9:10,11:12,13:14,15:16", "at most 15"),
        ("recent --rcheck --update", "only one of its kind"),
        ("recent --set --seconds 5", "--rcheck or --update"),
        ("statistic --mode nth --every 3 --packet 3", "--packet below --every"),
        ("addrtype", "one of these expected: --src-type, --dst-type"),
        ("set --match-set s SRC", "src and dst"),
        ("mac --mac-source 0011", "a MAC address"),
        ("owner --uid-owner root", "a number"),
    ],
)
def test_refused(text: str, expected: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        match(text)
    assert expected in caught.value.expected


def test_names_with_blanks_survive() -> None:
    """iptables-save prints them without quotes, so that iptables-restore could not read them back."""
    found = match("recent --set --name a b --mask 255.255.255.255 --rsource")
    assert found.name == "a b"
    assert found.to_save() == "-m recent --set --name a b --mask 255.255.255.255 --rsource"
