"""`kproxy lab down`, `node`, `fail` and `heal`: what changes a lab that is there."""

from __future__ import annotations

import click

from kproxy.cli.lab.common import name_option
from kproxy.errors import KproxyError
from kproxy.lab import faults
from kproxy.lab.errors import LabError
from kproxy.lab.lifecycle.down import all_labs, tear_down
from kproxy.lab.lifecycle.up import join_node
from kproxy.lab.spec import check_name
from kproxy.lab.state import LabDirectory, need_root, open_lab


@click.command("down")
@name_option
@click.option("--all", "everything", is_flag=True, help="Every lab, also those that crashed.")
def down(name: str, everything: bool) -> None:
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


@click.command("node")
@name_option
@click.argument("action", type=click.Choice(["add", "remove"]))
@click.argument("node", metavar="[NODE]", default="")
def node(name: str, action: str, node: str) -> None:
    """Add a node, or take one away for good.

    A node that is added gets the next number. The others learn of it, and forget one that leaves, from the API server.

    \b
    Examples:
      kproxy lab node add
      kproxy lab node remove node-2
    """
    lab, _ = open_lab(name)
    if action == "add":
        if node:
            raise click.UsageError("a node that is added gets the next number as its name")
        click.echo(f"{join_node(lab, timeout=60.0)} has joined", err=True)
        return
    if not node:
        raise click.UsageError("which node?")
    faults.leave_node(lab, node)
    click.echo(f"{node} has left", err=True)


_KIND = click.argument("kind", type=click.Choice(faults.KINDS))
_WHICH = click.argument("which", metavar="[NODE|POD]", default="")


def _check(kind: str, which: str) -> None:
    if kind == "apiserver" and which:
        raise click.UsageError("there is only one API server")
    if kind != "apiserver" and not which:
        raise click.UsageError(f"which {'pod' if kind == 'pod' else 'node'}?")


@click.command("fail")
@name_option
@_KIND
@_WHICH
def fail(name: str, kind: str, which: str) -> None:
    """Break something: a node (its processes are killed, its cable is pulled), a link (only the cable), a pod (its
    containers crash), or the API server.

    \b
    Examples:
      kproxy lab fail node node-2 && kubectl get nodes -w
      kproxy lab fail pod web-6d4cf
      kproxy lab fail apiserver
    """
    _check(kind, which)
    lab, _ = open_lab(name)
    click.echo(faults.fail(lab, kind, which), err=True)


@click.command("heal")
@name_option
@_KIND
@_WHICH
def heal(name: str, kind: str, which: str) -> None:
    """Mend what `kproxy lab fail` broke.

    \b
    Examples:
      kproxy lab heal node node-2
      kproxy lab heal apiserver
    """
    _check(kind, which)
    lab, _ = open_lab(name)
    click.echo(faults.heal(lab, kind, which), err=True)
