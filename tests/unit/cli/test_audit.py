"""`kproxy audit` as its users run it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.cli import Run, held_by
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
    twice = kproxy("audit", snap, write_files(tmp_path / "other", audited.cluster()))
    assert (twice.returncode, "one snapshot expected" in twice.stderr) == (2, True)


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
    held = held_by(tmp_path / "audit.html")
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
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.count("ip-route.json") == done.stdout.count("kube-proxy configuration of n1, n2, n3") == 1
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
    assert "kube-proxy configuration" in [each["what"] for each in report["unseen"] if each["suspected"]]


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


def only_nat(text: bytes) -> bytes:
    start = text.index(b"*nat\n")
    return text[start : text.index(b"COMMIT\n", start)] + b"COMMIT\n"


def without_elements(text: bytes) -> bytes:
    """What `nft -t` prints."""
    return re.sub(rb"\n\t\telements = \{[^}]*\}", b"", text)


def without(files: dict[str, bytes], name: str, *kinds: str) -> None:
    """Objects of a name: of a Service it and its EndpointSlices, but not its rules."""
    for kind in kinds or ("Service", "EndpointSlice"):
        path = f"objects/{kind}.json"
        objects = json.loads(files[path])
        objects["items"] = [each for each in objects["items"] if name not in each["metadata"]["name"]]
        files[path] = json.dumps(objects).encode()


@pytest.mark.parametrize(
    ("mode", "damage", "what"),
    [
        ("iptables", lambda files: [files.pop(f"nodes/n{number}/kube-proxy/configz") for number in (1, 2, 3)],
         "kube-proxy configuration"),
        ("iptables", lambda files: files.pop("objects/Node.json"), "Nodes"),
        ("iptables", lambda files: without(files, "n3", "Node"), "Nodes"),
        ("nftables", lambda files: without(files, "n3", "Node"), "Nodes"),
        ("iptables", lambda files: files.pop("objects/Service.json"), "Services"),
        ("iptables", lambda files: without(files, "dns"), "Services"),
        ("nftables", lambda files: without(files, "dns"), "Services"),
        ("iptables", lambda files: files.update(
            {"nodes/n1/iptables-save": only_nat(files["nodes/n1/iptables-save"])}), "filter table"),
        ("nftables", lambda files: files.update({"nodes/n1/nft": without_elements(files["nodes/n1/nft"])}), "nftables"),
        ("iptables", lambda files: files.update({"nodes/n1/kube-proxy/configz": audited.configz("ipvs")}), "ipvs"),
    ],
    ids=[
        "configuration", "nodes", "a-node", "a-node-nft", "services", "a-service", "a-service-nft", "nat-alone",
        "nft-t", "ipvs",
    ],
)  # fmt: skip
def test_what_was_not_seen_is_neither_well_nor_a_finding(
    kproxy: Run, tmp_path: Path, mode: str, damage: Callable[[dict[str, bytes]], object], what: str
) -> None:
    files = audited.cluster(mode)
    damage(files)
    snap = write_files(tmp_path / "snap", files)
    done = kproxy("audit", snap, "-o", "json")
    report = json.loads(done.stdout)
    assert {each["kind"] for each in report["findings"]} <= {"modes-mixed"}
    assert what in [each["what"] for each in report["unseen"] if each["suspected"]]
    seen = [(each["host"], each["family"], each["what"]) for each in report["unseen"]]
    assert sorted(seen) == sorted(set(seen)), "one thing once"
    text = kproxy("audit", snap)
    assert "All well" not in text.stdout
    assert "of no node are the rules known" not in text.stdout
    if what != "ipvs":
        assert (done.returncode, text.returncode) == (2, 2)
        assumed = kproxy("audit", snap, "--assume", f"{what}=empty", "-o", "json")
        assert what not in [each["what"] for each in json.loads(assumed.stdout)["unseen"]]


@pytest.mark.parametrize("named_by", ["EndpointSlice", "Pod", "iptables-save", "kube-proxy/configz"])
def test_a_node_without_an_object_is_told_whatever_names_it(kproxy: Run, tmp_path: Path, named_by: str) -> None:
    files = audited.cluster("iptables")
    without(files, "n3", "Node")
    files = {path: data for path, data in files.items() if not path.startswith("nodes/n3/") or path.endswith(named_by)}
    for kind in {"EndpointSlice", "Pod"} - {named_by}:
        files[f"objects/{kind}.json"] = files[f"objects/{kind}.json"].replace(b'"n3"', b'"n2"')
    done = kproxy("audit", write_files(tmp_path / "snap", files), "-o", "json")
    report = json.loads(done.stdout)
    unseen = [each for each in report["unseen"] if each["what"] == "Nodes"]
    assert [(each["host"], each["suspected"]) for each in unseen] == [("n3", True)]
    assert ("nodes/n3" if "save" in named_by or "configz" in named_by else named_by) in unseen[0]["why"]
    assert (["n3"], "no Node object") in [(each["nodes"], each["what"]) for each in report["undecided"]]
    assert set(report["judged"]) == {"n1", "n2"}
    assert done.returncode in (1, 2)


def test_a_host_beside_the_nodes_needs_no_object(kproxy: Run, tmp_path: Path) -> None:
    files = audited.cluster("iptables")
    files |= {"nodes/client/iptables-save": b"*filter\n:INPUT DROP [0:0]\nCOMMIT\n", "nodes/client/ip-addr.json": b"[]"}
    done = kproxy("audit", write_files(tmp_path / "snap", files), "-o", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["nodes"]) == (0, ["n1", "n2", "n3"])
    assert not [each for each in report["unseen"] if each["suspected"]]


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [("iptables-save", b"*filter\n:INPUT ACCEPT [0:0]\n", 2), ("iptables-save", b"", 2), ("conntrack", b"", 0)],
)
def test_a_file_that_was_cut_is_not_known(kproxy: Run, tmp_path: Path, name: str, text: bytes, code: int) -> None:
    files = audited.cluster("iptables")
    files |= {f"nodes/n2/{name}": text, "nodes/n2/errors": f"{name}: killed after 20 s\n".encode()}
    snap = write_files(tmp_path / "snap", files)
    done = kproxy("audit", snap)
    assert (done.returncode, "[rules-missing]" in done.stdout) == (code, False), done.stdout
    assert "killed after 20 s" in done.stdout


@pytest.mark.parametrize(
    "odd",
    [
        b"bash: conntrack: command not found",
        b"<html>",
        b"udp 17 29 src=10.0.0.1 dst=10.96.0.10 sport=5353 dport=53 [UNREP",
        b"udp 17 29 src=10.0.0.1 dst=10.96.0.10 sport=x dport=53 src=10.96.0.10 dst=10.0.0.1 sport=53 dport=x",
    ],
)
def test_what_is_no_table_of_connections_is_an_error(kproxy: Run, tmp_path: Path, odd: bytes) -> None:
    good = (
        b"icmp 1 29 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=5 src=10.0.0.2 dst=10.0.0.1 type=0 code=0 id=5 mark=0\n"
    )
    good += b"conntrack v1.4.7 (conntrack-tools): 1 flow entries have been shown.\n"
    files = {**audited.cluster(), "nodes/n2/conntrack": good}
    assert kproxy("audit", write_files(tmp_path / "good", files)).returncode == 0
    done = kproxy("audit", write_files(tmp_path / "snap", {**files, "nodes/n2/conntrack": good + odd}))
    assert (done.returncode, done.stdout) == (2, "")
    assert "nodes/n2/conntrack: line 3: what conntrack -L prints expected" in done.stderr


def test_a_file_without_kube_proxys_rules_is_called_by_its_name(kproxy: Run, tmp_path: Path) -> None:
    other = b"table inet mine {\n\tchain a {\n\t\tcounter accept\n\t}\n}\n"
    files = {**audited.cluster("nftables"), "nodes/n1/nft": other}
    assert "mode nftables, and nft has no rules of it" in kproxy("audit", write_files(tmp_path / "snap", files)).stdout
