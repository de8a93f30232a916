"""What the subcommands of `kproxy lab` share: --name, the lab that is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import click

from kproxy.lab.spec import DEFAULT_NAME
from kproxy.lab.state import list_labs, need_root, open_lab

Function = TypeVar("Function", bound=Callable[..., object])
VARIABLE: Final = "KPROXY_LAB"
"""The environment variable that names the lab."""

__all__ = ["DEFAULT_NAME", "invoking_user", "name_option", "need_root", "new_name_option", "open_lab"]


def name_option(function: Function) -> Function:
    """--name of a lab that is there: $KPROXY_LAB, else the only one, else `lab`."""
    return click.option(
        "--name", metavar="NAME", envvar=VARIABLE, default=_only_lab, show_default=False,
        help="Which lab. Default: $KPROXY_LAB, else the only one, else lab.",
    )(function)  # fmt: skip


def new_name_option(function: Function) -> Function:
    """--name of a lab that is to be made; None if neither it nor $KPROXY_LAB is given."""
    return click.option(
        "--name", metavar="NAME", envvar=VARIABLE,
        help="What to call it; several may be up. Default: $KPROXY_LAB, else what its file says, else lab.",
    )(function)  # fmt: skip


def _only_lab() -> str:
    labs = list_labs()
    return labs[0].name if len(labs) == 1 else DEFAULT_NAME


def invoking_user() -> tuple[int, int] | None:
    """The user and group that called this by sudo; None without sudo (sudo(8): SUDO_UID, SUDO_GID)."""
    import os

    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    return (int(user), int(group)) if os.geteuid() == 0 and user.isdecimal() and group.isdecimal() else None
