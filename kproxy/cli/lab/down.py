"""`kproxy lab down`."""

from __future__ import annotations

import click

from kproxy.cli.lab.common import name_option, need_root
from kproxy.errors import KproxyError
from kproxy.lab.errors import LabError
from kproxy.lab.lifecycle.down import all_labs, tear_down
from kproxy.lab.spec import check_name
from kproxy.lab.state import LabDirectory


@click.command("down")
@name_option
@click.option("--all", "everything", is_flag=True, help="Every lab, also those that crashed.")
def command(name: str, everything: bool) -> None:
    """End a lab's processes and delete its namespaces and its directory.

    It may be given at any time, also after a crash; where there is nothing left to do, it does nothing.

    \b
    Examples:
      kproxy lab down
      kproxy lab down --name old
      kproxy lab down --all
    """
    source = click.get_current_context().get_parameter_source("name")
    if everything and source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--all and --name exclude one another")
    need_root()
    labs = all_labs() if everything else [LabDirectory(check_name(name))]
    problems: list[str] = []
    for lab in labs:
        there = lab.exists()
        try:
            # A directory is only made to be locked: without one there is no other process to keep away.
            if there:
                with lab.locked():
                    processes, namespaces = tear_down(lab)
            else:
                processes, namespaces = tear_down(lab)
        except KproxyError as error:
            problems.append(f"lab {lab.name}: {error}")
            continue
        if there or processes or namespaces:
            click.echo(f"lab {lab.name}: {processes} processes ended, {namespaces} namespaces deleted", err=True)
        else:
            click.echo(f"lab {lab.name}: nothing there", err=True)
    if everything and not labs:
        click.echo("no lab is there", err=True)
    if problems:
        raise LabError("\n".join(problems))
