"""Matches without a class of their own: open under their names."""

from __future__ import annotations

import pytest

from kproxy.dataplane import index_ruleset, make_packet, parse_host, trace
from kproxy.netfilter import Family, canonical_ruleset

NODE = parse_host(
    {
        "interfaces": [{"name": "lo", "addresses": ["127.0.0.1/8"]}, {"name": "cni0", "addresses": ["10.244.0.1/24"]}],
        "routes": [{"to": "10.9.0.0/16", "dev": "cni0", "via": "10.244.0.9"}],
        "sysctls": {"ip_forward": 1, "rp_filter": 0},
    }
)


OPEN = {
    "-m time --timestart 08:00:00": "the time of day",
    "-m policy --dir in --pol none": "IPsec",
    "-m socket --transparent": "local socket",
    "-m connlimit --connlimit-above 5 --connlimit-mask 32 --connlimit-saddr": "how many connections",
    "-m bpf --object-pinned /sys/fs/bpf/x": "BPF",
    '-m bpf --bytecode "1,6 0 0 1"': "BPF",
    '-m u32 --u32 "6&0xFF=6"': "content",
    "-m cluster --cluster-total-nodes 3 --cluster-local-node 1 --cluster-hash-seed 5": "which node",
    "-p tcp -m tcpmss --mss 1400:1500": "maximum segment size",
    "-m ipvs --ipvs": "IPVS",
    "-m cpu --cpu 1": "which CPU",
    "-m cgroup --cgroup 5": "control group",
}


@pytest.mark.parametrize("match", OPEN)
def test_open_matches_say_what_they_depend_on_and_what_settles_it(match: str) -> None:
    text = f"*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD {match} -j DROP\nCOMMIT\n"
    index = index_ruleset(canonical_ruleset(text, Family.IPV4))
    packet = make_packet("10.244.0.5:1", "10.9.0.1:80", "tcp", in_interface="cni0")
    (outcome,) = trace(index, NODE, packet).outcomes
    assert outcome.verdict == "INDETERMINATE"
    assert OPEN[match] in outcome.reasons[0]
    (hint,) = outcome.hints
    expression = hint.removeprefix("--assume '").removesuffix("=yes|no'")
    for key in (expression, match.partition("-m ")[2].split()[0]):
        for answer, verdict in ((True, "DROP"), (False, "ACCEPT")):
            assert trace(index, NODE, packet, assumed={key: answer}).outcomes[0].verdict == verdict


def test_assumptions_about_user_space() -> None:
    text = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p tcp -j NFQUEUE --queue-num 1\nCOMMIT\n"
    index = index_ruleset(canonical_ruleset(text, Family.IPV4))
    packet = make_packet("10.244.0.5:1", "10.9.0.1:80", "tcp", in_interface="cni0")
    (outcome,) = trace(index, NODE, packet).outcomes
    assert outcome.hints == ("--assume 'NFQUEUE=yes|no'",)
    assert trace(index, NODE, packet, assumed={"NFQUEUE": True}).outcomes[0].verdict == "ACCEPT"
    assert trace(index, NODE, packet, assumed={"NFQUEUE": False}).outcomes[0].verdict == "DROP"


def test_each_rule_has_a_quota_of_its_own() -> None:
    quota = "-m quota --quota 1000"
    text = f"*filter\n-A FORWARD {quota} -j ACCEPT\n-A FORWARD {quota} -j DROP\n-A FORWARD -j ACCEPT\nCOMMIT\n"
    index = index_ruleset(canonical_ruleset(text, Family.IPV4))
    packet = make_packet("10.244.0.5:1", "10.9.0.1:80", "tcp", in_interface="cni0")
    (outcome,) = trace(index, NODE, packet).outcomes
    assert {end.verdict for end in outcome.possible} == {"ACCEPT", "DROP"}
