"""`kproxy trace` over all hosts: --snapshot, --lab, and --via with a live cluster. What answers, `journey`, is imported
when it is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from kproxy.cli.cluster_source import KUBECTL_FLAGS, ClusterSource
from kproxy.cli.output import report_note

if TYPE_CHECKING:
    from kproxy.cluster.snapshot.cluster import Cluster

Function = TypeVar("Function", bound=Callable[..., object])


def snapshot_option(function: Function) -> Function:
    """Adds the options that name a whole cluster, which go with few of the others."""
    options = (
        click.option("--snapshot", metavar="PATH", help="Or over all hosts of a snapshot (docs/snapshot.md)."),
        click.option("--lab", metavar="NAME", help="Or over all hosts of a lab, as they are now."),
        click.option("--via", type=click.Choice(["exec"]), help="Of a live cluster: over all nodes, read in Pods."),
        click.option("--selector", metavar="LABELS", help="With --via: the Pods, as for kproxy collect."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def whole_cluster(source: ClusterSource, snapshot: str | None, fields: dict[str, Any]) -> Callable[[], Cluster] | None:
    """How to read the cluster over whose hosts to trace; None if it is one host that is asked about.

    Args:
        fields: of which `lab`, `via` and `selector` are taken out.

    Raises:
        click.UsageError: options do not go together.
    """
    lab, via, selector = (fields.pop(name) for name in ("lab", "via", "selector"))
    if selector is not None and via is None:
        raise click.UsageError("--selector goes with --via exec")
    given = [name for name, value in (("--snapshot", snapshot), ("--lab", lab), ("--via", via)) if value is not None]
    if not given:
        return None
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other")
    context = click.get_current_context()
    found = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    connecting = {"kubeconfig", "context", *KUBECTL_FLAGS} if via is not None else set()
    if found - _WITH_ALL - connecting:
        raise click.UsageError(f"{given[0]} goes with {', '.join(_SPELLED)} only")
    if snapshot is not None:
        from kproxy.cluster.snapshot.cluster import read_snapshot

        return lambda: read_snapshot(snapshot, report_note)
    if via is not None and not source.is_live:
        raise click.UsageError("--via goes with --kubeconfig or --context")

    def gathered() -> Cluster:
        from kproxy.cli.gathering import gather
        from kproxy.cluster.snapshot.cluster import Cluster

        label = f"lab {lab}" if lab is not None else source.connection.context or "the cluster"
        found = gather(source.connection, via or "lab", lab or "", (), label, selector)
        return Cluster(found.files, tell=report_note)

    return gathered


_SPELLED: Final = ("--from", "--to", "--src", "--dst", "--proto", "--sport", "--summary", "-o")
_WITH_ALL: Final = {
    "snapshot", "lab", "via", "selector", "sender", "receiver", "src", "dst", "proto", "sport", "summary",
    "output_format",
}  # fmt: skip
