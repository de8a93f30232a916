"""What the subcommands of `kproxy lab` share: --name, the lab that is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from kproxy.lab.state import need_root, open_lab

Function = TypeVar("Function", bound=Callable[..., object])
DEFAULT_NAME = "lab"

__all__ = ["DEFAULT_NAME", "invoking_user", "name_option", "need_root", "open_lab"]


def name_option(function: Function) -> Function:
    return click.option(
        "--name", metavar="NAME", default=DEFAULT_NAME, show_default=True, help="Which lab; several may be up."
    )(function)


def invoking_user() -> tuple[int, int] | None:
    """The user and group that called this by sudo; None without sudo (sudo(8): SUDO_UID, SUDO_GID)."""
    import os

    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    return (int(user), int(group)) if os.geteuid() == 0 and user.isdecimal() and group.isdecimal() else None
