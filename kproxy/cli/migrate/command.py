"""`kproxy migrate`: what changes for packets when kube-proxy's mode is switched."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import click

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES
from kproxy.cli.evidence import assume_option, exit_with, unseen_lines
from kproxy.cli.objects import RenderChoices
from kproxy.cli.options import both_families, exclude, rendering_options
from kproxy.cli.output import output_option, working, write_files, write_result
from kproxy.cli.sources import OBJECTS, ONLY_NAMESPACE, Sources, read_rules, sources
from kproxy.cluster.evidence.unseen import IPVS, NODE_ADDRESSES, Assumed, suspected
from kproxy.cluster.hosts import read_host
from kproxy.cluster.sources import Kind
from kproxy.extras import require
from kproxy.netfilter import Family
from kproxy.render import Target
from kproxy.render.ipvs.rules import IPVS_FILTER
from kproxy.services import IPFamily


@click.command("migrate")
@sources((*OBJECTS, Kind.RULES), ONLY_NAMESPACE)
@rendering_options(mode=False)
@click.option("--all-nodes", is_flag=True, help="Every Node; equal findings are one.")
@click.option(
    "--from", "before", type=click.Choice([MODE_IPVS, MODE_IPTABLES, MODE_NFTABLES]),
    help="The mode to switch from.  [default: that of --config; the other one, if that is --to]",
)  # fmt: skip
@click.option(
    "--to", type=click.Choice([MODE_NFTABLES, MODE_IPTABLES]), default=MODE_NFTABLES, show_default=True,
    help="The mode to switch to.",
)  # fmt: skip
@click.option(
    "--host", "host_path", metavar="FILE",
    help="The node's addresses, routes, policy rules and sysctls (documentation: Host files).",
)  # fmt: skip
@assume_option
@both_families
@output_option
@click.option("--html", metavar="FILE", help="Write a page that shows it, with both ways of a packet and the map.")
@click.option("--verify", is_flag=True, help="As root: send each packet through the kernel, in a namespace per mode.")
def command(
    sources: Sources,
    how: RenderChoices,
    all_nodes: bool,
    before: str | None,
    to: str,
    host_path: str | None,
    assumed: Assumed,
    families: tuple[IPFamily, ...],
    output_format: str,
    html: str | None,
    verify: bool,
) -> None:
    """Say what changes for packets when kube-proxy's mode is switched, and what to do about it.

    Renders both modes for this cluster and compares them completely: for all addresses, ports, protocols, marks and
    connection states. Each finding has the Services it concerns, a packet that shows it, and advice; what is none of
    the known differences is listed, too. The documentation has a guide: Upgrade or migrate kube-proxy.
    A dump among the SOURCEs is what the node has now: rules of other programs in it count.

    Exit 0 nothing changes, 1 something does, 2 bad input, or it cannot be told.

    \b
    Examples:
      kproxy migrate cluster.yaml --config kube-proxy.yaml
      kproxy migrate cluster.yaml --from ipvs --all-nodes
      kproxy migrate cluster.yaml@n1 v4.save host.nft
      kproxy migrate cluster.yaml --config kube-proxy.yaml --verify
      kproxy migrate cluster.yaml --all-nodes --html switch.html
      kproxy migrate cluster.yaml -o json | jq -r .findings[].reason
    """
    node, rule_files = sources.node, sources.dumps
    alone = "--host is one node's, and not of the namespaces that --verify makes: give it alone"
    exclude(
        (before == to, f"--from and --to are both {to}"),
        (node is not None and all_nodes, "--node and --all-nodes exclude each other"),
        (rule_files and all_nodes, "a dump is of one node: --all-nodes and a dump exclude each other"),
        (host_path is not None and (all_nodes or verify), alone),
    )
    host = None if host_path is None else read_host(host_path)
    for extra in ("linux", "pcap") if verify else ():
        require(extra, "--verify")
    gc.disable()  # many objects and next to no garbage
    read = sources.read(how)
    config, cluster = read.config, read.cluster
    if all_nodes:
        targets = [Target(each.metadata.name, each) for each in cluster.nodes]
        if not targets:
            raise click.UsageError("--all-nodes: the cluster has no Node")
    else:
        targets = [read.target(node)]
    families = families or tuple(Family)
    dump = read_rules(rule_files, assumed) if rule_files else None
    unseen = [] if dump is None else [each for each in dump.unseen if any(map(each.is_met_by, families))]
    missing = read.lacking(assumed)
    lacking = missing.unseen(read.label)

    from kproxy.cli.migrate.text import report_lines
    from kproxy.cluster.equivalence.services import Alike
    from kproxy.cluster.migrate.analysis import Analysis, analyse
    from kproxy.cluster.migrate.foreign import ForeignRules
    from kproxy.cluster.migrate.report import build_report
    from kproxy.cluster.migrate.switch import Switch
    from kproxy.cluster.node import NodeFacts
    from kproxy.linux.nftables.preflight import MIN_KERNEL, needed

    needs, least = (needed(), MIN_KERNEL) if to == MODE_NFTABLES else ((), None)

    alike = {family: Alike(missing.known(cluster, family), family) for family in families}
    switch, confirm = Switch.of(before or "", to, config.mode), None
    if (
        dump is not None
        and before is None
        and not switch.from_ipvs
        and (
            any(each.what == IPVS for each in suspected(dump.unseen))
            or any(ruleset.chain("filter", IPVS_FILTER) is not None for ruleset in dump.rulesets)
        )
    ):
        raise click.UsageError(f"{dump.label}: rules of IPVS mode, and the configuration has another: give --from")

    def analyses() -> Iterator[Analysis]:
        for number, target in enumerate(targets, 1):
            for family in families:
                which = f" ({number} of {len(targets)})" if len(targets) > 1 else ""
                with working(f"comparing both modes on {target.node_name}{which}, {family.value}"):
                    known = alike[family].cluster
                    facts = NodeFacts.of(
                        known, config, target, family, how.features, host=host, lacking=lacking, assumed=assumed
                    )
                    foreign = None if dump is None or not dump.tells(family) else ForeignRules.of(dump, family)
                    yield analyse(facts, switch, foreign=foreign, alike=alike[family])

    with contextlib.ExitStack() as stack:
        if verify:
            from kproxy.cli.migrate.verify import Verifier
            from kproxy.linux.privilege import check_privileges

            check_privileges()
            confirm = stack.enter_context(Verifier(switch)).confirm
        found = tuple(analyses())
        with working("sending packets through the kernel") if verify else contextlib.nullcontext():
            report = build_report(found, switch, confirm=confirm, needs=needs, least_kernel=least)
    addresses = (gap for each in found for gap in each.facts.unseen if gap.what == NODE_ADDRESSES)
    unseen += (*lacking, *dict.fromkeys(addresses))
    if html is not None:
        from kproxy.explorer.export.commands import migrate_page, rendered_state

        with working("drawing the page"):
            known = rendered_state(read.label, sources.with_pods(read.raw), config, how.features, report.from_)
            text = click.unstyle("\n".join(report_lines(report)))
            write_files({Path(html): migrate_page(report, known, text)})
    write_result("Migration", report, output_format, chain(report_lines(report), unseen_lines(unseen)), unseen)
    exit_with(found=bool(report.findings), undecided=report.changes)
