"""`kproxy trace` over all rules of a host: several files, assumptions, hints, one line a packet."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kproxy.cli.sources import Sources
from kproxy.cli.trace.command import command
from kproxy.cli.trace.text import grouped_reasons
from kproxy.cluster.snapshot.files import MemoryFiles
from tests.support import paths
from tests.support.cli import Run

HOSTS = paths.TESTS / "reference" / "hosts"
NFT = HOSTS / "kube-proxy-nftables" / "ruleset.nft"
RULES = """table ip kube-proxy {
	map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 10.96.0.1 . tcp . 80 : goto service }; }
	chain pre { type nat hook prerouting priority -100
		ip daddr . meta l4proto . th dport vmap @service-ips
	}
	chain out { type nat hook output priority -100
		ip daddr . meta l4proto . th dport vmap @service-ips
	}
	chain service { meta mark set meta mark | 0x4000
		meta l4proto tcp dnat to 10.244.0.5:8080
	}
	chain post { type nat hook postrouting priority 100
		meta mark & 0x4000 == 0x4000 masquerade fully-random
	}
}
"""  # noqa: E501
PACKET = ("--local-ip", "192.168.0.2", "--src", "198.51.100.9", "--dst", "10.96.0.1", "--proto", "tcp", "--dport", "80")
OWNER = "*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m owner --uid-owner 0 -j DROP\nCOMMIT\n"

BEFORE, AFTER = "iptables-nft before nftables", "nftables before iptables-nft"


DROP = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -j DROP\nCOMMIT\n"
ACCEPT = DROP.replace("tcp", "udp")


@pytest.fixture
def native(tmp_path: Path) -> Path:
    path = tmp_path / "rules.nft"
    path.write_text(RULES)
    return path


def test_nftables_alone(kproxy: Run, native: Path) -> None:
    done = kproxy("trace", "--rules", native, *PACKET, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    (item,) = answer["outcomes"]
    assert (item["verdict"], item["dst"], item["dnat"], item["masquerade"]) == (
        "ACCEPT", "10.244.0.5:8080", True, True,
    )  # fmt: skip
    assert item["path"][0]["table"] == "ip kube-proxy"
    assert answer["hooks"]["PREROUTING"] == ["-200 conntrack", "-100 nat: nftables ip kube-proxy pre"]
    local = kproxy("trace", "--rules", native, *PACKET[:2], "--origin", "local", *PACKET[4:], "-o", "json")
    assert json.loads(local.stdout)["outcomes"][0]["dst"] == "10.244.0.5:8080"


def test_the_verdict_comes_first_and_a_summary_is_one_line(kproxy: Run, native: Path) -> None:
    done = kproxy("trace", "--rules", native, *PACKET)
    assert "100%  ACCEPT" in done.stdout.splitlines()[1]
    done = kproxy("trace", "--rules", native, *PACKET, "--summary")
    assert done.stdout == "tcp 198.51.100.9 → 10.96.0.1:80: 100% ACCEPT 192.168.0.2 → 10.244.0.5:8080\n"
    whole, brief = (
        json.loads(kproxy("trace", "--rules", native, *PACKET, "-o", "json", *more).stdout)
        for more in ((), ("--summary",))
    )
    assert (whole["outcomes"][0].pop("path") != [], whole.pop("hooks") != {}) == (True, True)
    assert brief == whole


def test_hints_and_assumptions(kproxy: Run, native: Path, tmp_path: Path) -> None:
    save = tmp_path / "iptables-save"
    save.write_text(OWNER)
    arguments = ("trace", "--rules", native, "--rules", save, *PACKET[:2], "--origin", "local", *PACKET[4:])
    done = kproxy(*arguments)
    assert done.stdout.count("would settle it: --assume '-m owner --uid-owner 0=yes|no'") == 1
    for answer, verdict in (("yes", "DROP"), ("no", "ACCEPT")):
        done = kproxy(*arguments, "--assume", f"owner={answer}", "--summary")
        assert f"100% {verdict}" in done.stdout
    misspelt = kproxy(*arguments, "--assume", "owned=yes", "--summary")
    assert "--assume 'owned' decided nothing" in misspelt.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rules", NFT, "--assume", "rpfilter", *PACKET), "EXPR=yes, EXPR=no, WHAT=empty or complete expected"),
        (("--rules", NFT, "--assume", "x=yes", "--assume", "x=no", *PACKET), "both yes and no"),
        (
            ("--rules", NFT, "--assume", f"{BEFORE}=yes", "--assume", f"{AFTER}=yes", *PACKET),
            f"--assume: {BEFORE}=yes and {AFTER}=yes cannot all hold",
        ),
        (("--rules", NFT, "--rules", NFT, *PACKET), "both rules of nftables"),
        (("--rules", NFT, "--summary", "--html", "x.html", *PACKET), "--summary"),
        (("--rules", "", *PACKET), "the name of a file expected, not an empty one"),
        (("--rules", NFT, "--ipset", "", *PACKET), "the name of a file expected, not an empty one"),
        (("--rules", NFT, "--host", "", "--dst", "10.96.0.1:80"), "the name of a file expected, not an empty one"),
        (("--rules", NFT, "--packets", ""), "the name of a file expected, not an empty one"),
        (("--rules", NFT, "--pcap", ""), "the name of a file expected, not an empty one"),
        (("--rules", NFT, "--packets", "", *PACKET), "one source of packets expected"),
        (PACKET, "a source expected: a dump of rules, manifests, a snapshot, netns:NAME, lab:NAME"),
        (("--rules", NFT, "--dst", "10.0.0.1:80", "--dport", "81"), "differ"),
        (("--rules", NFT, "--dst", "10.0.0.1", "--sport", "81"), "--sport goes with --src"),
    ],
)
def test_usage(kproxy: Run, arguments: tuple[str | Path, ...], message: str) -> None:
    done = kproxy("trace", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())


DEVICES = """table netdev x {
	chain i {
		type filter hook ingress device "eth0" priority filter; policy accept;
		tcp dport 22 drop
	}
}
table bridge b {
	chain f {
		type filter hook forward priority filter; policy accept;
		tcp dport 22 drop
	}
}
"""


def test_rules_that_no_packet_meets(tmp_path: Path, kproxy: Run) -> None:
    """What kube-proxy gives iptables-restore, without the jumps to its chains."""
    path = tmp_path / "kube.restore"
    path.write_text("*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -j ACCEPT\nCOMMIT\n")
    done = kproxy("trace", "--rules", path, *PACKET, "--summary")
    assert "100% INDETERMINATE" in done.stdout
    assert "chain KUBE-SERVICES of table nat has rules, and no built-in chain jumps there" in done.stderr
    done = kproxy("trace", "--rules", path, *PACKET, "--summary", "--assume", "complete")
    assert "100% ACCEPT" in done.stdout


def test_chains_of_devices_and_bridges(tmp_path: Path, kproxy: Run) -> None:
    (tmp_path / "rules.nft").write_text(DEVICES)
    base = ["trace", "--rules", str(tmp_path / "rules.nft"), "--local-ip", "192.0.2.1", "--src", "10.0.0.1"]
    base += ["--dst", "192.0.2.1:22", "--summary"]
    assert "100% DROP" in kproxy(*base, "--in", "eth0").stdout
    other = kproxy(*base, "--in", "eth1")
    assert "100% ACCEPT" in other.stdout
    assert other.stderr.count("not evaluated: table bridge b: chain f at hook forward") == 1
    assert (
        "INDETERMINATE 10.0.0.1 → 192.0.2.1:22 (netdev x i: the input interface is not known)" in kproxy(*base).stdout
    )


def test_tproxy_is_settled_by_an_assumption(tmp_path: Path, kproxy: Run) -> None:
    path = tmp_path / "rules.save"
    path.write_text("*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -j TPROXY --on-port 5000\nCOMMIT\n")
    asked = ("trace", "--rules", str(path), "--local-ip", "192.0.2.1", "--src", "10.0.0.1", "--dst", "192.0.2.1:22")
    assert "would settle it: --assume 'TPROXY=yes|no'" in kproxy(*asked).stdout
    assert "100% ACCEPT" in kproxy(*asked, "--assume", "TPROXY=yes", "--summary").stdout
    assert "100% DROP" in kproxy(*asked, "--assume", "TPROXY=no", "--summary").stdout


def test_rules_that_ask_the_same_are_one_line() -> None:
    asked = "the output interface is not known"
    reasons = [
        f"filter A rule 1: {asked}",
        "filter B rule 2: the rate is open",
        f"filter A rule 3: {asked}",
        "no: rule",
    ]
    assert grouped_reasons(reasons) == [
        f"filter A rule 1 and 1 more rule: {asked}", "filter B rule 2: the rate is open", "no: rule",
    ]  # fmt: skip


def test_a_summary_says_why_a_packet_is_lost(kproxy: Run, tmp_path: Path) -> None:
    """The rule, or the policy, and with what it is refused; an ACCEPT has nothing to explain."""
    save, asked = tmp_path / "iptables-save", ("--src", "192.0.2.1", "--dst", "192.0.2.2:80", "--origin", "local")
    for rules, said in (
        ("-A OUTPUT -p tcp -j DROP", " (dropped in OUTPUT by filter OUTPUT 1)"),
        ("-A OUTPUT -p tcp -j REJECT", " (rejected in OUTPUT with icmp-port-unreachable by filter OUTPUT 1)"),
        ("-P OUTPUT DROP", " (dropped in OUTPUT by the policy of filter OUTPUT)"),
        ("-A OUTPUT -p udp -j DROP", ""),
    ):
        policy, rule = ("DROP", "") if rules[:2] == "-P" else ("ACCEPT", f"{rules}\n")
        save.write_text(f"*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT {policy}\n{rule}COMMIT\n")
        done = kproxy("trace", "--rules", save, *asked, "--summary", "--assume", "complete")
        assert done.stdout.endswith(f" 192.0.2.1 → 192.0.2.2:80{said}\n"), done.stdout


@pytest.mark.parametrize(("flags", "verdict"), [("", "DROP"), ("flags dormant; ", "ACCEPT")])
def test_a_dormant_table_of_iptables_is_not_called(kproxy: Run, tmp_path: Path, flags: str, verdict: str) -> None:
    """iptables-save shows nothing of it, nft does."""
    saved, native = tmp_path / "iptables-nft.save", tmp_path / "rules.nft"
    saved.write_text(f"# Generated by iptables-nft-save v1.8.9 (nf_tables)\n{DROP}")
    chain = "chain INPUT { type filter hook input priority filter; policy accept; tcp dport 1-65535 counter drop; }"
    native.write_text(f"table ip filter {{ {flags}{chain} }}\n")
    packet = ("--local-ip", "192.168.0.2", "--src", "198.51.100.9", "--dst", "192.168.0.2:80", "--origin", "arriving")
    done = kproxy("trace", "--rules", saved, "--rules", native, *packet, "-o", "json")
    answer = json.loads(done.stdout)
    assert [each["verdict"] for each in answer["outcomes"]] == [verdict], done.stderr
    said = "no packet meets iptables-nft's table filter of IPv4: it is dormant"
    assert (said in answer.get("assumptions", ())) == bool(flags)


@pytest.mark.parametrize(("later", "code", "read", "said"), [(ACCEPT, 0, 2, True), (DROP, 1, 3, False)])
def test_a_live_answer_other_than_expected_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, later: str, code: int, read: int, said: bool
) -> None:
    """Rules of a namespace that are late."""
    texts = [DROP, later, later]
    waits: list[float] = []

    def files(_sources: object) -> MemoryFiles:
        addresses = b'[{"ifname": "eth0", "ifindex": 2, "addr_info": [{"local": "192.168.0.2", "prefixlen": 24}]}]'
        rules = texts.pop(0).encode()
        return MemoryFiles("namespace n", {"nodes/n/iptables-save": rules, "nodes/n/ip-addr.json": addresses})

    monkeypatch.setattr(Sources, "files", property(files))
    monkeypatch.setattr("time.sleep", waits.append)
    packet = ("--from", "198.51.100.9", "--to", "192.168.0.2:80", "--assume", "complete")
    try:
        done = CliRunner().invoke(command, ["netns:n", *packet, "--expect", "accept", "--summary"])
    finally:
        gc.enable()
    assert (done.exit_code, len(waits)) == (code, read - 1), done.output
    assert ("1 change in motion" in done.stderr) == said
