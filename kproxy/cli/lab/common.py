"""What the subcommands of `kproxy lab` share: --name, the lab that is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from kproxy.lab.errors import LabError
from kproxy.lab.spec import check_name
from kproxy.lab.state import LabDirectory, LabRecord

Function = TypeVar("Function", bound=Callable[..., object])
DEFAULT_NAME = "lab"


def name_option(function: Function) -> Function:
    return click.option(
        "--name", metavar="NAME", default=DEFAULT_NAME, show_default=True, help="Which lab; several may be up."
    )(function)


def open_lab(name: str) -> tuple[LabDirectory, LabRecord]:
    """A lab that is up.

    Raises:
        LabError: it is not up, or this process may not touch it.
    """
    lab = LabDirectory(check_name(name))
    record = lab.running()
    need_root()
    return lab, record


def need_root() -> None:
    """Raises LabError without root."""
    import os

    if os.geteuid() != 0:
        raise LabError("a lab needs root: its hosts are network namespaces")


def invoking_user() -> tuple[int, int] | None:
    """The user and group that called this by sudo; None without sudo (sudo(8): SUDO_UID, SUDO_GID)."""
    import os

    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    return (int(user), int(group)) if os.geteuid() == 0 and user.isdecimal() and group.isdecimal() else None
