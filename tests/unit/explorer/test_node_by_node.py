"""Another mode, on clusters whose Services are alike: what stands for all, against the comparison of each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.dataplane.compare.compare import compare
from kproxy.explorer import findings, node_by_node, standing
from kproxy.explorer.comparing import WhatIf, WhatIfAnswer, what_if
from kproxy.explorer.edits import Edit
from kproxy.explorer.model import Work
from kproxy.explorer.node_by_node import NodeByNode
from kproxy.explorer.source import ManifestSource
from kproxy.explorer.state import Explorer
from kproxy.netfilter import Family
from kproxy.render import Features

NFTABLES = (Edit("mode", mode="nftables"),)
LOCAL: dict[str, object] = {"type": "NodePort", "externalTrafficPolicy": "Local"}


def _object(kind: str, name: str, api: str = "v1", **fields: object) -> dict[str, Any]:
    metadata = {"name": name} if kind == "Node" else {"name": name, "namespace": "shop"}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **fields}


def _service(number: int, **spec: object) -> dict[str, Any]:
    port: dict[str, object] = {"port": 80, "protocol": "TCP"}
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        port["nodePort"] = 30000 + number
    ip = f"10.96.0.{number + 1}"
    return _object("Service", f"s{number}", spec={"clusterIP": ip, "clusterIPs": [ip], "ports": [port], **spec})


def _slice(number: int, *nodes: str, ready: bool = True) -> dict[str, Any]:
    made = _object(
        "EndpointSlice",
        f"s{number}",
        "discovery.k8s.io/v1",
        addressType="IPv4",
        ports=[{"port": 8080, "protocol": "TCP"}],
        endpoints=[
            {"addresses": [f"10.244.{number}.{place + 1}"], "nodeName": node, "conditions": {"ready": ready}}
            for place, node in enumerate(nodes)
        ],
    )
    made["metadata"]["labels"] = {"kubernetes.io/service-name": f"s{number}"}
    return made


def _nodes(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        addresses = [{"type": "InternalIP", "address": f"192.168.0.{number + 2}"}]
        yield _object("Node", f"n{number}", status={"addresses": addresses})


def _model(folder: Path, *objects: dict[str, Any]) -> Explorer:
    path = folder / "cluster.jsonl"
    path.write_text("\n".join(map(json.dumps, objects)))
    return Explorer(ManifestSource([str(path)], None, None, Features()))


def _compare_each(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_by_node, "FEW", few)
    monkeypatch.setattr(node_by_node, "EXAMINED", None)
    monkeypatch.setattr(node_by_node, "EXAMINED_OF_CHOSEN", None)
    monkeypatch.setattr(findings, "MAX_FINDINGS", 10_000)


def _answer(explorer: Explorer, few: int, monkeypatch: pytest.MonkeyPatch) -> WhatIfAnswer:
    """Another mode; up to `few` Services are compared each."""
    _compare_each(few, monkeypatch)
    return what_if(explorer.model, explorer.copy_with(NFTABLES), WhatIf(NFTABLES), Work(600))


def _differing(explorer: Explorer, few: int, monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str, str]]:
    """Nodes and Services that differ there in the other mode, and whether at an address or at a node port."""
    _compare_each(few, monkeypatch)
    one, other = explorer.model, explorer.copy_with(NFTABLES)
    nodes = NodeByNode(one, other, len(one.nodes), Work(600))
    found = set()
    for name in one.nodes:
        compared = nodes.compared(name, Family.IPV4)
        texts = [text for item in compared.found.differences for text in item.destinations]
        assert compared.found.unexamined == 0
        for text in texts:
            for service in findings.services_of(one, text):
                alike = compared.stands_for.get(service.removeprefix("svc/"), (service.removeprefix("svc/"),))
                found |= {
                    (name, each, "node port" if ":30" in text or "port 30" in text else "address") for each in alike
                }
    return found


@pytest.mark.parametrize("any_host", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_what_stands_for_all_says_what_all_say(
    seed: int, any_host: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if any_host:
        monkeypatch.setattr(standing, "MAX_SINGLE", 0)
    chance = random.Random(seed)
    kinds: tuple[dict[str, object], ...] = (
        {},
        {"type": "NodePort"},
        LOCAL,
        {"internalTrafficPolicy": "Local"},
        {"sessionAffinity": "ClientIP"},
    )
    kinds = tuple(chance.sample(kinds, 2))
    objects = list(_nodes(2))
    for number in range(12):
        objects.append(_service(number, **chance.choice(kinds)))
        objects.append(_slice(number, *chance.choice(((), ("n0", "n1"), ("n1", "n1"))), ready=chance.random() < 0.9))
    explorer = _model(tmp_path, *objects)
    differing = _differing(explorer, 1000, monkeypatch)
    assert differing
    assert _differing(explorer, 0, monkeypatch) == differing
    each, some = (_answer(explorer, few, monkeypatch) for few in (1000, 0))
    assert some.alike == each.alike
    # Where one finding is of several Services at once, the comparison of each names the first of them only.
    named, listed = ({name for item in found.findings for name in item.services} for found in (each, some))
    assert named <= listed
    assert ["stand for all" in " ".join(found.notes) for found in (each, some)] == [False, True]


def test_a_node_with_a_difference_of_its_own_is_not_swallowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return compare(*given, **named)

    monkeypatch.setattr(node_by_node, "compare", counted)
    objects = [
        *_nodes(12),
        *(_service(number) for number in range(20)),
        *(_slice(number, "n0") for number in range(20)),
    ]
    explorer = _model(tmp_path, *objects)
    alike = _answer(explorer, 0, monkeypatch)
    assert len(calls) == 2, "n0 with the endpoints, and all others"
    assert any(note.startswith("n1 stands for n10, n11, n2 and 7 more") for note in alike.notes)
    # The same, and on n7 the one endpoint of a Service that is only for clients of its node.
    objects += [_service(20, **LOCAL), _slice(20, "n7")]
    calls.clear()
    found = _answer(_model(tmp_path, *objects), 0, monkeypatch)
    assert len(calls) == 3
    own = {node for item in found.findings if "svc/shop/s20" in item.services for node in item.nodes}
    by_words = [(item.before, item.nodes) for item in found.findings if item.services == ("svc/shop/s20",)]
    assert own == {f"n{number}" for number in range(12)}
    assert any(nodes == ("n7",) and "to 10.244.20.1:8080" in words for words, nodes in by_words)
    assert any("n7" not in nodes and "dropped" in words for words, nodes in by_words)
    assert not any("n7" in note.partition(" too")[0] for note in found.notes if "stands for" in note)


def test_many_services_are_not_all_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "MAX_SERVICES", 5)
    objects = list(_nodes(1))
    objects += [made for number in range(30) for made in (_service(number, **LOCAL), _slice(number, "n0"))]
    found = _answer(_model(tmp_path, *objects), 0, monkeypatch)
    item = next(each for each in found.findings if each.services)
    assert (len(item.services), item.more) == (5, 25)
    assert {f"svc/shop/s{number}" for number in range(30)} <= set(found.touched)
