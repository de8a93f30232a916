"""The checks of vagrant/checks: what counts as a difference, and that one is found, in a namespace of our own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import paths
from vagrant.checks import __main__ as program
from vagrant.checks.golden import compare_rules, tables
from vagrant.checks.scenario import NFTABLES, read_scenario
from vagrant.checks.traffic import can_be_sent, join_endpoint, remembering_script, split_endpoint

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


def test_a_client_is_remembered_in_the_named_affinity_set_alone() -> None:
    table = read_scenario(GOLDEN / "session-affinity").expected(NFTABLES, 4)
    names = [line.split()[1] for line in table.splitlines() if line.startswith("\tset affinity-")]
    assert remembering_script(table, "10.0.0.9", [names[1], "KUBE-SEP-X"]).splitlines() == [
        *(f"flush set ip kube-proxy {name}" for name in names),
        f"add element ip kube-proxy {names[1]} {{ 10.0.0.9 }}",
    ]


def test_tables_of_a_dump() -> None:
    assert list(tables(SAVE)) == ["mangle", "nat"]
    assert tables(SAVE)["mangle"] == "*mangle\n:PREROUTING ACCEPT [0:0]\nCOMMIT"


@pytest.mark.parametrize("text", ["10.0.0.1:80", "[fd00::1]:8080"])
def test_endpoints(text: str) -> None:
    assert join_endpoint(*split_endpoint(text)) == text


def test_the_usual_scenarios_exist_and_hold_packets_that_a_socket_can_send() -> None:
    for name in {name for chosen in program.CHOSEN.values() for name in chosen}:
        scenario = read_scenario(GOLDEN / name)
        own = [entry.address for entry in scenario.node.addresses]
        assert any(can_be_sent(item, own) for item in scenario.expectations), name


def test_what_no_socket_can_send_is_left_out() -> None:
    scenario = read_scenario(GOLDEN / "minikube")
    own = [entry.address for entry in scenario.node.addresses]
    left_out = {item.name for item in scenario.expectations if not can_be_sent(item, own)}
    assert "a neighbour tries a port on the node's localhost" in left_out
    assert len(left_out) < len(scenario.expectations) / 2


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
