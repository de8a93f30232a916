"""A second source beside the first: what differs for packets, each finding with both ways."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kproxy.errors import InputError
from kproxy.explorer.compare.findings import Sent, question
from kproxy.explorer.model.model import Model
from kproxy.explorer.state import Explorer
from kproxy.netfilter import Family, parse_save
from tests.support.cluster.snapshots import damaged_files, vxlan_cluster, write_files
from tests.support.explorer.client import Page, serving
from tests.support.explorer.junk import JUNK, POSTS
from tests.support.explorer.sources import source_of

DIFF = {"kind": "diff", "b": {"source": "against"}}


def rule_of(dump: bytes, table: str, chain: str, number: int) -> str:
    """A rule's text, by its number in its chain."""
    found = parse_save(dump.decode(), family=Family.IPV4).chain(table, chain)
    assert found is not None
    return found.rules[number - 1].to_save(chain)


def test_findings_say_their_causes_and_those_of_one_stand_together(snapshot: Path, tmp_path: Path) -> None:
    """One endpoint is another on n1; on both nodes the mark of node ports is gone, from another place of the chain."""
    files = damaged_files()
    marks = re.compile(rb"^-A KUBE-EXT-\S+ .*-j KUBE-MARK-MASQ$\n", re.MULTILINE)
    before = dict(vxlan_cluster())
    for node in ("n1", "n2"):
        path = f"nodes/{node}/iptables-save"
        mark = marks.search(files[path])
        assert mark is not None
        if node == "n2":
            chain = mark[0].split()[1]
            for side in (files, before):
                side[path] = side[path].replace(mark[0], b"-A %b -s 192.0.2.0/24 -j RETURN\n%b" % (chain, mark[0]))
        files[path] = files[path].replace(mark[0], b"")
    roots = [write_files(tmp_path / name, each) for name, each in (("one", before), ("other", files))]
    second = source_of(roots[1])
    with serving(Explorer(source_of(roots[0]), against=second)) as page:
        found = page.post("api/compare", DIFF)["findings"]
    keys = [(each["cause"]["text"], each["cause"].get("instead", {}).get("text")) for each in found]
    assert len(set(keys)) == 2
    assert len(list(itertools.groupby(keys))) == 2
    for finding in found:
        cause = finding["cause"]
        assert (cause["side"], cause["sameButChance"]) == ("a", False)
        path = f"nodes/{finding['nodes'][0]}/iptables-save"
        assert cause["text"] == rule_of(before[path], cause["table"], cause["chain"], cause["rule"])
        assert cause["text"] not in files[path].decode().splitlines()
        changed = "DNAT" in cause["text"]
        assert ("instead" in cause) is changed
        if changed:
            there = cause["instead"]
            assert there["text"] == rule_of(files[path], cause["table"], cause["chain"], there["rule"])
        assert cause["action"] in ("`-j DNAT --to-destination 10.244.2.5:8080`", marking(cause["text"]))
    seen = {(each["cause"]["action"][:4], each["cause"]["rule"], *each["nodes"]) for each in found}
    assert seen == {("`-j ", 2, "n1"), ("jump", 1, "n1"), ("jump", 2, "n2")}


def marking(text: str) -> str:
    comment = re.search(r'--comment "([^"]*)"', text)
    return f"jump to KUBE-MARK-MASQ ({comment[1] if comment else ''})"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("after") / "after", damaged_files())


@pytest.fixture(scope="module")
def two(snapshot: Path, damaged: Path) -> Iterator[Page]:
    second = source_of(damaged)
    with serving(Explorer(source_of(snapshot), against=second)) as found:
        yield found


def ways(page: Page, answer: Any, finding: Any) -> list[set[str]]:
    """Where the two ways of a finding end, as its questions say."""
    found = []
    for asked, side in zip(finding["asks"], answer["sides"], strict=True):
        way = page.post("api/ask", {**asked, "source": side["source"], "edits": side["edits"]})
        found.append({each["target"] for each in way["journeys"]})
    return found


def test_the_second_source_is_told_and_can_be_asked(two: Page, snapshot: Path, damaged: Path) -> None:
    source = two.get("api/source")
    assert source["label"] == str(snapshot)
    against = source["against"]
    assert (against["kind"], against["label"], against["nodes"]) == ("snapshot", str(damaged), 2)
    assert "svc/shop/web" in {edge["service"] for edge in two.get("api/map?source=against")["edges"]}
    assert two.get("api/services?source=against") == {"services": ["shop/web"]}
    page = two.get("api/services/shop/web?source=against")
    assert page["explanation"]["service"] == two.get("api/services/shop/web")["explanation"]["service"]
    expected = 'source: source: "", against, objects or against-objects expected'
    assert two.ask("GET", "api/map?source=elsewhere").error == expected


def test_two_snapshots_are_compared_by_the_rules_that_are_there(two: Page, snapshot: Path, damaged: Path) -> None:
    found = two.post("api/compare", DIFF)
    assert [side["label"] for side in found["sides"]] == [str(snapshot), str(damaged)]
    assert not found["alike"]
    finding = next(each for each in found["findings"] if each["services"] == ["svc/shop/web"])
    assert finding["nodes"] == ["n1"]
    assert "10.244.2.77:8080" in finding["after"]
    before, after = ways(two, found, finding)
    assert before == {"10.244.1.5:8080", "10.244.2.5:8080"}
    assert after == {"10.244.1.5:8080", "10.244.2.77:8080"}
    # By objects both are the same.
    edited = {"edits": [{"do": "endpoint", "pod": "shop/web-1", "set": {"ready": True}}]}
    assert two.post("api/compare", {**DIFF, "a": edited})["alike"]
    assert two.post("api/compare", {"kind": "diff", "node": "n2", "b": {"source": "against"}})["alike"]


def test_both_ways_of_drift_what_if_and_migrate_can_be_asked(two: Page) -> None:
    drift = two.post("api/compare", {"kind": "drift", "node": "n1"})
    assert [side["source"] for side in drift["sides"]] == ["objects", ""]
    edits = [{"do": "endpoint", "pod": "shop/web-1", "set": {"ready": False}}]
    copy = two.post("api/whatif", {"edits": edits})
    assert copy["sides"][1]["edits"][0]["pod"] == "shop/web-1"
    finding = next(each for each in copy["findings"] if each["services"] == ["svc/shop/web"])
    assert ways(two, copy, finding) == [{"10.244.1.5:8080", "10.244.2.5:8080"}, {"10.244.1.5:8080"}]
    migrate = two.post("api/compare", {"kind": "migrate"})
    assert len(migrate["asks"]) == len(migrate["report"]["findings"])
    shown = [number for number, pair in enumerate(migrate["asks"]) if pair[0] is not None]
    assert shown
    for number in shown:
        assert len(ways(two, migrate, {"asks": migrate["asks"][number]})) == 2


def test_a_dump_beside_a_dump_and_beside_a_cluster(snapshot: Path, tmp_path: Path) -> None:
    name = "nodes/n1/iptables-save"
    dumps = [tmp_path / "before.save", tmp_path / "after.save"]
    for dump, files in zip(dumps, (vxlan_cluster(), damaged_files()), strict=True):
        dump.write_bytes(files[name])
    second = source_of(dumps[1])
    with serving(Explorer(source_of(dumps[0]), against=second)) as page:
        source = page.get("api/source")
        assert (source["compares"], source["can"]["compare"]) == (["diff"], True)
        found = page.post("api/compare", DIFF)
        finding = next(each for each in found["findings"] if "10.244.2.77:8080" in each["after"])
        assert finding["nodes"] == ["host"]
        assert [len(each) for each in ways(page, found, finding)] == [2, 2]
        assert page.ask("POST", "api/compare", {"kind": "drift"}).status == 409
        assert page.ask("POST", "api/compare", {"kind": "migrate"}).status == 409
    with serving(Explorer(source_of(snapshot), against=second)) as page:
        found = page.post("api/compare", {**DIFF, "node": "n1"})
        finding = next(each for each in found["findings"] if "10.244.2.77:8080" in each["after"])
        assert (finding["nodes"], finding["services"]) == (["n1"], ["svc/shop/web"])
        assert [len(each) for each in ways(page, found, finding)] == [2, 2]
        # Without a node the first one is compared, and the answer says so.
        assert page.post("api/compare", DIFF)["notes"] == ["compared with the rules that n1 has"]


def test_what_a_dump_does_not_show_is_open_in_a_comparison(tmp_path: Path) -> None:
    """The nat table alone, beside the whole dump, and beside itself."""
    whole = vxlan_cluster()["nodes/n1/iptables-save"].decode()
    nat = whole[whole.index("*nat") :]
    dumps = [tmp_path / "nat.save", tmp_path / "whole.save"]
    for dump, text in zip(dumps, (nat[: nat.index("COMMIT") + 7], whole), strict=True):
        dump.write_text(text)

    def compared(one: Path, other: Path) -> Any:
        second = source_of(other)
        with serving(Explorer(source_of(one), against=second)) as page:
            return page.post("api/compare", DIFF)

    for pair in (dumps, dumps[::-1]):
        found = compared(*pair)
        assert (found["alike"], found["findings"], found["undecided"][0]["where"]) == (False, [], "filter table")
    assert compared(dumps[0], dumps[0])["alike"]


def test_a_node_port_is_asked_at_the_nodes_address_of_the_packets_family(tmp_path: Path) -> None:
    manifest = tmp_path / "both.yaml"
    manifest.write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus:\n  addresses:\n"
        "  - {type: InternalIP, address: 172.30.0.11}\n  - {type: InternalIP, address: fd00::11}\n---\n"
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n"
        "spec: {type: NodePort, clusterIPs: [10.96.0.7, fd00:10::7], ports: [{port: 80, nodePort: 30080}]}\n"
    )
    model = Model(source_of(manifest).read(), 1)
    for elsewhere, wanted in (("198.51.100.7", "172.30.0.11:30080"), ("2001:db8:7::7", "[fd00::11]:30080")):
        asked = question(model, "n1", Sent("", elsewhere, 30080, "tcp", local=False, to_host=True))
        assert (asked.sender, asked.to) == ("node/n1", wanted)


def test_what_cannot_be_compared_is_said(tmp_path: Path, snapshot: Path) -> None:
    lone = tmp_path / "lone.yaml"
    lone.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: other}\n")
    second = source_of(lone)
    with serving(Explorer(source_of(snapshot), against=second)) as page:
        answered = page.ask("POST", "api/compare", DIFF)
        assert answered.status == 409
        assert answered.error == f"no node is on both sides: {snapshot} has n1, n2; {lone} has other"
        assert page.ask("POST", "api/compare", {**DIFF, "node": "n1"}).status == 404
    with serving(Explorer(source_of(snapshot))) as page:
        assert page.get("api/source")["against"] is None
        answered = page.ask("POST", "api/compare", DIFF)
        assert (answered.status, answered.error) == (
            409, "there is no second source: kproxy explore ... --against PATH",
        )  # fmt: skip


def test_a_second_source_is_told_by_what_is_there(tmp_path: Path, snapshot: Path) -> None:
    manifest, dump = tmp_path / "a.yaml", tmp_path / "a.save"
    manifest.write_text("")
    dump.write_text("*nat\nCOMMIT\n")

    def kind(*names: object) -> str:
        return source_of(*names).kind

    assert [kind(each) for each in (snapshot, manifest, tmp_path, dump)] == [
        "snapshot", "manifests", "manifests", "rules",
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"a\.yaml is manifests and .*a\.save rules: a source is one of both"):
        kind(manifest, dump)
    with pytest.raises(InputError, match="one snapshot is a source"):
        kind(snapshot, snapshot)
    with pytest.raises(InputError, match="not an empty one"):
        kind("")


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(POSTS), body=JUNK, source=st.sampled_from(["", "against", "objects", "<script>", 7]))
def test_junk_about_two_sources_is_answered_as_junk(two: Page, path: str, body: Any, source: object) -> None:
    if isinstance(body, dict):
        body = {**body, "source": source, "b": {"source": source}} if path == "compare" else {**body, "source": source}
    answered = two.ask("POST", f"api/{path}", raw=json.dumps(body).encode())
    assert answered.status in (200, 400, 404, 409), (body, answered.body)
    assert b"<script>" not in answered.body or answered.headers["content-type"] == "application/json"


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "a\x00b", "\ud800", "x" * 5000])
def test_what_is_not_known_is_named_as_json_only(two: Page, name: str) -> None:
    for path, body in (
        ("ask", {"from": name, "to": "svc/shop/web"}),
        ("ask", {"from": "pod/shop/cart-0", "to": name, "source": "against"}),
        ("compare", {"kind": name}),
        ("compare", {**DIFF, "node": name}),
        ("map", {"source": name}),
    ):
        answered = two.ask("POST", f"api/{path}", body)
        assert answered.status in (400, 404), answered.body
        assert answered.headers["content-type"] == "application/json"
        assert answered.headers["x-content-type-options"] == "nosniff"
        assert "\n" not in answered.json["error"]["message"]


def test_rules_that_are_alike_though_the_objects_are_not(snapshot: Path, tmp_path: Path) -> None:
    """The second source's kube-proxies have not followed: its rules are the first one's, and its drift says so."""
    files = dict(vxlan_cluster())
    slices = json.loads(files["objects/EndpointSlice.json"])
    slices["items"][0]["endpoints"][0]["conditions"] = {"ready": False}
    files["objects/EndpointSlice.json"] = json.dumps(slices).encode()
    second = write_files(tmp_path / "late", files)
    with serving(Explorer(source_of(snapshot), against=source_of(second))) as page:
        found = page.post("api/compare", {"kind": "diff", "a": {}, "b": {"source": "against"}})
        assert (found["alike"], found["findings"]) == (True, [])
        drift = page.post("api/compare", {"kind": "drift", "a": {"source": "against"}})
        assert drift["findings"]


def test_drift_of_the_second_source(snapshot: Path, tmp_path: Path) -> None:
    second = source_of(str(write_files(tmp_path / "damaged", damaged_files())))
    with serving(Explorer(source_of(snapshot), against=second)) as page:
        assert page.post("api/compare", {"kind": "drift"})["findings"] == []
        found = page.post("api/compare", {"kind": "drift", "a": {"source": "against"}})
        assert [side["source"] for side in found["sides"]] == ["against-objects", "against"]
        assert {each["cause"]["instead"]["action"] for each in found["findings"]} == {
            "`-j DNAT --to-destination 10.244.2.77:8080`"
        }
        ask = found["findings"][0]["asks"][0]
        ways = [page.post("api/ask", {**ask, "source": side["source"]})["journeys"] for side in found["sides"]]
        assert ways[0] != ways[1]
