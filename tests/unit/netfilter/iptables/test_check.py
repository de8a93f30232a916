"""Problems of rule sets."""

from __future__ import annotations

import pytest

from kproxy.netfilter import Table, check_ruleset, line_of_rule, parse_save
from kproxy.netfilter.iptables.check import find_loop


def problems(rules: str) -> list[tuple[str, str, int]]:
    chains = "".join(f":{name} - [0:0]\n" for name in "ABCD")
    text = f"*nat\n:PREROUTING ACCEPT [0:0]\n{chains}{rules}COMMIT\n"
    return [(problem.kind, problem.chain, problem.rule) for problem in check_ruleset(parse_save(text))]


def test_none() -> None:
    assert problems("-A PREROUTING -j A\n-A A -j B\n-A A -j B\n-A B -p tcp -m tcp --dport 5 -j C\n-A D -j C\n") == []


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("-j NOPE", "missing-chain"),
        ("-g NOPE", "missing-chain"),
        ("-j PREROUTING", "builtin-target"),
        ("-m tcp --dport 5", "protocol"),
        ("-p udp -m tcp", "protocol"),
        ("! -p tcp -m tcp -j B", "protocol"),
        ("-p icmp -m multiport --dports 5", "protocol"),
        ("-p udp -j REJECT --reject-with tcp-reset", "protocol"),
        ("-j DNAT --to-destination 1.1.1.1:80", "protocol"),
        ("-j SNAT --to-source 1.1.1.1:80", "protocol"),
        ("-p icmp -j MASQUERADE --to-ports 80", "protocol"),
        ("-j REDIRECT --to-ports 80", "protocol"),
        ("-p sctp -j TPROXY --on-port 80 --on-ip 0.0.0.0 --tproxy-mark 0x0/0x0", "protocol"),
    ],
)
def test_rules(rule: str, kind: str) -> None:
    assert problems(f"-A A -j DROP\n-A A {rule}\n") == [(kind, "A", 2)]


def table(rules: str) -> Table:
    chains = "".join(f":{name} - [0:0]\n" for name in "ABCD")
    return parse_save(f"*nat\n:PREROUTING ACCEPT [0:0]\n{chains}{rules}COMMIT\n").tables[0]


@pytest.mark.parametrize(
    ("rules", "loop"),
    [
        ("-A A -j A\n", "AA"),
        ("-A A -j B\n-A B -g A\n", "ABA"),
        ("-A A -j B\n-A A -j C\n-A B -j D\n-A C -j D\n-A D -j C\n", "DCD"),
        ("-A A -j B\n-A A -j C\n-A B -j D\n-A C -j D\n", ""),
        ("-A A -j NOPE\n", ""),
    ],
)
def test_loops(rules: str, loop: str) -> None:
    assert find_loop(table(rules)) == tuple(loop)
    assert find_loop(table(rules), hooked=True) == ()
    assert find_loop(table(f"-A PREROUTING -j A\n{rules}"), hooked=True) == tuple(loop)
    assert problems(rules)[-1:] == ([("loop", loop[0], 0)] if loop else problems(rules)[-1:])


def test_a_deep_chain_of_jumps() -> None:
    count = 5_000
    chains = "".join(f":C{number} - [0:0]\n" for number in range(count))
    rules = "".join(f"-A C{number} -j C{number + 1}\n" for number in range(count - 1))
    assert find_loop(parse_save(f"*nat\n{chains}{rules}COMMIT\n").tables[0]) == ()
    back = f"-A C{count - 1} -j C0\n"
    assert len(find_loop(parse_save(f"*nat\n{chains}{rules}{back}COMMIT\n").tables[0])) == count + 1


def test_the_line_of_a_rule() -> None:
    text = "# x\n*filter\n:A - [0:0]\n-A A\nCOMMIT\n*nat\n:A - [0:0]\n:B - [0:0]\n"
    text += "-A A -j B\n[1:2] -A B\n-A A -j A\nCOMMIT\n"
    assert line_of_rule(text, "filter", "A", 1) == 4
    assert [line_of_rule(text, "nat", "A", number) for number in (1, 2, 3)] == [9, 11, 0]
    assert line_of_rule(text, "nat", "B", 1) == 10
    assert [line_of_rule(text, "nat", chain, 0) for chain in ("A", "B", "C")] == [7, 8, 0]
