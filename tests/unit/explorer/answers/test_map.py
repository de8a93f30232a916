"""The map as it is sent: kept while nothing changes, and with what nodes share made once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kproxy.explorer.answers import map as drawn_map
from kproxy.explorer.answers.map import draw_map, map_answer
from kproxy.explorer.model.map_data import MapView
from kproxy.explorer.model.model import Model, Work
from kproxy.explorer.sources.source import SourceState
from tests.support.cluster.snapshots import vxlan_cluster
from tests.support.explorer.sources import source_of

WORK = Work(float("inf"))


def known(directory: Path, **service: str) -> SourceState:
    """The objects alone, with fields of the Service's spec."""
    directory.mkdir()
    for path, data in vxlan_cluster().items():
        if path.startswith("objects/"):
            found = msgspec.json.decode(data)
            for item in found["items"] if path.endswith("/Service.json") else ():
                item["spec"] |= service
            (directory / path.removeprefix("objects/")).write_bytes(msgspec.json.encode(found))
    return source_of(directory).read()


@pytest.mark.parametrize("policy", ["internalTrafficPolicy", "externalTrafficPolicy"])
@pytest.mark.parametrize("value", ["Cluster", "Local"])
def test_what_nodes_share_is_the_same_as_drawn_for_each(tmp_path: Path, policy: str, value: str) -> None:
    found = known(tmp_path / "objects", **{policy: value})
    shared = Model(found, 1)
    for node in ("n1", "n2", "n1"):
        assert draw_map(shared, node, WORK) == draw_map(Model(found, 1), node, WORK)


def test_a_map_is_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    def counted(model: Model, node: str, work: Work) -> MapView:
        drawn.append(node)
        return draw_map(model, node, work)

    monkeypatch.setattr(drawn_map, "draw_map", counted)
    model = Model(known(tmp_path / "objects"), 1)
    answers = {node: map_answer(model, node, WORK) for node in ("", "n1", "node/n1", "n2", "n1")}
    assert drawn == ["n1", "n2"]
    assert answers[""] == answers["n1"] == answers["node/n1"] != answers["n2"]


def test_a_map_whose_chances_are_not_all_known_is_drawn_again(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(source_of(snapshot).read(), 1)
    seen = []
    for pending in (2, 1, 0, 5):
        found = msgspec.structs.replace(draw_map(model, "n1", WORK), pending=pending)
        monkeypatch.setattr(drawn_map, "draw_map", lambda *_given, found=found: found)
        seen.append(msgspec.json.decode(map_answer(model, "n1", WORK))["pending"])
        monkeypatch.undo()
    assert seen == [2, 1, 0, 0]


def _than(model: Model, node: str, than: str, revision: int) -> Any:
    return msgspec.json.decode(map_answer(model, node, WORK, than, revision))


@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_of_another_nodes_map_only_what_is_another_is_sent(tmp_path: Path, policy: str) -> None:
    model = Model(known(tmp_path / "objects", internalTrafficPolicy=policy), 4)
    before, after = (msgspec.json.decode(map_answer(model, node, WORK)) for node in ("n1", "n2"))
    told = _than(model, "n2", "node/n1", 4)
    assert bool(told["edges"]) is (policy == "Local")
    edges = list(before["edges"])
    for place, edge in told.pop("edges"):
        edges[place] = edge
    assert told == {"revision": 4, "view": "n2", "than": "n1"}
    assert {**before, "view": "n2", "edges": edges} == after
    # Who asks has a map of another revision: all of it is sent.
    assert _than(model, "n2", "n1", 3) == after


@pytest.mark.parametrize("pending", ["n1", "n2", ""])
def test_a_map_with_other_edges_or_with_open_chances_is_sent_whole(
    tmp_path: Path, pending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(known(tmp_path / "objects"), 1)

    def drawn(model: Model, node: str, work: Work) -> MapView:
        found = draw_map(model, node, work)
        if not pending and node == "n1":
            return msgspec.structs.replace(found, edges=found.edges[1:])
        return msgspec.structs.replace(found, pending=int(node == pending))

    monkeypatch.setattr(drawn_map, "draw_map", drawn)
    assert _than(model, "n2", "n1", 1) == msgspec.json.decode(map_answer(model, "n2", WORK))
