"""Matches without a class of their own: open under their names, or computed."""

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
    '-m bpf --bytecode "4,48 0 0 4,21 0 1 6,6 0 0 1,6 0 0 0"': "BPF",  # the packet's number
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


SPI = "security association"
DECIDED = {
    ("-p esp -m esp", False): True,
    ("-p esp -m esp --espspi 5", False): SPI,
    ("-p esp -m esp --espspi 5", True): False,
    ("-p ah -m ah ! --ahspi 5", False): SPI,
    ("-p dccp -m dccp --dport 80", False): True,
    ("-p dccp -m dccp ! --dport 80", False): False,
    ("-p dccp -m dccp --sport 5:9 --dport 80", False): True,
    ("-p dccp -m dccp ! --sport 5:9 --dccp-types REQUEST", False): False,
    ("-p dccp -m dccp --sport 5:9 ! --dccp-types REQUEST", False): "DCCP",
    ("-p dccp -m dccp --dport 80", True): False,
}


@pytest.mark.parametrize(("match", "fragment"), DECIDED)
def test_headers_of_other_transports(match: str, fragment: bool) -> None:
    """What the addresses, the ports and the fragment decide is decided; the rest is open under its name."""
    ported = "dccp" in match
    source, destination = ("10.244.0.5:7", "10.9.0.1:80") if ported else ("10.244.0.5", "10.9.0.1")
    packet = make_packet(source, destination, match.split()[1], in_interface="cni0", fragment=fragment)
    index = index_ruleset(canonical_ruleset(f"*filter\n-A FORWARD {match} -j DROP\nCOMMIT\n", Family.IPV4))
    (outcome,) = trace(index, NODE, packet).outcomes
    expected = DECIDED[match, fragment]
    if isinstance(expected, str):
        assert (outcome.verdict, expected in outcome.reasons[0]) == ("INDETERMINATE", True)
    else:
        assert outcome.verdict == ("DROP" if expected else "ACCEPT")


def bpf(*program: str, flags: int | None = 2, length: int | None = None) -> str:
    """The verdict of a SYN that is dropped where a program says so."""
    text = f'*filter\n-A FORWARD -m bpf --bytecode "{len(program)},{",".join(program)}" -j DROP\nCOMMIT\n'
    packet = make_packet("10.244.0.5:1", "10.9.0.1:80", "tcp", in_interface="cni0", length=length)
    index = index_ruleset(canonical_ruleset(text, Family.IPV4))
    (outcome,) = trace(index, NODE, packet.replace(tcp_flags=flags)).outcomes
    return str(outcome.verdict)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (("48 0 0 33", "69 0 1 2", "6 0 0 1", "6 0 0 0"), "DROP"),  # tcp[13] & syn
        (("48 0 0 4", "21 0 1 6", "6 0 0 7", "6 0 0 5"), "DROP"),  # the packet's number, which makes no difference
        (("48 0 0 4", "84 0 0 0", "21 0 1 0", "6 0 0 7", "6 0 0 0"), "DROP"),  # no bit of it is asked for
        (("48 0 0 40", "6 0 0 1"), "INDETERMINATE"),  # whether the packet is that long
        (("128 0 0 0", "22 0 0 0"), "INDETERMINATE"),  # how long it is
        (("32 0 0 4294963200", "22 0 0 0"), "INDETERMINATE"),  # what the kernel knows besides (SKF_AD_PROTOCOL)
        (("4 0 0", "6 0 0 1"), "INDETERMINATE"),  # no program
        (("0 0 0 7", "1 0 0 0", "60 0 0 0", "6 0 0 1"), "ACCEPT"),  # a division by zero
        (("0 0 0 7", "5 0 0 9", "6 0 0 1"), "INDETERMINATE"),  # a jump to nowhere
    ],
)
def test_bpf_programs(program: tuple[str, ...], expected: str) -> None:
    assert bpf(*program) == expected


def test_bpf_programs_that_fork_too_often_are_open() -> None:
    forks = [line for _ in range(40) for line in ("48 0 0 4", "21 0 0 6")]
    assert bpf(*forks, "6 0 0 1") == "INDETERMINATE"
    assert bpf("128 0 0 0", "53 0 1 60", "6 0 0 1", "6 0 0 0", length=60) == "DROP"
