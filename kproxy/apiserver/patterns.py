"""Regular expressions that users write, in schemas and in CEL: compiled by RE2, whose syntax Go's regexp shares.

RE2 takes time linear in the text, whatever the expression: `^(a+)+$` must not hold up all other clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, Protocol, cast

re2: Any = import_module("re2")  # which has no types


class Found(Protocol):
    """A match, as of `re`."""

    def __getitem__(self, group: int) -> Any: ...


class Pattern(Protocol):
    """A compiled expression, as of `re`."""

    def search(self, text: str) -> Found | None: ...

    def finditer(self, text: str) -> Iterator[Found]: ...


_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False  # which RE2 would write to stderr


@lru_cache(1024)
def compiled(text: str) -> Pattern:
    """A compiled expression.

    Raises:
        ValueError: it is none, or is too large.
    """
    try:
        return cast(Pattern, re2.compile(text, _OPTIONS))
    except re2.error as error:
        said = error.args[0] if error.args else error
        raise ValueError(said.decode(errors="replace") if isinstance(said, bytes) else str(said)) from error
