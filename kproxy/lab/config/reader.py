"""Reading the fields of a lab's file: each is checked, and everything that is wrong is kept with its line."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from kproxy.api.document.tree import Document, Node, path_steps
from kproxy.api.fielderror import FieldError, Problem, invalid, not_supported, printable, unknown_field
from kproxy.api.kubeproxyconfig.duration import Duration
from kproxy.api.validation.types import mistyped
from kproxy.errors import Location

T = TypeVar("T")


class DocumentReader:
    """Reads one document of a file. Its methods give None for what is absent, null, or wrong.

    Args:
        number: which document of the file it is.
    """

    def __init__(self, file: str, number: int, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self._file = file
        self._number = number
        for found in document.duplicates:
            self.problems.append(Problem(Location(file, number, "", found.line), printable(found.message)))

    def report(self, error: FieldError) -> None:
        """Keeps what is wrong with a field."""
        line = max(self.document.line_of(path_steps(error.path)), self.document.root_line)
        self.problems.append(Problem(Location(self._file, self._number, printable(error.path), line), error.message))

    def fields(self, node: Node, path: str, known: Collection[str]) -> dict[str, Node]:
        """The fields of a mapping that are not null; others than the known ones are reported."""
        if not isinstance(node.value, dict):
            self.report(mistyped(path, node.value, "a map"))
            return {}
        found = self.document.entries(node.value)
        for name in found:
            if name not in known:
                self.report(unknown_field(f"{path}." if path else "", name, known))
        return {name: child for name, child in found.items() if name in known and child.value is not None}

    def items(self, node: Node, path: str) -> list[Node]:
        """The items of a list."""
        if not isinstance(node.value, list):
            self.report(mistyped(path, node.value, "a list"))
            return []
        return self.document.items(node.value)

    def text(self, node: Node | None, path: str) -> str | None:
        return self._read(str, "a string", node, path)

    def choice(self, node: Node | None, path: str, known: Collection[str]) -> str | None:
        """One of several words."""
        found = self.text(node, path)
        if found is not None and found not in known:
            self.report(not_supported(path, found, known))
            return None
        return found

    def boolean(self, node: Node | None, path: str) -> bool | None:
        """true or false."""
        return self._read(bool, "a boolean", node, path)

    def integer(self, node: Node | None, path: str, low: int, high: int) -> int | None:
        """A number from `low` to `high`."""
        found = self._read(int, "an integer", node, path)
        if found is not None and not low <= found <= high:
            self.report(invalid(path, found, f"must be from {low} to {high}"))
            return None
        return found

    def seconds(self, node: Node | None, path: str, low: float) -> float | None:
        """A duration, as Go writes them or a number of seconds, of at least `low` seconds."""
        value = node.value if node is not None else None
        if node is None or value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool):
            found = float(value)
        elif isinstance(value, str):
            try:
                found = Duration.of(value).seconds
            except ValueError as error:
                self.report(invalid(path, value, str(error)))
                return None
        else:
            self.report(mistyped(path, value, 'a duration such as "2m", or a number of seconds'))
            return None
        if not low <= found < float("inf"):
            self.report(invalid(path, value, f"must be at least {low:g} s"))
            return None
        return found

    def _read(self, kind: type[T], expected: str, node: Node | None, path: str) -> T | None:
        value = None if node is None else node.value
        if value is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
            return value
        self.report(mistyped(path, value, expected))
        return None
