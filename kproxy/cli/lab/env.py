"""`kproxy lab env`."""

from __future__ import annotations

import os
import shlex

import click

from kproxy.cli.lab.common import name_option
from kproxy.cli.output import write_output
from kproxy.lab.errors import LabError
from kproxy.lab.spec import check_name
from kproxy.lab.state import LabDirectory


@click.command("env")
@name_option
def command(name: str) -> None:
    """Print the line that makes kubectl, and `kproxy get`, speak to the lab.

    The kubeconfig belongs to the user who made the lab: root, or the one who ran `sudo kproxy lab up`.

    \b
    Examples:
      eval "$(kproxy lab env)"
      kubectl get nodes -o wide
    """
    lab = LabDirectory(check_name(name))
    lab.running()
    if not os.access(lab.kubeconfig, os.R_OK):
        raise LabError(f"{lab.kubeconfig}: only root, and the user who made the lab by sudo, can read it")
    write_output(f"export KUBECONFIG={shlex.quote(str(lab.kubeconfig))}\n", None)
