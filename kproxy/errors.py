"""The one root of every error that kproxy raises on purpose.

A command turns a `KproxyError` into one message on stderr and an exit code; anything else that reaches the top is a
bug. Each error says where it happened: a `Location` in a manifest, a line of a rule file, the lines a restore failed
on. Foreign errors are wrapped where they enter, with `raise ... from`.
"""

from __future__ import annotations

from typing import NamedTuple


class KproxyError(Exception):
    """Root of all deliberate errors.

    `exit_code` is what a command exits with when the error reaches it: 2 for bad input or usage, 1 for an operation
    that failed.
    """

    exit_code: int = 1


class InputError(KproxyError):
    """What the user gave cannot be used: a manifest, a configuration, a rule file, an option."""

    exit_code = 2


class Location(NamedTuple):
    """A place in the input.

    `file` is the path as the user gave it (`-` for standard input), `document` counts YAML documents, JSON documents or
    JSON lines from 1 (0: the file as a whole), `field` is a path in the API server's notation, which for an item of a
    List starts with `items[N]` (`spec.ports[0].port`, `items[3].spec.type`), `line` counts from 1 (0: unknown).
    """

    file: str
    document: int = 0
    field: str = ""
    line: int = 0

    def __str__(self) -> str:
        parts = [self.file]
        if self.document:
            parts.append(f"document {self.document}")
        if self.line:
            parts.append(f"line {self.line}")
        if self.field:
            parts.append(self.field)
        return ": ".join(parts)
