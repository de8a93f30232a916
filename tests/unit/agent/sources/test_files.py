"""Manifests as a source."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kproxy.agent.sources.files import RETRY, FileSnapshot, FileSource, FileWatch, signature
from kproxy.api import ManifestError, Manifests, load_manifests
from kproxy.api.fielderror import Problem
from kproxy.errors import Location
from tests.support.agent.recorder import Recorder
from tests.support.waiting import PATIENCE


def service(name: str, port: int = 80) -> dict[str, object]:
    ip = f"10.96.0.{sum(name.encode()) % 250 + 1}"
    spec = {"clusterIP": ip, "ports": [{"port": port}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def endpoints(name: str, ip: str) -> dict[str, object]:
    subsets = [{"addresses": [{"ip": ip}], "ports": [{"port": 80}]}]
    return {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": name}, "subsets": subsets}


def node(name: str, cidr: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"podCIDR": cidr}}


def write(path: Path, *documents: dict[str, object]) -> None:
    path.write_text("\n---\n".join(map(json.dumps, documents)))


def make(directory: Path) -> tuple[FileSource, Recorder]:
    source, sink = unread(directory, lambda: None)
    return source, sink


def unread(
    directory: Path, meanwhile: Callable[[], None], clock: Callable[[], float] = lambda: 0.0
) -> tuple[FileSource, Recorder]:
    """A source as the agent makes it; `meanwhile` happens after the first read. Files are old by then."""
    sink = Recorder()
    snapshot = FileSnapshot.of([str(directory)], lambda: time.time() + 60)
    first = load_manifests([str(directory)]).with_mirrored_slices()
    meanwhile()
    source = FileSource([str(directory)], "node-0", sink, lambda: None, first, snapshot, clock)
    source.put(first)
    return source, sink


def test_puts_what_differs_and_no_more(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", service("web"), endpoints("web", "10.0.0.1"), node("node-0", "10.244.0.0/24"))
    write(tmp_path / "b.json", service("db"), node("node-1", "10.244.1.0/24"))
    source, sink = make(tmp_path)
    told = sink.take()
    assert [line.split("-")[0] for line in told] == ["+node 10.244.0.0/24", "+service default/db",
                                                     "+service default/web", "+slice default/web"]  # fmt: skip
    assert not source.look()
    write(tmp_path / "b.json", service("db", 81))
    assert not source.look(), "somebody may still be writing"
    assert source.look()
    assert sink.take() == ["+service default/db"]
    (tmp_path / "b.json").unlink()
    source.look()
    assert source.look()
    assert sink.take() == ["-service default/db"]
    write(tmp_path / "a.yaml", service("web"), endpoints("web", "10.0.0.2"), node("node-0", "10.244.9.0/24"))
    source.look()
    assert source.look()
    assert [line[:12] for line in sink.take()] == ["+node 10.244", "+slice defau"]
    write(tmp_path / "c.yaml", service("web2"))
    source.look()
    assert source.look()
    assert sink.take() == ["+service default/web2"]


def test_broken_files_are_reported_once_and_change_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "a.yaml", service("web"))
    source, sink = make(tmp_path)
    sink.take()
    (tmp_path / "a.yaml").write_text("{ half")
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            assert not source.look()
    assert len(caplog.records) == 1
    assert "a.yaml" in str(caplog.records[0].__dict__["fields"])
    assert sink.take() == []
    write(tmp_path / "a.yaml", service("web", 81))
    source.look()
    assert source.look()
    assert sink.take() == ["+service default/web"]


def test_a_change_right_after_the_first_read_is_not_missed(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", service("web"))
    source, sink = unread(tmp_path, lambda: write(tmp_path / "a.yaml", service("web", 81)))
    assert sink.take() == ["+service default/web"]
    source.look()
    assert source.look()
    assert sink.take() == ["+service default/web"]
    assert not source.look()


def test_files_that_were_just_written_are_read_once_more(tmp_path: Path) -> None:
    """Their next write may fall into the same tick of the kernel's clock, and look the same."""
    write(tmp_path / "a.yaml", service("web"))
    status = os.stat(tmp_path / "a.yaml")
    snapshot = FileSnapshot.of([str(tmp_path)])
    first = load_manifests([str(tmp_path)])
    write(tmp_path / "a.yaml", service("web", 81))
    os.utime(tmp_path / "a.yaml", ns=(status.st_atime_ns, status.st_mtime_ns))
    snapshot = FileSnapshot(signature([str(tmp_path)]), snapshot.at)
    sink = Recorder()
    source = FileSource([str(tmp_path)], "node-0", sink, lambda: None, first, snapshot)
    source.put(first)
    sink.take()
    assert source.look()
    assert sink.take() == ["+service default/web"]
    assert not source.look()


def test_a_half_written_file_waits_until_it_is_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "a.yaml", service("web"))
    source, sink = make(tmp_path)
    sink.take()
    whole = json.dumps(service("web", 81))
    for end in range(10, len(whole), 20):
        (tmp_path / "a.yaml").write_text(whole[:end])
        assert not source.look(), "it still changes"
        assert sink.take() == []
    (tmp_path / "a.yaml").write_text(whole)
    source.look()
    assert source.look()
    assert sink.take() == ["+service default/web"]
    assert not caplog.records, "nothing was tried too early"


def test_what_could_not_be_read_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "a.yaml", service("web"))
    now = 100.0
    source, sink = unread(tmp_path, lambda: None, lambda: now)
    sink.take()
    reads: list[float] = []

    def away(_paths: object) -> Manifests:
        reads.append(now)
        raise ManifestError((Problem(Location("a.yaml"), "cannot be read: Input/output error"),))

    (tmp_path / "b.yaml").write_text(json.dumps(service("db")))
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.INFO):
        patch.setattr("kproxy.agent.sources.files.load_manifests", away)
        source.look()
        for _ in range(40):
            assert not source.look()
            now += 0.25
    assert len(reads) == 2, "not at every look"
    assert len(caplog.records) == 1, "the same reason is told once"
    now += RETRY
    with caplog.at_level(logging.INFO):
        assert source.look()
    assert sink.take() == ["+service default/db"]
    assert caplog.records[-1].getMessage() == "manifests taken again"


def test_a_replaced_file_of_the_same_size_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("a")
    before = signature([str(tmp_path)])
    other = tmp_path / "other"
    other.write_text("b")
    other.rename(file)
    assert signature([str(tmp_path)]) != before
    assert signature([str(tmp_path / "missing")]) == ()


def test_the_thread_puts_the_first_contents_and_says_so(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", service("web"))
    synced, sink = threading.Event(), Recorder()
    source = FileSource([str(tmp_path)], "node-0", sink, synced.set, load_manifests([str(tmp_path)]))
    assert source.describe_waiting()
    source.start()
    assert synced.wait(PATIENCE)
    assert sink.take() == ["+service default/web"]
    assert not source.describe_waiting()
    source.stop()


def test_a_configuration_that_changes(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("a: 1")
    watch = FileWatch(str(file))
    assert not watch.changed()
    file.touch()
    assert not watch.changed(), "the same contents"
    file.unlink()
    assert not watch.changed(), "it may be about to be replaced"
    file.write_text("a: 2")
    assert watch.changed()


def test_service_cidrs_are_put(tmp_path: Path) -> None:
    cidr: dict[str, object] = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/16"]},
    }
    write(tmp_path / "a.yaml", service("web"), cidr)
    source, sink = make(tmp_path)
    [(key, found)] = sink.service_cidrs.items()
    assert found is not None
    assert found.cidrs == ("10.96.0.0/16",)
    write(tmp_path / "a.yaml", service("web"))
    source.look()
    assert source.look()
    assert sink.service_cidrs == {key: None}
