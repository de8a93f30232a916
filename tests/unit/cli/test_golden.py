"""`kproxy golden`, and that the committed golden files are right."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.support import paths
from tests.support.cli import Run

ROOT = paths.ROOT
SCENARIOS = sorted(path.parent for path in (ROOT / "rules_golden").glob("*/cluster.yaml"))


def test_there_are_enough_scenarios_and_each_is_whole() -> None:
    assert len(SCENARIOS) >= 25
    for scenario in SCENARIOS:
        names = {path.name for path in (scenario / "expected").iterdir()}
        assert names, scenario
        assert {name.replace(".v4.", ".v6.") for name in names} == {
            name.replace(".v6.", ".v6.") for name in names if "v6" in name
        }
        assert (scenario / "packets.yaml").exists()


def test_the_committed_files_are_what_kproxy_renders(kproxy: Run) -> None:
    done = kproxy("golden", "check", cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"{len(SCENARIOS)} of {len(SCENARIOS)} scenarios as expected" in done.stderr
    assert "golden update" not in done.stderr


def test_check_shows_each_difference_and_update_mends_it(kproxy: Run, tmp_path: Path) -> None:
    scenario = tmp_path / "set" / "minikube"
    shutil.copytree(ROOT / "rules_golden" / "minikube", scenario)
    expected = scenario / "expected" / "minikube.v4.save"
    original = expected.read_text()
    expected.write_text(original.replace("--dport 32198", "--dport 32199").replace("*nat", "*nat", 1))
    (scenario / "expected" / "gone.v4.save").write_text(original)
    (scenario / "expected" / "minikube.v6.save").unlink()
    done = kproxy("golden", "check", "set")
    assert done.returncode == 1
    assert "expected/minikube.v4.save: 1 chains differ" in done.stdout
    assert "kproxy golden update writes the expected files" in done.stderr
    assert "nat KUBE-NODEPORTS" in done.stdout
    assert "- -A KUBE-NODEPORTS -p tcp" in done.stdout
    assert "--dport 32199" in done.stdout
    assert "+ -A KUBE-NODEPORTS -p tcp" in done.stdout
    assert "expected/gone.v4.save belongs to no Node" in done.stdout
    assert "expected/minikube.v6.save is missing" in done.stdout
    assert kproxy("golden", "update", "set").returncode == 0
    assert expected.read_text() == original
    assert not (scenario / "expected" / "gone.v4.save").exists()
    assert kproxy("golden", "check", scenario).returncode == 0


def test_order_of_lines_counts(kproxy: Run, tmp_path: Path) -> None:
    scenario = tmp_path / "minikube"
    shutil.copytree(ROOT / "rules_golden" / "minikube", scenario)
    expected = scenario / "expected" / "minikube.v4.save"
    lines = expected.read_text().splitlines(keepends=True)
    index = next(i for i, line in enumerate(lines) if line.startswith("-A KUBE-SERVICES"))
    lines[index], lines[index + 1] = lines[index + 1], lines[index]
    expected.write_text("".join(lines))
    assert kproxy("golden", "check", "minikube").returncode == 1
    lines[index], lines[index + 1] = lines[index + 1], lines[index]
    index = next(i for i, line in enumerate(lines) if line.startswith(":KUBE-SERVICES"))
    lines[index - 1], lines[index] = lines[index], lines[index - 1]
    expected.write_text("".join(lines))
    done = kproxy("golden", "check", "minikube")
    assert done.returncode == 1
    assert "order of tables and chains" in done.stdout


def test_bad_arguments(kproxy: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        (("nowhere",), "no such directory"),
        (("empty",), "holds a cluster.yaml"),
        ((), "rules_golden"),
    ):
        done = kproxy("golden", "check", *arguments)
        assert done.returncode == 2
        assert words in done.stderr


def test_update_writes_nothing_when_a_scenario_is_bad(kproxy: Run, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "rules_golden" / "minikube", tmp_path / "set" / "a")
    (tmp_path / "set" / "a" / "expected" / "minikube.v4.save").write_text("old\n")
    (tmp_path / "set" / "b").mkdir()
    (tmp_path / "set" / "b" / "cluster.yaml").write_text("kind: [")
    done = kproxy("golden", "update", "set")
    assert done.returncode == 2
    assert "set/b/cluster.yaml" in done.stderr
    assert (tmp_path / "set" / "a" / "expected" / "minikube.v4.save").read_text() == "old\n"


def test_a_broken_scenario_hides_no_other(kproxy: Run, tmp_path: Path) -> None:
    for name in ("a-broken", "b-different", "c-broken", "d-fine"):
        shutil.copytree(ROOT / "rules_golden" / "minikube", tmp_path / "set" / name)
    (tmp_path / "set/a-broken/cluster.yaml").write_text("kind: [\n")
    expected = tmp_path / "set/b-different/expected/minikube.v4.save"
    expected.write_text(expected.read_text().replace("--dport 32198", "--dport 32199"))
    (tmp_path / "set/c-broken/packets.yaml").write_text("- name: 1\n")
    done = kproxy("golden", "check", "set")
    assert done.returncode == 2
    assert "set/b-different differs:" in done.stdout
    assert "set/a-broken/cluster.yaml" in done.stderr
    assert "set/c-broken/packets.yaml" in done.stderr
    assert "1 of 4 scenarios as expected" in done.stderr
    assert "2 could not be checked" in done.stderr


def test_json_has_every_difference(kproxy: Run, tmp_path: Path) -> None:
    changed, broken = tmp_path / "set" / "changed", tmp_path / "set" / "unreadable"
    for scenario in (changed, broken):
        shutil.copytree(ROOT / "rules_golden" / "minikube", scenario)
    (broken / "cluster.yaml").write_text("kind: [")
    (changed / "expected" / "gone.v4.save").write_text("")
    (changed / "expected" / "minikube.v6.save").unlink()
    expected = changed / "expected" / "minikube.v4.save"
    expected.write_text(expected.read_text().replace("--dport 32198", "--dport 32199"))
    packets = changed / "packets.yaml"
    packets.write_text(packets.read_text().replace("verdict: REJECT", "verdict: DROP", 1))
    done = kproxy("golden", "check", "set", "-o", "json")
    assert done.returncode == 2
    assert "set/unreadable/cluster.yaml" in done.stderr
    assert "0 of 2 scenarios as expected" in done.stderr
    first, second = json.loads(done.stdout)["scenarios"]
    assert (first["scenario"], first["status"], first["error"]) == ("set/changed", "differs", "")
    assert first["packets"] > 0
    files = {each["file"]: each for each in first["files"]}
    assert {name: each["difference"] for name, each in files.items()} == {
        "expected/gone.v4.save": "extra",
        "expected/minikube.v4.save": "changed",
        "expected/minikube.v6.save": "missing",
    }
    (chain,) = files["expected/minikube.v4.save"]["chains"]
    assert (chain["table"], chain["chain"]) == ("nat", "KUBE-NODEPORTS")
    assert any("--dport 32199" in line for line in chain["lines"] if line.startswith("- "))
    assert any("--dport 32198" in line for line in chain["lines"] if line.startswith("+ "))
    assert all(set(each) == {"name", "node", "lines", "mode"} for each in first["packetDifferences"])
    assert first["packetDifferences"]
    assert (second["scenario"], second["status"], second["files"]) == ("set/unreadable", "unreadable", [])
    assert "cluster.yaml" in second["error"]


def test_json_when_all_is_as_expected(kproxy: Run) -> None:
    done = kproxy("golden", "check", "rules_golden/minikube", "-o", "json", cwd=ROOT)
    assert done.returncode == 0
    (found,) = json.loads(done.stdout)["scenarios"]
    assert (found["status"], found["files"], found["packetDifferences"]) == ("as expected", [], [])


def test_ipvs_mode_has_a_folder_of_its_own(kproxy: Run, tmp_path: Path) -> None:
    scenario = tmp_path / "minikube"
    shutil.copytree(ROOT / "rules_golden" / "minikube", scenario)
    before = {path.name for path in (scenario / "expected").iterdir()}
    assert kproxy("golden", "update", scenario, "--mode", "ipvs").returncode == 0
    servers = scenario / "expected" / "ipvs" / "minikube.v4.ipvsadm"
    assert "-A -t 10.96.0.10:53 -s rr\n" in servers.read_text()
    assert {path.name for path in (scenario / "expected").iterdir()} == {*before, "ipvs"}
    assert kproxy("golden", "check", scenario).returncode == 0
    (scenario / "expected" / "ipvs" / "minikube.v4.ipset").unlink()
    servers.write_text(servers.read_text().replace(":53 -s rr", ":53 -s sh"))
    done = kproxy("golden", "check", scenario)
    assert done.returncode == 1
    assert "expected/ipvs/minikube.v4.ipset is missing" in done.stdout
    assert "- -A -t 10.96.0.10:53 -s sh" in done.stdout
    assert kproxy("golden", "update", scenario).returncode == 0
    assert "-s sh" not in servers.read_text()


def test_each_mode_is_checked_where_it_has_files(kproxy: Run, tmp_path: Path) -> None:
    scenario = tmp_path / "minikube"
    shutil.copytree(ROOT / "rules_golden" / "minikube", scenario)
    table = scenario / "expected" / "minikube.v4.nft"
    original = table.read_text()
    table.write_text(original.replace("32198", "32199"))
    done = kproxy("golden", "check", "minikube")
    assert done.returncode == 1
    assert "ip kube-proxy map service-nodeports" in done.stdout
    assert kproxy("golden", "check", "minikube", "--mode", "iptables").returncode == 0
    table.unlink()
    (scenario / "expected" / "minikube.v6.nft").unlink()
    assert kproxy("golden", "check", "minikube").returncode == 0, "an older scenario, of iptables mode only"
    asked = kproxy("golden", "check", "minikube", "--mode", "nftables")
    assert asked.returncode == 1
    assert "expected/minikube.v4.nft is missing" in asked.stdout
    assert kproxy("golden", "update", "minikube", "--mode", "iptables").returncode == 0
    assert not table.exists()
    assert kproxy("golden", "update", "minikube").returncode == 0
    assert table.read_text() == original
