"""`kproxy trace`: sources of rules and hosts, packets, the JSON contract, errors."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.support import paths
from tests.support.cli import Run
from tests.support.cluster.claims import TWICE

ROOT = paths.ROOT
GOLDEN = ROOT / "rules_golden"
MINI = GOLDEN / "minikube"
RULES = MINI / "expected" / "minikube.v4.save"
MANIFESTS = ("-f", MINI / "cluster.yaml", "--config", MINI / "config.yaml")
NODE = ("--local-ip", "192.168.49.2")
POD = ("--src", "10.244.0.9:40000", "--in", "cni0")
WATCHERS = "10.103.198.138:8080"

CONTRACT = ["probability", "verdict", "src", "dst", "dnat", "masquerade", "hook", "path"]


def outcomes(run: Run, *arguments: str | Path, stdin: str = "") -> list[dict[str, Any]]:
    done = run("trace", *arguments, "-o", "json", stdin=stdin)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    answer = json.loads(done.stdout)
    assert list(answer)[:4] == ["apiVersion", "kind", "packet", "outcomes"]
    found: list[dict[str, Any]] = answer["outcomes"]
    assert sum(Fraction(item["probability"]) for item in found) == 1
    return found


def test_manifests_in_nftables_mode(kproxy: Run) -> None:
    other_port = (*MANIFESTS, *POD, "--dst", "10.96.0.10:80")
    (found,) = outcomes(kproxy, *other_port, "--mode", "nftables")
    assert (found["verdict"], found["hook"]) == ("REJECT", "FORWARD")
    assert found["path"][-1]["provenance"] == "base rule: ports that a ClusterIP does not have"
    (found,) = outcomes(kproxy, *other_port, "--mode", "iptables")
    assert found["verdict"] == "ACCEPT"
    assert brief(outcomes(kproxy, *MANIFESTS, *POD, "--dst", WATCHERS, "--mode", "nftables")) == [
        ("1/2", "ACCEPT", "10.244.0.36:8080", False),
        ("1/2", "ACCEPT", "10.244.0.37:8080", False),
    ]
    done = kproxy("trace", "--rules", RULES, *POD, "--dst", WATCHERS, "--mode", "nftables")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--mode, --feature, --without, --allocate" in done.stderr


def brief(found: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [(item["probability"], item["verdict"], item["dst"], item["masquerade"]) for item in found]


def test_the_json_contract(kproxy: Run) -> None:
    found = outcomes(kproxy, "--rules", RULES, *NODE, *POD, "--dst", WATCHERS)
    assert brief(found) == [("1/2", "ACCEPT", "10.244.0.36:8080", False), ("1/2", "ACCEPT", "10.244.0.37:8080", False)]
    for item in found:
        assert list(item)[: len(CONTRACT)] == CONTRACT
        assert (item["dnat"], item["hook"], item["src"]) == (True, "POSTROUTING", "10.244.0.9:40000")
    first, second = found[0]["path"][:2]
    assert list(first)[:4] == ["table", "chain", "rule", "text"]
    assert (second["table"], second["chain"], second["rule"]) == ("nat", "KUBE-SERVICES", 2)
    assert second["text"] == (
        '-A KUBE-SERVICES -d 10.103.198.138/32 -p tcp -m comment --comment "default/crd-array-watchers cluster IP" '
        "-m tcp --dport 8080 -j KUBE-SVC-GCRHHKL6ZB4XAFBC"
    )
    saved = RULES.read_text().splitlines()
    assert all(step["text"] in saved for item in found for step in item["path"])


def test_a_certain_outcome_and_the_packet_as_it_was_asked(kproxy: Run) -> None:
    done = kproxy("trace", "--rules", RULES, *NODE, *POD, "--dst", "10.96.0.10:53", "--proto", "udp", "-o", "json")
    answer = json.loads(done.stdout)
    assert answer["packet"] == {
        "src": "10.244.0.9:40000",
        "dst": "10.96.0.10:53",
        "proto": "udp",
        "in": "cni0",
        "origin": "arriving",
        "mark": 0,
        "ctstate": "NEW",
    }
    assert answer["outcomes"][0]["probability"] == "1/1"
    assert "assumptions" not in answer


def test_masquerade_is_what_is_rewritten_or_would_be(kproxy: Run) -> None:
    folder = GOLDEN / "host-network-endpoints"
    found = outcomes(
        kproxy, "-f", folder / "cluster.yaml", "--config", folder / "config.yaml", "--node", "node-0",
        "--src", "203.0.113.7", "--dst", "192.168.0.2:30910",
    )  # fmt: skip
    by_hook = {item["hook"]: item for item in found}
    assert by_hook["INPUT"]["masquerade"]
    assert by_hook["INPUT"]["src"] == "203.0.113.7"
    assert by_hook["POSTROUTING"]["masquerade"]
    assert by_hook["POSTROUTING"]["src"] == "192.168.0.2"


def test_rejections_and_drops(kproxy: Run) -> None:
    folder = GOLDEN / "no-endpoints"
    arguments = ("-f", folder / "cluster.yaml", "--config", folder / "config.yaml")
    packets = (folder / "packets.yaml").read_text()
    dst = next(line.split()[1] for line in packets.splitlines() if line.strip().startswith("to:"))
    (item,) = outcomes(kproxy, *arguments, "--src", "10.244.0.9", "--dst", dst)
    assert (item["verdict"], item["hook"], item["reply"]["kind"]) == (
        "REJECT", "FORWARD", "ICMP icmp-port-unreachable",
    )  # fmt: skip
    (item,) = outcomes(kproxy, "--rules", RULES, *NODE, *POD, "--dst", "10.244.0.12:80", "--ctstate", "INVALID")
    assert (item["verdict"], item["hook"]) == ("DROP", "FORWARD")


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_what_two_services_claim_is_open(kproxy: Run, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(TWICE.replace("READY", "true"))
    config = tmp_path / "config.yaml"
    config.write_text("{apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration}")
    given = ("-f", path, "--config", config, "--mode", mode, "--src", "203.0.113.7")
    (item,) = outcomes(kproxy, *given, "--dst", "198.51.100.7:80")
    assert item["verdict"] == "INDETERMINATE"
    assert "claimed by 2 Services, shop/a and shop/b" in item["reasons"][0]
    assert {each["dst"] for each in item["possible"]} == {"10.244.1.5:8080", "10.244.1.6:8080"}
    assert (item["dst"], item["dnat"]) == ("?:8080", True)  # on which they agree
    (own,) = outcomes(kproxy, *given, "--dst", "10.96.0.10:80")
    assert (own["verdict"], own["dst"]) == ("ACCEPT", "10.244.1.6:8080")
    # Translation comes before refusals: who has endpoints gets the traffic, in either order.
    path.write_text(TWICE.replace("READY", "false"))
    (only,) = outcomes(kproxy, *given, "--dst", "198.51.100.7:80")
    assert (only["verdict"], only["dst"]) == ("ACCEPT", "10.244.1.5:8080")


def test_by_which_interface_the_reply_leaves(kproxy: Run, tmp_path: Path) -> None:
    """Routes lead back to the client by another interface, which a loose reverse-path filter allows."""
    rules, host = tmp_path / "rules", tmp_path / "host.yaml"
    rules.write_text(
        "*nat\n:PREROUTING ACCEPT\n-A PREROUTING -p tcp --dport 80 -j DNAT --to-destination 10.244.1.5\nCOMMIT\n"
    )
    host.write_text("""\
interfaces:
- {name: eth0, addresses: [192.0.2.10/24]}
- {name: eth1, addresses: [198.51.100.10/24]}
- {name: cni0, addresses: [10.244.1.1/24]}
routes: [{to: default, via: 198.51.100.1, dev: eth1}]
sysctls: {ip_forward: 1, rp_filter: 2}
""")
    given = ("--rules", rules, "--host", host, "--src", "203.0.113.7", "--dst", "192.0.2.10:80", "--in", "eth0")
    (item,) = outcomes(kproxy, *given)
    assert (item["out"], item["reply"]["verdict"], item["reply"]["out"]) == ("cni0", "ACCEPT", "eth1")
    assert "leaves by eth1, though the packet came by eth0" in kproxy("trace", *given).stdout
    (item,) = outcomes(kproxy, *given[:-1], "eth1")
    assert item["reply"]["out"] == "eth1"
    assert "though the packet came by" not in kproxy("trace", *given[:-1], "eth1").stdout


def test_origin_mark_and_paths(kproxy: Run) -> None:
    local = ("--src", "192.168.49.2", "--dst", "10.97.142.21:443", "--origin", "local")
    (item,) = outcomes(kproxy, "--rules", RULES, *NODE, *local)
    assert (item["dst"], item["masquerade"]) == ("10.244.0.7:9443", True)
    assert item["path"][0]["hook"] == "OUTPUT"
    marked = ("--rules", RULES, *NODE, *POD, "--dst", "10.244.0.12:80", "--mark", "0x4000")
    assert outcomes(kproxy, *marked)[0]["masquerade"]
    (item,) = outcomes(kproxy, *marked[:-1], "open")
    assert (item["verdict"], item["src"], item["masquerade"]) == ("ACCEPT", "?", None)
    rules = """*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -m statistic --mode random --probability 0.5 -j ACCEPT
COMMIT
"""
    arguments = ("--rules", "-", "--local-ip", "192.0.2.1", "--src", "10.0.0.1", "--dst", "10.0.0.2:80")
    assert len(outcomes(kproxy, *arguments, stdin=rules)) == 1
    apart = outcomes(kproxy, *arguments, "--paths", stdin=rules)
    assert [len(item["path"]) for item in apart] == [1, 0]


def test_limits_are_open_unless_decided(kproxy: Run) -> None:
    rules = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m limit --limit 5/sec -j ACCEPT\nCOMMIT\n"
    arguments = ("--rules", "-", "--local-ip", "192.0.2.1", "--src", "10.0.0.1", "--dst", "10.0.0.2:80")
    verdicts = [
        outcomes(kproxy, *arguments, *more, stdin=rules)[0]["verdict"]
        for more in ((), ("--limit", "within"), ("--limit", "above"))
    ]
    assert verdicts == ["INDETERMINATE", "ACCEPT", "DROP"]


def test_ipv6(kproxy: Run) -> None:
    folder = GOLDEN / "ipv6-only"
    rules = folder / "expected" / "node-0.v6.save"
    dst = next(line.split(": ", 1)[1].strip('"') for line in (folder / "packets.yaml").read_text().splitlines()
               if line.strip().startswith("to:"))  # fmt: skip
    found = outcomes(kproxy, "--rules", rules, "--local-ip", "2001:db8::2", "--src", "fd00:10:244::9", "--dst", dst)
    assert all(item["dst"].startswith("[fd00:10:244:") for item in found)
    ping = ("--src", "fd00:10:244::9", "--dst", "fd00:10:244::8", "--proto", "icmp")
    assert outcomes(kproxy, "--rules", rules, "--local-ip", "2001:db8::2", *ping)[0]["verdict"] == "ACCEPT"


# hosts


def test_without_a_host_services_are_elsewhere_and_the_rest_is_open(kproxy: Run) -> None:
    done = kproxy("trace", "--rules", RULES, *POD, "--dst", WATCHERS, "-o", "json")
    answer = json.loads(done.stdout)
    assert [item["verdict"] for item in answer["outcomes"]] == ["ACCEPT", "ACCEPT"]
    assert "no address of the host is given" in answer["assumptions"][0]
    node_port = ("--rules", RULES, "--src", "192.168.49.1:5", "--dst", "192.168.49.2:32198")
    (item,) = outcomes(kproxy, *node_port)
    assert item["verdict"] == "INDETERMINATE"
    assert item["reasons"] == ["whether 192.168.49.2 is an address of this host (--local-ip)"]
    assert {each["dst"] for each in item["possible"]} == {"10.244.0.35:8080", "192.168.49.2:32198"}
    assert outcomes(kproxy, *node_port, *NODE)[0]["dst"] == "10.244.0.35:8080"
    (item,) = outcomes(kproxy, "--rules", RULES, *POD, "--dst", "10.244.0.12:80")
    assert (item["verdict"], item["hook"]) == ("ACCEPT", "POSTROUTING or INPUT")


def test_a_host_file(kproxy: Run, tmp_path: Path) -> None:
    (tmp_path / "host.yaml").write_text(
        "interfaces:\n- {name: eth0, addresses: [192.168.49.2/24]}\n- {name: cni0, addresses: [10.244.0.1/24]}\n"
        "routes: []\nsysctls: {ip_forward: 1, rp_filter: 0, bridge-nf-call-iptables: 1}\n"
    )
    found = outcomes(kproxy, "--rules", RULES, "--host", "host.yaml", *POD, "--dst", WATCHERS)
    assert [item["out"] for item in found] == ["cni0", "cni0"]
    (tmp_path / "host.yaml").write_text("interfaces:\n- {nam: eth0}\n")
    done = kproxy("trace", "--rules", RULES, "--host", "host.yaml", *POD, "--dst", WATCHERS)
    assert done.returncode == 2
    assert "host.yaml: interfaces[0].nam: unknown field" in done.stderr


def test_a_host_file_that_is_none(kproxy: Run, tmp_path: Path) -> None:
    (tmp_path / "host.yaml").write_text("1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue\n")
    done = kproxy("trace", "--rules", RULES, "--host", "host.yaml", *POD, "--dst", WATCHERS)
    assert (done.returncode, done.stdout) == (2, "")
    assert "line 1: mapping values are not allowed" in done.stderr


# errors


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("", "no rules"),
        ("*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n", "no rules"),
        ("*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp --dprt 80 -j ACCEPT\nCOMMIT\n", "--dprt 80 -j ACCEPT"),
        ("*nope\nCOMMIT\n", "line 1: a table expected (mangle"),
        (
            "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j GONE\nCOMMIT\n",
            "line 3: table nat: chain PREROUTING: rule 1: a jump to chain GONE, which is not there",
        ),
        ("*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A B -j A\nCOMMIT\n", "a loop of jumps: A → B → A"),
        ("*nat\n:PREROUTING ACCEPT [0:0]\n", "COMMIT expected"),
        (
            "\n# a comment\nhello\n",
            "line 3: what iptables-save (*TABLE), nft list ruleset (table FAMILY NAME) or ipvsadm prints",
        ),
    ],
)
def test_rules_that_cannot_be_used(kproxy: Run, tmp_path: Path, rules: str, words: str) -> None:
    (tmp_path / "bad.save").write_text(rules)
    done = kproxy("trace", "--rules", "bad.save", "--src", "10.0.0.1", "--dst", "10.0.0.2:80")
    assert (done.returncode, done.stdout) == (2, "")
    assert "bad.save" in done.stderr
    assert words in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*POD, "--dst", WATCHERS), "a source expected: a dump of rules, manifests, a snapshot"),
        (("--rules", RULES, *MANIFESTS, *POD, "--dst", WATCHERS), "how rules are made of objects, and recorded rules"),
        (
            ("cluster:", MINI / "cluster.yaml", "--to", "kubernetes"),
            "one of both expected, manifests or a live cluster",
        ),
        (("--rules", RULES, "--netns", "kp-x", *POD, "--dst", WATCHERS), "one source of rules expected"),
        (("--rules", RULES), "a packet expected"),
        (("--rules", RULES, "--variant", "nft", *POD, "--dst", WATCHERS), "No such option '--variant'"),
        (("--rules", RULES, *NODE, "--host", "h", *POD, "--dst", WATCHERS), "--local-ip is short for a host"),
        (("--rules", RULES, "--local-ip", "nope", *POD, "--dst", WATCHERS), "--local-ip: IP"),
        (("--rules", RULES, *POD, "--dst", "10.0.0.1"), "dst: IP:PORT expected for protocol tcp"),
        (("--rules", RULES, *POD, "--dst", "10.0.0.1:99999"), "a port from 0 to 65535 expected"),
        (("--rules", RULES, "--src", "10.0.0", "--dst", WATCHERS), "src: IP, IP:PORT or [IP]:PORT expected"),
        (("--rules", RULES, *POD, "--dst", WATCHERS, "--proto", "nope"), "proto: tcp, udp, sctp, icmp, or"),
        (("--rules", RULES, "--src", "fd00::1", "--dst", WATCHERS), "one family expected"),
        (
            ("--rules", RULES, "--src", "fd00::1", "--dst", "[fd00::2]:80"),
            "rules of IPv4, and the packet is one of IPv6",
        ),
        (("--rules", RULES, *POD, "--dst", WATCHERS, "--proto", "icmp"), "an address without a port expected"),
        (("--rules", RULES, *POD, "--dst", WATCHERS, "--mark", "x"), "mark: a number expected"),
        (("--rules", RULES, *POD, "--dst", WATCHERS, "--ctstate", "OLD"), "ctstate: one of NEW"),
        (("--rules", RULES, *POD, "--dst", WATCHERS, "--origin", "local"), "origin local comes in by no interface"),
        (("--rules", RULES, "--src", "10.0.0.1", "--in", "a-name-far-too-long", "--dst", WATCHERS), "in: an interface"),
        (("--rules", RULES, *POD, "--to", "svc/default/x"), "Service default/x is not in the cluster: default/"),
        (("--rules", RULES, "--packets", "p", *POD), "one source of packets expected"),
        (("--rules", RULES, "--packets", "p", "--pcap", "q"), "one source of packets expected"),
        (("--rules", "-", "--packets", "-"), "only one input can be standard input"),
        (("--rules", "nowhere.save", *POD, "--dst", WATCHERS), "nowhere.save"),
        (("--rules", RULES, *POD, "--dst", WATCHERS, "-o", "xml"), "xml"),
    ],
)
def test_usage_and_bad_input(kproxy: Run, arguments: tuple[str | Path, ...], words: str) -> None:
    done = kproxy("trace", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


# text


def test_text_is_a_tree_with_provenance_chances_and_replies(kproxy: Run) -> None:
    done = kproxy("trace", *MANIFESTS, *POD, "--dst", WATCHERS)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    for words in (
        "tcp 10.244.0.9:40000 → 10.103.198.138:8080, arrives on cni0, conntrack state NEW",
        "├─ PREROUTING",
        "nat KUBE-SERVICES 2: jump KUBE-SVC-GCRHHKL6ZB4XAFBC  (Service default/crd-array-watchers (TCP): cluster IP)",
        "├─ 50% ACCEPT 10.244.0.36:8080",
        "└─ 50% ACCEPT 10.244.0.37:8080",
        "DNAT: destination becomes 10.244.0.37:8080",
        "chance 1/2",
        "reply: tcp 10.244.0.37:8080 → 10.244.0.9:40000, received as 10.103.198.138:8080 → 10.244.0.9:40000",
    ):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("scenario", "dst", "count"),
    [("clusterip-many-endpoints", "10.96.0.21:80", 5), ("large-cluster", "10.96.0.161:80", 100)],
)
def test_a_long_list_of_outcomes_is_cut_in_the_tree_only(kproxy: Run, scenario: str, dst: str, count: int) -> None:
    folder = GOLDEN / scenario
    arguments = ("-f", folder / "cluster.yaml", "--config", folder / "config.yaml", "--node", "node-0")
    done = kproxy("trace", *arguments, "--src", "10.244.0.9", "--dst", dst)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("chance ") == count
    assert ("more outcomes, listed above" in done.stdout) is (count > 8)
