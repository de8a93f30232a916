"""Renders deploy/chart for tests, since neither Debian nor PyPI has Helm's program.

This is not Helm: it knows the part of Go's text/template and of Helm's functions that the chart uses, and refuses the
rest, so that a template which it cannot judge fails a test. It has no `include`, no `else`, no variables, no
comparisons, no comments, no hooks, no `lookup`; a value that is missing is an error. Values are merged as Helm merges
them: mappings by key, everything else replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ACTION = re.compile(r"\{\{(-(?=\s))?\s*(.*?)\s*\}\}", re.DOTALL)
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s|]+|\|')


class TemplateError(Exception):
    """What this renderer does not know, or what Go's templates refuse."""


@dataclass
class Block:
    """A part of a template: text, an action that is printed, or `if`, `with` or `range` with what is inside.

    Attributes:
        keyword: "text", "print", "if", "with", "range", or "file" for all of it.
        argument: the text, or the pipeline.
    """

    keyword: str
    argument: str = ""
    inside: list[Block] = field(default_factory=list)


def render_chart(chart: Path, values: Mapping[str, Any] | None = None, *, namespace: str) -> list[dict[str, Any]]:
    """The objects of all templates, with `values` over the chart's own.

    Raises TemplateError for a template that this renderer, or Go's, does not understand.
    """
    texts = [
        render_file(path, chart, values, namespace=namespace) for path in sorted((chart / "templates").glob("*.yaml"))
    ]
    return [document for text in texts for document in yaml.safe_load_all(text) if document is not None]


def render_file(path: Path, chart: Path, values: Mapping[str, Any] | None = None, *, namespace: str) -> str:
    """One template's text; see render_chart."""
    metadata = yaml.safe_load((chart / "Chart.yaml").read_text())
    root = {
        "Values": merged(yaml.safe_load((chart / "values.yaml").read_text()), values or {}),
        "Release": {"Name": "kproxy", "Namespace": namespace, "Service": "Helm"},
        # Chart.yaml's fields have capitals in templates.
        "Chart": {key[0].upper() + key[1:]: value for key, value in metadata.items()},
    }
    try:
        return _rendered(_parsed(path.read_text()).inside, root)
    except TemplateError as error:
        raise TemplateError(f"{path.name}: {error}") from None


def merged(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A chart's values with a user's over them."""
    both = dict(defaults)
    for key, value in values.items():
        inner = both.get(key)
        both[key] = merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return both


def _parsed(text: str) -> Block:
    stack, position = [Block("file")], 0
    for found in ACTION.finditer(text):
        before = text[position : found.start()]
        stack[-1].inside.append(Block("text", before.rstrip() if found[1] else before))
        position = found.end()
        keyword, _, argument = found[2].partition(" ")
        if keyword in ("if", "with", "range"):
            block = Block(keyword, argument.strip())
            stack[-1].inside.append(block)
            stack.append(block)
        elif found[2] == "end" and len(stack) > 1:
            stack.pop()
        elif keyword in ("else", "end", "define", "template", "block", "break", "continue"):
            raise TemplateError(f"not known here: {found[0]}")
        else:
            stack[-1].inside.append(Block("print", found[2]))
    if len(stack) > 1:
        raise TemplateError(f"no end of: {stack[-1].keyword} {stack[-1].argument}")
    stack[0].inside.append(Block("text", text[position:]))
    return stack[0]


def _rendered(blocks: list[Block], dot: Any) -> str:
    return "".join(_block(block, dot) for block in blocks)


def _block(block: Block, dot: Any) -> str:
    if block.keyword == "text":
        return block.argument
    value = _pipeline(block.argument, dot)
    if block.keyword == "print":
        return _text(value)
    if not value:  # empty: false, 0, nil, or nothing in it
        return ""
    if block.keyword == "range":
        if not isinstance(value, list):
            raise TemplateError(f"range over a list only: {block.argument}")
        return "".join(_rendered(block.inside, item) for item in value)
    return _rendered(block.inside, value if block.keyword == "with" else dot)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    raise TemplateError(f"printed as Go prints it, which is not YAML: {value!r}")


def _nindent(width: int, text: str) -> str:
    return "".join("\n" + " " * width + line for line in text.split("\n"))


def _to_yaml(value: Any) -> str:
    dumped = yaml.safe_dump(value, default_flow_style=False, sort_keys=True, width=4096)
    return dumped.removesuffix("\n").removesuffix("\n...")


FUNCTIONS: Mapping[str, tuple[int, Callable[..., Any]]] = {
    "default": (2, lambda fallback, value: value or fallback),
    "nindent": (2, _nindent),
    "quote": (1, lambda value: json.dumps(_text(value))),
    "toYaml": (1, _to_yaml),
}
"""Each with the count of its arguments; in a pipeline, the last is what comes from the left."""


def _pipeline(text: str, dot: Any) -> Any:
    commands: list[list[str]] = [[]]
    for word in WORD.findall(text):
        if word == "|":
            commands.append([])
        else:
            commands[-1].append(word)
    piped: list[Any] = []
    for words in commands:
        if not words:
            raise TemplateError(f"an empty command in: {text}")
        if words[0] in FUNCTIONS:
            count, function = FUNCTIONS[words[0]]
            arguments = [*(_operand(word, dot) for word in words[1:]), *piped]
            if len(arguments) != count:
                raise TemplateError(f"{words[0]} takes {count} arguments: {text}")
            piped = [function(*arguments)]
        elif len(words) == 1 and not piped:
            piped = [_operand(words[0], dot)]
        else:
            raise TemplateError(f"not known here: {text}")
    return piped[0]


def _operand(word: str, dot: Any) -> Any:
    if re.fullmatch(r"-?\d+", word):
        return int(word)
    if not re.fullmatch(r"(\.\w+)+|\.", word):
        raise TemplateError(f"not known here: {word}")
    value = dot
    for name in filter(None, word.split(".")):
        if not isinstance(value, Mapping) or name not in value:
            raise TemplateError(f"no value: {word}")
        value = value[name]
    return value
