"""`kproxy explain`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support import paths
from tests.support.cli import Run, held_by

ROOT = paths.ROOT


def scenario(name: str) -> tuple[str | Path, ...]:
    folder = ROOT / "rules_golden" / name
    return ("-f", folder / "cluster.yaml", "--config", folder / "config.yaml")


def service_of(name: str) -> list[str]:
    from kproxy.api import load_manifests

    cluster = load_manifests([ROOT / "rules_golden" / name / "cluster.yaml"])
    return [service.metadata.key for service in cluster.services]


def test_a_tree_in_plain_words(kproxy: Run) -> None:
    done = kproxy("explain", *scenario("minikube"), "--service", "default/crd-array-watchers")
    assert done.returncode == 0
    for words in (
        "Service default/crd-array-watchers on node minikube, IPv4",
        "ClusterIP 10.103.198.138 port 8080, internal traffic policy Cluster",
        "10.244.0.36:8080",
        "default/crd-array-watchers-5tn8d",
        "nat KUBE-SVC-GCRHHKL6ZB4XAFBC",
        "-j DNAT --to-destination 10.244.0.37:8080",
    ):
        assert words in done.stdout
    assert max(map(len, done.stdout.splitlines())) > 150, "rules are not wrapped or cut when no terminal is there"


def test_json_has_every_rule_of_the_service_and_no_other(kproxy: Run) -> None:
    done = kproxy("explain", *scenario("minikube"), "--service", "kube-system/kube-dns", "-o", "json")
    got = json.loads(done.stdout)
    assert [port["name"] for port in got["ports"]] == [
        "kube-system/kube-dns:dns",
        "kube-system/kube-dns:dns-tcp",
        "kube-system/kube-dns:metrics",
    ]
    rules = [rule["text"] for port in got["ports"] for rule in port["rules"]]
    saved = kproxy("render", *scenario("minikube")).stdout.splitlines()
    assert sorted(rules) == sorted(line for line in saved if "kube-system/kube-dns:" in line)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-endpoints", "traffic is REJECTed"),
        ("headless-and-externalname", "kube-proxy programs nothing for it"),
        ("terminating-fallback", "no endpoint is ready: those that still serve while terminating are used"),
        ("hints-zone", "topology hints"),
        ("session-affinity", "a client keeps its endpoint for"),
        ("loadbalancer-source-ranges", "accept only sources in"),
        ("large-cluster", "more than 1000 endpoints"),
        ("loadbalancer-local-healthcheck", "health-check node port"),
    ],
)
def test_what_decides_is_said(kproxy: Run, name: str, words: str) -> None:
    shown = []
    for key in service_of(name):
        shown.append(kproxy("explain", *scenario(name), "--service", key, "--node", "node-0").stdout)
        if words in shown[-1]:
            return
    pytest.fail(f"{words!r} is not in {shown}")


def test_ipvs_mode(kproxy: Run) -> None:
    dns = ("--service", "kube-system/kube-dns", "--mode", "ipvs")
    done = kproxy("explain", *scenario("minikube"), *dns)
    assert done.returncode == 0
    for words in ("virtual server -t 10.96.0.10:53", "set KUBE-CLUSTER-IP", "device kube-ipvs0", "10.96.0.10/32 dev"):
        assert words in done.stdout
    assert "not seen" not in done.stdout + done.stderr
    (_, tcp, _) = json.loads(kproxy("explain", *scenario("minikube"), *dns, "-o", "json").stdout)["ports"]
    texts = [each["text"] for each in tcp["objects"]]
    assert "add KUBE-CLUSTER-IP 10.96.0.10,tcp:53" in texts
    assert "-A -t 10.96.0.10:53 -s rr" in texts
    picture = kproxy("explain", *scenario("minikube"), *dns, "--html", "page.html")
    assert (picture.returncode, picture.stdout) == (2, "")
    assert "the picture does not know ipvs mode" in picture.stderr
    service = service_of("nodeport-local-policy")[0]
    local = ("--service", service, "--mode", "ipvs", "--node", "node-2")
    assert (
        "external traffic goes to other nodes" in kproxy("explain", *scenario("nodeport-local-policy"), *local).stdout
    )


def test_a_service_that_is_not_there(kproxy: Run) -> None:
    done = kproxy("explain", *scenario("minikube"), "--service", "default/nope")
    assert done.returncode == 2
    assert "Service default/nope is not among the 5 Services of the cluster: default/" in done.stderr


def test_a_name_alone_is_that_of_the_only_such_service(kproxy: Run) -> None:
    done = kproxy("explain", *scenario("minikube"), "--service", "kube-dns")
    assert done.stdout.startswith("Service kube-system/kube-dns on node minikube")
    done = kproxy("explain", *scenario("minikube"), "--service", "kube-dns", "-n", "default")
    assert done.returncode == 2
    assert done.stderr.endswith("Services of the cluster: kube-system/kube-dns\n")


def test_slices_and_ports_without_effect_are_named(kproxy: Run) -> None:
    text = """
apiVersion: v1
kind: Service
metadata: {name: w}
spec: {clusterIP: 10.96.0.7, ports: [{port: 80, name: a}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: marked, labels: {kubernetes.io/service-name: w, service.kubernetes.io/headless: ''}}
addressType: IPv4
endpoints: [{addresses: [10.244.0.1]}]
ports: [{name: a, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: six, labels: {kubernetes.io/service-name: w}}
addressType: IPv6
endpoints: [{addresses: ["fd00::1"]}]
ports: [{name: a, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: four, labels: {kubernetes.io/service-name: w}}
addressType: IPv4
endpoints:
- {addresses: [10.244.0.2], conditions: {ready: true, terminating: true}}
- {addresses: [10.244.0.3], conditions: {ready: false, serving: false}}
ports: [{name: a, port: 80}, {name: b, port: null}, {name: a2, port: 81, protocol: UDP}]
"""
    shown = kproxy("explain", "-f", "-", "--service", "w", "--node", "n", stdin=text).stdout
    for words in (
        "EndpointSlice default/marked is ignored: its labels",
        "EndpointSlice default/six is ignored here: its addresses are IPv6",
        "EndpointSlice default/four: port 'b' has no number",
        "EndpointSlices have port 'a2' (UDP), which the Service has not",
        "10.244.0.2:80  not this node  ready, terminating; used (cluster)",
        "10.244.0.3:80  not this node  not ready; not used: not ready",
    ):
        assert words in shown


def test_nftables_mode_names_its_objects(kproxy: Run) -> None:
    arguments = (*scenario("session-affinity"), "--mode", "nftables", "--service", service_of("session-affinity")[0])
    done = kproxy("explain", *arguments)
    assert done.returncode == 0
    for words in ("map service-ips", "set affinity-", "chain service-", "session affinity: remember the client"):
        assert words in done.stdout
    assert "KUBE-" not in done.stdout
    (port, *_) = json.loads(kproxy("explain", *arguments, "-o", "json").stdout)["ports"]
    assert "rules" not in port
    assert {each["object"] for each in port["objects"]} == {"chain", "set", "rule", "element"}


def test_the_page_holds_what_is_printed(kproxy: Run, tmp_path: Path) -> None:
    asked = ("explain", *scenario("minikube"), "--service", "default/crd-array-watchers")
    done = kproxy(*asked, "--html", tmp_path / "web.html")
    assert (done.returncode, done.stdout) == (0, "")
    text = (tmp_path / "web.html").read_text()
    held = held_by(tmp_path / "web.html")
    page = held["services"]["default/crd-array-watchers"]
    answer = json.loads(kproxy(*asked, "-o", "json").stdout)
    assert {"apiVersion": "kproxy/v1", "kind": "Explanation", **page["explanation"], "unseen": []} == answer
    assert [each["chance"] for each in page["ports"][0]["fan"][0]["endpoints"]] == ["1/2", "1/2"]
    assert held["start"]["path"] == "service/default/crd-array-watchers"
    assert "-j DNAT --to-destination 10.244.0.37:8080" in re.sub(r"<script.*", "", text, flags=re.DOTALL), "as text"
    both = kproxy(*asked, "--html", tmp_path / "web.html", "-o", "json")
    assert (both.returncode, "--html shows one Service" in both.stderr) == (2, True)
