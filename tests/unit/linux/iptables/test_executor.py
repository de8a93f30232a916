"""iptables-restore's error messages, as version 1.8.9 words them, turned into lines."""

from __future__ import annotations

import pytest

from kproxy.linux.iptables.executor import restore_error

TEXT = (
    "*nat\n:KUBE-A - [0:0]\n-A KUBE-A -m nosuch -j DROP\nCOMMIT\n*filter\n:KUBE-B - [0:0]\n-A KUBE-B -j DNAT\nCOMMIT\n"
)


@pytest.mark.parametrize(
    ("stderr", "line", "table", "committed", "reason"),
    [
        (
            "iptables-nft-restore v1.8.9 (nf_tables): Couldn't load match `nosuch':No such file or directory\n\n"
            "Error occurred at line: 3\nTry `iptables-nft-restore -h' or 'iptables-nft-restore --help' for more"
            " information.\n",
            3,
            "nat",
            0,
            "Couldn't load match `nosuch':No such file or directory",
        ),
        (
            "iptables-nft-restore v1.8.9 (nf_tables): \nline 7: RULE_APPEND failed (Invalid argument): rule in chain"
            " KUBE-B\n",
            7,
            "filter",
            1,
            "RULE_APPEND failed (Invalid argument): rule in chain KUBE-B",
        ),
        ("iptables-restore: line 8 failed\n", 8, "filter", 1, "the kernel refused it without saying why"),
        (
            "iptables-nft-restore: line 2 failed: Bad rule (does a matching rule exist in that chain?).\n",
            2,
            "nat",
            0,
            "Bad rule (does a matching rule exist in that chain?).",
        ),
        ("iptables-restore: COMMIT expected at line 3\n", 3, "nat", 0, "COMMIT expected at line 3"),
    ],
)
def test_each_wording(stderr: str, line: int, table: str, committed: int, reason: str) -> None:
    error = restore_error("iptables-restore", stderr, TEXT)
    assert [each.number for each in error.lines] == [line]
    assert (error.table, error.committed, error.reason) == (table, committed, reason)
    assert f"line {line}: " in str(error)
    if TEXT.split("\n")[line - 1] == "COMMIT":
        assert error.lines[0].text == f"COMMIT (the kernel refused table {table} as a whole)"
    else:
        assert error.lines[0].text == TEXT.split("\n")[line - 1]


def test_several_lines_and_none() -> None:
    both = restore_error("x", "line 3: RULE_APPEND failed (a): b\nline 7: RULE_APPEND failed (a): b\n", TEXT)
    assert [line.number for line in both.lines] == [3, 7]
    assert both.table == "nat"
    none = restore_error("x", "", TEXT)
    assert none.lines == ()
    assert "without saying why" in none.reason
