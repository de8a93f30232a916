"""`kproxy trace` over all hosts: --snapshot, --lab, and --via with a live cluster. What answers, `journey`, is imported
when it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from kproxy.cli import names
from kproxy.cli.cluster_source import KUBECTL_FLAGS, ClusterSource
from kproxy.cli.live_snapshot import FIELDS, VIA, Reading, agent_options, gather
from kproxy.cli.options import snapshot_source
from kproxy.cli.output import report_note
from kproxy.errors import InputError

if TYPE_CHECKING:
    from kproxy.cluster.snapshot.cluster import Cluster

Function = TypeVar("Function", bound=Callable[..., object])


def snapshot_option(function: Function) -> Function:
    """Adds the options that name a whole cluster, which go with few of the others."""
    options = (
        snapshot_source("Or over all hosts of a snapshot; the same as SNAPSHOT."),
        click.option(
            "--lab", metavar="NAME", help="Or over all hosts of a lab, as they are now.", shell_complete=names.labs
        ),
        click.option(
            "--via", type=click.Choice(VIA), help="Of a live cluster: over all nodes, read as kproxy collect does."
        ),
        click.option("--selector", metavar="LABELS", help="With --via exec: the Pods, as for kproxy collect."),
        *agent_options(),
    )
    for option in reversed(options):
        function = option(function)
    return function


def whole_cluster(
    source: ClusterSource, snapshot: str | None, nodes: Sequence[str], fields: dict[str, Any]
) -> Callable[[], Cluster] | None:
    """How to read the cluster over whose hosts to trace; None if it is one host that is asked about.

    Args:
        nodes: of --node.
        fields: of which the options of a live cluster's nodes are taken out.

    Raises:
        click.UsageError: options do not go together.
        InputError: a file is no snapshot.
    """
    reading = Reading.taken_from(fields, nodes)
    whole = reading.via is not None or reading.lab is not None
    if not whole:
        replace(reading, nodes=()).check(source.connection)
    if snapshot is None and not whole:
        if len(nodes) > 1:
            raise click.UsageError("one --node expected, the one whose rules are asked: several go with --via")
        return None
    if snapshot is not None:
        from kproxy.cluster.snapshot.files import is_snapshot

        if Path(snapshot).is_file() and not is_snapshot(snapshot):
            raise InputError(
                f"{snapshot}: not a snapshot, which is a directory or an archive: a host's rules go with --rules, "
                "manifests with -f"
            )
    if snapshot is not None and whole:
        raise click.UsageError(f"--snapshot and {reading.given[0]} exclude each other")
    context = click.get_current_context()
    found = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    live = {"kubeconfig", "context", "nodes", *KUBECTL_FLAGS, *FIELDS} if whole else set()
    if found - _WITH_ALL - live:
        raise click.UsageError(f"{reading.given[0] if whole else '--snapshot'} goes with {', '.join(_SPELLED)} only")
    if snapshot is not None:
        from kproxy.cluster.snapshot.cluster import read_snapshot

        return lambda: read_snapshot(snapshot, report_note)
    reading.check(source.connection)

    def gathered() -> Cluster:
        from kproxy.cluster.snapshot.cluster import Cluster

        found = gather(source.connection, reading, reading.label(source.connection))
        return Cluster(found.files, tell=report_note)

    return gathered


_SPELLED: Final = ("--from", "--to", "--src", "--dst", "--proto", "--sport", "--summary", "--expect", "-o", "--html")
_WITH_ALL: Final = {
    "snapshot", "snapshot_argument", "sender", "receiver", "src", "dst", "proto", "sport", "summary",
    "expect", "output_format", "html",
}  # fmt: skip
