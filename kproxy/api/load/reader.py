"""Content to objects: what load_manifests does with each file's bytes.

A `Reader` collects objects, problems and warnings over all files. For each object it keeps a `SourceLocation`, from
which the line of a field can be found when, and only when, there is something to say about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import msgspec

from kproxy.api.document.json_text import line_and_column, split_json, split_message, with_lines
from kproxy.api.document.tree import Document, DocumentError, path_steps
from kproxy.api.document.yaml_text import read_yaml
from kproxy.api.fielderror import FieldError, Problem, printable, show
from kproxy.api.load.formats import BROKEN, is_flow_yaml, is_json_lines, is_one_json
from kproxy.api.validation.cluster import collisions, validate_node, validate_service_cidr
from kproxy.api.validation.discovery import unusable_ports, validate_endpoint_slice, validate_endpoints
from kproxy.api.validation.service import validate_service
from kproxy.api.validation.strict import spelling_errors, strict_warnings
from kproxy.api.validation.types import misspelt, overlap, type_errors, unknown_fields, without_fields
from kproxy.api.wire import structs
from kproxy.api.wire.convert import Object, convert
from kproxy.errors import Location

MAX_LISTS: Final = 8
"""Lists within Lists that are opened."""


class _List(msgspec.Struct, rename=structs.api_name):
    """Any kind of List, its items still bytes."""

    api_version: str | None = None
    kind: str | None = None
    items: list[msgspec.Raw] | None = None


_OBJECT: Final = msgspec.json.Decoder(structs.WireObject)
_LIST: Final = msgspec.json.Decoder(_List)
_ANYTHING: Final = msgspec.json.Decoder()


RawObject = msgspec.Raw | bytes | dict[str, Any]
"""An object before it is validated: JSON, or a decoded document. Items of Lists have their own kind."""

_VALIDATORS: Final[dict[str, Callable[[Any], list[FieldError]]]] = {
    "Service": validate_service,
    "EndpointSlice": lambda item: validate_endpoint_slice(item) + unusable_ports(item),
    "Endpoints": validate_endpoints,
    "Node": validate_node,
    "ServiceCIDR": validate_service_cidr,
}


_DECIDING: Final = frozenset(
    {"type", "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "sessionAffinity", "externalTrafficPolicy"}
    | {"addressType", "metadata", "spec", "podCIDR", "podCIDRs", "cidrs"}
)
"""Fields that decide what others may hold."""


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """Where an object is: `prefix` is its path in its document (`items[3]`), `find` gives the line of a path there."""

    file: str
    document: int
    line: int
    prefix: str
    find: Callable[[str], int] | None

    def at(self, path: str = "") -> Location:
        full = ".".join(part for part in (self.prefix, path) if part)
        line = self.find(full) if self.find is not None else self.line
        return Location(self.file, self.document, printable(full), line or self.line)

    def item(self, index: int) -> SourceLocation:
        return SourceLocation(
            self.file, self.document, self.line, f"{self.prefix}.items[{index}]".lstrip("."), self.find
        )


class Reader:
    """Collects what all files hold. `on_object` gets every object, also of kinds that are skipped."""

    def __init__(self, on_object: Callable[[RawObject], None] | None = None) -> None:
        self._on_object = on_object or _ignore
        self.objects: dict[str, list[Any]] = {kind: [] for kind in structs.KINDS}
        self.sources: dict[tuple[str, str], Location] = {}
        self.skipped: Counter[str] = Counter()
        self.warnings: list[str] = []
        self.problems: list[Problem] = []
        self.count = 0
        self._locations: dict[tuple[str, str], SourceLocation] = {}
        self._shared: dict[str | None, str | None] = {}

    def read(self, file: str, data: bytes) -> None:
        """Reads one file's bytes."""
        data = data.removeprefix(b"\xef\xbb\xbf")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            hint = " (it looks like UTF-16)" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
            self._problem(Location(file, 0, "", line), f"not UTF-8: byte 0x{data[error.start]:02x}{hint}")
            return
        start = data.lstrip()[:1]
        if file.endswith(".jsonl"):
            self._read_lines(file, data)
        elif start == b"{" and not is_flow_yaml(file, data, text):
            self._read_json(file, data)
        elif start == b"[" and (file.endswith(".json") or is_one_json(data)):
            # An array of objects is neither a manifest nor a List; a YAML sequence gets the same answer.
            self._problem(Location(file, 1, "", 1), _NO_ARRAY)
        else:
            self._read_yaml(file, text)

    def _problem(self, location: Location, message: str) -> None:
        self.problems.append(Problem(location, message))

    # JSON

    def _read_json(self, file: str, data: bytes) -> None:
        if is_json_lines(data):
            self._read_lines(file, data)
            return
        line, before = 1, 0
        for number, (offset, piece) in enumerate(split_json(data), 1):
            line += data.count(b"\n", before, offset)
            before = offset
            self._json(file, number, line, piece)

    def _read_lines(self, file: str, data: bytes) -> None:
        decode = _OBJECT.decode
        number = 0
        for line, text in enumerate(data.split(b"\n"), 1):
            if not text or text.isspace():
                continue
            number += 1
            try:
                spelled = decode(text)
            except BROKEN:
                self._json(file, number, line, text)
                continue
            if spelled.api_version == structs.API_VERSIONS[type(spelled)]:
                self._on_object(text)
                self._accept(spelled, SourceLocation(file, number, line, "", None))
            else:
                self._json(file, number, line, text)

    def _json(self, file: str, number: int, line: int, piece: bytes) -> None:
        """One JSON document that starts on line `line`."""
        lines = cache(lambda: with_lines(piece.decode("utf-8")))

        def find(path: str) -> int:
            return line if b"\n" not in piece else line - 1 + lines().line_of(path_steps(path))

        source = SourceLocation(file, number, line, "", find)
        try:
            if not self._json_list(piece, source):
                self._value(_ANYTHING.decode(piece), source, ("", ""))
        except RecursionError:
            self._problem(source.at(), "nested too deeply")
        except msgspec.ValidationError as error:
            self._problem(source.at(), split_message(error)[0])
        except BROKEN as error:
            message, at = split_message(error)
            row, column = line_and_column(piece, len(piece) if at is None else at)
            self._problem(Location(file, number, "", line - 1 + row), f"invalid JSON, column {column}: {message}")

    def _json_list(self, piece: bytes, source: SourceLocation) -> bool:
        """Open a List without decoding its items twice; False if it is not a List."""
        try:
            found = _LIST.decode(piece)
        except msgspec.ValidationError:
            return False
        if found.items is None or not found.kind or not found.kind.endswith("List") or not found.api_version:
            return False
        inherited = _inherited(found.api_version, found.kind)
        for index, raw in enumerate(found.items):
            inside = source.item(index)
            try:
                spelled = _OBJECT.decode(raw)
            except msgspec.ValidationError:
                pass
            else:
                if spelled.api_version == structs.API_VERSIONS[type(spelled)]:
                    self._on_object(raw)
                    self._accept(spelled, inside)
                    continue
            try:
                value = _ANYTHING.decode(raw)
            except msgspec.ValidationError as error:
                self._problem(inside.at(), split_message(error)[0])  # a number out of range
            else:
                self._value(value, inside, inherited)
        self.count += 1
        return True

    # YAML

    def _read_yaml(self, file: str, text: str) -> None:
        number = 0
        try:
            for number, document in enumerate(read_yaml(text), 1):
                for error in document.duplicates:
                    self._problem(Location(file, number, "", error.line), printable(error.message))
                if document.value is not None:
                    source = SourceLocation(file, number, document.line, "", partial(_line_of, document))
                    self._value(document.value, source, ("", ""))
        except DocumentError as error:
            what = f"invalid YAML, column {error.column}" if error.column else "invalid YAML"
            self._problem(Location(file, number + 1, "", error.line), f"{what}: {printable(error.message)}")

    # Values

    def _value(self, value: Any, source: SourceLocation, inherited: tuple[str, str], depth: int = 0) -> None:
        """One generic document or item: an object, a List, or neither."""
        if not isinstance(value, dict):
            self._problem(source.at(), _NO_ARRAY if isinstance(value, list) else f"not an object: {show(value)}")
            return
        version, kind = self._header(value, source, inherited)
        if not version or not kind:
            return
        if kind.endswith("List") and (kind == "List" or isinstance(value.get("items"), list)):
            self._list(value, source, _inherited(version, kind), depth)
        elif kind in structs.KINDS and _group(version) == _group(structs.KINDS[kind][0]):
            supported, struct = structs.KINDS[kind]
            if version != supported:
                text = f'no matches for kind "{kind}" in version {show(version)}: only {supported} is supported'
                self._problem(source.at("apiVersion"), text)
                return
            value = value | {"kind": kind}
            self._on_object(value)
            self._convert(value, struct, source)
        else:
            self._on_object(value | {"kind": kind})
            # A Namespace decides no packet: nobody misses anything of it, so there is nothing to say.
            if (version, kind) != ("v1", "Namespace"):
                self.skipped[printable(f"{version}/{kind}")] += 1
            self.count += 1

    def _header(self, value: dict[str, Any], source: SourceLocation, inherited: tuple[str, str]) -> tuple[str, str]:
        """apiVersion and kind; the items of a typed List may leave both out. Empty when there is an error."""
        found = []
        for name, default in zip(("apiVersion", "kind"), inherited, strict=True):
            given = value.get(name)
            if given is None or given == "":
                given = default
                if not default:
                    self._problem(source.at(), f"{name} not set")
            elif not isinstance(given, str):
                self._problem(source.at(name), f"Invalid value: {show(given)}: must be a string")
                given = ""
            found.append(given)
        return found[0], found[1]

    def _list(self, value: dict[str, Any], source: SourceLocation, inherited: tuple[str, str], depth: int) -> None:
        items = value.get("items")
        if items is None:
            items = []
        if not isinstance(items, list):
            self._problem(source.at("items"), f"Invalid value: {show(items)}: must be a list")
        elif depth >= MAX_LISTS:
            self._problem(source.at(), f"Lists nested more than {MAX_LISTS} deep")
        else:
            self.count += 1
            for index, item in enumerate(items):
                self._value(item, source.item(index), inherited, depth + 1)

    def _convert(self, value: dict[str, Any], struct: type[structs.WireObject], source: SourceLocation) -> None:
        for warning in unknown_fields(value, struct, misspelt):
            self.warnings.append(f"{source.at(warning.path)}: {warning.message}")
        try:
            spelled = msgspec.convert(value, struct)
        except BROKEN as error:
            found = type_errors(value, struct) or [FieldError("", str(error))]
            self._report(source, found + self._other_errors(value, struct, [wrong.path for wrong in found]))
        else:
            self._accept(spelled, source)

    def _other_errors(
        self, value: dict[str, Any], struct: type[structs.WireObject], wrong: list[str]
    ) -> list[FieldError]:
        """What else is wrong in an object that has fields of wrong types: those are left out and the rest validated.

        Nothing, where a field of a wrong type decides what other fields may hold.
        """
        if any(path == "" or path.rpartition(".")[2] in _DECIDING for path in wrong):
            return []
        try:
            spelled = msgspec.convert(without_fields(value, [path_steps(path) for path in wrong]), struct)
        except BROKEN:
            return []
        _, _, errors = self._validated(spelled)
        # Fields of one list item depend on one another (targetPort defaults to port), so the item is one thing here.
        scopes = [parent if parent.endswith("]") else path for path in wrong for parent in [path.rpartition(".")[0]]]
        return [error for error in errors if not any(overlap(error.path, scope) for scope in scopes)]

    # Objects

    def _report(self, source: SourceLocation, errors: list[FieldError]) -> None:
        self.count += 1
        for error in errors:
            self._problem(source.at(error.path), error.message)

    def _validated(self, spelled: structs.WireObject) -> tuple[str, Object, list[FieldError]]:
        """The kind of an object, its value, and what is wrong in it."""
        value = convert(spelled, self._shared)
        kind = type(value).__name__
        return kind, value, spelling_errors(spelled) + _VALIDATORS[kind](value)

    def _accept(self, spelled: structs.WireObject, source: SourceLocation) -> None:
        """Convert, validate and keep one object."""
        self.count += 1
        kind, value, errors = self._validated(spelled)
        if errors:
            self._report(source, errors)
        identity = (kind, value.metadata.key)
        if identity in self.sources:
            if value.metadata.name:
                where = f"already defined in {self.sources[identity]}"
                self._problem(source.at("metadata.name"), f"Duplicate value: {show(value.metadata.key)}: {where}")
            return
        location = Location(source.file, source.document, source.prefix, source.line)
        self.sources[identity] = location
        self._locations[identity] = source
        if errors:
            return
        self.objects[kind].append(value)
        for warning in strict_warnings(spelled):
            self.warnings.append(f"{source.at(warning.path)}: {warning.message}")

    def check_between(self) -> None:
        """Rules between objects, once all are read."""
        for service, error in collisions(self.objects["Service"], self.sources):
            source = self._locations["Service", service.metadata.key]
            self._problem(source.at(error.path), error.message)


def _ignore(_object: RawObject) -> None:
    pass


_NO_ARRAY: Final = "a list at the top is no manifest: put the objects under `items` of a v1 List, or one per line"


def _inherited(version: str, kind: str) -> tuple[str, str]:
    """apiVersion and kind that the items of a typed List may leave out."""
    return ("", "") if kind == "List" else (version, kind.removesuffix("List"))


def _group(version: str) -> str:
    return version.rpartition("/")[0]


def _line_of(document: Document, path: str) -> int:
    return document.line_of(path_steps(path))
