"""Reading manifests for a lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.lab.errors import LabInputError
from kproxy.lab.lifecycle.objects import read_manifests


def test_manifests_are_read_with_every_problem_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "kind: List\napiVersion: v1\nitems:\n- {kind: Pod, apiVersion: v1, metadata: {name: p}}\n- {kind: Pod}\n---\n"
        "{kind: Service, apiVersion: v1, metadata: {name: s}}\n"
    )
    (tmp_path / "b.yaml").write_text("a: [")
    (tmp_path / "c.yaml").write_text("kind: Pod\napiVersion: v1\nmetadata: {name: p}\nkind: Service\n")
    with pytest.raises(LabInputError) as raised:
        read_manifests([str(tmp_path), "gone.yaml"])
    lines = str(raised.value).splitlines()
    assert "gone.yaml: No such file" in lines[0]
    assert "a.yaml, document 1, items[1]: an object with apiVersion and kind expected" in lines[1]
    assert "b.yaml: line 2: " in lines[2]
    assert 'c.yaml: line 4: key "kind" already set in map' in lines[3]
    (tmp_path / "b.yaml").unlink()
    (tmp_path / "c.yaml").unlink()
    text = (tmp_path / "a.yaml").read_text().replace("- {kind: Pod}\n", "")
    (tmp_path / "a.yaml").write_text(text)
    assert [item.body["kind"] for item in read_manifests([str(tmp_path)])] == ["Service", "Pod"]


def test_times_without_quotes_are_text_as_for_kubectl(tmp_path: Path) -> None:
    manifest = tmp_path / "a.yaml"
    manifest.write_text(
        "kind: ConfigMap\napiVersion: v1\nmetadata: {name: c, creationTimestamp: 2026-01-02T03:04:05Z}\n"
    )
    (found,) = read_manifests([str(manifest)])
    assert found.body["metadata"]["creationTimestamp"] == "2026-01-02T03:04:05Z"
