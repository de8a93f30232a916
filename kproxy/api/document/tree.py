"""What a document of YAML or JSON is: its value, where each part of it stands, and which keys came twice.

`read_yaml` and `read_json` make `Document`s out of text. Of a key that comes twice the last value counts, as it does
for kube-proxy and for JSON everywhere; the reader of the document decides whether that is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kproxy.errors import InputError

_STEP: Final = re.compile(r"\[([^\]]*)\]|([^.\[]+)")

Value = Any
"""What a document is made of: None, bool, int, float, str, list and dict with string keys."""


class DocumentError(InputError):
    """Text that is not YAML or JSON; `line` and `column` count from 1 (0: unknown)."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


class Duplicate(NamedTuple):
    """A key of `mapping` that came once more, on `line` (0: unknown)."""

    mapping: dict[str, Value]
    key: str
    line: int

    @property
    def message(self) -> str:
        """The text that kubectl prints of it."""
        return f'key "{self.key}" already set in map'


class Node(NamedTuple):
    """One value. `line` counts from 1 (0: unknown)."""

    value: Value
    line: int = 0


@dataclass(slots=True)
class Document:
    """One document. `line` is the one it starts on, `root_line` that of its value; JSON has no lines.

    `lines[id(mapping)][key]` is the line of that key, `lines[id(sequence)][index]` that of the item. The identities
    hold as long as `value` does.
    """

    value: Value
    line: int = 0
    root_line: int = 0
    lines: dict[int, dict[str, int] | list[int]] = field(default_factory=dict)
    duplicates: list[Duplicate] = field(default_factory=list)

    @property
    def root(self) -> Node:
        """The whole value."""
        return Node(self.value, self.root_line)

    def entries(self, mapping: dict[str, Value]) -> dict[str, Node]:
        """The values of a mapping of this document, each on the line of its key."""
        return {key: self._node(mapping, key, value) for key, value in mapping.items()}

    def items(self, sequence: list[Value]) -> list[Node]:
        """The items of a list of this document."""
        return [self._node(sequence, index, value) for index, value in enumerate(sequence)]

    def _node(self, container: dict[str, Value] | list[Value], key: str | int, value: Value) -> Node:
        return Node(value, self._line(container, key) or 0)

    def line_of(self, path: Sequence[str | int]) -> int:
        """The line of the field at `path`, or of the deepest part of the path that exists."""
        value, line = self.value, self.line
        for step in path:
            if isinstance(value, dict):
                step = str(step)
                if step not in value:
                    step = step[:1].lower() + step[1:]  # the API server writes spec.LoadBalancerSourceRanges
            found = self._line(value, step)
            if found is None:
                break
            line, value = found, value[step]
        return line

    def _line(self, container: Value, key: str | int) -> int | None:
        lines = self.lines.get(id(container))
        if isinstance(lines, dict):
            return lines.get(key) if isinstance(key, str) else None
        return lines[key] if lines is not None and isinstance(key, int) and key < len(lines) else None


def path_steps(path: str) -> tuple[str | int, ...]:
    """A field path taken apart: `spec.ports[0].port` is spec, ports, 0, port."""
    steps: list[str | int] = []
    for bracket, name in _STEP.findall(path):
        steps.append(int(bracket) if bracket.isdigit() and bracket.isascii() else bracket or name)
    return tuple(steps)
