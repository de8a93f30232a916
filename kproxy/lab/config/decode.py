"""A lab's file to values: a Lab, a KubeProxyConfiguration, or both, and manifests beside them.

Everything that is wrong is told at once, each with its document, line and field. A file that holds a
KubeProxyConfiguration alone is read as every command reads one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kproxy.api.document.read import read_documents
from kproxy.api.document.tree import Document, DocumentError, path_steps
from kproxy.api.fielderror import Problem, ProblemError, printable, show
from kproxy.api.kubeproxyconfig import types as kubeproxy
from kproxy.api.kubeproxyconfig.decode import ConfigError, decode_config, decode_document, read_bytes
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES, LoadedConfig
from kproxy.errors import Location
from kproxy.lab.config.fields import PROXY_CONFIG, read_lab
from kproxy.lab.config.types import API_VERSION, KIND, NO_CHOICES, Choices, GivenObject, LabConfig

_PRESETS: Final = Path(__file__).with_name("presets")
_MODES: Final = (MODE_IPTABLES, MODE_NFTABLES)


class LabConfigError(ProblemError):
    """A lab's file that cannot be used."""


def load_lab_config(path: str, flags: Choices = NO_CHOICES) -> LabConfig:
    """The file at `path` ("-": standard input), with what the command line says over it.

    Raises:
        LabConfigError, ConfigError: everything that is wrong with it.
    """
    return decode_lab_config(read_bytes(path), path, flags)


def decode_lab_config(data: bytes, file: str, flags: Choices = NO_CHOICES) -> LabConfig:
    """The same of what a file holds; `file` is what messages call it, and what its paths are relative to."""
    try:
        documents = read_documents(data.decode("utf-8-sig"))
    except (DocumentError, UnicodeDecodeError):
        decode_config(data, file)  # it says what is wrong with the text
        raise
    given = [_Given(number, each) for number, each in enumerate(documents, 1) if each.value is not None]
    if len(given) == 1 and given[0].is_a(kubeproxy.KIND, kubeproxy.API_VERSION):
        return _with_proxy(LabConfig(flags, file), decode_config(data, file, flags.mode), Location(file))
    problems: list[Problem] = []
    config = _decode(given, file, flags, problems)
    if problems:
        raise LabConfigError(sorted(problems, key=lambda each: (each.location.document, each.location.line)))
    return config


class _Given(NamedTuple):
    """A document that is not empty, and which of the file's it is."""

    number: int
    document: Document

    def is_a(self, kind: str, api_version: str) -> bool:
        """Whether it is, or wants to be, of a kind: it says so, or has an apiVersion of the kind's group."""
        value = self.document.value
        group = api_version.partition("/")[0]
        return isinstance(value, dict) and (
            value.get("kind") == kind or str(value.get("apiVersion")).startswith(f"{group}/")
        )

    def at(self, file: str, path: str = "") -> Location:
        line = max(self.document.line_of(path_steps(path)), self.document.root_line)
        return Location(file, self.number, printable(path), line)


def _decode(given: Sequence[_Given], file: str, flags: Choices, problems: list[Problem]) -> LabConfig:
    """The lab of all documents; what is wrong goes to `problems`."""
    labs = [each for each in given if each.is_a(KIND, API_VERSION)]
    proxies = [each for each in given if each not in labs and each.is_a(kubeproxy.KIND, kubeproxy.API_VERSION)]
    rest = [each for each in given if each not in labs and each not in proxies]
    if not given:
        problems.append(Problem(Location(file), f"holds no {KIND} and no {kubeproxy.KIND}: it is empty"))
    for each in rest:
        problems += _problems_of_object(each, file, alone=not labs)
    for kind, found in ((KIND, labs), (kubeproxy.KIND, proxies)):
        problems += [Problem(each.at(file), f"a second {kind}: a file has one") for each in found[1:]]
    config = LabConfig(flags, file, objects=tuple(GivenObject(*each) for each in rest))
    where: tuple[_Given, tuple[str, ...]] | None = (proxies[0], ()) if proxies else None
    mode = flags.mode
    if labs:
        document = labs[0].document
        place = Location(file, labs[0].number)
        problems += (Problem(place._replace(line=each.line), printable(each.message)) for each in document.duplicates)
        config, inline, errors = read_lab(document.value, config)
        problems += (Problem(labs[0].at(file, each.path), each.message) for each in errors)
        mode = config.choices.mode
        if inline and where:
            problems.append(
                Problem(labs[0].at(file, ".".join(PROXY_CONFIG)), f"the file has a {kubeproxy.KIND} as well")
            )
        elif inline:
            where = labs[0], PROXY_CONFIG
    if where is None:
        return config
    (number, document), inside = where
    try:
        loaded = decode_document(document, file, mode, number=number, inside=inside)
        if not flags.mode and mode not in (None, loaded.given.get("mode") or mode):
            text = f"{show(loaded.given['mode'])} here, and {show(mode)} in proxy.mode of the {KIND}"
            problems.append(Problem(where[0].at(file, ".".join((*inside, "mode"))), text))
        return _with_proxy(config, loaded, where[0].at(file, ".".join((*inside, "mode"))))
    except ConfigError as error:
        problems += error.problems
        return config


def _with_proxy(config: LabConfig, loaded: LoadedConfig, where: Location) -> LabConfig:
    """The same lab with a KubeProxyConfiguration. Raises ConfigError: no lab has its mode."""
    mode = loaded.config.mode
    if mode not in _MODES:
        raise ConfigError((Problem(where, f"mode {mode}: a lab has {' or '.join(_MODES)}"),))
    return msgspec.structs.replace(
        config,
        choices=msgspec.structs.replace(config.choices, mode=mode),
        proxy=dict(loaded.given),
        warnings=(*config.warnings, *loaded.warnings),
    )


def _problems_of_object(given: _Given, file: str, *, alone: bool) -> Iterator[Problem]:
    """What is wrong with a document of another kind: it is a manifest if a Lab is beside it, and no misspelt Lab."""
    value: Any = given.document.value
    kinds = (KIND, kubeproxy.KIND)
    if not isinstance(value, dict):
        yield Problem(given.at(file), f"{show(value)}: an object with apiVersion and kind expected")
        return
    kind = value.get("kind")
    if not isinstance(kind, str) or not kind:
        yield Problem(given.at(file, "kind"), f"Required value: must be {' or '.join(map(show, kinds))}")
        return
    near = get_close_matches(kind.lower(), [each.lower() for each in kinds], 1, 0.6)
    meant = next((each for each in kinds if near and each.lower() == near[0]), None)
    if meant:
        yield Problem(given.at(file, "kind"), f"unknown kind {show(kind)}; is {show(meant)} meant?")
    elif alone:
        hint = "manifests go to -f, or beside a Lab"
        yield Problem(given.at(file, "kind"), f"{show(kind)}: {' or '.join(map(show, kinds))} expected; {hint}")


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
