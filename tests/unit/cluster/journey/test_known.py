"""Journeys over the hosts of a snapshot: every kind of way between hosts, and what is not known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from kproxy.cluster.evidence.unseen import Assumed
from kproxy.cluster.journey.known import KnownNetwork
from kproxy.cluster.journey.path import Journey, journeys
from kproxy.cluster.journey.question import read_question
from kproxy.cluster.journey.record import assumed_on_the_way, unseen_on_the_way
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.errors import InputError
from tests.support.cluster import audited
from tests.support.cluster.snapshots import rules, vxlan_cluster

Files = dict[str, bytes]
HALF = Fraction(1, 2)


def ask(files: Files, sender: str, receiver: str) -> tuple[list[Journey], KnownNetwork]:
    network = KnownNetwork(Cluster(MemoryFiles("S", files)))
    question = read_question(network, sender, receiver, None)
    found = journeys(
        network, question.client, question.destination, question.protocol, source=question.source, source_port=40000
    )
    assert sum(item.probability for item in found) == 1
    return found, network


def ends(found: list[Journey]) -> list[tuple[str, str]]:
    return sorted((item.end, item.at) for item in found)


def to_other_node(found: list[Journey]) -> Journey:
    return next(item for item in found if item.target == "10.244.2.5:8080" or item.at == "n2")


def change(files: Files, path: str, edit: Callable[[Any], Any]) -> None:
    value = json.loads(files[path])
    edit(value)
    files[path] = json.dumps(value).encode()


def set_routes(files: Files, node: int, routes: list[dict[str, Any]]) -> None:
    files[f"nodes/n{node}/ip-route.json"] = json.dumps(
        [
            {"dst": "default", "gateway": "172.30.0.1", "dev": "eth0"},
            {"dst": "172.30.0.0/24", "dev": "eth0"},
            {"dst": f"10.244.{node}.0/24", "dev": "cni0"},
            *routes,
        ]
    ).encode()


def test_a_service_over_two_nodes_by_vxlan() -> None:
    found, network = ask(vxlan_cluster(), "pod/shop/cart-0", "svc/shop/web:http")
    assert ends(found) == [("answered", "pod/shop/web-0"), ("answered", "pod/shop/web-1")]
    # The kernel compares 31 random bits, so one of two endpoints has a half exactly.
    assert [item.probability for item in found] == [HALF, HALF]
    far = to_other_node(found)
    assert [hop.host for hop in far.there] == ["pod/shop/cart-0", "n1", "n2", "pod/shop/web-1"]
    assert [hop.host for hop in far.back] == ["pod/shop/web-1", "n2", "n1", "pod/shop/cart-0"]
    assert [str(hop.outer) for hop in far.there if hop.outer] == ["VXLAN 1 172.30.0.11 -> 172.30.0.12:8472"]
    assert far.there[2].arrived.in_interface == "vxlan1"
    assert far.source == "10.244.1.9"
    chains = {step.chain for step in far.there[1].outcome.path}
    assert "KUBE-SERVICES" in chains
    assert far.back[-1].left.source == "10.96.0.7:80"
    assert not network.notes


@pytest.mark.parametrize("node", [1, 2])
def test_a_node_port_from_outside_is_answered_by_the_way_it_came(node: int) -> None:
    found, _ = ask(vxlan_cluster(), "203.0.113.9", f"nodeport/shop/web@n{node}")
    assert ends(found) == [("answered", "pod/shop/web-0"), ("answered", "pod/shop/web-1")]
    assert {item.back[-1].left.source for item in found} == {f"172.30.0.1{node}:30080"}


VIP = "198.51.100.20"


def balanced(edit: Callable[[dict[str, Any]], None] = lambda _service: None) -> Files:
    """The cluster with a load balancer before shop/web, and the rules that follow."""
    files = vxlan_cluster()

    def with_balancer(value: dict[str, Any]) -> None:
        service = value["items"][0]
        service["spec"]["type"] = "LoadBalancer"
        service["status"] = {"loadBalancer": {"ingress": [{"ip": VIP}]}}
        edit(service)

    change(files, "objects/Service.json", with_balancer)
    return with_rules(files)


def with_rules(files: Files) -> Files:
    for name in ("n1", "n2"):
        files[f"nodes/{name}/iptables-save"] = rules(files, name)
    return files


def external(service: dict[str, Any]) -> None:
    service["spec"] |= {"type": "NodePort", "externalIPs": [VIP]}
    service["status"] = {}


@pytest.mark.parametrize("files", [balanced(), balanced(external)])
@pytest.mark.parametrize("client", ["203.0.113.9", "pod/shop/cart-0"])
def test_a_load_balancer_leads_to_each_node_whose_rules_decide(files: Files, client: str) -> None:
    found, network = ask(files, client, f"{VIP}:80")
    both = [("answered", "pod/shop/web-0"), ("answered", "pod/shop/web-1")]
    if client == "203.0.113.9":
        assert ends(found) == sorted(both * 2)
        assert {item.probability for item in found} == {Fraction(1, 4)}
        assert {item.there[1].host for item in found} == {"n1", "n2"}
        assert "taken to lead to each of 2 nodes alike: n1, n2" in next(iter(network.notes))
    else:  # its node's rules know the address
        assert ends(found) == both


def test_what_one_node_does_not_translate_is_lost_and_goes_in_no_circle() -> None:
    files = balanced()
    path = "nodes/n2/iptables-save"
    files[path] = b"".join(line for line in files[path].splitlines(True) if VIP.encode() not in line)
    found, _ = ask(files, "203.0.113.9", f"{VIP}:80")
    assert [(item.at, item.probability, item.reason) for item in found if item.end != "answered"] == [
        ("n2", HALF, f"no rule of n2 translates {VIP}:80: it goes back")
    ]
    assert sum(item.probability for item in found if item.end == "answered") == HALF
    # What leaves the node for the balancer comes to all nodes, too.
    found, _ = ask(files, "node/n2", f"{VIP}:80")
    assert {item.end for item in found if item.there[0].host == "n2"} == {"answered", "lost"}


@pytest.mark.parametrize(
    "edit", [lambda _: None, external, lambda each: each["spec"].update(externalTrafficPolicy="Local")]
)
def test_an_address_of_a_service_without_endpoints_is_not_answered(edit: Callable[[dict[str, Any]], None]) -> None:
    files = balanced(edit)
    change(files, "objects/EndpointSlice.json", lambda value: value["items"][0].update(endpoints=[]))
    found, _ = ask(with_rules(files), "203.0.113.9", f"{VIP}:80")
    assert {item.at for item in found} == {"n1", "n2"}
    assert {item.end for item in found} <= {"refused", "lost"}
    # Without rules, and with no node at all, nothing is certain.
    bare = {path: data for path, data in files.items() if path.startswith("objects/")}
    assert {item.end for item in ask(bare, "203.0.113.9", f"{VIP}:80")[0]} == {"open"}
    del bare["objects/Node.json"]
    found, _ = ask(bare, "203.0.113.9", f"{VIP}:80")
    assert [(item.end, "to which node" in item.reason) for item in found] == [("open", True)]


def test_a_balancer_chooses_by_health_and_by_label_and_a_proxy_is_open() -> None:
    def only_on_n1(value: dict[str, Any]) -> None:
        value["items"][0]["endpoints"] = value["items"][0]["endpoints"][:1]

    files = balanced(lambda each: each["spec"].update(externalTrafficPolicy="Local", healthCheckNodePort=32000))
    change(files, "objects/EndpointSlice.json", only_on_n1)
    found, _ = ask(with_rules(files), "203.0.113.9", f"{VIP}:80")
    assert [(item.end, item.at, item.there[1].host) for item in found] == [("answered", "pod/shop/web-0", "n1")]
    label = {"node.kubernetes.io/exclude-from-external-load-balancers": ""}
    files = balanced()
    change(files, "objects/Node.json", lambda value: value["items"][0]["metadata"].update(labels=label))
    found, _ = ask(files, "203.0.113.9", f"{VIP}:80")
    assert {item.there[1].host for item in found} == {"n2"}
    files = balanced(lambda each: each["status"]["loadBalancer"]["ingress"][0].update(ipMode="Proxy"))
    found, _ = ask(files, "203.0.113.9", f"{VIP}:80")
    assert [(item.end, "ipMode: Proxy of shop/web" in item.reason) for item in found] == [("open", True)]


def test_a_node_asks_and_a_pod_reaches_the_outside() -> None:
    files = vxlan_cluster()
    found, _ = ask(files, "node/n2", "svc/shop/web")
    assert ends(found) == [("answered", "pod/shop/web-0"), ("answered", "pod/shop/web-1")]
    found, _ = ask(files, "pod/shop/cart-0", "198.51.100.1:53")
    # Nothing masquerades here, so whether the answer finds its way depends on what is outside.
    assert ends(found) == [("open", "outside/198.51.100.1")]
    assert "outside of the cluster" in found[0].reason


def wrong_endpoint(files: Files) -> None:
    change(files, "nodes/n1/bridge-fdb.json", lambda value: value[0].update(dst="172.30.0.99"))


def no_neighbour(files: Files) -> None:
    files["nodes/n1/ip-neigh.json"] = b"[]"


def no_fdb_entry(files: Files) -> None:
    files["nodes/n1/bridge-fdb.json"] = b"[]"


def other_vni(files: Files) -> None:
    change(files, "nodes/n2/ip-addr.json", lambda value: value[2]["linkinfo"]["info_data"].update(id=7))


def other_mac(files: Files) -> None:
    change(files, "nodes/n2/ip-addr.json", lambda value: value[2].update(address="0a:00:00:00:00:99"))


def link_down(files: Files) -> None:
    change(files, "nodes/n2/ip-addr.json", lambda value: value[1].update(flags=["NO-CARRIER", "UP"]))


def device_down(files: Files) -> None:
    change(files, "nodes/n1/ip-addr.json", lambda value: value[2].update(flags=[]))


@pytest.mark.parametrize(
    ("damage", "end", "reason"),
    [
        (wrong_endpoint, "lost", "outside/172.30.0.99 has no VXLAN link 1"),
        (no_neighbour, "unreachable", "no neighbour 10.244.2.0 on vxlan1"),
        (no_fdb_entry, "lost", "no tunnel endpoint for 0a:00:00:00:00:02 on vxlan1"),
        (other_vni, "lost", "n2 has no VXLAN link 1"),
        (other_mac, "lost", "n2 does not have the address 0a:00:00:00:00:02"),
        (link_down, "lost", "eth0 of n2 is down"),
        (device_down, "lost", "vxlan1 is down"),
    ],
)
def test_damage_between_nodes_is_found(damage: Callable[[Files], None], end: str, reason: str) -> None:
    files = vxlan_cluster()
    damage(files)
    found, _ = ask(files, "pod/shop/cart-0", "svc/shop/web")
    far = next(item for item in found if item.at != "pod/shop/web-0")
    assert (far.end, far.at, far.probability) == (end, "n1", HALF)
    assert reason in far.reason


def test_routes_over_the_wire() -> None:
    files = vxlan_cluster()
    for node in (1, 2):
        there = 3 - node
        set_routes(files, node, [{"dst": f"10.244.{there}.0/24", "gateway": f"172.30.0.1{there}", "dev": "eth0"}])
    far = to_other_node(ask(files, "pod/shop/cart-0", "svc/shop/web")[0])
    assert (far.end, far.at) == ("answered", "pod/shop/web-1")
    assert far.there[1].outer is None
    assert far.there[2].arrived.in_interface == "eth0"


def tunnel_becomes(linkinfo: dict[str, Any], links: list[Any]) -> None:
    links[2]["linkinfo"] = linkinfo


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize("kind", ["ipip", "geneve"])
def test_other_tunnels(kind: str, remote: bool) -> None:
    files = vxlan_cluster()
    for node in (1, 2):
        there = 3 - node
        data: dict[str, Any] = {"local": f"172.30.0.1{node}"} | ({"remote": f"172.30.0.1{there}"} if remote else {})
        if kind == "geneve":
            data |= {"id": 5, "port": 6081, "remote": f"172.30.0.1{there}"}
        linkinfo = {"info_kind": kind, "info_data": data}
        change(files, f"nodes/n{node}/ip-addr.json", partial(tunnel_becomes, linkinfo))
        gateway = f"172.30.0.1{there}" if kind == "ipip" else f"10.244.{there}.0"
        set_routes(files, node, [{"dst": f"10.244.{there}.0/24", "gateway": gateway, "dev": "vxlan1"}])
    far = to_other_node(ask(files, "pod/shop/cart-0", "svc/shop/web")[0])
    assert (far.end, far.at) == ("answered", "pod/shop/web-1")
    outer = far.there[1].outer
    assert outer is not None
    assert (outer.kind, outer.src, outer.dst) == (kind, "172.30.0.11", "172.30.0.12")
    assert str(outer).startswith("IPIP 172" if kind == "ipip" else "GENEVE 5 172")


def test_the_clouds_network_knows_pod_cidrs_if_no_node_has_routes_of_its_own() -> None:
    files = vxlan_cluster()
    for node in (1, 2):
        set_routes(files, node, [])
    found, network = ask(files, "pod/shop/cart-0", "svc/shop/web")
    assert ends(found) == [("answered", "pod/shop/web-0"), ("answered", "pod/shop/web-1")]
    assert list(network.notes) == [
        "from n1 to 10.244.2.5 by the cluster's network: it is of n2's pods",
        "from n2 to 10.244.1.9 by the cluster's network: it is of n1's pods",
    ]


def test_a_route_that_was_withdrawn_is_not_made_up() -> None:
    files = vxlan_cluster()
    set_routes(files, 1, [])
    found, _ = ask(files, "pod/shop/cart-0", "svc/shop/web")
    far = next(item for item in found if item.at == "n1")
    assert (far.end, far.probability) == ("open", HALF)
    assert far.reason.startswith("no route of n1 leads to 10.244.2.5, a pod's address of n2")


def test_three_files_give_useful_answers_and_the_rest_is_open() -> None:
    whole = vxlan_cluster()
    kept = ("objects/", "nodes/n1/iptables-save", "nodes/n1/ip-addr.json")
    files = {path: data for path, data in whole.items() if path.startswith(kept)}
    found, network = ask(files, "pod/shop/cart-0", "svc/shop/web:http")
    assert ends(found) == [("answered", "pod/shop/web-0"), ("open", "n2")]
    assert "the IPv4 rules of n2 (not in the snapshot)" in to_other_node(found).reason
    assert sorted(network.notes) == [
        "from n1 to 10.244.2.5 by the cluster's network: it is of n2's pods",
        "n1: its packets are taken to go where the objects say: no ip-route.json",
        "n1: taken to forward, without reverse-path filter: no sysctl",
        "n2: taken to forward, without reverse-path filter: no sysctl",
    ]
    assert {"nodes/n1/ip-route.json", "nodes/n2"} <= {each.what for each in network.cluster.missing}


def test_the_source_of_what_a_node_masquerades_is_assumed_without_its_interfaces() -> None:
    whole = vxlan_cluster()
    found, network = ask(whole, "pod/shop/web-0", "svc/shop/web:http")
    assert all("masquerades" not in text for text in assumed_on_the_way(network, found))
    files = {path: data for path, data in whole.items() if not path.endswith("n1/ip-addr.json")}
    found, network = ask(files, "pod/shop/web-0", "svc/shop/web:http")
    (itself,) = (item for item in found if item.at == "pod/shop/web-0")
    assert itself.source == "172.30.0.11"
    assert assumed_on_the_way(network, found)[-1] == (
        "n1: the source of what it masquerades is taken to be 172.30.0.11, its only known address: no ip-addr.json"
    )


def test_a_pod_that_ended_does_not_have_its_address() -> None:
    files = vxlan_cluster()
    change(files, "objects/Pod.json", lambda value: value["items"][2]["status"].update(phase="Succeeded"))
    far = to_other_node(ask(files, "pod/shop/cart-0", "svc/shop/web")[0])
    assert (far.end, far.at) == ("unreachable", "n2")
    assert "no pod of n2 has 10.244.2.5" in far.reason


def test_a_service_that_no_rule_knows_is_lost() -> None:
    files = vxlan_cluster()
    files["nodes/n1/iptables-save"] = b""
    found, _ = ask(files, "pod/shop/cart-0", "svc/shop/web")
    assert [(item.end, item.at) for item in found] == [("lost", "n1")]
    assert found[0].reason == (
        "10.96.0.7 is a Service's address, which no rule of n1 translates: the packet leaves by eth0 for the router "
        "172.30.0.1, and nobody answers"
    )
    found, _ = ask(files, "node/n2", "nodeport/shop/web@n1")
    assert [(item.end, item.at, item.reason) for item in found] == [("refused", "n1", "no process listens there")]


@pytest.mark.parametrize(
    ("sender", "receiver", "message"),
    [
        ("pod/shop/none", "svc/shop/web", "--from: pod shop/none is not in the snapshot"),
        ("node/n9", "svc/shop/web", "--from: node n9 is not in the snapshot: n1, n2"),
        ("hello", "svc/shop/web", "--from: a reference such as pod/NS/NAME, a name or an address expected"),
        ("pod/shop/cart-0", "svc/shop/none", "--to: Service shop/none"),
        ("pod/shop/cart-0", "svc/shop/web:nope", "--to: Service shop/web has no port 'nope'"),
        ("pod/shop/cart-0", "nodeport/shop/web@n9", "--to: node n9 is not in the snapshot"),
        ("203.0.113.9", "nodeport/shop/web", "--to: a node port is asked at a node: say at which, as in"),
        ("pod/shop/cart-0", "10.0.0.1", "--to: a port expected, as in 10.0.0.1:80"),
        ("pod/shop/cart-0", "[2001:db8::1]:80", "no address of the other end's family"),
    ],
)
def test_names_that_stand_for_nothing(sender: str, receiver: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        ask(vxlan_cluster(), sender, receiver)
    assert message in str(caught.value)


@pytest.mark.parametrize("client", ["203.0.113.9", "host/n1"])
@pytest.mark.parametrize("lost", [("Service",), ("Service", "EndpointSlice", "Node", "Pod")])
@pytest.mark.parametrize("address", ["10.96.0.7", VIP])
def test_an_address_that_only_rules_name_is_open(address: str, lost: tuple[str, ...], client: str) -> None:
    """Nobody outside of the cluster answers for it, whatever objects are missing."""
    files = {path: data for path, data in balanced().items() if path.removesuffix(".json").split("/")[-1] not in lost}
    found, network = ask(files, client, f"{address}:99")  # a port that no rule translates
    assert {item.end for item in found} == {"open"}
    unseen = [each for each in unseen_on_the_way(network, found) if each.suspected]
    assert [(each.host, each.what) for each in unseen] == [("n1", "Services")]
    network = KnownNetwork(Cluster(MemoryFiles("S", files), assumed=Assumed(complete=True)))
    assert "open" not in {item.end for item in journeys(network, "outside/203.0.113.9", f"{address}:99", "tcp")}


def test_an_address_that_nothing_names_is_outside() -> None:
    assert ends(ask(balanced(), "203.0.113.9", "198.51.100.77:443")[0]) == [("answered", "outside/198.51.100.77")]


def without_pods(files: Files) -> Files:
    """The cluster whose Pods only addresses in EndpointSlices tell of."""
    del files["objects/Pod.json"]

    def cut(value: dict[str, Any]) -> None:
        for each in value["items"]:
            for endpoint in each["endpoints"]:
                endpoint.pop("targetRef", None)

    change(files, "objects/EndpointSlice.json", cut)
    return files


@pytest.mark.parametrize("podcidrs", [True, False])
def test_an_endpoints_address_asks_from_its_node(podcidrs: bool) -> None:
    files = without_pods(vxlan_cluster())
    if not podcidrs:

        def cut(value: dict[str, Any]) -> None:
            for each in value["items"]:
                each["spec"].pop("podCIDR", None)
                each["spec"].pop("podCIDRs", None)

        change(files, "objects/Node.json", cut)
    found, _ = ask(files, "10.244.2.5", "10.96.0.7:80")
    assert {item.there[1].host for item in found} == {"n2"}
    assert {item.end for item in found} <= {"open", "answered"}
    if podcidrs:  # of no slice
        assert {item.there[1].host for item in ask(files, "10.244.2.77", "10.96.0.7:80")[0]} == {"n2"}


def test_an_endpoint_of_a_node_without_an_object_is_not_outside() -> None:
    files = {path: data for path, data in without_pods(vxlan_cluster()).items() if not path.startswith("nodes/n2/")}
    change(files, "objects/Node.json", lambda value: value["items"].pop(1))
    for client in ("203.0.113.9", "node/n1"):
        found, _ = ask(files, client, "10.244.2.5:8080")
        assert [item.end for item in found] == ["open"]
        assert re.search("nothing is known of node n2|n2 has no Node object", found[0].reason)
    assert {item.end for item in ask(files, "10.244.2.5", "10.96.0.7:80")[0]} == {"open"}


@pytest.mark.parametrize("place", ["configz", "ConfigMap"])
def test_a_node_in_ipvs_mode_is_open(place: str) -> None:
    files = balanced()
    text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\n"
    if place == "configz":
        files |= {f"nodes/n{number}/kube-proxy/configz": text.encode() for number in (1, 2)}
    else:
        meta = {"name": "kube-proxy", "namespace": "kube-system"}
        value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"config.conf": text}}
        files["objects/ConfigMap.json"] = json.dumps(value).encode()
    for name in ("n1", "n2"):  # IPVS has the Services, not iptables
        path = f"nodes/{name}/iptables-save"
        files[path] = b"".join(line for line in files[path].splitlines(True) if VIP.encode() not in line)
    found, network = ask(files, "203.0.113.9", f"{VIP}:80")
    assert {item.end for item in found} == {"open"}
    unseen = {(each.host, each.what) for each in unseen_on_the_way(network, found) if each.suspected}
    assert unseen == {("n1", "ipvs"), ("n2", "ipvs")}


def test_what_makes_an_answer_open_is_suspected_and_told_once() -> None:
    files = {path: data for path, data in balanced().items() if "n2/ip" not in path or not path.endswith("-save")}
    found, network = ask(files, "203.0.113.9", f"{VIP}:80")
    unseen = [each for each in unseen_on_the_way(network, found) if each.host == "n2" and each.what == "nft iptables"]
    assert [(each.family, each.suspected) for each in unseen] == [("IPv4", True)]


def test_without_a_nodes_routes_the_arriving_device_on_the_next_is_open() -> None:
    """A device that was only guessed let the next node's rp_filter drop the packet: a certain loss that nobody saw."""
    files = audited.cluster("iptables")
    del files["nodes/n1/ip-route.json"]
    found, network = ask(files, "pod/shop/web-1", "svc/shop/web")
    assert "lost" not in {item.end for item in found}
    assert ("answered", "pod/shop/web-2") in ends(found)
    assert any("by the cluster's network" in note for note in network.notes)
