"""Reading manifests for a lab."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kproxy.lab.errors import LabInputError
from kproxy.lab.lifecycle.manifests import asks_for_names, read_manifests


def test_manifests_are_read_with_every_problem_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "kind: List\napiVersion: v1\nitems:\n- {kind: Pod, apiVersion: v1, metadata: {name: p}}\n- {kind: Pod}\n---\n"
        "{kind: Service, apiVersion: v1, metadata: {name: s}}\n"
    )
    (tmp_path / "b.yaml").write_text("a: [")
    (tmp_path / "c.yaml").write_text("kind: Pod\napiVersion: v1\nmetadata: {name: p}\nkind: Service\n")
    (tmp_path / "d.yaml").write_text("kind: Pod\napiVersion: v1\nmetadata:\n  generateName: p\n")
    with pytest.raises(LabInputError) as raised:
        read_manifests([str(tmp_path), "gone.yaml", ""])
    lines = str(raised.value).splitlines()
    assert f"{tmp_path}/a.yaml: document 1: line 5: items[1]: an object with apiVersion and kind expected" in lines
    assert any(f"{tmp_path}/b.yaml: line 2: " in line for line in lines)
    assert f'{tmp_path}/c.yaml: document 1: line 4: key "kind" already set in map' in lines
    assert f"{tmp_path}/d.yaml: document 1: line 3: metadata.name: Required value" in lines
    assert "gone.yaml: no such file or directory" in lines
    assert lines[-1].startswith('"": the name of a file or directory expected')
    for name in "bcd":
        (tmp_path / f"{name}.yaml").unlink()
    text = (tmp_path / "a.yaml").read_text().replace("- {kind: Pod}\n", "")
    (tmp_path / "a.yaml").write_text(text)
    assert [item.kind for item in read_manifests([str(tmp_path)])] == ["Service", "Pod"]


def test_times_without_quotes_are_text_as_for_kubectl(tmp_path: Path) -> None:
    manifest = tmp_path / "a.yaml"
    manifest.write_text(
        "kind: ConfigMap\napiVersion: v1\nmetadata: {name: c, creationTimestamp: 2026-01-02T03:04:05Z}\n"
    )
    (found,) = read_manifests([str(manifest)])
    assert found.body["metadata"]["creationTimestamp"] == "2026-01-02T03:04:05Z"


def test_lists_of_every_form(tmp_path: Path) -> None:
    """What kubectl get prints, typed Lists, Lists in Lists, empty ones, JSON after JSON; a kind that only sounds so."""
    item = {"metadata": {"name": "c"}}
    typed = {"apiVersion": "v1", "kind": "ConfigMapList", "items": [item]}
    inner = {"apiVersion": "v1", "kind": "List", "items": [typed, {"apiVersion": "v1", "kind": "List", "items": None}]}
    allowed = {"apiVersion": "example.com/v1", "kind": "AllowList", "metadata": {"name": "a"}}
    path = tmp_path / "all.json"
    path.write_text(json.dumps(inner, indent=1) + "\n" + json.dumps(allowed))
    found = read_manifests([str(path)])
    assert [(each.body["apiVersion"], each.kind, each.body["metadata"]["name"]) for each in found] == [
        ("v1", "ConfigMap", "c"), ("example.com/v1", "AllowList", "a"),
    ]  # fmt: skip
    assert str(found[0].where) == f"{path}: document 1: line 9: items[0].items[0]"
    assert found[1].where.line == 23


def test_a_kustomization_needs_no_kind_and_no_name(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: [a.yaml]\n")
    (found,) = read_manifests([str(tmp_path)])
    assert found.kind == "Kustomization"


@pytest.mark.parametrize(
    ("others", "asks"),
    [
        ([{"kind": "Job"}], True),
        ([{"kind": "CronJob"}], False),
        ([{"kind": "Pod", "spec": {"restartPolicy": "Never"}}], True),
        ([{"kind": "Pod", "spec": {}}, {"kind": "Pod", "spec": "odd"}, {"kind": "Deployment"}], False),
    ],
)
def test_what_runs_commands_beside_services_asks_for_their_names(
    tmp_path: Path, others: list[dict[str, Any]], asks: bool
) -> None:
    meta: dict[str, Any] = {"apiVersion": "v1", "metadata": {"name": "a"}}
    path = tmp_path / "all.json"
    for services, expected in (([{"kind": "Service"}], asks), ([], False)):
        path.write_text("".join(json.dumps({**meta, **each}) for each in [*others, *services]))
        found = asks_for_names(read_manifests([str(path)]))
        assert (found is not None) is expected
