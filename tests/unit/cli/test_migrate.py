"""`kproxy migrate` as its users run it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Run, held_by
from tests.support.cluster import audited
from tests.support.cluster.snapshots import write_files
from tests.support.migrate import NODE, QUIET, endpoints, node, service, write

WEB = [service(type="NodePort", port={"nodePort": 30080}), endpoints()]


def test_nothing_changes(kproxy: Run, tmp_path: Path) -> None:
    cluster, config = write(tmp_path, [node()])
    done = kproxy("migrate", "-f", cluster, "--config", config)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Nothing changes" in done.stdout


def test_the_text_is_for_a_terminal(kproxy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, config = write(tmp_path, [node(), *WEB], {"clusterCIDR": "10.244.0.0/16"})
    whole = kproxy("migrate", "-f", cluster, "--config", config, "-4").stdout
    assert max(map(len, whole.splitlines())) > 120, "nothing is folded in a pipe"
    monkeypatch.setenv("COLUMNS", "80")
    done = kproxy("migrate", "-f", cluster, "--config", config, "-4")
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    lines = done.stdout.splitlines()
    assert lines[2] == "6 things change."
    assert lines[4] == "Before the switch:"
    assert lines[5].split() == ["1", "Node", "ports", "answer", "at", "other", "addresses", "1", "Service"]
    assert "Nothing else changes" in done.stdout
    assert done.stdout.split() == whole.split()


def test_json_is_a_contract(kproxy: Run, tmp_path: Path) -> None:
    cluster, config = write(tmp_path, [node(), *WEB])
    done = kproxy("migrate", "-f", cluster, "--config", config, "-4", "-o", "json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert {name: report[name] for name in ("from", "to", "nodes", "families", "services", "changes", "undecided")} == {
        "from": "iptables", "to": "nftables", "nodes": [NODE], "families": ["IPv4"], "services": 1, "changes": True,
        "undecided": [],
    }  # fmt: skip
    assert report["needs"] == ["Linux 5.13 or later", "nft 1.0.1 or later"]
    finding = report["findings"][0]
    assert finding["reason"] == "node-port-addresses"
    assert finding["services"] == ["shop/web"]
    assert finding["addresses"] == ["30080/tcp"]
    assert finding["config"] == 'nodePortAddresses: ["0.0.0.0/0", "::/0"]'
    assert (finding["effort"], finding["do"].split()[:2]) == ("act", ["Set", "nodePortAddresses,"])
    assert {"reason", "title", "why"} == set(report["absent"][0])
    witness = finding["witness"]
    assert (witness["dst"], witness["proto"], witness["in"]) == ("192.0.2.99:30080", "tcp", "eth0")
    assert (witness["service"], witness["addressKind"]) == ("shop/web", "node port")
    assert witness["localAddresses"] == ["192.0.2.99", "192.168.0.2"]
    assert [fate["verdict"] for fate in witness["today"] + witness["then"]] == ["ACCEPT", "ACCEPT"]
    assert witness["today"][0]["text"].startswith("to 10.244.0.5:8080")


def test_the_page_holds_what_is_printed_with_both_ways_and_the_map(kproxy: Run, tmp_path: Path) -> None:
    cluster, config = write(tmp_path, [node(), *WEB])
    page = tmp_path / "switch.html"
    asked = ("migrate", "-f", cluster, "--config", config, "-4")
    done = kproxy(*asked, "-o", "json", "--html", page)
    assert (done.returncode, done.stderr) == (1, "")
    text = page.read_text()
    held = held_by(page)
    answer = json.loads(done.stdout)
    assert {"apiVersion": "kproxy/v1", "kind": "Migration", **held["compare"]["report"], "unseen": []} == answer
    assert held["start"] == {"path": "compare", "query": {"kind": "migrate"}}
    assert [each["name"] for each in held["map"]["nodes"]] == [NODE]
    assert [each["id"] for each in held["map"]["services"]] == ["svc/shop/web"]
    asks = [pair[0] for pair in held["compare"]["asks"] if pair[0] is not None]
    assert asks
    for finding, (asked_for, _) in zip(answer["findings"], held["compare"]["asks"], strict=True):
        if asked_for is not None and finding["witness"]["src"].startswith(
            "10.244."
        ):  # a Pod's, of which there is no object
            assert asked_for["from"] == finding["witness"]["src"].partition(":")[0]
    for side in held["compare"]["sides"]:
        for asked_for in asks:
            key = json.dumps([asked_for, side["edits"]], separators=(",", ":"))
            assert held["sideAsks"][key]["journeys"]
    assert "Node ports answer at other addresses" in re.sub(r"<script.*", "", text, flags=re.DOTALL), "as text"
    wrong = kproxy(*asked, "--html", tmp_path / "not" / "there.html")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert str(tmp_path / "not") in wrong.stderr


def test_the_page_says_that_ways_are_those_of_kube_proxys_rules(kproxy: Run, tmp_path: Path) -> None:
    cluster, config = write(tmp_path, [node(), *WEB])
    dump = tmp_path / "node.save"
    dump.write_text("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 10.0.0.1 -j DROP\nCOMMIT\n")
    page = tmp_path / "switch.html"
    asked = ("migrate", "-f", cluster, "--config", config, "-4", "--html", page)
    for rules, said in (((), False), (("--rules", dump), True)):
        assert kproxy(*asked, *rules).returncode == 1
        told = [each for each in held_by(page)["missing"] if "kube-proxy's rules alone" in each]
        assert bool(told) is said


def test_equal_findings_of_all_nodes_are_one(kproxy: Run, tmp_path: Path) -> None:
    nodes = [node("n1"), node("n2", "192.168.0.3")]
    cluster, config = write(tmp_path, [*nodes, *WEB])
    done = kproxy("migrate", "-f", cluster, "--config", config, "--all-nodes", "-4", "-o", "json")
    findings = {each["reason"]: each for each in json.loads(done.stdout)["findings"]}
    assert findings["node-port-addresses"]["nodes"] == ["n1", "n2"]
    assert findings["remote-hairpin"]["nodes"] == ["n2"]  # the endpoint is on n1


def test_a_remote_hairpin_is_of_one_packet(kproxy: Run, tmp_path: Path) -> None:
    """Services, packet and advice: who shows a packet to a ClusterIP does not say that the ClusterIP works."""
    nodes = [node("n1"), node("n2", "192.168.0.3")]
    dns = [service("dns", "10.96.0.10"), endpoints("dns", ("10.244.0.6",), "n1")]
    web = [service(type="NodePort", port={"nodePort": 30080}), endpoints(node_name="n1")]
    found = {}
    for name, objects in (("both", [*web, *dns]), ("alone", dns)):
        folder = tmp_path / name
        folder.mkdir()
        cluster, config = write(folder, [*nodes, *objects])
        done = kproxy("migrate", "-f", cluster, "--config", config, "--node", "n2", "-4", "-o", "json")
        found[name] = {each["reason"]: each for each in json.loads(done.stdout)["findings"]}["remote-hairpin"]
    both, alone = found["both"], found["alone"]
    # A node port is masqueraded in both modes: what shows it goes to a ClusterIP, and so goes all that is said.
    for each, services in ((both, ["shop/dns", "shop/web"]), (alone, ["shop/dns"])):
        assert each["services"] == services
        assert each["witness"]["dst"] in ("10.96.0.9:80", "10.96.0.10:80")
        assert each["do"] == "See that kube-proxy runs on all nodes."


_NAT = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n%sCOMMIT\n"
_JUMP = "-A PREROUTING -j KUBE-SERVICES\n"
_FILTER = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n%sCOMMIT\n"
_OF_RULES = {"host-firewall", "foreign-kube-chains", "foreign-mark", "foreign-hook-order"}


@pytest.mark.parametrize(
    ("dump", "what"),
    [
        (_NAT % _JUMP, "filter table"),
        (_FILTER % ":KUBE-FORWARD - [0:0]\n-A FORWARD -j KUBE-FORWARD\n", "nat table"),
        ("# Warning: iptables-legacy tables present, use iptables-legacy-save to see them\n" + _FILTER % "",
         "legacy iptables"),
        ("# Table `raw' is incompatible, use 'nft' tool.\n" + _FILTER % "", "raw table"),
        ('table ip filter { chain FORWARD { type filter hook forward priority filter; policy drop; '
         'oifname "a" counter drop # Warning: XT match physdev not found\n } }\n', "nft iptables"),
        (_NAT % "-A KUBE-SERVICES -d 10.96.0.9 -j DROP\n" + _FILTER % "", "base-chain jumps"),
        (_FILTER % "-A FORWARD -m set --match-set bad src -j DROP\n", "ipset bad"),
    ],
)  # fmt: skip
def test_a_part_of_a_dump_rules_nothing_out(kproxy: Run, tmp_path: Path, dump: str, what: str) -> None:
    """kube-proxy's early ACCEPT goes with the switch: what a table that was not seen does to packets shows then."""
    (tmp_path / "part").write_text(dump)
    for objects in ([node()], [node(), service(), endpoints()]):
        cluster, config = write(tmp_path, objects)
        asked = ("migrate", "-f", cluster, "--config", config, "--rules", tmp_path / "part", "-4")
        done = kproxy(*asked, "-o", "json")
        report = json.loads(done.stdout)
        found = {each["reason"] for each in report["findings"]}
        assert done.returncode == (1 if found else 2)
        assert report["changes"]
        (gap,) = [each for each in report["undecided"] if each["where"] == what]
        assert set(gap["hides"]) == _OF_RULES - found
        assert not {each["reason"] for each in report["absent"]} & _OF_RULES
        text = kproxy(*asked).stdout
        assert "Nothing" not in text.replace("Nothing to do", "")
        assert ("It cannot be told what changes." in text) is (not found)
    if what == "filter table":
        whole = kproxy(*asked, "--assume", "complete", "-o", "json")
        assert json.loads(whole.stdout)["undecided"] == []


def test_rules_of_one_family_tell_nothing_of_the_other(kproxy: Run, tmp_path: Path) -> None:
    cluster, config = write(tmp_path, [node(), service(type="NodePort", port={"nodePort": 30080}), endpoints()])
    (tmp_path / "six").write_text("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s fd00::1 -j DROP\nCOMMIT\n")
    done = kproxy("migrate", "-f", cluster, "--config", config, "--rules", tmp_path / "six", "-o", "json")
    found = {each["reason"]: each for each in json.loads(done.stdout)["findings"]}
    assert found["host-firewall"]["families"] == ["IPv4"]


def test_manifests_from_git_rule_nothing_of_services_out(kproxy: Run, tmp_path: Path) -> None:
    web = service(ip="", type="LoadBalancer", selector={"app": "web"})
    of_services = {"node-port-addresses", "session-affinity", "refused-hooks", "host-firewall", "cluster-ip-ports"}

    def run(*objects: object, more: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
        cluster, config = write(tmp_path, list(objects))  # type: ignore[arg-type]
        done = kproxy("migrate", "-f", cluster, "--config", config, "--node", NODE, "-4", *more, "-o", "json")
        return done.returncode, json.loads(done.stdout)

    code, report = run(web)
    assert (code, report["findings"]) == (2, [])
    assert {each["where"] for each in report["undecided"]} == {"cluster IPs", "endpoints", "node ports"}
    assert all(set(each["hides"]) >= of_services for each in report["undecided"])
    assert not {each["reason"] for each in report["absent"]} & of_services

    invented = ("--allocate", "10.96.0.0/16", "--assume-endpoints", "2")
    code, report = run(web, more=invented)
    assert code == 1
    (gap,) = report["undecided"]
    assert gap["where"] == "node addresses"
    assert gap["reason"] == f"no Node {NODE}: its addresses are not known"
    assert gap["hides"] == ["node-port-addresses"]
    assert [each["what"] for each in report["unseen"] if each["suspected"]] == ["node addresses"]
    assert "node-port-addresses" not in {each["reason"] for each in report["absent"]}

    code, report = run(web, node(), more=invented)
    assert report["undecided"] == []
    assert report["findings"][0]["reason"] == "node-port-addresses"
    assert run(service(), endpoints())[1]["undecided"] == [], "no node port, so that addresses do not count"


def test_the_configured_mode_is_the_one_that_is_left(kproxy: Run, tmp_path: Path) -> None:
    cluster, config = write(tmp_path, [node(), service(), endpoints()], {"mode": "ipvs"})
    for given in ((), ("--from", "ipvs")):
        done = kproxy("migrate", "-f", cluster, "--config", config, *given)
        assert done.returncode == 1
        assert done.stdout.startswith(f"From ipvs to nftables mode on {NODE}, IPv4 and IPv6, 1 Service\n")
        assert "ipvs-leftovers" in done.stdout
    done = kproxy("migrate", "-f", cluster, "--config", config, "--from", "nftables", "--to", "nftables")
    assert (done.returncode, done.stdout) == (2, "")


def test_bad_input(kproxy: Run, tmp_path: Path) -> None:
    cluster, config = write(tmp_path, [node("n1"), node("n2")], QUIET)
    for arguments, told in (
        (["-f", cluster], "2 Nodes"),
        (["-f", cluster, "--node", "n3"], "'n3'"),
        (["-f", cluster, "--node", "n1", "--all-nodes"], "exclude each other"),
        (["-f", tmp_path / "none.yaml"], "none.yaml"),
        (["-f", cluster, "--config", config, "--node", "n1", "--to", "ipvs"], "ipvs"),
    ):
        done = kproxy("migrate", *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert told in done.stderr


def test_a_configuration_that_is_known_is_not_told_as_inferred(kproxy: Run, tmp_path: Path) -> None:
    snap = write_files(tmp_path / "snap", audited.cluster())
    done = kproxy("migrate", "-f", snap, "--all-nodes", "-4")
    assert "configuration is not known" not in done.stderr


def test_a_service_of_which_the_endpoints_were_not_seen_is_in_no_finding(kproxy: Run, tmp_path: Path) -> None:
    """Both modes refuse a Service without endpoints, but in other hooks: this one may have some."""
    web, empty = service(selector={"app": "web"}), service("empty", "10.96.0.10", selector={"app": "empty"})
    whole = (web, empty, endpoints(), endpoints("empty", ()))
    for objects, wanted in (((web, empty), set()), (whole, {"shop/empty"})):
        cluster, path = write(tmp_path, [node(), *objects])
        done = kproxy("migrate", "-f", cluster, "--config", path, "--node", NODE, "-4", "-o", "json")
        found = {each["reason"]: each for each in json.loads(done.stdout)["findings"]}
        assert set(found.get("refused-hooks", {}).get("services", ())) == wanted
