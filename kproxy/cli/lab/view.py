"""`kproxy lab view`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from kproxy.cli.lab.common import name_option, open_lab
from kproxy.cli.lab.trace import describe
from kproxy.cli.options import SecondsRange
from kproxy.cli.output import working, write_output
from kproxy.cluster.journey.network import POD
from kproxy.lab.cluster import ClusterView, read_cluster
from kproxy.lab.errors import LabInputError
from kproxy.lab.inspect.targets import Target, client_host, find_target, service_targets
from kproxy.lab.model.hosts import LabModel
from kproxy.lab.spec import CLIENT

if TYPE_CHECKING:
    from kproxy.lab.inspect.follow import Followed

MAX_FLOWS = 8


@click.command("view")
@name_option
@click.option("--html", "path", metavar="FILE", required=True, help="The page; - for stdout.")
@click.option(
    "--flow", "flows", metavar="FROM=TO", multiple=True,
    help="A connection to follow, as --from and --to of `lab trace`; repeatable. Default: a few that say most.",
)  # fmt: skip
@click.option("--timeout", type=SecondsRange(0.05, 60), default=1.5, show_default=True, metavar="SECONDS")
def command(name: str, path: str, flows: Sequence[str], timeout: float) -> None:
    """Draw the lab as one page that loads nothing: nodes, pods, Services, and the path of connections hop by hop.

    Each connection is made once, now, so that the page shows what was captured beside what the model says.

    \b
    Examples:
      kproxy lab view --html lab.html
      kproxy lab view --html lab.html --flow client=nodeport/web
    """
    from kproxy.lab.inspect.follow import follow

    lab, record = open_lab(name)
    cluster = read_cluster(lab, record)
    model = LabModel(record.spec, cluster)
    chosen = [_parse(cluster, text) for text in flows] or list(_usual(cluster))[:MAX_FLOWS]
    followed: list[Followed] = []
    with working("following connections"):
        followed += [follow(model, host, target, timeout=timeout) for host, target in chosen]
    from kproxy.explorer.export.commands import lab_page
    from kproxy.explorer.sources.live import LabSource

    flows_told = [(each, click.unstyle("\n".join(describe(each, rules=True)))) for each in followed]
    write_output(lab_page(LabSource(lab, record).read(), flows_told), path)


def _parse(cluster: ClusterView, text: str) -> tuple[str, Target]:
    source, equals, destination = text.partition("=")
    if not equals:
        raise LabInputError(f"--flow {text!r}: FROM=TO expected, as in client=nodeport/web")
    return client_host(cluster, source), find_target(cluster, destination)


def _usual(cluster: ClusterView) -> Iterator[tuple[str, Target]]:
    """For each Service: from outside if it can be reached from there, and from a pod."""
    pods = [pod for pod in cluster.pods if pod.running and not pod.host_network]
    for service in cluster.echoing:
        for port in service.ports[:1]:
            if not port.endpoints or service.name == "kubernetes":
                continue
            targets = list(service_targets(cluster, service, port))
            outside = [item for item in targets if item.kind in ("loadBalancerIP", "externalIP", "nodePort")]
            inside = [item for item in targets if item.kind == "clusterIP"]
            if outside:
                yield CLIENT, outside[0]
            if inside and pods:
                yield f"{POD}{pods[0].key}", inside[0]
