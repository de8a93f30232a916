"""`kproxy trace netns:NAME`: rules and host read from a live namespace."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import paths
from tests.support.cli import run_kproxy
from tests.support.kernel.namespaces import run

ROOT = paths.ROOT
RULES = ROOT / "rules_golden" / "minikube" / "expected" / "minikube.v4.save"
NAME = f"kp-trace-{os.getpid()}"

pytestmark = pytest.mark.root


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


IPSET = "create kp-blocked hash:ip family inet\nadd kp-blocked 203.0.113.7\n"


def inside(*command: str, text: str = "") -> None:
    run(*command, namespace=NAME, text=text)


def load(variant: str, text: str, family: str = "ip", before: str = "") -> None:
    if before:
        inside("ipset", "restore", text=before)
    inside(f"{family}tables-{variant}-restore", text=text)


@pytest.fixture
def namespace() -> Iterator[str]:
    """A node with a bridge for its pods, a way out, and a policy route."""
    subprocess.run(["ip", "netns", "del", NAME], check=False, capture_output=True)
    ip("netns", "add", NAME)
    try:
        ip("-n", NAME, "link", "set", "lo", "up")
        for name, kind in (("cni0", "bridge"), ("eth0", "bridge")):
            ip("-n", NAME, "link", "add", name, "type", kind)
        ip("-n", NAME, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
        ip("-n", NAME, "link", "set", "veth0", "master", "cni0")
        ip("-n", NAME, "link", "set", "veth0", "type", "bridge_slave", "hairpin", "on")
        for name in ("cni0", "eth0", "veth0", "veth1"):
            ip("-n", NAME, "link", "set", name, "up")
        ip("-n", NAME, "address", "add", "10.244.0.1/24", "dev", "cni0")
        ip("-n", NAME, "address", "add", "192.168.49.2/24", "dev", "eth0")
        ip("-n", NAME, "route", "add", "default", "via", "192.168.49.1")
        ip("-n", NAME, "rule", "add", "fwmark", "0x1/0xff", "table", "100")
        settings = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter"
        subprocess.run(["ip", "netns", "exec", NAME, "sh", "-c", settings], check=True)
        yield NAME
    finally:
        ip("netns", "del", NAME)


def trace(*arguments: str) -> tuple[int, Any, str]:
    done = run_kproxy("trace", f"netns:{NAME}", *arguments, "-o", "json")
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


NODE_PORT = ("--src", "203.0.113.7", "--in", "eth0", "--dst", "192.168.49.2:32198")


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_rules_and_host_are_those_of_the_namespace(namespace: str, variant: str) -> None:
    load(variant, RULES.read_text())
    code, answer, stderr = trace(*NODE_PORT)
    assert code == 0, stderr
    (item,) = answer["outcomes"]
    assert (item["verdict"], item["dst"], item["src"], item["out"]) == (
        "ACCEPT", "10.244.0.35:8080", "10.244.0.1", "cni0",
    )  # fmt: skip
    code, answer, _ = trace("--origin", "local", "--dst", "10.97.142.21:443")
    assert code == 0
    assert answer["outcomes"][0]["dst"] == "10.244.0.7:9443"


def test_forwarding_that_is_off_drops(namespace: str) -> None:
    load("nft", RULES.read_text())
    subprocess.run(["ip", "netns", "exec", NAME, "sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward"], check=True)
    _, answer, _ = trace(*NODE_PORT)
    assert (answer["outcomes"][0]["verdict"], answer["outcomes"][0]["reason"]) == ("DROP", "forwarding is off")


def test_namespaces_that_do_not_do(namespace: str) -> None:
    code, _, stderr = trace(*NODE_PORT)
    assert (code, "no rules" in stderr) == (2, True)


def test_everything_that_is_there_counts(namespace: str) -> None:
    """Both variants of iptables and native nftables: what drops in any of them is dropped."""
    load("nft", RULES.read_text())
    load("legacy", "*raw\n-A PREROUTING -m set --match-set kp-blocked src -j DROP\nCOMMIT\n", before=IPSET)
    code, answer, stderr = trace(*NODE_PORT)
    assert (code, stderr) == (0, "")
    assert [item["verdict"] for item in answer["outcomes"]] == ["DROP"]
    assert answer["outcomes"][0]["path"][-1]["source"] == "iptables-legacy"
    inside("ipset", "del", "kp-blocked", "203.0.113.7")
    inside("nft", "-f", "-", text="table inet own { chain in { type filter hook forward priority 10\n drop\n}\n}\n")
    code, answer, _ = trace(*NODE_PORT)
    (item,) = answer["outcomes"]
    assert (item["verdict"], item["path"][-1]["table"]) == ("DROP", "inet own")
    assert any("inet own in" in line for line in answer["hooks"]["FORWARD"])


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_a_policy_counts_without_rules(namespace: str, variant: str) -> None:
    other = {"nft": "legacy", "legacy": "nft"}[variant]
    load(variant, "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n")
    assert trace(*NODE_PORT[:-1], "198.51.100.1:80")[1]["outcomes"][0]["verdict"] == "DROP"
    load(other, RULES.read_text())
    assert [item["verdict"] for item in trace(*NODE_PORT)[1]["outcomes"]] == ["DROP"]


def test_a_namespace_that_is_not_there() -> None:
    done = run_kproxy("trace", "--netns", "kp-nowhere", *NODE_PORT)
    assert (done.returncode, done.stdout) == (2, "")
    assert "kp-nowhere" in done.stderr
