"""The view of `iptables -L`; each rule's line is compared with recorded ones in `test_observed.py`."""

from __future__ import annotations

import pytest

from kproxy.netfilter import Family, Ruleset, canonical_ruleset, parse_save, print_list

TEXT = """*filter
:INPUT DROP [123456:99999]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [12345678901234567890:12345678901]
:X - [0:0]
:Y - [0:0]
[100000:99999] -A INPUT ! -s 10.0.0.0/255.0.255.0 -i abcdefghijklmno ! -p tcp -f -g X
[12345678:12345678901] -A INPUT -j X
-A X -m bogus --x -j SYNPROXY --mss 5
COMMIT
"""

HEAD = "num   pkts bytes target     prot opt in     out     source               destination         \n"


def test_listing() -> None:
    assert print_list(parse_save(TEXT), "filter") == (
        "Chain INPUT (policy DROP 123K packets, 99999 bytes)\n" + HEAD +
        "1     100K 99999 X         !6    -f  abcdefghijklmno *      !10.0.0.0/255.0.255.0  0.0.0.0/0           "
        "[goto] \n"
        "2      12M   12G X          0    --  *      *       0.0.0.0/0            0.0.0.0/0           \n"
        "\nChain FORWARD (policy ACCEPT 0 packets, 0 bytes)\n" + HEAD +
        "\nChain OUTPUT (policy ACCEPT 12345679T packets, 12G bytes)\n" + HEAD +
        "\nChain X (2 references)\n" + HEAD +
        "1        0     0 SYNPROXY   0    --  *      *       0.0.0.0/0            0.0.0.0/0           "
        " [bogus --x] [--mss 5]\n"
        "\nChain Y (0 references)\n" + HEAD
    )  # fmt: skip


def test_one_chain() -> None:
    assert print_list(parse_save(TEXT), "filter", "Y") == "Chain Y (0 references)\n" + HEAD
    with pytest.raises(KeyError):
        print_list(parse_save(TEXT), "filter", "Z")


def test_absent_table() -> None:
    listed = print_list(Ruleset(Family.IPV6), "raw")
    assert listed.count("policy ACCEPT") == 2
    with pytest.raises(KeyError):
        print_list(Ruleset(Family.IPV6), "frob")


def test_ipv6() -> None:
    ruleset = canonical_ruleset("*filter\n:X - [0:0]\n-A X -d fd00::1 -j REJECT\nCOMMIT\n", Family.IPV6)
    assert print_list(ruleset, "filter", "X").splitlines()[2] == (
        "1        0     0 REJECT     0    --  *      *       ::/0                 fd00::1             "
        " reject-with icmp6-port-unreachable"
    )


@pytest.mark.parametrize("family", list(Family), ids=lambda family: f"v{family.version}")
def test_protocols(family: Family) -> None:
    """All 256, as iptables 1.8.11 lists them; as numbers, 1.8.9 does."""
    rules = "".join(f"-A T -p {number}\n" for number in range(256))
    ruleset = canonical_ruleset(f"*filter\n:T - [0:0]\n{rules}COMMIT\n", family)
    named = [line.split()[3] for line in print_list(ruleset, "filter", "T", protocol_names=True).splitlines()[2:]]
    assert {number: name for number, name in enumerate(named) if name != str(number)} == {
        0: "all", 1: "icmp", 6: "tcp", 17: "udp", 33: "dccp", 50: "esp", 51: "ah", 58: "ipv6-icmp", 108: "ipcomp",
        132: "sctp", 135: "mobility-header", 136: "udplite",
    }  # fmt: skip
    numbers = print_list(ruleset, "filter", "T").splitlines()[2:]
    assert [line.split()[3] for line in numbers] == [str(number) for number in range(256)]
