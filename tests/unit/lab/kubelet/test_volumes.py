"""A pod's volumes: what is written, and what a container mounts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kproxy.lab.kubelet.environment import MissingError
from kproxy.lab.kubelet.volumes import not_mounted, remove_volumes, volume_mounts, write_volumes

THERE = {("ConfigMap", "c"): {"a": b"1", "b": b"\xff"}, ("Secret", "s"): {"k": b"secret"}}


def contents(kind: str, name: str) -> Mapping[str, bytes] | None:
    return THERE.get((kind, name))


def pod(*volumes: dict[str, Any], **container: Any) -> dict[str, Any]:
    meta = {"name": "p", "namespace": "n", "uid": "u", "labels": {"x": "y", "app": "web"}}
    return {"metadata": meta, "spec": {"volumes": volumes, "containers": [{"name": "main", **container}]}}


def written(directory: Path, *volumes: dict[str, Any], strict: bool = True) -> dict[str, bytes]:
    write_volumes(pod(*volumes), directory, contents, strict=strict)
    own = directory / "pods" / "u.volumes"
    return {str(path.relative_to(own)): path.read_bytes() for path in own.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("source", "files"),
    [
        ({"configMap": {"name": "c"}}, {"a": b"1", "b": b"\xff"}),
        ({"configMap": {"name": "c", "items": [{"key": "a", "path": "deep/er"}]}}, {"deep/er": b"1"}),
        ({"secret": {"secretName": "s"}}, {"k": b"secret"}),
        ({"configMap": {"name": "gone", "optional": True}}, {}),
        ({"emptyDir": {"medium": "Memory"}}, {}),
        ({"hostPath": {"path": "/etc"}}, {}),
        ({}, {}),
        (
            {"downwardAPI": {"items": [
                {"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}},
                {"path": "x", "fieldRef": {"fieldPath": "metadata.labels['x']"}},
            ]}},
            {"l": b'app="web"\nx="y"', "x": b"y"},
        ),
        (
            {"projected": {"sources": [
                {"secret": {"name": "s"}}, {"configMap": {"name": "c", "items": [{"key": "a", "path": "k"}]}},
                {"serviceAccountToken": {"path": "token"}},
            ]}},
            {"k": b"1"},
        ),
    ],
)  # fmt: skip
def test_what_volumes_hold(tmp_path: Path, source: dict[str, Any], files: dict[str, bytes]) -> None:
    assert written(tmp_path, {"name": "v", **source}) == {f"v/{name}": data for name, data in files.items()}


def test_what_is_missing_is_an_error_or_left_out(tmp_path: Path) -> None:
    gone = {"name": "v", "configMap": {"name": "gone"}}
    with pytest.raises(MissingError, match='configmap "gone" not found'):
        written(tmp_path, gone)
    key = {"name": "v", "secret": {"secretName": "s", "items": [{"key": "x", "path": "x"}]}}
    with pytest.raises(MissingError, match="secret n/s references non-existent key: x"):
        written(tmp_path, key)
    assert written(tmp_path, gone, key, strict=False) == {}


def test_modes_changes_and_the_end(tmp_path: Path) -> None:
    items = [{"key": "a", "path": "a"}, {"key": "b", "path": "b", "mode": 0o600}]
    volume = {"name": "v", "configMap": {"name": "c", "items": items, "defaultMode": 0o755}}
    written(tmp_path, volume)
    own = tmp_path / "pods" / "u.volumes" / "v"
    assert [(own / name).stat().st_mode & 0o777 for name in "ab"] == [0o755, 0o600]
    THERE["ConfigMap", "c"]["a"] = b"2"
    try:
        assert written(tmp_path, volume)["v/a"] == b"2"
    finally:
        THERE["ConfigMap", "c"]["a"] = b"1"
    remove_volumes(tmp_path, "u")
    assert not own.exists()


def test_mounts_of_a_container(tmp_path: Path) -> None:
    volumes = (
        {"name": "c", "configMap": {"name": "c"}}, {"name": "e", "emptyDir": {}}, {"name": "h", "hostPath": {}},
        {"name": "p", "persistentVolumeClaim": {"claimName": "p"}},
    )  # fmt: skip
    mounts = [
        {"name": "c", "mountPath": "/etc/app/"}, {"name": "c", "mountPath": "/etc/a.conf", "subPath": "a"},
        {"name": "e", "mountPath": "data"}, {"name": "e", "mountPath": "/own", "subPathExpr": "of-$(SELF)"},
        {"name": "e", "mountPath": "/up", "subPath": "../../x", "readOnly": True},
        {"name": "h", "mountPath": "/host"}, {"name": "p", "mountPath": "/p"},
    ]  # fmt: skip
    subject = pod(*volumes, volumeMounts=mounts)
    write_volumes(subject, tmp_path, contents)
    own = tmp_path / "pods" / "u.volumes"
    found = volume_mounts(subject, subject["spec"]["containers"][0], tmp_path, {"SELF": "me"})
    assert [(str(Path(each.source).relative_to(own)), each.target, each.read_only) for each in found] == [
        ("c", "/etc/app", True), ("c/a", "/etc/a.conf", True), ("e", "/data", False), ("e/of-me", "/own", False),
        ("e/x", "/up", True),
    ]  # fmt: skip
    assert (own / "e" / "of-me").is_dir()
    assert not_mounted(subject) == ["h (hostPath)", "p (persistentVolumeClaim)"]
