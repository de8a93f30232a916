"""Commands as they are imported: when they are used, with the extra of the package that they need."""

from __future__ import annotations

import functools
import gc
import importlib
from collections.abc import Callable
from typing import Any

import click

from kproxy.extras import missing_extra, require


@functools.cache
def load_command(path: str, program: str, extra: str = "", attribute: str = "command") -> click.Command:
    """The command of a module of `kproxy.cli`; if it has an extra, it says before it begins what of it is missing.

    Raises:
        MissingExtraError: the module cannot be imported without an extra.
    """
    gc.disable()  # what modules define is no garbage: a tenth of the start would go into looking for some
    try:
        command = getattr(importlib.import_module(f"kproxy.cli.{path}"), attribute)
    except ModuleNotFoundError as error:
        raise missing_extra(error, program) or error from error
    finally:
        gc.enable()
    assert isinstance(command, click.Command)
    if extra:
        members = command.commands.values() if isinstance(command, click.Group) else ()
        for each in members or (command,):
            each.callback = _asking(each.callback, extra, program)
    return command


def _asking(callback: Callable[..., Any] | None, extra: str, program: str) -> Callable[..., Any] | None:
    """A command's function that asks for its extra first: so `--help` does without."""
    if callback is None:
        return None

    @functools.wraps(callback)
    def ask_and_call(*arguments: Any, **named: Any) -> Any:
        require(extra, program)
        return callback(*arguments, **named)

    return ask_and_call
