"""Golden packets: `kproxy golden check` runs packets.yaml on the expected rules."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support import paths
from tests.support.cli import Run

ROOT = paths.ROOT
SCENARIOS = sorted(path.parent for path in (ROOT / "rules_golden").glob("*/cluster.yaml"))


@pytest.fixture
def minikube(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "rules_golden" / "minikube", tmp_path / "minikube")
    return tmp_path / "minikube"


def test_all_packets_are_run_in_both_modes(kproxy: Run) -> None:
    written = sum(len(re.findall(r"^- name:", (path / "packets.yaml").read_text(), re.M)) for path in SCENARIOS)
    done = kproxy("golden", "check", cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"{len(SCENARIOS)} of {len(SCENARIOS)} scenarios as expected, with {2 * written} packets" in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("--probability 0.50000000000", "--probability 0.25000000000", "chance 1/4"),
        ("--to-destination 10.244.0.37:8080", "--to-destination 10.244.0.38:8080", "ACCEPT to 10.244.0.38:8080"),
        ("! --mark 0x4000/0x4000 -j RETURN", "! --mark 0x8000/0x8000 -j RETURN", "no masquerade"),
        ("--dport 32198", "--dport 32199", "a pod"),
    ],
)
def test_a_changed_rule_fails_a_packet(kproxy: Run, minikube: Path, old: str, new: str, told: str) -> None:
    expected = minikube / "expected" / "minikube.v4.save"
    expected.write_text(expected.read_text().replace(old, new))
    done = kproxy("golden", "check", "minikube")
    assert done.returncode == 1
    assert "packets.yaml: " in done.stdout
    if told != "a pod":
        assert told in done.stdout.split("packets.yaml: ", 1)[1]
    assert "0 of 1 scenarios as expected, with 28 packets" in done.stderr


def test_session_affinity_in_both_modes(kproxy: Run, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "rules_golden" / "session-affinity", tmp_path / "session-affinity")
    packets = tmp_path / "session-affinity" / "packets.yaml"
    packets.write_text(re.sub(r", affinity-[^]]*]", "]", packets.read_text()))
    done = kproxy("golden", "check", "session-affinity")
    assert done.returncode == 1
    assert done.stdout.count("nftables mode)") == done.stdout.count("packets.yaml: ") == 3


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "chance: 1/2, masquerade: false}",
            "chance: 1/2, masquerade: true}",
            "- ACCEPT to 10.244.0.37:8080, masquerade",
        ),
        ("to: 10.96.0.10:9153", "to: 10.96.0.10:9154", "+ ACCEPT to 10.96.0.10:9154, no masquerade, chance 1"),
        ("{verdict: DROP, to:", "{verdict: REJECT, to:", "+ DROP to"),
    ],
)
def test_a_changed_expectation_fails(kproxy: Run, minikube: Path, old: str, new: str, told: str) -> None:
    packets = minikube / "packets.yaml"
    assert old in packets.read_text()
    packets.write_text(packets.read_text().replace(old, new))
    done = kproxy("golden", "check", "minikube")
    assert done.returncode == 1
    assert told in done.stdout
    assert "expected/" not in done.stdout, "the rules themselves are as rendered"


def test_rules_that_cannot_be_traced_are_a_difference(kproxy: Run, minikube: Path) -> None:
    expected = minikube / "expected" / "minikube.v4.save"
    expected.write_text(expected.read_text().replace("-j KUBE-MARK-MASQ", "-j KUBE-GONE"))
    done = kproxy("golden", "check", "minikube")
    assert done.returncode == 1
    assert "a jump to chain KUBE-GONE, which is not there" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("packets:", "packet:", "packets.yaml: line 1: packet: unknown field"),
        ("proto: udp", "protocol: udp", "packets.yaml: line 6: packets[0].protocol: unknown field"),
        ("  proto: udp\n", "", "packets[0].proto: this field is required"),
        ("in: cni0", "origin: local\n  in: cni0", "packets[0]: either `in` or `origin: local` expected"),
        ("from: 10.244.0.9:40000", "from: nowhere", "packets.yaml: line 3: packets[0].from: IP"),
        ("to: 10.96.0.10:53", "to: 10.96.0.10", "packets[0].to: IP:PORT expected"),
        ("chance: 1,", "chance: 1/2,", "packets[0].expect: chances that sum to 1 expected, not to 1/2"),
        ("chance: 1,", "chance: many,", "packets[0].expect[0].chance: a chance expected"),
        ("verdict: ACCEPT", "verdict: MAYBE", "packets[0].expect[0].verdict: ACCEPT, DROP or REJECT expected"),
        ("  expectNftables:\n", "  expectNftables: 1\n", "packets.yaml: line"),
        (
            "  expectNftables:\n  - {verdict: ACCEPT,",
            "  expectNftables:\n  - {verdict: DROP,",
            "expectNftables[0].masquerade: only an accepted packet has it",
        ),
        (", masquerade: false", "", "packets[0].expect[0].masquerade: true or false expected"),
        ("masquerade: false}", "masquerade: false, chance: 1}", 'key "chance" already set'),
        (
            "- name: a pod asks DNS over UDP",
            "- node: n9\n  name: a",
            "packets[0].node: one of the Nodes expected (minikube)",
        ),
        ("packets:", "packets: [", "packets.yaml: line"),
    ],
)
def test_malformed_packets(kproxy: Run, minikube: Path, old: str, new: str, told: str) -> None:
    packets = minikube / "packets.yaml"
    packets.write_text(packets.read_text().replace(old, new, 1))
    done = kproxy("golden", "check", "minikube")
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_packets_are_not_a_must(kproxy: Run, minikube: Path) -> None:
    (minikube / "packets.yaml").unlink()
    done = kproxy("golden", "check", "minikube")
    assert done.returncode == 0
    assert "with 0 packets" in done.stderr
