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


_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False  # which RE2 would write to stderr
_OPTIONS.max_mem = 8 << 20
"""Octets that an expression may take, with what it learns of texts."""


@lru_cache(32)
def compiled(text: str) -> Pattern:
    """A compiled expression; the last ones are kept, 256 MiB of them at most.

    Raises:
        ValueError: it is none, or is too large.
    """
    try:
        return cast(Pattern, re2.compile(text, _OPTIONS))
    except re2.error as error:
        said = error.args[0] if error.args else error
        raise ValueError(said.decode(errors="replace") if isinstance(said, bytes) else str(said)) from error
    finally:
        re2.purge()  # it keeps some itself, whatever their size
