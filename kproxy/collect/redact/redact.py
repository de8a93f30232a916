"""A whole snapshot, redacted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from kproxy.api.load.manifests import load_contents
from kproxy.api.load.reader import RawObject
from kproxy.cluster.snapshot import layout
from kproxy.cluster.snapshot.cluster import object_contents, value_of_object
from kproxy.cluster.snapshot.files import Files, MemoryFiles
from kproxy.cluster.snapshot.info import UNKNOWN, Failure, SnapshotInfo, read_info
from kproxy.collect.redact.hostfiles import message, redact_file
from kproxy.collect.redact.names import HOST, NODE
from kproxy.collect.redact.objects import REDACTED_KINDS, redact_object
from kproxy.collect.redact.words import UnredactableError, Words
from kproxy.errors import InputError

KEY_OCTETS: Final = 32


class Redacted(NamedTuple):
    """A redacted snapshot, and what stood for what: kinds of names (`addresses` among them), then new by old."""

    files: MemoryFiles
    replaced: Mapping[str, Mapping[str, str]]


def redact_snapshot(files: Files, key: bytes, tell: Callable[[str], None]) -> Redacted:
    """Replaces names and addresses.

    Args:
        key: `KEY_OCTETS` random octets; with the same key addresses are replaced alike.
        tell: gets what had to be left out.

    Raises:
        InputError: the objects cannot be used, or a file cannot be read.
    """
    words = Words(key)
    snapshot = _Snapshot(files)
    snapshot.redact(words, lambda _text: None)
    words.settle()
    return Redacted(snapshot.redact(words, tell), _replaced(words))


def _replaced(words: Words) -> dict[str, Mapping[str, str]]:
    found: dict[str, Mapping[str, str]] = {kind: words.names.given(kind) for kind in words.names.kinds}
    return {**found, "addresses": words.addresses.known()}


class _Snapshot:
    """The snapshot as it is, read once for each reading."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._paths = files.paths()
        self._info = read_info(files)
        raw: list[RawObject] = []
        contents = object_contents(files)
        if contents:
            load_contents(contents, on_object=raw.append)
        self._objects = list(map(value_of_object, raw))
        if not raw and self._info is UNKNOWN and not self._hosts():
            raise InputError(f"{files.label}: not a snapshot: no objects/*.json and no nodes/NAME/ in it")
        self._nodes = {
            str((each.get("metadata") or {}).get("name")) for each in self._objects if each["kind"] == "Node"
        }

    def redact(self, words: Words, tell: Callable[[str], None]) -> MemoryFiles:
        """One reading; what comes of the first is nobody's."""
        found = MemoryFiles(self._files.label)
        failed = self._put_objects(words, found, tell)
        for host, names in sorted(self._hosts().items()):
            self._put_host(host, names, words, found, tell)
        info = self._redacted_info(words, failed)
        found.put(layout.INFO, f"{json.dumps(msgspec.to_builtins(info), indent=1)}\n".encode())
        return found

    def _hosts(self) -> dict[str, list[str]]:
        """The known files of each host, by their names."""
        hosts: dict[str, list[str]] = {}
        for path in self._paths:
            if path.startswith(f"{layout.NODES}/") and path.count("/") > 1:
                _, host, name = path.split("/", 2)
                hosts.setdefault(host, []).append(name)
        return hosts

    def _put_objects(self, words: Words, found: MemoryFiles, tell: Callable[[str], None]) -> list[Failure]:
        lists: dict[str, list[dict[str, Any]]] = {}
        failed, left_out = [], 0
        for value in self._objects:
            kind = str(value["kind"])
            try:
                redacted = redact_object(value, words)
            except UnredactableError as error:
                failed.append(Failure(f"{layout.OBJECTS}/{kind}.json", f"not redacted: {error}"))
                continue
            if redacted is None:
                left_out += 1
            else:
                lists.setdefault(kind, []).append(redacted)
        known = {path: kind for kind in REDACTED_KINDS if (path := f"{layout.OBJECTS}/{kind}.json") in self._paths}
        for kind in {**dict.fromkeys(known.values()), **lists}:
            listed = {"apiVersion": "v1", "kind": "List", "items": lists.get(kind, [])}
            found.put(f"{layout.OBJECTS}/{kind}.json", json.dumps(listed, indent=1).encode())
        for each in failed:
            tell(f"{each.what}: left out: {each.message}")
        if left_out:
            tell(f"{layout.OBJECTS}: left out objects of other kinds: {left_out}")
        return failed

    def _put_host(
        self, host: str, names: list[str], words: Words, found: MemoryFiles, tell: Callable[[str], None]
    ) -> None:
        new = self._host(host, words)
        errors = ""
        for name in sorted(names):
            path = layout.host_file(host, name)
            if name not in layout.HOST_FILES:
                tell(f"{path}: left out: no file of a snapshot")
                continue
            text = (self._files.read(path) or b"").decode("utf-8", "surrogateescape")
            try:
                redacted = redact_file(name, text, words)
            except UnredactableError as error:
                tell(f"{path}: left out: {error}")
                errors += f"{name}: not redacted\n"
                continue
            if name == layout.ERRORS:
                errors += redacted
            else:
                found.put(layout.host_file(new, name), redacted.encode("utf-8", "surrogateescape"))
        if errors:
            found.put(layout.host_file(new, layout.ERRORS), errors.encode())

    def _host(self, name: str, words: Words) -> str:
        return words.names.name(HOST if self._nodes and name not in self._nodes else NODE, name)

    def _redacted_info(self, words: Words, failed: list[Failure]) -> SnapshotInfo:
        old = SnapshotInfo() if self._info is UNKNOWN else self._info
        return msgspec.structs.replace(
            old,
            source="",
            redacted=True,
            nodes={self._host(name, words): info for name, info in old.nodes.items()},
            failed=(*(self._failure(each, words) for each in old.failed), *failed),
        )

    def _failure(self, failure: Failure, words: Words) -> Failure:
        top, _, rest = failure.what.partition("/")
        if top == layout.NODES:
            host, slash, name = rest.partition("/")
            known = name if name in layout.HOST_FILES else ""
            return Failure(f"{top}/{self._host(host, words)}{slash if known else ''}{known}", message(failure.message))
        return Failure(failure.what if rest.removesuffix(".json") in REDACTED_KINDS else top, message(failure.message))
