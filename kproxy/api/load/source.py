"""Where an object was read, and the lines of its fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kproxy.api.fielderror import printable
from kproxy.errors import Location


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
