"""Libraries without type information, imported when they are first needed: together they take a third of a second."""

from __future__ import annotations

import importlib
from typing import Any

from kproxy.linux.errors import ToolMissingError


def load(module: str) -> Any:
    """A module by its dotted name.

    Raises:
        ToolMissingError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ToolMissingError(f"the Python package {module.partition('.')[0]} cannot be imported: {error}") from error
