"""The fields that a field selector sees, taken out of an object as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kproxy.apiserver.errors import Json


class FieldsOf:
    """Takes the values of fields out of an object, for field selectors; equal if its paths are.

    `zeros` are the texts of fields that Go's JSON leaves out when they are false or 0; `computed` are fields that are
    not simply the value at their path.
    """

    __slots__ = ("_computed", "_split", "_zeros", "paths")

    def __init__(
        self,
        paths: tuple[str, ...],
        zeros: Mapping[str, str] | None = None,
        computed: Mapping[str, Callable[[Json], str]] | None = None,
    ) -> None:
        self.paths = paths
        self._zeros = zeros or {}
        self._computed = {path: call for path, call in (computed or {}).items() if path in paths}
        self._split = [(path, path.split(".")) for path in paths if path not in self._computed]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldsOf) and self.paths == other.paths

    def __hash__(self) -> int:
        return hash(self.paths)

    def __call__(self, value: Json) -> dict[str, str]:
        """The fields that are there, as text."""
        found = dict(self._zeros)
        for path, parts in self._split:
            item: Any = value
            for part in parts:
                item = item.get(part) if isinstance(item, dict) else None
            if isinstance(item, bool):
                item = "true" if item else "false"
            if isinstance(item, str | int):
                found[path] = str(item)
        for path, call in self._computed.items():
            found[path] = call(value)
        return found


NO_FIELDS: Final = FieldsOf(())
"""The fields of a resource that is selected by name only."""
