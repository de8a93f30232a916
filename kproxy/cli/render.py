"""`kproxy render`: a node's rules from manifests or a live cluster."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
import msgspec

from kproxy.api import Manifests
from kproxy.api.kubeproxyconfig.types import MODE_IPVS, MODE_NFTABLES, KubeProxyConfiguration
from kproxy.cli.objects import RenderChoices
from kproxy.cli.options import exclude, one_family, rendering_options, tell_unused_options
from kproxy.cli.output import OutputError, check_is_file, report_note, text_of, working, write_files, write_output
from kproxy.cli.processes import in_processes
from kproxy.cli.sources import ONLY_NAMESPACE, Sources, sources
from kproxy.cluster.completeness import remark_claimed_twice
from kproxy.cluster.rendered import render_node
from kproxy.errors import InputError
from kproxy.render import Features, Rendered, RenderedTarget, Target
from kproxy.render.golden import files_of
from kproxy.render.ipvs.node import RenderedIpvs
from kproxy.render.provenance import object_record, rule_record
from kproxy.services import IPFamily

IPVS_FORMATS: Final[Mapping[str, Callable[[RenderedIpvs], str]]] = {
    "ipset": attrgetter("ipset_text"),
    "ipvsadm": attrgetter("ipvsadm_text"),
    "addresses": attrgetter("addresses_text"),
}
"""The formats that only ipvs mode has."""

FORMATS = ("save", "restore", "json", "yaml", *IPVS_FORMATS)


@click.command("render")
@sources(namespace=ONLY_NAMESPACE)
@rendering_options(ipvs=True)
@one_family
@click.option("--format", "output_format", type=click.Choice(FORMATS), default="save", show_default=True)
@click.option(
    "-o", "--output", metavar="FILE", callback=check_is_file,
    help="Write here instead of stdout; whole or not at all.",
)  # fmt: skip
@click.option("-t", "--table", metavar="TABLE", help="With --format json, yaml: only this table.")
@click.option("--chain", metavar="NAME", help="With --format json, yaml: only this chain.")
@click.option("--all-nodes", is_flag=True, help="Render every Node, both families, into --output-dir.")
@click.option(
    "--output-dir",
    metavar="DIR",
    help="With --all-nodes: gets NODE.v4.save and NODE.v6.save for each, in nftables mode .nft for .save, in ipvs mode "
    ".ipset, .ipvsadm and .addresses, too.",
)
@click.option(
    "--nft",
    type=click.Choice(["1.0.6", "1.1.3"]),
    default="1.0.6",
    show_default=True,
    help="In nftables mode, the release of nft whose listing save is: Debian 12's or 13's.",
)
def command(
    sources: Sources,
    how: RenderChoices,
    family: IPFamily | None,
    output_format: str,
    output: str | None,
    table: str | None,
    chain: str | None,
    all_nodes: bool,
    output_dir: str | None,
    nft: str,
) -> None:
    """Render the rules that kube-proxy v1.36 would program on a node.

    \b
    Formats in iptables mode:
      save     what iptables-save prints once the rules are loaded
      restore  one full text for `iptables-restore --noflush`
      json     every rule, and the object that it was made for; yaml the same

    \b
    Formats in nftables mode:
      save     what `nft list table` prints once the rules are loaded
      restore  input for `nft -f`, one object a line
      json     every object, and the object that it was made for; yaml the same

    \b
    Formats in ipvs mode:
      save       what iptables-save prints once the rules are loaded
      restore    input for `iptables-restore --noflush`, once the sets are there
      ipset      the sets, for `ipset restore`
      ipvsadm    virtual and real servers, for `ipvsadm -R`
      addresses  those of kube-ipvs0, one a line
      json       all, with sysctls and timeouts, and what it was made for; or yaml

    \b
    Examples:
      kproxy render cluster.yaml
      kproxy render cluster:prod@worker-1
      kubectl get svc,endpointslices,nodes -A -o json | kproxy render -
      kproxy render manifests/@n1 --config kube-proxy.yaml -6 --format restore
      kproxy render cluster.yaml --format yaml -t nat --chain KUBE-SERVICES
      kproxy render cluster.yaml --mode ipvs --format ipvsadm
      kproxy render cluster.yaml --all-nodes --output-dir rules/
    """
    node = sources.node
    alone = "--all-nodes writes the save form of every Node and family: no --node, -4, -6, -o, --format"
    narrowed = (table or chain) and output_format not in ("json", "yaml")
    exclude(
        (all_nodes != (output_dir is not None), "--all-nodes and --output-dir go together"),
        (all_nodes and (node or output or family or output_format != "save"), alone),
        (narrowed, "-t and --chain narrow --format json and yaml only"),
    )
    # A run makes many objects and next to no garbage: the cycle collector would take a fifth of the time for nothing.
    gc.disable()
    found = sources.read(how)
    config, cluster = found.config, found.cluster
    if config.mode == MODE_NFTABLES and table:
        raise click.UsageError("-t is for iptables mode: nftables mode has one table")
    if output_format in IPVS_FORMATS and config.mode != MODE_IPVS:
        raise click.UsageError(f"--format {output_format} is for ipvs mode, and the mode is {config.mode}")
    tell_unused_options(config.mode)
    for remark in remark_claimed_twice(cluster):
        report_note(remark)
    if output_dir is not None:
        _render_all_nodes(cluster, config, how.features, Path(output_dir), nft)
        return
    target = found.target(node)
    with working("rendering"):
        rendered = render_node(target, family or target.primary_family(config), cluster, config, how.features)
        text = _format(rendered, output_format, table, chain, nft)
    write_output(text, output)


def _format(rendered: Rendered, output_format: str, table: str | None, chain: str | None, nft: str) -> str:
    if output_format == "restore":
        return rendered.restore_text
    if output_format == "save":
        if isinstance(rendered, RenderedTarget | RenderedIpvs):
            return rendered.save_text
        return rendered.save_text(nft)
    if isinstance(rendered, RenderedIpvs) and output_format in IPVS_FORMATS:
        return IPVS_FORMATS[output_format](rendered)
    records: list[object] = []
    if isinstance(rendered, RenderedTarget | RenderedIpvs):
        found = (each for each in rendered.rules() if table in (None, each.table) and chain in (None, each.chain))
        records += map(rule_record, found)
        if not records and (table or chain):
            _check_narrowing(rendered, table, chain)
        if isinstance(rendered, RenderedIpvs) and not (table or chain):
            records += map(object_record, rendered.objects())
    else:
        records += (
            object_record(each, rendered.table)
            for each in rendered.objects()
            if chain is None or (each.container, each.name) == ("chain", chain)
        )
        if not records:
            raise InputError(f"there is no chain {chain!r} in table {rendered.table}")
    return text_of(msgspec.to_builtins(records), output_format)


def _check_narrowing(rendered: RenderedTarget | RenderedIpvs, table: str | None, chain: str | None) -> None:
    """Check that there is such a table and such a chain.

    Raises:
        InputError: there is none.
    """
    ruleset = rendered.saved
    names = [each.name for each in ruleset.tables]
    if table is not None and table not in names:
        raise InputError(f"there are no rules in table {table!r}; there are in {', '.join(names)}")
    if chain is not None and not any(ruleset.chain(name, chain) for name in names if table in (None, name)):
        raise InputError(f"there is no chain {chain!r}{f' in table {table}' if table else ''}")


def _render_all_nodes(
    cluster: Manifests, config: KubeProxyConfiguration, features: Features, directory: Path, nft: str
) -> None:
    if not cluster.nodes:
        raise InputError("--all-nodes: the cluster has no Node")
    jobs = [(node, family) for node in cluster.nodes for family in IPFamily]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=directory, prefix=".kproxy-") as staging, working("rendering"):

            def render(number: int) -> list[str]:
                node, family = jobs[number]
                target = Target(node.metadata.name, node)
                texts = files_of(node, render_node(target, family, cluster, config, features), nft)
                write_files({Path(staging) / name: text for name, text in texts.items()})
                return [*texts]

            names = [name for done in in_processes(render, range(len(jobs)), name="render") for name in done]
            if any((directory / name).is_dir() for name in names):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            for name in names:
                os.replace(Path(staging) / name, directory / name)
    except OSError as error:
        raise OutputError(f"cannot write to {directory}: {error.strerror or error}") from error
