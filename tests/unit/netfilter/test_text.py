"""Rules as text."""

from __future__ import annotations

import pytest

from kproxy.netfilter.text import (
    SaveTextError,
    chain_of,
    destination_of,
    endpoint_of,
    key_of,
    owner_of,
    service_of,
    split_save,
    target_of,
)

HEAD = "*nat\n:OUTPUT ACCEPT [0:0]\n:A - [0:0]\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}[1:2\n-A A -j B\nCOMMIT\n",
        "*nat\n:OUTPUT ACCEPT [0:\nCOMMIT\n",
        f"{HEAD}COMMIT\n-A A -j B\n",
        f"{HEAD}-A B -j A\nCOMMIT\n",
        f"{HEAD}hello\nCOMMIT\n",
    ],
)
def test_a_damaged_dump_is_refused(text: str) -> None:
    with pytest.raises(SaveTextError):
        split_save(text)


def test_lines_of_iptables() -> None:
    rule = '-A KUBE-SERVICES -d fd00::a/128 -p tcp -m comment --comment "a/b:c -j X" -m tcp --dport 80 -j KUBE-SVC-X'
    assert (chain_of(rule), target_of(rule), service_of(rule)) == ("KUBE-SERVICES", "KUBE-SVC-X", "a/b:c")
    assert destination_of(rule) == ("fd00::a", "tcp", 80)
    assert destination_of("-A X -d 127.0.0.0/8 -p udp -m udp --dport 53") == ("127.0.0.0/8", "udp", 53)
    assert destination_of("-A X -d fd00::/32 -p udp -m udp --dport 53") == ("fd00::/32", "udp", 53)
    assert destination_of("-A X ! -d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j Y") == ("", "tcp", 80)
    assert destination_of("-A X -d 10.0.0.1/32 -j Y") is None
    assert endpoint_of("-A KUBE-SEP-X -p tcp -m tcp -j DNAT --to-destination 10.1.0.1:80") == "10.1.0.1:80"
    assert (chain_of(":X - [0:0]"), target_of("-A X"), endpoint_of(rule)) == ("", "", "")


def test_names_and_elements_of_nftables_mode() -> None:
    owner = owner_of("endpoint-ABCDEFGH-ns/web/tcp/http__10.1.0.1/80")
    assert owner is not None
    assert (owner.kind, owner.service_port) == ("endpoint", "ns/web:http")
    assert owner_of("services") is None
    assert key_of("10.96.0.1 . tcp . 443 : goto X") == ("10.96.0.1", "tcp", 443)
    assert key_of("tcp . 30080 : goto X") == ("", "tcp", 30080)
    assert key_of("10.1.0.1 . 10.1.0.1 . tcp . 80") is None
