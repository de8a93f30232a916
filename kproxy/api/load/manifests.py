"""Manifests: files, directories and standard input to frozen objects; the one module of the core that opens files.

    manifests = load_manifests(["cluster.yaml", "extra/", "-"])

A file holds YAML documents, one JSON document, concatenated JSON, or JSON lines; its content decides, not its name.
Lists, also nested ones, are opened. JSON never goes through YAML: each document is decoded once, straight into wire
structs (`wire`), then converted and validated. Only what this refuses is decoded again,
generically, to find every error in it and the line of each. All problems of all files are raised together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final

from kproxy.api.fielderror import ManifestError, Problem
from kproxy.api.load.mirror import mirror_endpoints
from kproxy.api.load.reader import RawObject, Reader
from kproxy.api.octets import read_octets
from kproxy.api.types.core import Endpoints, Node, Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.api.types.networking import ServiceCIDR
from kproxy.errors import Location

SUFFIXES: Final = (".yaml", ".yml", ".json", ".jsonl")
"""The files of a directory that are manifests: kubectl's, and JSON lines."""


@dataclass(frozen=True, slots=True)
class Manifests:
    """What was loaded, in input order.

    `sources` says where each object came from, by kind and `namespace/name`; `skipped` counts the objects of other
    kinds by `apiVersion/kind`; `warnings` are for the user's eyes.
    """

    services: tuple[Service, ...] = ()
    endpoint_slices: tuple[EndpointSlice, ...] = ()
    endpoints: tuple[Endpoints, ...] = ()
    nodes: tuple[Node, ...] = ()
    sources: Mapping[tuple[str, str], Location] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    service_cidrs: tuple[ServiceCIDR, ...] = ()

    def with_mirrored_slices(self) -> Manifests:
        """The same, and the EndpointSlices that mirror Endpoints (mirror.py), with the Endpoints as their source."""
        mirrored = mirror_endpoints(self.services, self.endpoint_slices, self.endpoints)
        if not mirrored:
            return self
        sources = dict(self.sources)
        for item in mirrored:
            owner = ("Endpoints", f"{item.metadata.namespace}/{item.metadata.labels['kubernetes.io/service-name']}")
            if owner in sources:
                sources["EndpointSlice", item.metadata.key] = sources[owner]
        return replace(self, endpoint_slices=self.endpoint_slices + mirrored, sources=MappingProxyType(sources))


def load_manifests(
    paths: Sequence[str | os.PathLike[str]],
    stdin: BinaryIO | bytes | None = None,
    on_object: Callable[[RawObject], None] | None = None,
    unpack: Callable[[str], Mapping[str, bytes] | None] | None = None,
) -> Manifests:
    """Load files, directories (their *.yaml, *.yml, *.json and *.jsonl, not recursively) and `-` for standard input.

    Args:
        stdin: stands in for the process's standard input.
        on_object: gets each object before it is validated, those of other kinds too.
        unpack: of a path, contents by the names that messages give them, if it is something that holds files, as an
            archive does; else None.

    Raises:
        ManifestError: every problem found.
    """
    reader = Reader(on_object)
    for path in paths:
        name = os.fspath(path)
        held = None if unpack is None else unpack(name)
        for file, data in read_files(name, stdin, reader.problems) if held is None else held.items():
            reader.read(file, data)
    return _finish(reader, [os.fspath(path) for path in paths])


def parse_manifests(data: bytes | str, file: str = "<bytes>") -> Manifests:
    """The same for one content; `file` is the name that messages give."""
    return load_contents({file: data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data})


def load_contents(files: Mapping[str, bytes], on_object: Callable[[RawObject], None] | None = None) -> Manifests:
    """The same for several files in memory, by the names that messages give them. Files may be empty lists."""
    reader = Reader(on_object)
    for name, data in files.items():
        reader.read(name, data)
    return _finish(reader, list(files))


def _finish(reader: Reader, names: list[str]) -> Manifests:
    reader.check_between()
    if not reader.count and not reader.problems:
        where = Location(", ".join(names) or "manifests")
        reader.problems.append(Problem(where, "no Kubernetes objects found"))
    if reader.problems:
        raise ManifestError(reader.problems)
    objects = {kind: tuple(values) for kind, values in reader.objects.items()}
    return Manifests(
        objects["Service"],
        objects["EndpointSlice"],
        objects["Endpoints"],
        objects["Node"],
        MappingProxyType(reader.sources),
        MappingProxyType(dict(sorted(reader.skipped.items()))),
        tuple(reader.warnings),
        objects["ServiceCIDR"],
    )


def read_files(name: str, stdin: BinaryIO | bytes | None, problems: list[Problem]) -> Iterator[tuple[str, bytes]]:
    """The files that one argument names, with their bytes; what cannot be read becomes a problem."""
    if not name:  # a script's unset variable: not the current directory
        problems.append(Problem(Location('""'), "the name of a file or directory expected, not an empty one"))
        return
    if name == "-":
        try:
            yield name, stdin if isinstance(stdin, bytes) else read_octets(name, stdin)
        except (OSError, ValueError) as error:
            problems.append(Problem(Location(name), _reason(error)))
        return
    files = [name]
    try:
        if Path(name).is_dir():
            files = sorted(str(item) for item in Path(name).iterdir() if item.suffix in SUFFIXES and not item.is_dir())
            held = Path(name, "objects")  # of a snapshot, beside which there is snapshot.json at most
            if held.is_dir() and not set(files) - {str(Path(name, "snapshot.json"))}:
                message = f"no manifests in this directory; if it is a snapshot, they are in {held}"
                problems.append(Problem(Location(name), message))
                return
            if not files:
                patterns = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
                problems.append(Problem(Location(name), f"no manifests in this directory ({patterns})"))
    except (OSError, ValueError) as error:
        problems.append(Problem(Location(name), _reason(error)))
        return
    for file in files:
        try:
            data = read_octets(file)
        except (OSError, ValueError) as error:
            problems.append(Problem(Location(file), _reason(error)))
        else:
            yield file, data


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file or directory"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"cannot be read: {text}"
