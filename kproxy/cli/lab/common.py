"""What the subcommands of `kproxy lab` share: --name, the lab and the hosts that are meant, words."""

from __future__ import annotations

from typing import Final

import click

from kproxy.lab.cluster import ClusterView, read_cluster
from kproxy.lab.inspect.targets import client_host
from kproxy.lab.model.hosts import LabModel
from kproxy.lab.spec import DEFAULT_NAME, FABRIC
from kproxy.lab.state import list_labs, open_lab

VARIABLE: Final = "KPROXY_LAB"
"""The environment variable that names the lab."""


def _only_lab() -> str:
    labs = list_labs()
    return labs[0].name if len(labs) == 1 else DEFAULT_NAME


name_option = click.option(
    "--name", metavar="NAME", envvar=VARIABLE, default=_only_lab, show_default=False,
    help="Which lab. Default: $KPROXY_LAB, else the only one, else lab.",
)  # fmt: skip
"""--name of a lab that is there: $KPROXY_LAB, else the only one, else `lab`."""


def open_model(name: str) -> LabModel:
    """A lab that is up, with its cluster, as a network. Raises LabError: it is not up."""
    lab, record = open_lab(name)
    return LabModel(record.spec, read_cluster(lab, record))


def host_of(cluster: ClusterView, text: str) -> str:
    """The host that a user names: `fabric`, or as `client_host`."""
    return FABRIC if text == FABRIC else client_host(cluster, text)


def short(host: str) -> str:
    """A host's name without `pod/` and the namespace `default`."""
    return host.removeprefix("pod/").removeprefix("default/")
