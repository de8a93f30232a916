"""`kproxy lab`: a cluster network on one machine. One module per subcommand, imported only when it is called."""

from __future__ import annotations

from typing import Final

import click

from kproxy.cli.loading import LazyGroup, load_command

SUBCOMMANDS: Final = {
    "up": "Build a lab: nodes, pods, Services, the real rules.",
    "list": "Show which labs there are.",
    "status": "Show nodes, pods and Services.",
    "exec": "Run a command inside of a pod, a node or the client outside.",
    "env": "Print what makes kubectl speak to the lab.",
    "probe": "Ask every Service from everywhere, and compare with the model.",
    "trace": "Follow one connection: the model's path, and the packets at every hop.",
    "capture": "Write what passes into a pcap file.",
    "node": "Add a node, or take one away.",
    "fail": "Break something: a node, a link, a pod, the API server.",
    "heal": "Mend what `fail` broke.",
    "down": "Take everything away.",
}

TOGETHER: Final = {
    "list": ("which", "list_command"),
    "env": ("which", "env"),
    "status": ("which", "status"),
    "exec": ("hosts", "execute"),
    "capture": ("hosts", "capture"),
    "probe": ("ask", "probe"),
    "trace": ("ask", "trace"),
    **{name: ("change", name) for name in ("node", "fail", "heal", "down")},
}
"""Commands that share a module: its name, and theirs in it."""


def _load(name: str) -> click.Command:
    module, attribute = TOGETHER.get(name, (name, "command"))
    return load_command(f"lab.{module}", "kproxy lab", "lab", attribute)


@click.command("lab", cls=LazyGroup, rows=SUBCOMMANDS, load=_load)
def command() -> None:
    """A cluster network on this machine: nodes and pods as network namespaces, a real overlay, the real rules.

    It needs root, and no container engine. Nothing of the machine's own network is touched. More is in the
    documentation: lab.

    \b
    Examples:
      kproxy lab up
      eval "$(kproxy lab env)"
      kubectl create deployment web --image=echo --port=8080 --replicas=4
      kubectl expose deployment web --port=80 --target-port=8080
      kproxy lab probe
      kproxy lab trace --from client --to nodeport/web
      kproxy lab down
    """
