"""Dumps that are split and not read."""

from __future__ import annotations

import pytest

from kproxy.cluster.audit.dump import Dump
from kproxy.errors import InputError

HEAD = "*nat\n:POSTROUTING ACCEPT [7:9]\n:KUBE-SEP-A - [0:0]\n"


def test_chains_and_policies() -> None:
    dump = Dump("n1", f"{HEAD}[1:2] -A POSTROUTING -j MASQUERADE\n-A KUBE-SEP-A -j ACCEPT\nCOMMIT\n")
    assert dump.chains == {("nat", "POSTROUTING"): ["-j MASQUERADE"], ("nat", "KUBE-SEP-A"): ["-j ACCEPT"]}
    assert dump.policies == {("nat", "POSTROUTING"): "ACCEPT"}
    assert dump.without_services() == ("*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -j MASQUERADE\nCOMMIT\n")


@pytest.mark.parametrize("end", ["", "hello\nCOMMIT\n", "-A KUBE-SEP-B -j ACCEPT\nCOMMIT\n"])
def test_what_is_no_dump_is_refused(end: str) -> None:
    with pytest.raises(InputError, match="n1: line"):
        Dump("n1", f"{HEAD}-A KUBE-SEP-A -j ACCEPT\n{end}")
