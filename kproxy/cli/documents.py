"""Answers for programs: JSON and YAML, each with the apiVersion and kind that say what it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from kproxy.cluster.evidence.unseen import Unseen

API_VERSION: Final = "kproxy/v1"
"""Of every answer: within it, fields are added and none is taken away or means something else."""


def answer(kind: str, value: object, unseen: Iterable[Unseen] | None = None) -> dict[str, Any]:
    """A value of ours as what JSON is made of, with apiVersion and kind in front. An answer about a host has `unseen`,
    what was not seen of it, even if that is nothing."""
    fields = msgspec.to_builtins(value)
    assert isinstance(fields, Mapping)
    assert "kind" not in fields
    found = {"apiVersion": API_VERSION, "kind": kind, **fields}
    if unseen is not None:
        found["unseen"] = msgspec.to_builtins(list(unseen))
    return found


def text_of(value: object, output_format: str, *, indent: int | None = 2) -> str:
    """JSON or YAML of what `answer` made, or of a list; with a newline at the end.

    Rules of others may hold bytes that are no UTF-8, which Python keeps as lone surrogates: they are escaped.
    """
    if output_format == "yaml":
        text = _yaml_text(value)
    else:
        separators = (",", ":") if indent is None else None
        text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators) + "\n"
    return text.encode(errors="backslashreplace").decode()


def _yaml_text(value: object) -> str:
    """YAML with the quotes that kubectl's writer chooses: double ones where a text would read as something else."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: Dumper, text: str) -> yaml.ScalarNode:
        tag = "tag:yaml.org,2002:str"
        if "\n" in text:
            return dumper.represent_scalar(tag, text, style="|")
        resolve: Callable[..., object] = dumper.resolve
        reads_otherwise = resolve(yaml.ScalarNode, text, (True, False)) != tag or text.lower() in ("y", "n")
        return dumper.represent_scalar(tag, text, style='"' if reads_otherwise else None)

    Dumper.add_representer(str, text)
    return yaml.dump(value, Dumper=Dumper, default_flow_style=False, sort_keys=False, allow_unicode=True, width=10_000)
