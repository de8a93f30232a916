"""The page as one file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kproxy.explorer import page
from kproxy.explorer.export import explore as export
from kproxy.explorer.page import encode
from kproxy.explorer.state import Explorer
from tests.support.cluster.snapshots import vxlan_cluster
from tests.support.explorer.sources import source_of
from tests.support.paths import ROOT

BUILT = {
    "export.html": "<!DOCTYPE html><head><!--kproxy:csp--><title><!--kproxy:title--></title>"
    "<style>/*kproxy:css*/</style></head><body><!--kproxy:text-->"
    '<script type="application/json" id="kproxy-data">/*kproxy:data*/</script>'
    '<script type="module">/*kproxy:js*/</script></body>',
    "app.css": "p { color: red }",
    "app.js": 'const a = "</script>", b = "<!--", c = "/*kproxy:data*/";',
}


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "static_file", lambda name: BUILT[name].encode())


@pytest.mark.usefixtures("built")
def test_the_file_holds_what_the_server_answers(snapshot: Path) -> None:
    text = export.export_page(Explorer(source_of(snapshot)))
    found = re.search(r'id="kproxy-data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    held = json.loads(found[1])
    assert set(held) == {
        "source",
        "map",
        "clientMaps",
        "services",
        "audit",
        "asks",
        "missing",
        "sideServices",
        "compares",
        "maps",
        "sideAsks",
    }
    assert held["source"]["compares"] == list(held["compares"]) == ["drift", "migrate"]
    assert list(held["services"]) == ["shop/web"]
    asked = [each["request"] for each in held["asks"]]
    assert {"from": "pod/shop/cart-0", "to": "svc/shop/web:80", "protocol": "tcp"} in asked
    assert all(each["answer"]["journeys"] for each in held["asks"])
    assert "need the server" in held["missing"][0]


def manifests(directory: Path, ready: bool) -> Path:
    """The objects of the cluster, of which web-0 is ready or not."""
    directory.mkdir()
    for path, data in vxlan_cluster().items():
        if path.startswith("objects/"):
            found = json.loads(data)
            for item in found["items"] if path.endswith("/EndpointSlice.json") else ():
                item["endpoints"][0]["conditions"] = {"ready": ready}
            (directory / path.removeprefix("objects/")).write_text(json.dumps(found))
    return directory


def exported(first: Path, second: Path) -> dict[str, Any]:
    one, other = (source_of(each) for each in (first, second))
    found: dict[str, Any] = json.loads(encode(export.export_data(Explorer(one, against=other))))
    return found


def test_two_sources_are_both_in_the_file_with_both_ways_of_what_differs(tmp_path: Path) -> None:
    held = exported(manifests(tmp_path / "before", True), manifests(tmp_path / "after", False))
    assert held["source"]["against"]["label"] == str(tmp_path / "after")
    assert f"--against {tmp_path / 'after'}" in held["missing"][0]
    diff = held["compares"]["diff"]
    assert [side["source"] for side in diff["sides"]] == ["", "against"]
    assert all(edge["used"] for edge in held["map"]["edges"])
    assert {edge["endpoint"] for edge in held["maps"]["against"]["edges"] if edge["used"]} == {"10.244.2.5:8080"}
    first, second = (
        {each["address"] for port in pages["shop/web"]["ports"] for each in port["fan"][0]["endpoints"]}
        for pages in (held["services"], held["sideServices"]["against"])
    )
    assert (first, second) == ({"10.244.1.5:8080", "10.244.2.5:8080"}, {"10.244.2.5:8080"})
    for finding in diff["findings"]:
        ends = []
        for asked, side in zip(finding["asks"], diff["sides"], strict=True):
            request = asked | ({"source": side["source"]} if side["source"] else {})
            answer = held["sideAsks"][json.dumps([request, side["edits"]], separators=(",", ":"))]
            ends.append({way["target"] for way in answer["journeys"]})
        assert ends == [{"10.244.1.5:8080", "10.244.2.5:8080"}, {"10.244.2.5:8080"}]
    assert diff["findings"]


def test_what_is_left_out_of_comparisons_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "MAX_SIDE_ASKS", 1)
    monkeypatch.setattr(export, "MAX_SERVICES", 0)
    held = exported(manifests(tmp_path / "before", True), manifests(tmp_path / "after", False))
    assert list(held["compares"]) == held["source"]["compares"] == ["diff"]
    assert len(held["sideAsks"]) == 1
    said = " ".join(held["missing"])
    assert "questions that show findings of diff are not answered" in said
    assert said.count("Only the first 0 of 1 Services") == 2
    assert "Of so many Services there is no migrate: kproxy migrate has it." in said


@pytest.mark.usefixtures("built")
def test_only_its_own_script_and_style_run(snapshot: Path) -> None:
    text = export.export_page(Explorer(source_of(snapshot)))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert "unsafe" not in policy[1]
    script = re.search(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert script is not None
    assert style is not None
    for kind, held in (("script-src", script[1]), ("style-src", style[1])):
        digest = base64.b64encode(hashlib.sha256(held.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy[1]


@pytest.mark.usefixtures("built")
def test_no_name_of_the_cluster_ends_an_element() -> None:
    text = page.page_with({"label": "</script><script>alert(1)</script><!-- \u2028"}, "a <b>", "</noscript><b>")
    assert "<title>a &lt;b&gt;</title>" in text
    assert "<pre>&lt;/noscript&gt;&lt;b&gt;</pre>" in text
    assert text.count("<script") == 2
    assert text.count("</script>") == 2
    assert "\u2028" not in text
    found = re.search(r'id="kproxy-data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    assert json.loads(found[1])["label"].startswith("</script>")


@pytest.mark.usefixtures("built")
def test_manifests_are_exported_without_an_audit(tmp_path: Path) -> None:
    manifest = tmp_path / "cluster.yaml"
    manifest.write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {podCIDR: 10.244.0.0/24}\n"
        "status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n---\n"
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
        "spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ports: [{port: 80}]}\n"
    )
    data = export.export_data(Explorer(source_of(manifest)))
    assert data["audit"] is None


@pytest.mark.usefixtures("built")
def test_of_one_hosts_rules_each_address_is_asked_by_each_client(snapshot: Path) -> None:
    held = export.export_data(Explorer(source_of(snapshot / "nodes/n1/iptables-save")))
    asks = json.loads(encode(held["asks"]))
    senders = ["outside/10.244.0.9", "node/host", "outside/203.0.113.9"]
    assert [(each["request"]["from"], each["request"]["to"]) for each in asks] == [
        (sender, "10.96.0.7:80") for sender in senders
    ]
    assert {len(each["answer"]["journeys"]) for each in asks} == {2}


@pytest.mark.usefixtures("built")
def test_of_one_hosts_rules_each_client_has_a_map(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of which is known: a map that is drawn at once has the chances of those ports that were asked in time."""
    monkeypatch.setattr("kproxy.explorer.answers.edges.ASKING", 0.0)
    source = source_of(ROOT / "docs/examples/worker-1.save")
    held = json.loads(encode(export.export_data(Explorer(source))))
    maps = {"": held["map"], **held["clientMaps"]}
    lost = {name: [each["endpoint"] for each in drawn["edges"] if each["lost"]] for name, drawn in maps.items()}
    assert lost == {"": ["10.244.2.2:53"], "pod": ["10.244.2.2:53"], "node": [], "outside": []}
    assert {drawn["pending"] for drawn in maps.values()} == {0}
    monkeypatch.setattr(export, "MAX_SERVICES", 2)
    held = json.loads(encode(export.export_data(Explorer(source))))
    assert held["clientMaps"] == {}
    assert any("packets of the one who fares worst" in each for each in held["missing"])
