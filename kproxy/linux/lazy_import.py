"""Libraries without type information, imported when they are first needed: together they take a third of a second."""

from __future__ import annotations

import importlib
from typing import Any

from kproxy.extras import missing_extra
from kproxy.linux.errors import ToolMissingError


def load(module: str) -> Any:
    """A module by its dotted name.

    Raises:
        MissingExtraError: it is not installed.
        ToolMissingError: it is there and cannot be imported.
    """
    try:
        found = importlib.import_module(module)
        if module.partition(".")[0] == "pyroute2":
            # It opens a socket in a namespace by a forked child, which it ends with SIGTERM once it has the socket. The
            # child would run our handler, which raises, and go on as a second kproxy in the middle of its work.
            importlib.import_module("pyroute2.config").__dict__["disable_mp_signal"] = True
        return found
    except ImportError as error:
        if missing := missing_extra(error):
            raise missing from error
        raise ToolMissingError(f"the Python package {module.partition('.')[0]} cannot be imported: {error}") from error
