"""`--without`: what is left of a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kproxy.api import Manifests, load_manifests
from kproxy.api.load.manifests import load_contents
from kproxy.api.load.reader import RawObject
from kproxy.cluster.edits import manifests_without
from kproxy.cluster.snapshot.cluster import value_of_object
from tests.support.cli import Run
from tests.support.paths import ROOT

SHOP = ROOT / "docs" / "examples" / "shop.yaml"
BY_HAND = """
kind: Service
apiVersion: v1
metadata: {name: outside, namespace: shop}
spec: {clusterIP: 10.96.0.200, ports: [{port: 5432}]}
---
kind: Endpoints
apiVersion: v1
metadata: {name: outside, namespace: shop}
subsets: [{addresses: [{ip: 192.0.2.7}], ports: [{port: 5432}]}]
"""
KINDS = ("services", "endpoint_slices", "endpoints", "nodes")


def read(*paths: Path) -> tuple[Manifests, list[RawObject]]:
    objects: list[RawObject] = []
    return load_manifests(paths, on_object=objects.append).with_mirrored_slices(), objects


def names(cluster: Manifests) -> dict[str, list[str]]:
    return {kind: sorted(each.metadata.key for each in getattr(cluster, kind)) for kind in KINDS}


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize(
    ("ref", "gone"),
    [
        ("svc/shop/web", {"services": ["shop/web"], "endpoint_slices": ["shop/web-x7k2p"]}),
        ("node/worker-2", {"nodes": ["worker-2"]}),
        ("svc/shop/outside", {"services": ["shop/outside"], "endpoints": ["shop/outside"]}),
        ("pod/shop/web-2", {}),
    ],
)
def test_the_rest_stays_as_it_was_read(tmp_path: Path, form: str, ref: str, gone: dict[str, list[str]]) -> None:
    both = tmp_path / "both.yaml"
    both.write_text(f"{SHOP.read_text()}\n---\n{BY_HAND}")
    before, objects = read(both)
    if form == "json":
        items = {"apiVersion": "v1", "kind": "List", "items": [value_of_object(each) for each in objects]}
        (tmp_path / "both.json").write_text(json.dumps(items))
        before, objects = read(tmp_path / "both.json")
    after = manifests_without(before, objects, [ref], "default")
    left, there = names(after), names(before)
    mirrored = [key for key in there["endpoint_slices"] if key.startswith("shop/outside")]
    assert mirrored
    if ref == "svc/shop/outside":
        gone = {**gone, "endpoint_slices": mirrored}
    assert {kind: sorted(set(there[kind]) - set(left[kind])) for kind in KINDS} == {
        kind: sorted(gone.get(kind, [])) for kind in KINDS
    }
    assert not any(set(left[kind]) - set(there[kind]) for kind in KINDS)
    same = {id(each) for kind in KINDS for each in getattr(before, kind)}
    changed = {each.metadata.key for kind in KINDS for each in getattr(after, kind) if id(each) not in same}
    assert changed - set(mirrored) <= {"shop/web-x7k2p", "kube-system/kube-dns-w4t9c"}


def test_what_is_left_is_what_a_cluster_without_it_is(tmp_path: Path) -> None:
    """The same objects as if the edited manifests were read."""
    before, objects = read(SHOP)
    after = manifests_without(before, objects, ["node/worker-2", "10.244.1.11"], "default")
    items = [value_of_object(each) for each in objects]
    for item in items:
        if item["kind"] == "EndpointSlice":
            item["endpoints"] = [each for each in item["endpoints"] if each.get("nodeName") != "worker-2"]
            for each in item["endpoints"]:
                if "10.244.1.11" in each["addresses"]:
                    each["conditions"].update(ready=False, serving=False)
    items = [item for item in items if (item["kind"], item["metadata"]["name"]) != ("Node", "worker-2")]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    expected = load_contents({"edited": text.encode()})
    assert [getattr(after, kind) for kind in KINDS] == [getattr(expected, kind) for kind in KINDS]


def test_allocated_addresses_stay_where_they_are(kproxy: Run, tmp_path: Path) -> None:
    """Of two Services that would get one address, the other keeps its own when the first goes."""
    services = [
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{number}", "namespace": "a"},
            "spec": {"ports": [{"port": 80}]},
        }
        for number in range(44)
    ]  # fmt: skip
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, *services]}))
    options = ("-f", "c.json", "--allocate", "10.96.0.0/26", "--src", "192.0.2.1:4000", "-o", "json")
    last = ("--to", "svc/a/s43:80")

    def destination(*more: str) -> str:
        done = kproxy("trace", *options, *last, *more)
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["packet"]["dst"])

    first = destination()
    assert {destination("--without", f"svc/a/s{number}") for number in (0, 7, 42)} == {first}
