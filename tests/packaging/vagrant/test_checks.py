"""The checks of vagrant/checks: what counts as a difference, and that one is found, in a namespace of our own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.dataplane import Host
from tests.support import paths
from vagrant.checks import __main__ as program
from vagrant.checks.golden import compare_rules, tables
from vagrant.checks.scenario import FAMILIES, NFTABLES, read_scenario
from vagrant.checks.traffic import node_state, send_packets

ROOT = paths.ROOT
GOLDEN = ROOT / "rules_golden"

SAVE = """*mangle
:PREROUTING ACCEPT [0:0]
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.1/32 -j ACCEPT
-A KUBE-SERVICES -d 10.96.0.2/32 -j ACCEPT
COMMIT
"""


def test_the_same_rules_in_another_order_of_tables_are_the_same() -> None:
    mangle, nat = SAVE.split("*nat")
    assert compare_rules(SAVE, f"# a comment\n*nat{nat}{mangle}") == []


def test_an_empty_table_is_no_difference_but_a_rule_in_it_is() -> None:
    raw = "*raw\n:PREROUTING ACCEPT [0:0]\n{}COMMIT\n"
    assert compare_rules(SAVE, SAVE + raw.format("")) == []
    assert compare_rules(SAVE, SAVE + raw.format("-A PREROUTING -j NOTRACK\n"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("10.96.0.2/32", "10.96.0.3/32"),
        ("-A PREROUTING -j KUBE-SERVICES\n", ""),
        ("-A KUBE-SERVICES -d 10.96.0.1/32 -j ACCEPT\n", "-A KUBE-SERVICES -d 10.96.0.1/32 -j ACCEPT\n" * 2),
        (":KUBE-SERVICES - [0:0]\n", ":KUBE-SERVICES - [0:0]\n:KUBE-OTHER - [0:0]\n"),
        ("*mangle\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n", ""),
        (
            "-A KUBE-SERVICES -d 10.96.0.1/32 -j ACCEPT\n-A KUBE-SERVICES -d 10.96.0.2/32 -j ACCEPT\n",
            "-A KUBE-SERVICES -d 10.96.0.2/32 -j ACCEPT\n-A KUBE-SERVICES -d 10.96.0.1/32 -j ACCEPT\n",
        ),
    ],
    ids=["changed", "missing", "doubled", "extra chain", "missing table", "another order"],
)
def test_every_difference_of_rules_is_one(old: str, new: str) -> None:
    assert old in SAVE
    assert compare_rules(SAVE, SAVE.replace(old, new))


def test_a_table_of_nftables_is_compared_block_by_block() -> None:
    scenario = read_scenario(GOLDEN / "session-affinity")
    expected = scenario.expected(NFTABLES, 4)
    head, *blocks = expected.removesuffix("\t}\n}\n").split("\t}\n\n")
    elsewhere = "\t}\n\n".join([head, *reversed(blocks)]) + "\t}\n}\n"
    assert elsewhere != expected
    assert compare_rules(expected, elsewhere) == []
    assert compare_rules(expected, expected.replace("dnat to 10.244.1.5:8080", "dnat to 10.244.1.6:8080"))
    assert compare_rules(expected, expected.replace(f"\t}}\n\n{blocks[-1]}", ""))


@pytest.mark.root
@pytest.mark.parametrize("variant", ["legacy", NFTABLES])
def test_clients_are_forgotten_between_packets(variant: str) -> None:
    """A client that affinity sends to one endpoint is a new one for the next packet, which chance decides."""
    scenario = read_scenario(GOLDEN / "session-affinity")
    rules = scenario.expected(variant, 4)
    assert send_packets(scenario, variant, {4: rules})[4].wrong == {}
    host = node_state(Host.simple([]), variant, 4, rules)
    assert host.elements if variant == NFTABLES else host.recent


def test_tables_of_a_dump() -> None:
    assert list(tables(SAVE)) == ["mangle", "nat"]
    assert tables(SAVE)["mangle"] == "*mangle\n:PREROUTING ACCEPT [0:0]\nCOMMIT"


@pytest.mark.root
@pytest.mark.parametrize("variant", program.VARIANTS)
def test_every_golden_packet_of_two_families_goes_where_it_must(variant: str) -> None:
    """With the committed rules: none is left out, those with the other family's addresses beside theirs included."""
    scenario = read_scenario(GOLDEN / "dual-stack")
    found = send_packets(scenario, variant, {family: scenario.expected(variant, family) for family in FAMILIES})
    assert {4, 6} == set(found)
    for family, item in found.items():
        assert (item.sent, item.left_out, item.wrong) == (len(scenario.packets(variant, family)), 0, {})
        assert item.sent


@pytest.mark.parametrize(
    "arguments",
    [["no-such-scenario"], ["--all", "minikube"], ["--variant", "ebtables"], ["--directory", "/nowhere", "x"]],
)
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.parse_arguments(arguments)
    assert ended.value.code == 2
    assert "check.sh TREE: error:" in capsys.readouterr().err


def run_checks(*arguments: str) -> tuple[int, str]:
    """The checks in a network namespace of their own, which takes the place of the machine."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"}
    script = 'ip link set lo up && exec "$0" -m vagrant.checks "$@"'
    command = ["unshare", "--net", "sh", "-c", script, sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("variant", program.VARIANTS)
def test_a_scenario_is_as_expected(variant: str) -> None:
    code, said = run_checks("--variant", variant, "dual-stack")
    assert code == 0, said
    assert "cleanup, " + variant + ": nothing left" in said
    assert "2 of 2 as expected" in said


@pytest.mark.root
@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        (
            "expected/node-0.v4.save",
            "--to-destination 10.244.0.5:8080",
            "--to-destination 10.244.0.5:8081",
            ["rules: "],
        ),
        ("packets.yaml", '"10.244.0.5:8080", chance: 1', '"10.244.0.6:8080", chance: 1', ["traced: ", "sent: "]),
    ],
    ids=["rules", "packets"],
)
def test_a_wrong_golden_file_is_reported(tmp_path: Path, file: str, old: str, new: str, told: list[str]) -> None:
    shutil.copytree(GOLDEN / "clusterip-single-endpoint", tmp_path / "wrong")
    path = tmp_path / "wrong" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    code, said = run_checks("--variant", "nft", "--directory", str(tmp_path), "wrong")
    assert code == 1, said
    for word in told:
        assert word in said
    assert "1 of 2 as expected" in said


@pytest.mark.root
def test_an_unreadable_scenario_is_bad_input(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "clusterip-single-endpoint", tmp_path / "broken")
    (tmp_path / "broken" / "packets.yaml").write_text("packets: {}\n")
    code, said = run_checks("--directory", str(tmp_path), "broken")
    assert code == 2, said
    assert "packets.yaml" in said


def test_ipvs_needs_a_kernel_with_it() -> None:
    """The check is for the virtual machine's kernel. Where there is no IPVS, nothing passes for checked."""
    done = subprocess.run(
        [sys.executable, "-m", "vagrant.checks.ipvs", "--packets", "1", "minikube"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    if Path("/proc/net/ip_vs").exists():
        assert done.returncode == 0, done.stdout
    else:
        assert done.returncode == 1
        assert "ipvs: 0 packets sent; 1 scenarios differ" in done.stdout
        assert "Traceback" not in done.stderr
