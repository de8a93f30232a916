"""Manifests for a lab: files and directories as kubectl takes them, to objects in the order they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, Final

import msgspec

from kproxy.api.document.json_text import read_json, split_json
from kproxy.api.document.read import read_documents
from kproxy.api.document.tree import Document, DocumentError, path_steps
from kproxy.api.fielderror import Problem, printable, show
from kproxy.api.load.manifests import read_files
from kproxy.api.load.reader import MAX_LISTS
from kproxy.errors import Location
from kproxy.lab.errors import LabInputError
from kproxy.lab.resources import Json

_FIRST: Final = (
    "Namespace", "CustomResourceDefinition", "ResourceQuota", "LimitRange", "PriorityClass", "RuntimeClass",
    "StorageClass", "IngressClass", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding",
    "ConfigMap", "Secret", "PersistentVolume", "PersistentVolumeClaim", "Service",
)  # fmt: skip
"""Kinds that others may need, in the order they are made."""
_KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml")
KUSTOMIZATION: Final = "Kustomization"


class Manifest(msgspec.Struct, frozen=True):
    """One object, and where it was read."""

    where: Location
    body: Json

    @property
    def kind(self) -> str:
        return str(self.body["kind"])

    @property
    def group(self) -> str:
        return str(self.body["apiVersion"]).rpartition("/")[0]

    @property
    def version(self) -> str:
        return str(self.body["apiVersion"]).rpartition("/")[2]


def read_manifests(paths: Sequence[str], more: Callable[[ManifestReader], None] | None = None) -> list[Manifest]:
    """All objects of files, directories and standard input ("-"), Lists taken apart, those first that others need.

    Args:
        more: adds to them what was read otherwise.

    Raises:
        LabInputError: something cannot be read, or is no object; all such problems at once.
    """
    reader = ManifestReader()
    for path in paths:
        for file, data in read_files(path, None, reader.problems):
            reader.read(file, data)
    if more is not None:
        more(reader)
    if reader.problems:
        raise LabInputError("\n".join(map(str, reader.problems)))
    return sorted(reader.found, key=lambda item: _FIRST.index(item.kind) if item.kind in _FIRST else len(_FIRST))


def asks_for_names(manifests: Sequence[Manifest]) -> Manifest | None:
    """The first manifest whose commands may ask for the names of Services among the others."""
    if not any(item.kind == "Service" for item in manifests):
        return None
    return next((item for item in manifests if _runs_commands(item)), None)


def _runs_commands(item: Manifest) -> bool:
    spec = item.body.get("spec")
    ends = isinstance(spec, dict) and spec.get("restartPolicy") in ("Never", "OnFailure")
    return item.kind == "Job" or (item.kind == "Pod" and ends)


class ManifestReader:
    """Collects the objects of files."""

    def __init__(self) -> None:
        self.found: list[Manifest] = []
        self.problems: list[Problem] = []

    def read(self, file: str, data: bytes) -> None:
        """Reads what a file holds."""
        try:
            documents = _documents(data)
        except DocumentError as error:
            self.problems.append(Problem(Location(file, line=error.line), printable(error.message)))
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            self.problems.append(Problem(Location(file, line=line), f"not UTF-8 text: {error.reason}"))
        else:
            for number, document in enumerate(documents, 1):
                self.add(file, number, document)

    def add(self, file: str, number: int, document: Document) -> None:
        """Takes the objects of one document of a file."""
        for each in document.duplicates:
            self.problems.append(Problem(Location(file, number, "", each.line), printable(each.message)))
        if document.value is None:
            return

        def location(prefix: str, field: str = "") -> Location:
            path = ".".join(filter(None, (prefix, field)))
            return Location(file, number, path, max(document.line_of(path_steps(path)), document.root_line))

        value = document.value
        if isinstance(value, dict) and PurePath(file).name in _KUSTOMIZATIONS:
            value = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": KUSTOMIZATION, **value}
        self._take(value, location, "", ("", ""), 0)

    def _take(
        self, value: Any, location: Callable[..., Location], prefix: str, inherited: tuple[str, str], depth: int
    ) -> None:
        """An object, or a List of some; the items of a typed List may leave out apiVersion and kind."""
        api_version, kind = inherited
        if isinstance(value, dict):
            api_version, kind = value.get("apiVersion") or api_version, value.get("kind") or kind
        if not isinstance(value, dict) or not all(isinstance(each, str) and each for each in (api_version, kind)):
            self.problems.append(Problem(location(prefix), "an object with apiVersion and kind expected"))
            return
        items = value.get("items")
        if kind.endswith("List") and (kind == "List" or isinstance(items, list)):
            if not isinstance(items or [], list) or depth >= MAX_LISTS:
                text = f"Lists nested more than {MAX_LISTS} deep" if depth >= MAX_LISTS else "a list expected"
                self.problems.append(Problem(location(prefix, "items"), text))
                return
            inside = ("", "") if kind == "List" else (api_version, kind.removesuffix("List"))
            for index, item in enumerate(items or []):
                path = f"{prefix}.items[{index}]".lstrip(".")
                self._take(item, location, path, inside, depth + 1)
            return
        meta = value.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        if kind != KUSTOMIZATION and not (name and isinstance(name, str)):
            wrong = f"Invalid value: {show(name)}: must be a string" if name else "Required value"
            self.problems.append(Problem(location(prefix, "metadata.name"), wrong))
            return
        self.found.append(Manifest(location(prefix), {**value, "apiVersion": api_version, "kind": kind}))


def _documents(data: bytes) -> list[Document]:
    """The documents of YAML, of JSON, or of several JSON texts after one another."""
    text = data.decode("utf-8-sig")
    if text.lstrip()[:1] == "{":
        data = text.encode()
        pieces = list(split_json(data))
        if len(pieces) > 1:
            try:
                # Empty lines in front: a field's line is that of the whole file.
                return [read_json("\n" * data.count(b"\n", 0, at) + piece.decode()) for at, piece in pieces]
            except DocumentError:
                pass
    return read_documents(text)
