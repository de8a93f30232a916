"""`kproxy audit` as its users run it."""

from __future__ import annotations

import html
import json
import re
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.cli import Run
from tests.support.cluster import audited
from tests.support.cluster.snapshots import write_files

DROP = b'-A FORWARD -p udp -m comment --comment "no DNS to servers outside of this rack" -m udp --dport 53 -j DROP'


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    files = audited.cluster()
    for number in (1, 2):
        path = f"nodes/n{number}/iptables-save"
        files[path] = files[path].replace(b"-A FORWARD ", DROP + b"\n-A FORWARD ", 1)
    return write_files(tmp_path / "snap", files)


def test_a_healthy_cluster(kproxy: Run, tmp_path: Path) -> None:
    snap = write_files(tmp_path / "snap", audited.cluster())
    done = kproxy("audit", snap)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "All well."
    assert kproxy("audit", "--snapshot", snap).stdout == done.stdout
    twice = kproxy("audit", "--snapshot", snap, snap)
    assert (twice.returncode, "given twice" in twice.stderr) == (2, True)


def test_the_text_is_for_a_terminal(kproxy: Run, damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = kproxy("audit", damaged).stdout.splitlines()
    assert max(map(len, whole)) > 80, "nothing is folded in a pipe"
    monkeypatch.setenv("COLUMNS", "80")
    done = kproxy("audit", damaged)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == [f"             {DROP.decode()}"], (
        "a rule is whole, to be copied"
    )
    assert "1. error: A rule of another program refuses Service traffic [foreign-drop]" in lines
    assert "   nodes     n1, n2" in lines
    assert "   Services  shop/dns:dns" in lines
    assert "".join("".join(lines).split()) == "".join("".join(whole).split())


def test_json_is_a_contract(kproxy: Run, damaged: Path) -> None:
    done = kproxy("audit", damaged, "-o", "json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert list(report)[2:] == [
        "version", "source", "created", "nodes", "judged", "services", "questions", "findings", "undecided", "missing",
        "unseen",
    ]  # fmt: skip
    assert (report["version"], report["nodes"], report["services"]) == (1, ["n1", "n2", "n3"], 3)
    (finding,) = report["findings"]
    assert list(finding) == [
        "kind", "severity", "title", "hint", "nodes", "services", "clients", "addresses", "details", "rules", "witness",
        "since",
    ]  # fmt: skip
    assert (finding["kind"], finding["severity"], finding["nodes"]) == ("foreign-drop", "error", ["n1", "n2"])
    save = (damaged / "nodes/n1/iptables-save").read_text().splitlines()
    assert finding["rules"][0] == {
        "file": "nodes/n1/iptables-save", "line": save.index(DROP.decode()) + 1, "table": "filter", "chain": "FORWARD",
        "rule": 1, "text": DROP.decode(),
    }  # fmt: skip
    assert finding["witness"]["found"] == ["drop"]
    witness = finding["witness"]
    assert list(witness) == [
        "node", "client", "packet", "expected", "found", "from", "src", "dst", "proto", "origin", "a", "b",
    ]  # fmt: skip
    assert witness["client"] == witness["from"].replace("/", " ", 1)
    assert witness["packet"].startswith(f"{witness['proto']} {witness['src']} -> {witness['dst']}")
    assert f"{witness['src']} → {witness['dst']}" in kproxy("audit", damaged).stdout
    assert sum(Fraction(each["probability"]) for each in witness["a"]) == 1
    assert {each["verdict"] for each in witness["a"]} == {"ACCEPT"}
    assert {f"to {each['dst']}" for each in witness["a"]} == {text.rpartition("% ")[2] for text in witness["expected"]}
    assert [each["verdict"] for each in witness["b"]] == ["DROP"]


def test_junit(kproxy: Run, damaged: Path) -> None:
    done = kproxy("audit", damaged, "-o", "junit")
    assert done.returncode == 1
    suite = ElementTree.fromstring(done.stdout)
    failed = [case for case in suite if case.find("failure") is not None]
    assert (suite.get("failures"), len(failed)) == ("1", 1)
    assert (failed[0].get("name") or "").startswith("foreign-drop: ")


def test_the_page_shows_the_findings(kproxy: Run, damaged: Path, tmp_path: Path) -> None:
    done = kproxy("audit", damaged, "--html", tmp_path / "audit.html")
    assert (done.returncode, done.stderr) == (1, "")
    text = (tmp_path / "audit.html").read_text()
    assert "default-src 'none'; script-src 'sha256-" in text
    found = re.search(r'id="kproxy-data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    held = json.loads(found[1])
    answer = json.loads(kproxy("audit", damaged, "-o", "json").stdout)
    assert {"apiVersion": "kproxy/v1", "kind": "Audit", **held["audit"]} == answer
    assert [each["severity"] for each in held["audit"]["findings"]] == ["error"]
    assert held["map"]["nodes"]
    without_scripts = re.search(r"<pre>(.*?)</pre>", text, re.DOTALL)
    assert without_scripts is not None
    assert DROP.decode() in html.unescape(without_scripts[1])


def test_what_is_missing_is_named_once(kproxy: Run, tmp_path: Path) -> None:
    files = audited.cluster()
    kept = {
        path: data for path, data in files.items() if path.startswith("objects/") or path.endswith("/iptables-save")
    }
    done = kproxy("audit", write_files(tmp_path / "snap", kept))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("ip-route.json") == done.stdout.count("kube-proxy's configuration is not known") == 1
    assert "masquerading, node ports and external policy Local are not judged" in " ".join(done.stdout.split())


def test_three_files_made_by_hand_are_enough_for_an_answer(kproxy: Run, tmp_path: Path) -> None:
    """What kubectl prints, one iptables-save, and a Node with its addresses, written by hand."""
    files = audited.cluster()
    lists = [json.loads(files[f"objects/{kind}.json"])["items"] for kind in ("Service", "EndpointSlice")]
    objects = {"apiVersion": "v1", "kind": "List", "items": [item for items in lists for item in items]}
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {podCIDR: 10.244.1.0/24}\n"
    node += "status: {addresses: [{type: InternalIP, address: 172.30.0.11}]}\n"
    save = files["nodes/n1/iptables-save"].replace(b"10.244.2.5:8080", b"10.244.2.9:8080")
    snap = write_files(
        tmp_path / "snap",
        {
            "objects/all.json": json.dumps(objects).encode(),
            "objects/node.yaml": node.encode(),
            "nodes/n1/iptables-save": save.replace(b"-A FORWARD ", DROP + b"\n-A FORWARD ", 1),
        },
    )
    done = kproxy("audit", snap, "-o", "json")
    report = json.loads(done.stdout)
    found = {each["kind"]: (each["services"], each["rules"][0]["text"]) for each in report["findings"]}
    assert found["foreign-drop"] == (["shop/dns:dns"], DROP.decode())
    stale = found["endpoint-stale"]
    assert stale[0] == ["shop/web:http"]
    assert stale[1].endswith("--to-destination 10.244.2.9:8080")
    assert done.returncode == 1
    missing = {each["what"] for each in report["missing"]}
    assert missing >= {"ip-route.json", "ip-addr.json", "sysctl", "kube-proxy/configz", "ip6tables-save"}
    assert "kube-proxy's configuration is not known" in [each["what"] for each in report["undecided"]]


@pytest.mark.parametrize(
    ("mode", "lost", "what"), [("nftables", "nft", "nftables"), ("iptables", "ip", "nft iptables")]
)
def test_rules_of_the_nodes_mode_that_were_not_collected(
    kproxy: Run, tmp_path: Path, mode: str, lost: str, what: str
) -> None:
    """Other programs' rules are there: that the node has none of kube-proxy's is not known, and never said."""
    files = audited.cluster(mode)
    kept = {path: data for path, data in files.items() if not path.startswith(f"nodes/n1/{lost}")}
    if mode == "nftables":
        other = {"iptables-save": b"*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 192.0.2.1/32 -j DROP\nCOMMIT\n"}
    else:
        other = {"nft": b"table inet mine {\n\tchain a {\n\t\tcounter accept\n\t}\n}\n"}
    more = {f"nodes/n1/{name}": data for name, data in other.items()}
    snap = write_files(tmp_path / "snap", {**kept, **more})
    done = kproxy("audit", snap, "-o", "json")
    report = json.loads(done.stdout)
    assert "rules-missing" not in [each["kind"] for each in report["findings"]]
    assert ("n1", what) in [(each["host"], each["what"]) for each in report["unseen"] if each["suspected"]]
    assert done.returncode == 2
    if mode == "iptables":
        whole = write_files(tmp_path / "whole", files)
        done = kproxy("diff", f"{whole}@n1", f"{snap}@n1")
        assert done.returncode == 2


def test_only_objects_say_nothing_of_rules(kproxy: Run, tmp_path: Path) -> None:
    files = {path: data for path, data in audited.cluster().items() if path.startswith("objects/")}
    done = kproxy("audit", write_files(tmp_path / "snap", files))
    assert done.returncode == 2
    assert "of no node are the rules known" in " ".join(done.stdout.split())


@pytest.mark.parametrize("arguments", [(), ("snap", "--lab", "x"), ("snap", "--node", "n1"), ("nowhere",)])
def test_bad_input(kproxy: Run, arguments: tuple[str, ...]) -> None:
    done = kproxy("audit", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "rror" in done.stderr


def test_a_file_that_cannot_be_read_is_named(kproxy: Run, tmp_path: Path) -> None:
    snap = write_files(tmp_path / "snap", {**audited.cluster(), "nodes/n2/ip-route.json": b"{"})
    done = kproxy("audit", snap)
    assert done.returncode == 2
    assert "nodes/n2/ip-route.json: line 1" in done.stderr
