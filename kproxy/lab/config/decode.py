"""A lab's file to values: a Lab, and manifests beside it.

Everything that is wrong is told at once, each with its document, line and field.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from kproxy.api.document.read import read_documents
from kproxy.api.document.tree import Document, DocumentError, path_steps
from kproxy.api.fielderror import Problem, ProblemError, printable, show
from kproxy.api.kubeproxyconfig import types as kubeproxy
from kproxy.api.kubeproxyconfig.decode import ProxyConfigError, decode_config, decode_document, read_bytes
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES
from kproxy.errors import Location
from kproxy.lab.config.fields import API_VERSION, KIND, LabConfig, Options, read_lab

_PRESETS: Final = Path(__file__).with_name("presets")
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


def preset_names() -> list[str]:
    return sorted(path.stem for path in _PRESETS.glob("*.yaml"))


def preset_file(name: str) -> str:
    """The file of one of `preset_names`."""
    return str(_PRESETS / f"{name}.yaml")


def about_preset(name: str) -> str:
    """What a preset shows, in one sentence."""
    with open(preset_file(name), encoding="utf-8") as file:
        return file.readline().removeprefix("#").strip()
