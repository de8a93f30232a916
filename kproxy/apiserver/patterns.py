"""Regular expressions that users write, in schemas: compiled by RE2, whose syntax Go's regexp shares.

RE2 takes time linear in the text, whatever the expression: `^(a+)+$` must not hold up all other clients.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any, Final, Protocol, cast

re2: Any = import_module("re2")  # which has no types


class Pattern(Protocol):
    """A compiled expression, as of `re`."""

    def search(self, text: str) -> object | None: ...


_LONGEST_KEPT: Final = 1024


def _options(most: int) -> Any:
    """`most`: octets that an expression may take, with what it learns of texts."""
    found = re2.Options()
    found.log_errors = False  # which RE2 would write to stderr
    found.max_mem = most
    return found


_SMALL: Final = _options(1 << 20)
_LARGE: Final = _options(8 << 20)


def compiled(text: str) -> Pattern:
    """A compiled expression. Small ones are kept: at most 256 MiB of them.

    Raises:
        ValueError: it is none, or is too large.
    """
    try:
        return _kept(text) if len(text) <= _LONGEST_KEPT else _large(text)
    except re2.error:
        pass
    try:
        return _large(text)  # it may only be too large to be kept
    except re2.error as error:
        said = error.args[0] if error.args else error
        raise ValueError(said.decode(errors="replace") if isinstance(said, bytes) else str(said)) from error


@lru_cache(256)
def _kept(text: str) -> Pattern:
    return cast(Pattern, re2.compile(text, _SMALL))


def _large(text: str) -> Pattern:
    try:
        return cast(Pattern, re2.compile(text, _LARGE))
    finally:
        re2.purge()  # it keeps some itself, whatever their size
