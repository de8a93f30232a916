"""A lab's file to values: a Lab, and manifests beside it.

    apiVersion: kproxy/v1
    kind: Lab
    nodes: 3

Everything that is wrong is told at once, each with its document, line and field. Unlike kube-proxy with its own
configuration, a lab takes no field that it does not know: whoever misspells one would look at another lab than they
think. A field that is null is absent. Options of the command line are put into the document before it is read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import msgspec
import yaml

from kproxy.api.document.read import read_documents
from kproxy.api.document.tree import Document, DocumentError, path_steps
from kproxy.api.fielderror import (
    FieldError,
    Problem,
    ProblemError,
    invalid,
    printable,
    required,
    show,
    unknown_field,
)
from kproxy.api.kubeproxyconfig import types as kubeproxy
from kproxy.api.kubeproxyconfig.decode import ProxyConfigError, decode_config, decode_document, read_bytes
from kproxy.api.kubeproxyconfig.duration import Duration
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES
from kproxy.api.validation.meta import validate_labels
from kproxy.api.validation.types import type_errors, unknown_fields, without_fields
from kproxy.errors import Location
from kproxy.lab.spec import (
    CLIENT,
    DEFAULT_NAME,
    DEFAULT_NODES,
    FABRIC,
    MAX_NODES,
    NAME_RULE,
    BackendName,
    IpFamily,
    LabSpec,
    Mode,
    Variant,
    is_name,
    node_number,
)

API_VERSION: Final = "kproxy/v1"
KIND: Final = "Lab"
DEFAULT_TIMEOUT: Final = 120.0
_LEAST_TIMEOUT: Final = 1.0
Options = Mapping[str, Any]
"""What the command line says, by the path of the field that it stands for; an option that is not given is absent."""


class Seconds(float):
    """A duration, as Go writes them or a number of seconds, of at least one second."""

    @classmethod
    def of(cls, value: object) -> Seconds:
        """Raises ValueError: it is none."""
        if isinstance(value, str):
            found = cls(Duration.of(value).seconds)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = cls(value)
        else:
            raise ValueError('must be a duration such as "2m", or a number of seconds')
        if not _LEAST_TIMEOUT <= found < math.inf:
            raise ValueError(f"must be at least {_LEAST_TIMEOUT:g} s")
        return found


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    """A map of the file."""


class HostCommand(_Fields, frozen=True):
    """A command for a shell in the network of a host: `client`, `fabric` or a node; when the lab is up."""

    host: str = ""
    run: str = ""


class NodeFields(_Fields, frozen=True, omit_defaults=True):
    labels: dict[str, str] = {}


class Networking(_Fields, frozen=True):
    ip_family: IpFamily = "ipv4"
    backend: BackendName = "vxlan"
    dns: bool | None = None


class Proxy(_Fields, frozen=True):
    """`config` holds fields of a KubeProxyConfiguration, which may name the mode as well."""

    mode: Mode | None = None
    variant: Variant = "nft"
    config: dict[str, Any] | None = None


class LabFields(_Fields, frozen=True):
    """The whole document."""

    api_version: Literal["kproxy/v1"] | None = None
    kind: Literal["Lab"] | None = None
    name: str = DEFAULT_NAME
    nodes: int | tuple[NodeFields, ...] = DEFAULT_NODES
    networking: Networking = Networking()
    proxy: Proxy = Proxy()
    manifests: tuple[str, ...] = ()
    commands: tuple[HostCommand, ...] = ()
    timeout: Seconds = Seconds(DEFAULT_TIMEOUT)

    @property
    def count(self) -> int:
        """How many nodes there shall be."""
        return self.nodes if isinstance(self.nodes, int) else len(self.nodes)


class LabConfig(msgspec.Struct, frozen=True):
    """A lab's file, with what the command line says over it.

    Attributes:
        file: what messages call it; "" if there is none.
        objects: the documents of the file that are manifests themselves, each with its number.
        warnings: what is odd, and nothing wrong.
    """

    fields: LabFields = LabFields()
    file: str = ""
    objects: tuple[tuple[int, Document], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def manifests(self) -> tuple[str, ...]:
        """Files and directories to apply."""
        directory = "" if self.file == "-" else os.path.dirname(self.file)
        return tuple(os.path.join(directory, each) for each in self.fields.manifests)

    @property
    def spec(self) -> LabSpec:
        """The lab that it asks for."""
        fields, network, proxy = self.fields, self.fields.networking, self.fields.proxy
        labels = tuple(each.labels for each in fields.nodes) if isinstance(fields.nodes, tuple) else ()
        mode = proxy.mode or "iptables"
        return LabSpec(
            fields.name, fields.count, network.ip_family, proxy.variant, network.backend, mode, proxy.config or {},
            labels, bool(network.dns),
        )  # fmt: skip

    def with_dns(self) -> LabConfig:
        """The same, with cluster DNS."""
        network = msgspec.structs.replace(self.fields.networking, dns=True)
        return msgspec.structs.replace(self, fields=msgspec.structs.replace(self.fields, networking=network))

    def text(self, more: tuple[str, ...] = ()) -> str:
        """A file, as YAML, that asks for the same lab without the command line's options, with the manifests of the one
        that was read behind it, and `more` manifests."""
        proxy = msgspec.structs.replace(self.fields.proxy, mode=self.spec.mode)
        if proxy.config:
            proxy = msgspec.structs.replace(proxy, config={**proxy.config, "mode": self.spec.mode})
        manifests = (*self.manifests, *more)
        lab = msgspec.structs.replace(
            self.fields, api_version=API_VERSION, kind=KIND, proxy=proxy, manifests=manifests
        )  # fmt: skip
        document = _without_nulls(msgspec.to_builtins(lab, enc_hook=lambda value: f"{value:g}s"))
        shown = {name: value for name, value in document.items() if value != ()}
        documents = [shown, *(document.value for _, document in self.objects)]
        return "---\n".join(yaml.safe_dump(each, sort_keys=False, allow_unicode=True) for each in documents)


def read_lab(document: Mapping[str, Any], options: Options, file: str) -> tuple[LabFields, list[FieldError]]:
    """The fields of a document, but for the KubeProxyConfiguration in it, which is not looked at; and everything that
    is wrong."""
    given: dict[str, Any] = _without_nulls(document)
    for path, value in options.items():
        _put(given, path, value)
    if isinstance(given.get("proxy"), dict):
        given["proxy"].pop("config", None)
    errors = type_errors(given, LabFields)
    wrong = {error.path for error in errors}
    dropped = ("manifests" if path.startswith("manifests[") else path for path in wrong)
    fitting = without_fields(given, sorted({path_steps(path) for path in dropped}, key=len, reverse=True))
    fields = msgspec.convert(fitting, LabFields, dec_hook=lambda kind, value: kind.of(value))
    errors += unknown_fields(given, LabFields, lambda prefix, name, known, _given: [unknown_field(prefix, name, known)])
    # What is dropped is not missing.
    inside = tuple(f"{path}{sign}" for path in wrong for sign in ".[")
    faults = _faults(fields, LabConfig(fields, file).manifests)
    errors += (each for each in faults if each.path not in wrong and not each.path.startswith(inside))
    return fields, errors


def _put(given: dict[str, Any], path: str, value: Any) -> None:
    """Puts an option into a document, unless the map that it goes into is none, which is an error of its own."""
    if path == "nodes" and isinstance(given.get("nodes"), list):
        value = [*given["nodes"], *({} for _ in range(value))][:value]
    *above, name = path.split(".")
    for each in above:
        given = given.setdefault(each, {})
    if isinstance(given, dict):
        given[name] = value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [{} if each is None else _without_nulls(each) for each in value] if isinstance(value, list) else value


def _faults(fields: LabFields, manifests: tuple[str, ...]) -> Iterator[FieldError]:
    """What is wrong with fields of the right types; `manifests` are the paths of the fields' manifests."""
    if fields.api_version is None:
        yield required("apiVersion", f'must be "{API_VERSION}"')
    if fields.kind is None:
        yield required("kind", f'must be "{KIND}"')
    if not is_name(fields.name):
        yield invalid("name", fields.name, f"must be {NAME_RULE}")
    listed = fields.nodes if isinstance(fields.nodes, tuple) else None
    if not 1 <= fields.count <= MAX_NODES:
        yield invalid("nodes", fields.count, f"must be from 1 to {MAX_NODES}{'' if listed is None else ' nodes'}")
    for index, node in enumerate(listed or ()):
        yield from validate_labels(f"nodes[{index}].labels", node.labels)
    for index, (given, found) in enumerate(zip(fields.manifests, manifests, strict=True)):
        if not given:
            yield required(f"manifests[{index}]", "must be the name of a file or directory")
        elif not Path(found).exists():
            yield invalid(f"manifests[{index}]", given, f"no such file or directory: {found}")
    for index, command in enumerate(fields.commands):
        path, host = f"commands[{index}]", command.host
        yield from (required(f"{path}.{name}") for name in ("host", "run") if not getattr(command, name))
        if host and host not in (CLIENT, FABRIC) and not 1 <= (node_number(host) or 0) <= fields.count:
            yield invalid(f"{path}.host", host, f"must be {CLIENT}, {FABRIC}, or node-1 to node-{fields.count}")


# --- the file ---

_MODES: Final = (MODE_IPTABLES, MODE_NFTABLES)
_PROXY_CONFIG: Final = ("proxy", "config")
"""The field that may hold a KubeProxyConfiguration."""
_NONE: Final[Options] = MappingProxyType({})


class LabConfigError(ProblemError):
    """A lab's file that cannot be used."""


def load_lab_config(path: str, options: Options = _NONE) -> LabConfig:
    """The file at `path` ("-": standard input), with what the command line says over it.

    Raises:
        LabConfigError, ProxyConfigError: everything that is wrong with it.
    """
    return decode_lab_config(read_bytes(path), path, options)


def decode_lab_config(data: bytes, file: str, options: Options = _NONE) -> LabConfig:
    """The same of what a file holds; `file` is what messages call it, and what its paths are relative to."""
    try:
        documents = read_documents(data.decode("utf-8-sig"))
    except (DocumentError, UnicodeDecodeError):
        decode_config(data, file)  # it says what is wrong with the text
        raise
    given = [_Given(number, each) for number, each in enumerate(documents, 1) if each.value is not None]
    labs = [each for each in given if each.is_lab()]
    rest = [each for each in given if not each.is_lab()]
    problems = [problem for each in rest for problem in _problems_of_object(each, file, alone=not labs)]
    problems += [Problem(each.at(file), f"a second {KIND}: a file has one") for each in labs[1:]]
    if not given:
        problems.append(Problem(Location(file), f"holds no {KIND}: it is empty"))
    config = LabConfig(file=file, objects=tuple((each.number, each.document) for each in rest))
    if labs:
        config = _decode(labs[0], config, options, problems)
    if problems:
        raise LabConfigError(sorted(problems, key=lambda each: (each.location.document, each.location.line)))
    return config


def lab_of_options(options: Options) -> LabConfig:
    """A lab without a file."""
    return LabConfig(read_lab({"apiVersion": API_VERSION, "kind": KIND}, options, "")[0])


class _Given(NamedTuple):
    """A document that is not empty, and which of the file's it is."""

    number: int
    document: Document

    def is_lab(self) -> bool:
        """Whether it is a Lab, or wants to be one: it says so, or has an apiVersion of the kind's group."""
        value, group = self.document.value, API_VERSION.partition("/")[0]
        return isinstance(value, dict) and (
            value.get("kind") == KIND or str(value.get("apiVersion")).startswith(f"{group}/")
        )

    def at(self, file: str, path: str = "") -> Location:
        line = max(self.document.line_of(path_steps(path)), self.document.root_line)
        return Location(file, self.number, printable(path), line)


def _decode(lab: _Given, config: LabConfig, options: Options, problems: list[Problem]) -> LabConfig:
    """The lab of its document; what is wrong goes to `problems`."""
    number, document = lab
    file, place = config.file, Location(config.file, number)
    problems += (Problem(place._replace(line=each.line), printable(each.message)) for each in document.duplicates)
    fields, errors = read_lab(document.value, options, file)
    problems += (Problem(lab.at(file, each.path), each.message) for each in errors)
    config = msgspec.structs.replace(config, fields=fields)
    proxy = document.value.get("proxy")
    if not isinstance(proxy, dict) or proxy.get("config") is None:
        return config
    mode = fields.proxy.mode
    try:
        loaded = decode_document(document, file, mode, number=number, inside=_PROXY_CONFIG)
    except ProxyConfigError as error:
        problems += error.problems
        return config
    asked = loaded.given.get("mode")
    chosen, where = mode or asked or loaded.config.mode, lab.at(file, ".".join((*_PROXY_CONFIG, "mode")))
    if "proxy.mode" not in options and asked and mode not in (None, asked):
        problems.append(Problem(where, f"{show(asked)} here, and {show(mode)} in proxy.mode"))
    elif chosen not in _MODES:
        problems.append(Problem(where, f"mode {chosen}: a lab has {' or '.join(_MODES)}"))
    own = msgspec.structs.replace(fields.proxy, mode=chosen, config=dict(loaded.given))
    fields = msgspec.structs.replace(fields, proxy=own)
    return msgspec.structs.replace(config, fields=fields, warnings=loaded.warnings)


def _problems_of_object(given: _Given, file: str, *, alone: bool) -> Iterator[Problem]:
    """What is wrong with a document of another kind: it is a manifest if a Lab is beside it, and no misspelt Lab."""
    value: Any = given.document.value
    if not isinstance(value, dict):
        yield Problem(given.at(file), f"{show(value)}: an object with apiVersion and kind expected")
        return
    kind = value.get("kind")
    if not isinstance(kind, str) or not kind:
        yield Problem(given.at(file, "kind"), f"Required value: must be {show(KIND)}")
    elif kind == kubeproxy.KIND:
        yield Problem(given.at(file, "kind"), f"{show(kind)}: its fields go to {'.'.join(_PROXY_CONFIG)} of a {KIND}")
    elif get_close_matches(kind.lower(), [KIND.lower()], 1, 0.6):
        yield Problem(given.at(file, "kind"), f"unknown kind {show(kind)}; is {show(KIND)} meant?")
    elif alone:
        yield Problem(
            given.at(file, "kind"), f"{show(kind)}: {show(KIND)} expected; manifests go to -f, or beside a Lab"
        )


# --- the labs that are in the package: files like any other, each with what it shows in its first line ---


PRESETS: Final = {path.stem: str(path) for path in sorted(Path(__file__).with_name("presets").glob("*.yaml"))}
"""Files by the names of the labs."""


def about_preset(name: str) -> str:
    """What a preset shows, in one sentence."""
    with open(PRESETS[name], encoding="utf-8") as file:
        return file.readline().removeprefix("#").strip()
