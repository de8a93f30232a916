"""What the explorer answers about a snapshot: the same as the commands, and what the page needs beside it."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kproxy.cluster.audit.audit import audit
from kproxy.cluster.journey.known import KnownNetwork
from kproxy.cluster.journey.path import journeys
from kproxy.cluster.journey.question import read_question
from kproxy.cluster.journey.record import journeys_record
from kproxy.cluster.snapshot.cluster import read_snapshot
from kproxy.explorer.answers.shares import chances
from kproxy.explorer.state import Explorer
from tests.support.cluster.claims import TWICE
from tests.support.cluster.snapshots import vxlan_cluster, write_files
from tests.support.explorer.client import Page, serving
from tests.support.explorer.sources import source_of
from tests.support.migrate import endpoints, node, service

CART = {"from": "pod/shop/cart-0", "to": "svc/shop/web"}


def _only(found: list[Any], **wanted: object) -> Any:
    (one,) = [each for each in found if all(each[name] == value for name, value in wanted.items())]
    return one


def test_the_source_says_what_it_is_and_what_it_lacks(page: Page) -> None:
    found = page.get("api/source")
    assert (found["kind"], found["live"], found["writable"], found["revision"]) == ("snapshot", False, False, 1)
    assert (found["nodes"], found["pods"], found["services"]) == (2, 3, 1)
    assert found["families"] == ["IPv4"]
    assert found["namespaces"] == ["shop"]
    assert "nodes/n1/conntrack: missing: stale entries are not found" in found["missing"]
    assert found["can"]["lab"] is False
    assert found["compares"] == ["diff", "drift", "migrate"]


def test_the_map_has_rooms_wires_and_edges_with_exact_chances(page: Page) -> None:
    found = page.get("api/map")
    assert [node["id"] for node in found["nodes"]] == ["node/n1", "node/n2"]
    n1 = found["nodes"][0]
    assert _only(n1["devices"], name="cni0")["kind"] == "bridge"
    assert n1["tunnels"] == [{"device": "vxlan1", "kind": "vxlan", "vni": 1, "peers": ["node/n2"]}]
    (network,) = found["networks"]
    assert (network["id"], [each["host"] for each in network["members"]]) == (
        "net/172.30.0.0/24", ["node/n1", "node/n2"],
    )  # fmt: skip
    pod = _only(found["pods"], id="pod/shop/cart-0")
    assert (pod["node"], pod["bridge"], pod["ready"]) == ("node/n1", "cni0", True)
    edges = [(each["target"], each["node"], each["chance"], each["percent"], each["used"]) for each in found["edges"]]
    assert edges == [
        ("pod/shop/web-0", "node/n1", "1/2", 50.0, True),
        ("pod/shop/web-1", "node/n2", "1/2", 50.0, True),
    ]
    assert found["outside"][0]["links"] == ["net/172.30.0.0/24"]


def test_endpoints_without_pods_among_the_objects_are_on_the_node_of_their_slice() -> None:
    golden = Path(__file__).parents[4] / "rules_golden" / "minikube"
    source = source_of(golden / "cluster.yaml", config=golden / "config.yaml")
    with serving(Explorer(source)) as page:
        found = page.get("api/map")
    assert not found["pods"]
    assert found["edges"]
    assert {each["node"] for each in found["edges"]} == {"node/minikube"}
    assert "outside/10.244.0.2" in {each["target"] for each in found["edges"]}


def test_where_no_rule_is_for_a_service_is_said(tmp_path: Path) -> None:
    files = dict(vxlan_cluster())
    rules = files["nodes/n1/iptables-save"].decode().splitlines(keepends=True)
    jump = next(line for line in rules if "-A KUBE-SERVICES" in line and '"shop/web:http cluster IP"' in line)
    files["nodes/n1/iptables-save"] = "".join(rules).replace(jump, "").encode()
    left = sum(line.startswith("-A KUBE-SERVICES") for line in rules) - 1
    with serving(Explorer(source_of(str(write_files(tmp_path / "shop", files))))) as page:
        (way,) = page.post("api/ask", CART)["journeys"]
        (elsewhere,) = page.post("api/ask", {"from": "pod/shop/cart-0", "to": "10.244.1.99:80"})["journeys"]
        answered = page.post("api/ask", {"from": "pod/shop/web-1", "to": "svc/shop/web"})["journeys"]
    chain = {"hop": 1, "hook": "PREROUTING", "table": "nat", "chain": "KUBE-SERVICES", "asked": left}
    assert way["untranslated"] == chain
    assert not any("untranslated" in each for each in (elsewhere, *answered))


def test_a_node_without_an_object_is_told_and_what_fails_there_is_open(tmp_path: Path) -> None:
    files = dict(vxlan_cluster()) | {"nodes/n2/iptables-save": b""}
    nodes = json.loads(files["objects/Node.json"])
    nodes["items"].pop()
    files["objects/Node.json"] = json.dumps(nodes).encode()
    with serving(Explorer(source_of(str(write_files(tmp_path / "shop", files))))) as page:
        (way,) = page.post("api/ask", {"from": "pod/shop/web-1", "to": "svc/shop/web"})["journeys"]
        report = page.get("api/audit")
    assert (way["end"], way["at"]) == ("open", "n2")
    assert report["nodes"] == ["n1", "n2"]
    assert ("n2", "Nodes") in [(each["host"], each["what"]) for each in report["unseen"] if each["suspected"]]


@pytest.mark.parametrize(
    ("asked", "field", "says"),
    [
        ({"from": "10.244.1.4", "to": "nodeport/shop/web"}, "to", "to: an address with a port or svc/NS/NAME expected"),
        ({"from": "pod/shop/cart-0", "to": "svc/shop/web"}, "from", "from: an address or node/host expected"),
        ({"from": "10.244.1.4", "to": "10.96.0.10:x"}, "to", "to: a port from 0 to 65535 expected"),
        ({"from": "10.244.1.4", "to": "10.96.0.10:80", "protocol": "x"}, "protocol", "protocol: tcp, udp"),
    ],
)
def test_errors_name_the_fields_of_a_question(snapshot: Path, asked: dict[str, str], field: str, says: str) -> None:
    rules = source_of(snapshot / "nodes/n1/iptables-save")
    with serving(Explorer(rules)) as page:
        error = page.ask("POST", "api/ask", asked).json["error"]
    assert error["field"] == field
    assert error["message"].startswith(says)


@pytest.mark.parametrize("error", ["icmp-host-prohibited", "tcp-reset"])
def test_an_answer_that_refuses_says_what_it_is(tmp_path: Path, error: str) -> None:
    files = dict(vxlan_cluster())
    rules = files["nodes/n1/iptables-save"].decode()
    reject = f"-A FORWARD -p tcp -d 10.244.1.99/32 -j REJECT --reject-with {error}\n-A FORWARD "
    files["nodes/n1/iptables-save"] = rules.replace("-A FORWARD ", reject, 1).encode()
    with serving(Explorer(source_of(str(write_files(tmp_path / "shop", files))))) as page:
        (way,) = page.post("api/ask", {"from": "pod/shop/cart-0", "to": "10.244.1.99:80"})["journeys"]
    assert (way["end"], [hop["error"] for hop in way["back"]]) == ("refused", [error, error])
    assert not any("error" in hop for hop in way["there"])


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_chances_are_those_that_the_rules_have(count: int) -> None:
    for mode in ("iptables", "nftables"):
        found = chances(count, mode)
        assert sum(found) == 1
        assert all(abs(each - Fraction(1, count)) < Fraction(1, 1 << 28) for each in found)
    assert chances(0, "iptables") == chances(0, "nftables") == ()
    # 0.3333333333 as iptables rounds it to 31 bits
    assert chances(3, "iptables")[0] == Fraction(715827883, 1 << 31)


def test_a_question_is_answered_as_trace_answers_it(page: Page, snapshot: Path) -> None:
    found = page.post("api/ask", CART)
    network = KnownNetwork(read_snapshot(snapshot))
    question = read_question(network, CART["from"], CART["to"], None)
    ways = journeys(network, question.client, question.destination, question.protocol, source=question.source)
    command = msgspec.to_builtins(journeys_record(question, ways, tuple(network.notes), found["missing"]))
    for way in found["journeys"]:
        assert way.pop("percent") == 50.0
        for hop in (*way["there"], *way["back"]):
            steps = hop.pop("steps")
            rules = [step["text"] for step in steps if step["kind"] == "rule"]
            assert rules == [rule["text"] for rule in hop.get("rules", ())]
    names = ("from", "to", "protocol", "journeys", "assumptions", "missing")
    assert {name: found[name] for name in names} == json.loads(msgspec.json.encode(command))


def test_a_hop_shows_the_rewrite_the_tunnel_and_the_entry(page: Page) -> None:
    way = _only(page.post("api/ask", CART)["journeys"], at="pod/shop/web-1")
    hop = way["there"][1]
    assert (hop["host"], hop["dst"], hop["leftDst"]) == ("n1", "10.96.0.7:80", "10.244.2.5:8080")
    assert hop["outer"]["kind"] == "vxlan"
    assert (hop["ctstate"], hop["dnat"]) == ("NEW", True)
    assert hop["conntrack"] == {
        "original": ["10.244.1.9", "10.96.0.7:80"], "reply": ["10.244.2.5:8080", "10.244.1.9"],
    }  # fmt: skip
    rewrite = _only(hop["steps"], kind="translate")
    assert (rewrite["hook"], rewrite["src"], rewrite["dst"]) == ("PREROUTING", "10.244.1.9", "10.244.2.5:8080")
    assert way["back"][-1]["host"] == "pod/shop/cart-0"


@pytest.mark.parametrize(
    ("asked", "to"),
    [
        ({"to": "svc/shop/web", "port": 80}, "10.96.0.7:80"),
        ({"to": "svc/shop/web", "port": "http"}, "10.96.0.7:80"),
        ({"to": "svc/shop/web", "family": "IPv4"}, "10.96.0.7:80"),
        ({"to": "10.96.0.7", "port": 80}, "10.96.0.7:80"),
        ({"to": "pod/shop/web-1", "port": 8080}, "10.244.2.5:8080"),
        ({"to": "nodeport/shop/web@n2"}, "172.30.0.12:30080"),
        ({"to": "outside/198.51.100.7:443"}, "198.51.100.7:443"),
    ],
)
def test_the_receiver_may_be_named_in_many_ways(page: Page, asked: dict[str, object], to: str) -> None:
    assert page.post("api/ask", {"from": "pod/shop/cart-0", **asked})["to"] == to


def test_a_client_outside_may_be_just_that(page: Page) -> None:
    found = page.post("api/ask", {"from": "outside", "to": "nodeport/shop/web@n1"})
    assert found["from"] == "outside/203.0.113.9"
    assert {way["end"] for way in found["journeys"]} == {"answered"}


def test_all_rules_of_a_hop_are_listed_and_which_matched(page: Page) -> None:
    ask = page.post("api/ask", CART)
    number = next(place for place, way in enumerate(ask["journeys"]) if way["at"] == "pod/shop/web-1")
    found = page.post("api/rules", {**CART, "journey": number, "hop": 1})
    assert [each["hook"] for each in found["hooks"]] == ["PREROUTING", "FORWARD", "POSTROUTING"]
    matched = [
        (chain["chain"], rule["rule"])
        for hook in found["hooks"]
        for chain in hook["chains"]
        for rule in chain["rules"]
        if rule.get("matched")
    ]
    hop = ask["journeys"][number]["there"][1]
    assert sorted(matched) == sorted((rule["chain"], rule["rule"]) for rule in hop["rules"])
    service = _only(found["hooks"][0]["chains"], chain="KUBE-SVC-67NZLRHBNDSAWJRO")
    assert [rule.get("matched", False) for rule in service["rules"]] == [False, False, True]
    assert (service["asked"], service["left"]) == (3, 0)


def test_the_audit_is_the_commands(page: Page, snapshot: Path) -> None:
    found = page.get("api/audit")
    assert found == json.loads(msgspec.json.encode(audit(read_snapshot(snapshot))))
    assert found["judged"] == ["n1", "n2"]


def test_a_service_is_explained_as_explain_does(page: Page) -> None:
    found = page.get("api/services/shop/web?node=n1")
    assert page.get("api/services") == {"services": ["shop/web"]}
    assert found["explanation"]["service"] == "shop/web"
    (port,) = found["ports"]
    assert [(each["kind"], each["verdict"], [end["percent"] for end in each["endpoints"]]) for each in port["fan"]] == [
        ("clusterIP", "endpoints", [50.0, 50.0]),
        ("nodePort", "endpoints", [50.0, 50.0]),
    ]
    matrix = found["matrix"]
    kinds = [client["kind"] for client in matrix["clients"]]
    assert kinds == ["an endpoint itself", "pod beside an endpoint", "node of an endpoint", "outside"]
    ends = [[cell["end"] for cell in row] for row in matrix["cells"]]
    assert ends[:3] == [["answered"] * len(matrix["addresses"])] * 3
    # A ClusterIP is nobody's outside of the cluster.
    assert ends[3] == ["lost", *["answered"] * (len(matrix["addresses"]) - 1)]


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_what_two_services_claim_is_open(tmp_path: Path, mode: str) -> None:
    """Which of them gets it is random at each start of kube-proxy; the order of the rules that are rendered is not."""
    claim = "198.51.100.7:80/TCP is claimed by 2 Services, shop/a and shop/b"
    path = tmp_path / "cluster.yaml"
    for ready in ("true", "false"):
        path.write_text(TWICE.replace("READY", ready))
        with serving(Explorer(source_of(path, mode=mode))) as page:
            (way,) = page.post("api/ask", {"from": "outside", "to": "198.51.100.7:80"})["journeys"]
            (own,) = page.post("api/ask", {"from": "node/n1", "to": "10.96.0.9:80"})["journeys"]
            service, other = (page.get(f"api/services/shop/{name}") for name in "ab")
        assert claim in service["explanation"]["notes"][-1]
        cells = service["matrix"]["cells"][-1]
        if ready == "true":
            assert (way["end"], way["probability"], way["at"]) == ("open", "1/1", "n1")
            assert way["reason"].startswith(claim)
            assert all(
                f"answered by outside/10.244.1.{each} at 10.244.1.{each}:8080" in way["reason"] for each in (5, 6)
            )
            assert cells[-1]["end"] == "open"
            for each in (service, other):
                (end,) = each["ports"][0]["fan"][1]["endpoints"]
                assert end["why"].startswith(f"not decided: {claim}")
        else:
            # Translation comes before refusals: who has endpoints gets the traffic, in either order.
            assert (way["end"], way["target"]) == ("answered", "10.244.1.5:8080")
            assert cells[-1]["end"] == "answered"
            assert service["ports"][0]["fan"][1]["endpoints"][0]["why"] == ""
            refused = other["ports"][0]["fan"][1]
            assert (refused["verdict"], claim in refused["why"]) == ("open", True)
        assert own["end"] == "answered"


EDITS = [{"do": "policy", "service": "shop/web", "set": {"sessionAffinity": "ClientIP"}}]
SESSION_AFFINITY = "Session affinity starts anew"


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_what_manifests_lack_is_open(tmp_path: Path, mode: str) -> None:
    """Manifests from git have no EndpointSlices: nobody knows whether a Service's connections are refused."""
    path = tmp_path / "cluster.json"
    objects = [node(), service(selector={"app": "web"})]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    with serving(Explorer(source_of(path, mode=mode))) as page:
        assert page.get("api/source")["unseen"] == [
            "endpoints: Service has a selector and no EndpointSlice: shop/web (--assume-endpoints N)"
        ]
        (way,) = page.post("api/ask", {"from": "node/n1", "to": "10.96.0.9:80"})["journeys"]
        cells = page.get("api/services/shop/web")["matrix"]["cells"][0]
        switched = page.post("api/compare", {"kind": "migrate"})
        changed = page.post("api/whatif", {"edits": EDITS})
    assert way["end"] == "open"
    assert {each["end"] for each in cells} == {"open"}
    assert (switched["report"]["from"], bool(switched["report"]["undecided"])) == ("iptables", True)
    assert SESSION_AFFINITY in switched["hidden"]
    assert SESSION_AFFINITY not in {each["title"] for each in switched["report"]["absent"]}
    assert (changed["alike"], {each["where"] for each in changed["undecided"]}) == (False, {"endpoints"})

    with serving(Explorer(source_of(path, mode=mode, endpoints=2))) as page:
        source = page.get("api/source")
        ways = page.post("api/ask", {"from": "node/n1", "to": "10.96.0.9:80"})["journeys"]
        copied = page.post("api/ask", {"from": "node/n1", "to": "10.96.0.9:80", "edits": EDITS})["journeys"]
        switched = page.post("api/compare", {"kind": "migrate"})
        changed = page.post("api/whatif", {"edits": EDITS})
    assert source["unseen"] == []
    (told,) = [each for each in source["warnings"] if each.startswith("assumed")]
    assert told == "assumed: 2 endpoints each, spread over the nodes, of 1 Service without EndpointSlices (shop/web)"
    assert "open" not in {way["end"] for way in ways}
    assert [way["end"] for way in copied] == [way["end"] for way in ways]
    assert (switched["hidden"], changed["undecided"], bool(changed["findings"])) == ([], [], True)


def test_a_switch_from_ipvs_mode_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    objects = [node(), service(), endpoints()]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    with serving(Explorer(source_of(path, mode="ipvs"))) as page:
        switched = page.post("api/compare", {"kind": "migrate"})
        changed = page.post("api/whatif", {"edits": EDITS})
    assert switched["report"]["from"] == "ipvs"
    found = {each["reason"] for each in switched["report"]["findings"]}
    assert "ipvs-leftovers" in found
    assert "other" not in found
    assert (changed["alike"], changed["findings"]) == (False, [])
    assert "ipvs" in {each["where"] for each in changed["undecided"]}
