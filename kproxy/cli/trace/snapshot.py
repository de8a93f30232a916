"""The option --snapshot of `kproxy trace`. What answers it, `journey`, is imported when it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import click
from click.core import ParameterSource

Function = TypeVar("Function", bound=Callable[..., object])


def snapshot_option(function: Function) -> Function:
    """Adds --snapshot, which goes with few of the other options."""
    return click.option("--snapshot", metavar="PATH", help="Or over all hosts of a snapshot (docs/snapshot.md).")(
        function
    )


def check_alone(context: click.Context) -> None:
    """Raises UsageError for options that do not go with --snapshot."""
    given = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if given - _WITH_SNAPSHOT:
        raise click.UsageError(f"--snapshot goes with {', '.join(_SPELLED)} only")


_SPELLED: Final = ("--from", "--to", "--src", "--dst", "--proto", "--sport", "--summary", "-o")
_WITH_SNAPSHOT: Final = {
    "snapshot", "sender", "receiver", "src", "dst", "proto", "sport", "summary", "output_format",
}  # fmt: skip
