"""The order in which nft lists elements, seen with 1.0.6 and 1.1.3."""

from __future__ import annotations

import pytest

from kproxy.netfilter.nftables.errors import NftSyntaxError
from kproxy.netfilter.nftables.text import parse_nft, print_nft


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        (
            "ipv4_addr . inet_proto . inet_service",  # the bytes from the last to the first: 8000 is 1f40, 5353 is 14e9
            ["10.96.3.4 . tcp . 53", "10.0.0.70 . tcp . 8000", "10.0.0.209 . tcp . 8000", "10.0.0.16 . udp . 8080",
             "10.0.0.5 . tcp . 443", "10.0.0.28 . udp . 5353", "10.0.0.186 . tcp . 8443"],
        ),
        ("mark . ipv4_addr", ["0x00000102 . 1.0.0.1", "0x00000201 . 1.0.0.1", "0x00000001 . 0.0.0.2"]),
        ("ifname", ['"lo"', '"eth0"', '"eth1"', '"veth12"']),
        ("ipv6_addr", ["::1", "fd00::2", "fe80::1"]),
    ],
)  # fmt: skip
def test_elements_are_listed_in_the_kernels_order(kind: str, listed: list[str]) -> None:
    for given in (listed, listed[::-1], sorted(listed)):
        text = print_nft(
            parse_nft(f"table ip t {{\n set s {{ type {kind}; elements = {{ {', '.join(given)} }} }}\n}}\n")
        )
        assert "elements = { " + ",\n\t\t\t     ".join(listed) + " }" in text


@pytest.mark.parametrize(
    "cut",
    [
        "snat ip prefix to ip saddr map { 10.0.0.0/24 :",
        "ct",
        "ct helper",
        "counter",
        "meta",
        "fib",
        "numgen",
        "arp saddr",
    ],
)
def test_a_table_that_is_cut_off_is_refused(cut: str) -> None:
    text = f"table ip t {{\nchain c {{\n{cut}"
    for size in range(len("table ip t {"), len(text) + 1):
        with pytest.raises(NftSyntaxError):
            parse_nft(text[:size], "f")
