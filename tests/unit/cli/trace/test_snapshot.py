"""`kproxy trace SNAPSHOT`: text, JSON, and what does not go together."""

from __future__ import annotations

import gc
import json
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result

from kproxy.cli import sources as live
from kproxy.cli.trace.command import command
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.errors import InputError
from kproxy.explorer.export import commands as exports
from tests.support.cli import held_by
from tests.support.cluster.snapshots import damaged_files, vxlan_cluster, write_files


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    files = vxlan_cluster()
    del files["nodes/n2/sysctl"]
    return write_files(tmp_path / "snap", files)


def run(snapshot: Path, *arguments: str) -> Result:
    try:
        return CliRunner().invoke(command, ["--snapshot", str(snapshot), *arguments])
    finally:
        gc.enable()  # the command leaves it off, as its process ends


ASKED = ("--from", "pod/shop/cart-0", "--to", "svc/shop/web:http")


def test_text_begins_with_ends_and_shows_every_hop(snapshot: Path) -> None:
    done = run(snapshot, *ASKED)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[:3] == [
        "tcp pod/shop/cart-0 → 10.96.0.7:80",
        "  50%  answered by pod/shop/web-0 at 10.244.1.5:8080, which sees 10.244.1.9",
        "  50%  answered by pod/shop/web-1 at 10.244.2.5:8080, which sees 10.244.1.9",
    ]
    assert "assumed: n2: taken to forward, without reverse-path filter: no sysctl" in lines
    assert any(line.startswith("nodes/n2/sysctl: missing: ") for line in lines)
    assert "      leaves by vxlan1: 10.244.1.9 → 10.244.2.5:8080, in VXLAN 1 172.30.0.11 → 172.30.0.12:8472" in lines
    assert "  n2 in by vxlan1: 10.244.1.9 → 10.244.2.5:8080" in lines
    assert lines.count("  and back:") == 2
    summary = run(snapshot, *ASKED, "--summary")
    assert "and back" not in summary.output
    assert summary.output.splitlines()[:3] == lines[:3]


def test_json_has_all_hops_exact_chances_and_what_is_missing(snapshot: Path) -> None:
    done = run(snapshot, *ASKED, "-o", "json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["from"], found["to"], found["protocol"]) == ("pod/shop/cart-0", "10.96.0.7:80", "tcp")
    assert sum(Fraction(item["probability"]) for item in found["journeys"]) == 1
    far = next(item for item in found["journeys"] if item["pod"] == "shop/web-1")
    assert [hop["host"] for hop in far["there"]] == ["pod/shop/cart-0", "n1", "n2", "pod/shop/web-1"]
    node = far["there"][1]
    assert (node["dst"], node["leftDst"], node["out"]) == ("10.96.0.7:80", "10.244.2.5:8080", "vxlan1")
    assert node["outer"] == {
        "kind": "vxlan", "src": "172.30.0.11", "dst": "172.30.0.12", "device": "eth0", "vni": 1, "port": 8472,
    }  # fmt: skip
    assert node["rules"][0]["chain"] == "PREROUTING"
    assert far["back"][-1]["host"] == "pod/shop/cart-0"
    assert any(each.startswith("nodes/n2/sysctl") for each in found["missing"])
    brief = json.loads(run(snapshot, *ASKED, "-o", "json", "--summary").stdout)
    for item in found["journeys"]:
        del item["there"], item["back"]
    assert brief == found


def test_a_snapshot_is_an_argument_or_an_option(snapshot: Path) -> None:
    try:
        done = CliRunner().invoke(command, [str(snapshot), *ASKED])
    finally:
        gc.enable()
    assert (done.exit_code, done.output) == (0, run(snapshot, *ASKED).output)


def test_one_host_of_a_snapshot(snapshot: Path) -> None:
    """Its recorded rules alone; names are those of the objects, which may leave out kind and namespace."""
    for source in ([f"{snapshot}@n1"], [str(snapshot), "--node", "n1"]):
        try:
            done = CliRunner().invoke(command, [*source, "--from", "cart-0", "--to", "web:http", "--summary"])
        finally:
            gc.enable()
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith("tcp 10.244.1.9 → 10.96.0.7:80: 50% ACCEPT 10.244.1.9 → 10.244.1.5:8080")
    gone = CliRunner().invoke(command, [f"{snapshot}@n9", *ASKED])
    assert "no files of node n9: there is n1, n2" in str(gone.exception)
    assert run(snapshot, "--from", "cart-0", "--to", "web:http", "--summary").output == (
        run(snapshot, *ASKED, "--summary").output
    )


def test_a_way_that_ends_too_early_says_where_it_was_to_go(snapshot: Path) -> None:
    path = snapshot / "nodes" / "n1" / "iptables-save"
    drop = "-A FORWARD -d 10.244.0.0/16 -j DROP\n-A FORWARD "
    path.write_text(path.read_text().replace("-A FORWARD ", drop, 1))
    lines = run(snapshot, *ASKED, "--summary").output.splitlines()
    assert [line.partition(":")[0] for line in lines[1:3]] == [
        "  50%  lost at n1, sent to 10.244.1.5", "  50%  lost at n1, sent to 10.244.2.5",
    ]  # fmt: skip
    assert [run(snapshot, *ASKED, "--expect", each).exit_code for each in ("DROP", "ACCEPT", "REJECT")] == [0, 1, 1]


def test_an_expected_verdict_is_that_of_how_the_way_ends(snapshot: Path) -> None:
    assert [run(snapshot, *ASKED, "--expect", each).exit_code for each in ("ACCEPT", "DROP", "REJECT")] == [0, 1, 1]
    (snapshot / "nodes" / "n1" / "iptables-save").unlink()
    assert "open" in run(snapshot, *ASKED, "--summary").output
    assert run(snapshot, *ASKED, "--expect", "ACCEPT", "-o", "json").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--from", "pod/shop/cart-0"), "a way over all hosts needs --from and --to"),
        ((*ASKED, "--in", "eth0"), "--in goes with one host, as in"),
        ((*ASKED, "--html", "x.html", "--summary"), "--summary leaves out the way"),
        ((*ASKED, "--src", "10.0.0.1"), "--from and --src exclude each other"),
        ((*ASKED, "--lab", "x"), "one of both expected, manifests or a live cluster"),
        ((*ASKED, "--selector", "a=b"), "--selector goes with --via exec"),
        ((*ASKED, "--context", "c"), "--context names a live cluster"),
        (("--from", "pod/shop/none", "--to", "svc/shop/web"), "--from: pod shop/none is not in the snapshot"),
    ],
)
def test_bad_questions(snapshot: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run(snapshot, *arguments)
    code = done.exception.exit_code if isinstance(done.exception, InputError) else done.exit_code
    assert code == 2
    assert message in done.output + str(done.exception)


def test_a_page_holds_the_ways_and_the_map(snapshot: Path, tmp_path: Path) -> None:
    path = tmp_path / "way.html"
    done = run(snapshot, *ASKED, "--html", str(path))
    assert (done.exit_code, done.output) == (0, "")
    held = held_by(path)
    assert held["start"]["query"] == {"from": "pod/shop/cart-0", "to": "10.96.0.7:80", "proto": "tcp"}
    (asked,) = held["asks"]
    assert asked["request"] == {"from": "pod/shop/cart-0", "to": "10.96.0.7:80", "protocol": "tcp"}
    assert sorted(way["pod"] for way in asked["answer"]["journeys"]) == ["shop/web-0", "shop/web-1"]
    assert any(each.startswith("nodes/n2/sysctl") for each in asked["answer"]["missing"])
    assert [node["name"] for node in held["map"]["nodes"]] == ["n1", "n2"]
    assert "answered by pod/shop/web-1" in path.read_text(), "what shows where scripts do not run"
    both = run(snapshot, *ASKED, "--html", str(path), "-o", "json")
    assert len(json.loads(both.stdout)["journeys"]) == 2


def test_of_a_large_cluster_the_page_has_what_is_on_the_way(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "MAX_NODES", 1)
    path = tmp_path / "way.html"
    assert run(snapshot, "--from", "node/n1", "--to", "10.244.2.5:8080", "--html", str(path)).exit_code == 0
    held = held_by(path)
    assert [node["name"] for node in held["map"]["nodes"]] == ["n1", "n2"]
    assert [pod["id"] for pod in held["map"]["pods"]] == ["pod/shop/web-1"]
    assert held["map"]["services"] == held["map"]["edges"] == []
    assert "the hosts on the way only" in held["missing"][0]


def test_addresses_stand_for_those_who_have_them(snapshot: Path) -> None:
    named = run(snapshot, *ASKED, "--summary").output
    assert run(snapshot, "--src", "10.244.1.9", "--dst", "10.96.0.7:80", "--summary").output == named


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--via", "exec", "--kubeconfig", "/nosuch"), "/nosuch"),
        (("--via", "agent", "--selector", "a=b"), "--selector goes with --via exec"),
        (("--agent-url", "http://h"), "--agent-url goes with --via agent"),
        (("--via", "netns"), "--via netns needs --node"),
        (("--lab", "nosuch"), "there is no lab 'nosuch'"),
        (("--lab", "nosuch", "--mark", "1"), "--mark goes with one host"),
        (("--via", "exec", "--context", "c", "--mode", "nftables"), "--mode goes with one host"),
    ],
)
def test_a_live_cluster_is_named_as_a_whole(arguments: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(command, [*ASKED, *arguments])
    assert done.exit_code in (1, 2)
    assert message in done.output + str(done.exception)


@pytest.mark.parametrize("heals", [True, False])
def test_a_live_way_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch, heals: bool) -> None:
    """Rules of a node that are late: the next reading has them; what stays wrong is read twice more, and reported."""
    files = [damaged_files(), vxlan_cluster() if heals else damaged_files(), damaged_files()]
    waits: list[float] = []
    monkeypatch.setattr(live, "gather", lambda *_args: Mock(files=MemoryFiles("x", files.pop(0))))
    monkeypatch.setattr("time.sleep", waits.append)
    try:
        done = CliRunner().invoke(command, ["--lab", "x", *ASKED, "--summary"])
        assert done.exit_code == 0, done.output
        assert waits == [2.0] * (1 if heals else 2)
        assert ("answered by pod/shop/web-1" in done.output, "web-0" in done.output) == (heals, True)
        assert ("1 change in motion: found at first, and gone when it was read again" in done.output) == heals
        assert ("10.244.2.77" in done.output) == (not heals)
        files[:] = [damaged_files(), vxlan_cluster()] if heals else [damaged_files()] * 3
        found = json.loads(CliRunner().invoke(command, ["--lab", "x", *ASKED, "-o", "json"]).stdout)
        assert found.get("moving") == (1 if heals else None)
    finally:
        gc.enable()


def test_a_node_without_an_object_is_not_seen(tmp_path: Path) -> None:
    files = vxlan_cluster() | {"nodes/n2/iptables-save": b""}
    nodes = json.loads(files["objects/Node.json"])
    nodes["items"].pop()
    files["objects/Node.json"] = json.dumps(nodes).encode()
    done = run(write_files(tmp_path / "snap", files), "--from", "node/n1", "--to", "10.244.2.77:80", "--summary")
    assert "open at " in done.output
    assert "not seen: Nodes of n2: " in done.output
    done = run(write_files(tmp_path / "snap", files), "--from", "pod/shop/web-1", "--to", "svc/shop/web", "--summary")
    assert "100%  open at n2: n2 has no Node object in the snapshot; possible: lost at n2: " in done.output


def test_a_node_in_ipvs_mode(tmp_path: Path) -> None:
    """The client's node balances by IPVS: its own real server stays there, the other one is reached by OUTPUT."""
    files = vxlan_cluster()
    links = json.loads(files["nodes/n1/ip-addr.json"])
    address = {"family": "inet", "local": "10.96.0.7", "prefixlen": 32, "scope": "global"}
    links.append({"ifindex": 20, "ifname": "kube-ipvs0", "addr_info": [address], "flags": ["BROADCAST", "NOARP"]})
    files["nodes/n1/ip-addr.json"] = json.dumps(links).encode()
    files["nodes/n1/iptables-save"] = b"""*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-IPVS-FILTER - [0:0]
-A INPUT -j KUBE-IPVS-FILTER
COMMIT
"""
    servers = "-A -t 10.96.0.7:80 -s rr\n"
    servers += "".join(f"-a -t 10.96.0.7:80 -r 10.244.{node}.5:8080 -m -w 1\n" for node in (1, 2))
    without = run(write_files(tmp_path / "without", files), *ASKED)
    assert "not seen: ipvs of n1" in without.output
    assert "50%" not in without.output
    files["nodes/n1/ipvs"] = servers.encode()
    done = run(write_files(tmp_path / "snap", files), *ASKED)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[:3] == [
        "tcp pod/shop/cart-0 → 10.96.0.7:80",
        "  50%  answered by pod/shop/web-0 at 10.244.1.5:8080, which sees 10.244.1.9",
        "  50%  answered by pod/shop/web-1 at 10.244.2.5:8080, which sees 10.244.1.9",
    ]
    assert "not seen: ipvs" not in done.output
