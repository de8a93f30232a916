"""`kproxy lab node`."""

from __future__ import annotations

import click

from kproxy.cli.lab.common import name_option, open_lab
from kproxy.lab.faults import leave_node
from kproxy.lab.lifecycle.up import join_node


@click.command("node")
@name_option
@click.argument("action", type=click.Choice(["add", "remove"]))
@click.argument("node", metavar="[NODE]", default="")
def command(name: str, action: str, node: str) -> None:
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
    leave_node(lab, node)
    click.echo(f"{node} has left", err=True)
