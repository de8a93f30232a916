"""Recorded hosts (tests/reference/hosts) on the command line: several files of one host, and hosts compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.support import recorded_hosts
from tests.support.cli import Run
from tests.support.recorded_hosts import FOLDER


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("docker/iptables-save", "docker-legacy/iptables-legacy-save"),
        ("docker/iptables-save", "docker-trixie/iptables-save"),
        ("netavark-iptables/iptables-save", "netavark-nftables/ruleset.nft"),
    ],
)
def test_recorded_hosts_that_are_alike(kproxy: Run, first: str, second: str) -> None:
    """Docker's rules are the same in either variant and release; netavark's drivers are two languages for one thing."""
    done = kproxy("diff", FOLDER / first, FOLDER / second)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search("alike: every (IPv4 )?packet is treated the same", done.stdout)


def test_a_mixed_host_by_the_command_of_the_documentation(kproxy: Run, tmp_path: Path) -> None:
    """Every file of a host with five programs' rules; without the host's routes, hints name what would settle it."""
    host = tmp_path / "host.yaml"
    host.write_text(yaml.safe_dump(recorded_hosts.host_document("mixed")))
    folder = FOLDER / "mixed"
    files = ["iptables-save", "iptables-legacy-save", "ip6tables-legacy-save", "ruleset.nft"]
    rules = [argument for name in files for argument in ("--rules", folder / name)]
    packet = ["--src", "10.244.0.245:40000", "--dst", "10.96.2.6:80", "--in", "cali0shop"]
    command = ["trace", *rules, "--ipset", folder / "ipset.save", *packet]
    done = kproxy(*command, "--host", host, "--summary")
    assert done.returncode == 0, done.stderr
    assert "50% ACCEPT 10.244.0.1 → 10.244.3.113:8000; 50% ACCEPT 10.244.0.1 → 10.244.3.203:8000" in done.stdout
    done = kproxy(*command, "--local-ip", "10.244.0.1")
    assert "INDETERMINATE" in done.stdout
    assert done.stdout.count("would settle it: --assume '-m rpfilter --validmark --invert=yes|no'") == 1


@pytest.mark.slow
def test_what_a_new_release_of_firewalld_changed(kproxy: Run) -> None:
    """firewalld 1.3 lets a banned address out if it comes by another zone's link, 2.3 does not: so the kernel."""
    name = "a banned address from the inner link to the outside"
    answers = [
        next(item for item in recorded_hosts.questions(host) if item.name == name).answers[0]["verdict"]
        for host in ("firewalld-nftables", "firewalld-trixie")
    ]
    assert answers == ["ACCEPT", "DROP"]
    done = kproxy("diff", FOLDER / "firewalld-nftables/ruleset.nft", FOLDER / "firewalld-trixie/ruleset.nft")
    assert (done.returncode, done.stderr) == (1, "")
    # Each by its confirmed cause: the zones' chains do not lead to the policies' any more.
    assert "different: 4 differences" in done.stdout, "and that of IPv6"
    assert "rule 1 of filter_FWD_drop, jump to filter_FORWARD_POLICIES_pre, is only in A" in done.stdout
    assert "B drops it" in done.stdout


@pytest.mark.parametrize(
    ("file", "rule", "cause"),
    [
        (
            "fail2ban-iptables/iptables-save",
            "-A INPUT -p tcp -m multiport --dports 22,2222 -j f2b-sshd",
            "rule 3 of INPUT, jump to f2b-sshd, is only in A",
        ),
        (
            "docker-trixie/iptables-save",
            "-A DOCKER ! -i docker0 -p udp -m udp --dport 53 -j DNAT --to-destination 172.17.0.2:53",
            "rule 5 of DOCKER, `-j DNAT --to-destination 172.17.0.2:53`, is only in A",
        ),
        (
            "libvirt-nftables/ruleset.nft",
            "meta l4proto udp ip saddr 192.168.122.0/24 ip daddr != 192.168.122.0/24 counter packets 0 bytes 0 "
            "masquerade to :1024-65535",
            "rule 4 of guest_nat, `meta l4proto udp ip saddr 192.168.122.0/24 ip daddr != 192.168.122.0/24 ",
        ),
    ],
)
def test_a_removed_rule_is_one_finding_with_its_cause(
    kproxy: Run, tmp_path: Path, file: str, rule: str, cause: str
) -> None:
    """The last one differs only for source ports that the range leaves out: the next rule masquerades, too."""
    text = (FOLDER / file).read_text()
    assert text.count(f"{rule}\n") == 1
    cut = tmp_path / Path(file).name
    cut.write_text(text.replace(f"{rule}\n", "\n"))
    done = kproxy("diff", FOLDER / file, cut)
    assert (done.returncode, done.stderr) == (1, "")
    assert "different: 1 difference\n" in done.stdout
    assert cause in done.stdout
    assert "do not confirm" not in done.stdout
