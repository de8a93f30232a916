"""Files, directories and standard input."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from kproxy.api import ManifestError, load_manifests
from kproxy.errors import Location

NODE = '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "%s"}}'


def problems(*paths: str | Path) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load_manifests(paths)
    return [str(problem) for problem in caught.value.problems]


def names(*paths: str | Path, stdin: io.BytesIO | bytes | None = None) -> list[str]:
    return [node.metadata.name for node in load_manifests(paths, stdin).nodes]


def test_files_in_the_order_given(tmp_path: Path) -> None:
    for name in ("b.json", "a.yaml", "no-suffix"):
        (tmp_path / name).write_text(NODE % name.partition(".")[0])
    assert names(tmp_path / "b.json", str(tmp_path / "a.yaml"), tmp_path / "no-suffix") == ["b", "a", "no-suffix"]


def test_directories_are_sorted_and_not_recursive(tmp_path: Path) -> None:
    for name in ("z.yml", "a.json", "m.jsonl", "b.yaml", "c.txt", "README.md"):
        (tmp_path / name).write_text(NODE % name.partition(".")[0])
    (tmp_path / "deeper.yaml").mkdir()
    (tmp_path / "deeper.yaml" / "x.yaml").write_text(NODE % "x")
    assert names(tmp_path) == ["a", "b", "m", "z"]
    found = load_manifests([tmp_path]).sources
    assert found["Node", "a"] == Location(str(tmp_path / "a.json"), 1, "", 1)


def test_an_empty_file_among_others_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("# nothing\n")
    (tmp_path / "b.yaml").write_text(NODE % "b")
    assert names(tmp_path) == ["b"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    assert names("-", stdin=io.BytesIO((NODE % "a").encode())) == ["a"]
    assert names("-", stdin=(NODE % "a").encode()) == ["a"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((NODE % "b").encode())))
    assert names("-") == ["b"]


def test_unreadable(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "link.yaml").symlink_to("nowhere")
    (tmp_path / "bad.yaml").write_text("a: [")
    assert problems(tmp_path / "none.yaml", empty, tmp_path) == [
        f"{tmp_path}/none.yaml: no such file or directory",
        f"{empty}: no manifests in this directory (*.yaml, *.yml, *.json, *.jsonl)",
        f"{tmp_path}/bad.yaml: document 1: line 2: invalid YAML, column 1: did not find expected node content, "
        "while parsing a flow node",
        f"{tmp_path}/link.yaml: no such file or directory",
    ]
    (empty / "objects").mkdir()
    (empty / "snapshot.json").write_text("{}")
    assert problems(empty) == [
        f"{empty}: no manifests in this directory; if it is a snapshot, they are in {empty}/objects"
    ]
    (null,) = problems("a\0b")
    assert null.startswith("a\0b: cannot be read: ")  # in Python's words, which are its version's
    assert problems("") == ['"": the name of a file or directory expected, not an empty one']


def test_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, *_more: object) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("kproxy.api.load.manifests.read_octets", refuse)
    assert problems("a.yaml") == ["a.yaml: cannot be read: Permission denied"]


def test_nothing() -> None:
    assert problems() == ["manifests: no Kubernetes objects found"]
    assert [str(error) for error in _nothing("-")] == ["-: no Kubernetes objects found"]


def _nothing(path: str) -> list[object]:
    with pytest.raises(ManifestError) as caught:
        load_manifests([path], b"")
    return list(caught.value.problems)


def test_the_same_object_in_two_files(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(NODE % "n")
    assert problems(tmp_path) == [
        f'{tmp_path}/b.yaml: document 1: line 1: metadata.name: Duplicate value: "n": already defined in '
        f"{tmp_path}/a.yaml: document 1: line 1"
    ]


def test_mirrored_slices_come_from_their_endpoints() -> None:
    text = b"""\
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: db}
subsets:
- addresses: [{ip: 10.0.0.1}]
  ports: [{port: 80}]
"""
    plain = load_manifests(["-"], text)
    assert plain.endpoint_slices == ()
    found = plain.with_mirrored_slices()
    (mirrored,) = found.endpoint_slices
    assert found.sources["EndpointSlice", mirrored.metadata.key] == Location("-", 2, "", 5)
    assert found.services == plain.services
    assert found.with_mirrored_slices() is found
