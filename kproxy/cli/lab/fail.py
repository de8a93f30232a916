"""`kproxy lab fail` and `kproxy lab heal`."""

from __future__ import annotations

import click

from kproxy.cli.lab.common import name_option, open_lab
from kproxy.lab import faults

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
def command(name: str, kind: str, which: str) -> None:
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
