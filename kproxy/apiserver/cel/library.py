"""cel-expr-python and protobuf, loaded when the first expression needs them: they cost 60 ms and are optional."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any


@cache
def available() -> bool:
    """Whether expressions can be evaluated: both packages are installed."""
    try:
        cel()
        protobuf("message")
    except ImportError:
        return False
    return True


@cache
def cel() -> Any:
    """The library.

    Raises:
        ImportError: it is not installed.
    """
    return import_module("cel_expr_python.cel")


def protobuf(module: str) -> Any:
    """A module of google.protobuf.

    Raises:
        ImportError: it is not installed.
    """
    return import_module(f"google.protobuf.{module}")
