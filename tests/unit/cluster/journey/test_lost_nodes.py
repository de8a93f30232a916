"""Journeys where a node has no Node object, though another one has: nothing that depends on it is certain."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from kproxy.cluster.evidence.unseen import NOTHING, Assumed
from kproxy.cluster.journey.known import KnownNetwork, known_journeys
from kproxy.cluster.journey.path import Journey
from kproxy.cluster.journey.question import read_question
from kproxy.cluster.journey.record import unseen_on_the_way
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.files import MemoryFiles
from tests.support.cluster import audited

LOST = "n3"
BALANCER = "203.0.113.80:443"


def lacking(*, files_too: bool = False) -> dict[str, bytes]:
    """The cluster of three nodes without the Node object of one, or without all of its files, too."""
    files = {
        path: data
        for path, data in audited.cluster("iptables").items()
        if not (files_too and path.startswith(f"nodes/{LOST}/"))
    }
    nodes = json.loads(files["objects/Node.json"])
    nodes["items"] = [each for each in nodes["items"] if each["metadata"]["name"] != LOST]
    return files | {"objects/Node.json": json.dumps(nodes).encode()}


def ask(
    files: dict[str, bytes], sender: str, receiver: str, assumed: Assumed = NOTHING
) -> tuple[Sequence[Journey], list[tuple[str, str]]]:
    network = KnownNetwork(Cluster(MemoryFiles("S", files), assumed=assumed))
    question = read_question(network, sender, receiver, None)
    found = known_journeys(
        network, question.client, question.destination, question.protocol, source=question.source, source_port=40000
    )
    assert sum(item.probability for item in found) == 1
    return found, [(each.host, each.what) for each in unseen_on_the_way(network, found) if each.suspected]


@pytest.mark.parametrize("files_too", [False, True])
def test_whether_a_load_balancer_leads_there_is_open(files_too: bool) -> None:
    files = lacking(files_too=files_too)
    found, unseen = ask(files, "203.0.113.7", BALANCER)
    assert [(item.end, item.at) for item in found] == [("open", "outside/203.0.113.7")]
    assert "n3 has no Node object" in found[0].reason
    assert "possible: " in found[0].reason
    assert "pod/shop/edge-1" in found[0].reason
    assert ("n3", "Nodes") in unseen
    certain, unseen = ask(files, "203.0.113.7", BALANCER, Assumed(complete=True))
    assert {item.at for item in certain} == {"pod/shop/edge-1", "pod/shop/edge-2"}
    assert not unseen


def test_a_load_balancer_that_asks_for_other_nodes_is_certain() -> None:
    files = lacking()
    slices = json.loads(files["objects/EndpointSlice.json"])
    for each in slices["items"]:
        each["endpoints"] = [item for item in each["endpoints"] if item["nodeName"] != LOST]
    files["objects/EndpointSlice.json"] = json.dumps(slices).encode()
    assert {item.end for item in ask(files, "203.0.113.7", BALANCER)[0]} == {"answered"}


@pytest.mark.parametrize(
    ("sender", "receiver"),
    [("10.244.3.77", "svc/shop/web:http"), ("pod/shop/web-1", "10.244.3.77:80"), ("203.0.113.7", "10.244.9.9:80")],
)
@pytest.mark.parametrize("files_too", [False, True])
def test_an_address_that_may_be_a_pods_there_is_open(sender: str, receiver: str, files_too: bool) -> None:
    found, unseen = ask(lacking(files_too=files_too), sender, receiver)
    assert {item.end for item in found} == {"open"}
    assert ("n3", "Nodes") in unseen


def test_its_own_address_is_open_where_nothing_tells_it() -> None:
    found, unseen = ask(lacking(files_too=True), "203.0.113.7", "172.30.0.13:30080")
    assert {item.end for item in found} == {"open"}
    assert ("n3", "Nodes") in unseen


def test_what_fails_there_is_open() -> None:
    files = lacking() | {f"nodes/{LOST}/iptables-save": b"*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"}
    found, unseen = ask(files, "pod/shop/dns-3", "svc/shop/web:http")
    assert [(item.end, item.at) for item in found] == [("open", LOST)]
    assert "possible: lost at n3" in found[0].reason
    assert ("n3", "Nodes") in unseen


def test_what_does_not_come_there_is_certain() -> None:
    found, unseen = ask(lacking(), "pod/shop/web-1", "svc/shop/web:http")
    assert {(item.end, item.at) for item in found} == {("answered", "pod/shop/web-1"), ("answered", "pod/shop/web-2")}
    assert not unseen
