"""The overlay's rules in the kernel: masquerading and forwarding, by iptables of either variant."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.agent.overlay import remove
from kproxy.linux.errors import LockHeldError, UnreadableDumpError
from kproxy.linux.iptables.legacy import xtables_lock
from kproxy.linux.namespace import Namespace
from kproxy.linux.pod.overlay_rules import OverlayRules
from kproxy.linux.process import run
from kproxy.netfilter.hooks import Variant
from kproxy.overlay.rules import RuleSettings
from tests.support.cni.client import ip
from tests.support.examples import spread
from tests.support.overlay.network import (
    ALL,
    COMMANDS,
    MASQ,
    NODES,
    OUTSIDE,
    VTEPS,
    WAYS,
    Network,
    ask,
    outside_host,
    pod_ip,
    reaches,
    three_joined_nodes,
)

pytestmark = pytest.mark.root
NONE = RuleSettings(forward=False)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with three_joined_nodes(tmp_path) as made:
        yield made


@pytest.fixture
def outside(network: Network) -> Iterator[Namespace]:
    with outside_host(network) as made:
        yield made


def iptables(network: Network, number: int, variant: str, family: int, *words: str) -> str:
    command = [f"{COMMANDS[family]}-{variant}", *(["-w", "30"] if variant == "legacy" else []), *words]
    done = network.node[number].call(lambda: subprocess.run(command, capture_output=True, text=True, check=False))
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def everything(network: Network, number: int) -> list[str]:
    """All rules of a node however they were written, sorted: programs list tables in the order of their making."""
    found = []
    for name in COMMANDS.values():
        for variant in ("nft", "legacy"):
            printed = run(network.node[number], [f"{name}-{variant}-save"], timeout=60).stdout
            found += [f"{name}-{variant} {line}" for line in printed.splitlines() if line.startswith("-A ")]
    printed = run(network.node[number], ["nft", "-s", "list", "ruleset"], timeout=60).stdout
    return sorted([*found, *map(str.strip, printed.splitlines())])


@pytest.mark.parametrize("way", spread(list(WAYS), 1, 1))
def test_a_pod_reaches_an_address_that_knows_no_way_back(network: Network, outside: Namespace, way: str) -> None:
    for family in (4, 6):
        assert ask(network.pod[1], "", outside, OUTSIDE[family], family, wait=1) is None, "there is no way back"
    assert network.keep_rules(1, *WAYS[way])
    assert network.rule_drift(1, *WAYS[way]) == []
    for family in (4, 6):
        assert ask(network.pod[1], "", outside, OUTSIDE[family], family) == NODES[family]
        assert ask(network.pod[2], "", outside, OUTSIDE[family], family, wait=1) is None, "node 2 has no rules"


@pytest.mark.parametrize("way", spread(list(WAYS), 1, 1))
def test_traffic_inside_of_the_cluster_keeps_its_addresses(network: Network, outside: Namespace, way: str) -> None:
    for number in ALL:
        network.keep_rules(number, *WAYS[way])
    for family in (4, 6):
        assert ask(network.pod[1], "", network.pod[2], pod_ip(2, family), family) == pod_ip(1, family)
        assert ask(network.node[1], "", network.pod[2], pod_ip(2, family), family) == VTEPS[family]
        assert ask(network.pod[1], "", network.node[1], NODES[family], family) == pod_ip(1, family)
        # From the node's own address the answer would not come back by the tunnel.
        assert (
            ask(network.node[1], NODES[family], network.pod[2], pod_ip(2, family), family, bind=True) == VTEPS[family]
        )
    # Who does know the way to pods is seen by them as what it is.
    subprocess_route(outside, "add", "10.244.1.0/24", "192.168.9.1")
    subprocess_route(outside, "add", "fd00:10:244:1::/64", "fd00:9::1")
    for family in (4, 6):
        assert ask(outside, "", network.pod[1], pod_ip(1, family), family) == OUTSIDE[family]


def subprocess_route(namespace: Namespace, verb: str, destination: str, gateway: str) -> None:
    assert namespace.netns is not None
    ip("-n", namespace.netns, *(["-6"] if ":" in gateway else []), "route", verb, destination, "via", gateway)


@pytest.mark.parametrize("dropping", ["nft", "legacy"])
@pytest.mark.parametrize("way", spread(list(WAYS), 1, 1))
def test_pods_are_reached_through_a_forward_chain_that_drops(
    network: Network, outside: Namespace, way: str, dropping: str
) -> None:
    """Also where the rules are written with the other variant: what drops must accept."""
    for number in (1, 2):
        for family in (4, 6):
            iptables(network, number, dropping, family, "-P", "FORWARD", "DROP")
    assert not reaches(network, 1, 2, 4, wait=1)
    assert not reaches(network, 1, 2, 6, wait=1)
    for number in (1, 2):
        network.keep_rules(number, *WAYS[way])
        assert network.rule_drift(number, *WAYS[way]) == []
    for family in (4, 6):
        assert reaches(network, 1, 2, family)
        assert ask(network.pod[1], "", outside, OUTSIDE[family], family) == NODES[family]
        iptables(network, 1, dropping, family, "-P", "FORWARD", "ACCEPT")
    network.keep_rules(1, *WAYS[way])
    places = {(chain.variant.value, chain.table) for chain in OverlayRules(network.node[1]).read().chains}
    assert (dropping, "filter") in places or dropping != way, "no longer needed where it is not the main one"
    assert len(places) == 2


@pytest.mark.parametrize("variant", spread(["nft", "legacy"], 1, 1))
def test_a_rule_that_refuses_everything_comes_after_the_overlays(network: Network, variant: str) -> None:
    way = WAYS[variant]
    for number in (1, 2):
        for family in (4, 6):
            iptables(network, number, variant, family, "-A", "FORWARD", "-p", "udp", "--dport", "10", "-j", "DROP")
            iptables(network, number, variant, family, "-A", "FORWARD", "-j", "REJECT")
    assert not reaches(network, 1, 2, 4, wait=1)
    for number in (1, 2):
        network.keep_rules(number, *way)
    for family in (4, 6):
        assert reaches(network, 1, 2, family)
        lines = iptables(network, 1, variant, family, "-S", "FORWARD").splitlines()
        assert [line.split(" -j ")[1].split()[0] for line in lines[1:]] == ["DROP", "KPROXY-FWD", "REJECT"]
        # Somebody puts another one at the beginning.
        iptables(network, 1, variant, family, "-I", "FORWARD", "1", "-j", "REJECT")
    assert network.rule_drift(1, *way)
    network.keep_rules(1, *way)
    assert network.rule_drift(1, *way) == []
    assert reaches(network, 1, 2, 4)


def test_chains_that_refuse_everything_come_after_the_overlays(network: Network) -> None:
    """As ufw's default, which rejects from a chain of its own, and as where only new connections are refused."""
    chain = "-A ufw-reject-forward -j REJECT"
    forms = {
        4: [f"-N ufw-reject-forward\n{chain}", "-A FORWARD -j ufw-reject-forward"],
        6: ["-A FORWARD -m conntrack --ctstate NEW -j REJECT"],
    }
    for number in (1, 2):
        for family, texts in forms.items():
            for line in "\n".join(texts).splitlines():
                iptables(network, number, "nft", family, *line.split())
        network.keep_rules(number, *WAYS["nft"])
        assert network.rule_drift(number, *WAYS["nft"]) == []
    for family in (4, 6):
        assert reaches(network, 1, 2, family)
    iptables(network, 1, "nft", 4, "-I", "FORWARD", "1", "-j", "ufw-reject-forward")
    assert network.rule_drift(1, *WAYS["nft"])
    network.keep_rules(1, *WAYS["nft"])
    assert reaches(network, 1, 2, 4)


DAMAGE = {
    "flushed": ["-F", "{chain}"],
    "jump gone": ["-D", "{base}", "-m", "comment", "--comment", "{comment}", "-j", "{chain}"],
    "jump twice": ["-A", "{base}", "-j", "{chain}"],
    "rule too many": ["-I", "{chain}", "1", "-p", "udp", "-j", "RETURN"],
}


@pytest.mark.parametrize("table", ["nat", "filter"])
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("variant", spread(["nft", "legacy"], 1, 1))
def test_damage_to_the_rules_is_reported_and_mended(network: Network, variant: str, damage: str, table: str) -> None:
    way = WAYS[variant]
    network.keep_rules(1, *way)
    before = everything(network, 1)
    chain, base, comment = {
        "nat": ("KPROXY-POSTRTG", "POSTROUTING", "kproxy overlay masq"),
        "filter": ("KPROXY-FWD", "FORWARD", "kproxy overlay forward"),
    }[table]
    words = [word.format(chain=chain, base=base, comment=comment) for word in DAMAGE[damage]]
    iptables(network, 1, variant, 6, "-t", table, *words)
    (change,) = network.rule_drift(1, *way)
    assert change.kind == "different"
    network.keep_rules(1, *way)
    assert network.rule_drift(1, *way) == []
    assert everything(network, 1) == before


def test_other_options_leave_nothing_of_the_former_ones(network: Network) -> None:
    for variant in ("nft", "legacy"):
        iptables(network, 1, variant, 4, "-A", "FORWARD", "-s", "198.51.100.7", "-j", "DROP")
    before = everything(network, 1)
    variants = set()
    for way in (*WAYS.values(), WAYS["nft"], (NONE, None)):
        network.keep_rules(1, *way)
        assert network.rule_drift(1, *way) == []
        found = OverlayRules(network.node[1]).read().chains
        assert len({chain.variant for chain in found}) == (0 if way[0] is NONE else 1)
        variants |= {chain.variant for chain in found}
    assert variants == set(Variant)
    after = everything(network, 1)
    assert not [line for line in after if "kproxy" in line.lower()]
    assert [line for line in after if "198.51.100.7" in line] == [line for line in before if "198.51.100.7" in line]


@pytest.mark.parametrize("way", spread(list(WAYS), 1, 1))
def test_removing_the_overlay_leaves_what_is_not_its_own(network: Network, way: str) -> None:
    name = network.names["n1"]
    iptables(network, 1, "nft", 4, "-A", "FORWARD", "-s", "198.51.100.7", "-j", "DROP")
    iptables(network, 1, "nft", 4, "-t", "nat", "-A", "POSTROUTING", "-s", "198.51.100.7", "-j", "MASQUERADE")
    ip("-n", name, "route", "add", "10.99.0.0/24", "via", "192.168.9.3")
    network.keep_rules(1, *WAYS[way])
    done = remove(network.node[1])
    assert done.problems == ()
    assert done.changes
    left = " ".join(everything(network, 1))
    assert "kproxy" not in left.lower()
    assert left.count("198.51.100.7") >= 2
    assert "kproxy" not in ip("-n", name, "link")
    routes = ip("-n", name, "route") + ip("-n", name, "-6", "route")
    assert "proto 107" not in routes
    assert "10.99.0.0/24" in routes
    assert remove(network.node[1]).changes == ()


@pytest.mark.parametrize("settings", [MASQ, RuleSettings()], ids=["masquerading", "forwarding"])
def test_the_variant_stays_the_one_that_holds_the_rules(network: Network, settings: RuleSettings) -> None:
    """So that a later start, or `check`, finds no drift because kube-proxy has come meanwhile."""
    network.keep_rules(1, settings, Variant.LEGACY)
    iptables(network, 1, "nft", 4, "-t", "nat", "-N", "KUBE-SERVICES")
    iptables(network, 1, "nft", 4, "-P", "FORWARD", "DROP")
    network.keep_rules(1, settings)
    assert network.rule_drift(1, settings, Variant.LEGACY) == []
    if settings.ip_masq:
        assert network.rule_drift(1, settings) == []


def test_a_held_lock_is_reported_and_nothing_is_taken_for_absent(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.keep_rules(1, MASQ, Variant.LEGACY)
    monkeypatch.setenv("XTABLES_LOCKFILE", str(tmp_path / "lock"))
    rules = OverlayRules(network.node[1], lock_wait=1)
    with xtables_lock(), pytest.raises(LockHeldError):
        rules.read(choose=False)
    assert len(rules.read(choose=False).chains) == 4


def test_looking_makes_no_tables(network: Network) -> None:
    assert OverlayRules(network.node[3]).read(choose=False).chains == ()
    assert everything(network, 3) == []
    names = network.node[3].call(Path("/proc/thread-self/net/ip_tables_names").read_text)
    assert names == ""


def test_what_nft_lists_and_is_not_its_json_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nft = tmp_path / "nft"
    nft.write_text("#!/bin/sh\necho nothing\n")
    nft.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with Namespace.scratch() as scratch, pytest.raises(UnreadableDumpError) as caught:
        OverlayRules(scratch).read(choose=False)
    assert "what nft -j list chains prints is not nft's JSON: " in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["policy drop;", "policy accept; ct state established accept; counter reject;", "ct state new jump end;"],
    ids=["policy", "last rule", "jump"],
)
def test_a_native_chain_that_drops_is_reported(network: Network, text: str) -> None:
    """An accept in one base chain does not overrule a drop in another: nothing of ours could help."""
    table = f"""
        table inet custom {{ chain end {{ ip ttl 1 accept; drop; }}; chain forward {{
            type filter hook forward priority 0; {text} }}; }}
        table ip other {{ chain forward {{ type filter hook forward priority 5; accept; drop; }}; }}
    """
    network.node[1].call(lambda: subprocess.run(["nft", table], check=True))
    (note,) = OverlayRules(network.node[1]).read().notes
    assert note.startswith("nftables chain inet custom forward drops")
    network.keep_rules(1, *WAYS["nft"])
    assert not reaches(network, 1, 2, 4, wait=1)
