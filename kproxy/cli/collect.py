"""`kproxy collect`: a cluster in one file."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from kproxy.cli.cluster_source import Connection, connection_options
from kproxy.cli.gathering import VIA, gather
from kproxy.cli.output import counted, report_note, write_output, write_private
from kproxy.cluster.snapshot.files import Files, open_files
from kproxy.cluster.snapshot.script import script
from kproxy.cluster.snapshot.write import write_snapshot


@click.command("collect")
@connection_options
@click.option("--node", "nodes", metavar="NAME", multiple=True, help="Only these nodes; repeatable. Default: all.")
@click.option("--via", type=click.Choice(VIA), help="How nodes are read. Default: lab with --lab, else none.")
@click.option("--selector", metavar="LABELS", help="For --via exec: the Pods. Default: kube-proxy's own.")
@click.option("--lab", metavar="NAME", help="The lab, for --via lab. Default: lab.")
@click.option("-o", "--output", "path", metavar="FILE", help="A directory, or .tar.gz, .tar.zst, .tar.")
@click.option("--redact", is_flag=True, help="Replace names and addresses; the answers stay the same.")
@click.option("--redact-map", "map_path", metavar="FILE", help="With --redact: write what stands for what; keep it.")
@click.option("--from", "source_path", metavar="SNAPSHOT", help="With --redact: redact this one; ask no cluster.")
@click.option("--script", "show_script", is_flag=True, help="Print the script that reads one node.")
def command(
    connection: Connection,
    nodes: Sequence[str],
    via: str | None,
    selector: str | None,
    lab: str | None,
    path: str | None,
    redact: bool,
    map_path: str | None,
    source_path: str | None,
    show_script: bool,
) -> None:
    """Gather what decides a cluster's Service traffic into one file: the objects, and of each node its rules, addresses
    and routes.

    \b
    --via  exec   in a Pod with hostNetwork and the tools on each node:
                  kube-proxy's own, or those that --selector selects in any
                  namespace
           netns  nodes are network namespaces of this machine: --node NAME,
                  or --node NAME=NAMESPACE; objects only with --kubeconfig
           lab    the nodes of a lab, its fabric and its client
           none   objects only

    Or print a script with --script, execute it on each node as root by ssh or
    Ansible (sh collect.sh [NODE [DIRECTORY]]), and put the nodes/NAME/ that it
    writes beside objects/. It changes nothing. Secrets are never read.

    \b
    Examples:
      kproxy collect --lab lab -o lab.tar.gz
      kproxy collect --context prod --via exec -o prod.tar.gz
      kproxy collect --via exec --selector app=nettools --node worker-1
      kproxy collect --script | ssh worker-1 sudo sh -s worker-1 /tmp/snap
      kproxy collect --from prod/ --redact -o prod-redacted.tar.gz

    Exit code 1 if something is missing, which the file names.
    """
    if show_script:
        if any((connection.given, nodes, via, selector, lab, path, redact, map_path, source_path)):
            raise click.UsageError("--script stands alone")
        write_output(script(), None)
        return
    if (map_path or source_path) and not redact:
        raise click.UsageError(f"{'--redact-map' if map_path else '--from'} goes with --redact")
    suffix = "-redacted" if redact else ""
    target = path or time.strftime(f"kproxy-snapshot-%Y%m%d-%H%M%S{suffix}.tar.gz", time.gmtime())
    if source_path is not None:
        if any((connection.given, nodes, via, selector, lab)):
            raise click.UsageError("--from asks no cluster: it goes with --redact, --redact-map and -o only")
        _write(open_files(source_path), target, redact, map_path)
        return
    chosen = via or ("lab" if lab is not None else "none")
    if lab is not None and chosen != "lab":
        raise click.UsageError("--lab goes with --via lab")
    if chosen == "lab" and connection.given:
        raise click.UsageError("a lab has its own kubeconfig")
    if selector is not None and chosen != "exec":
        raise click.UsageError("--selector goes with --via exec")
    if chosen == "none" and nodes:
        raise click.UsageError("--node goes with --via exec, netns or lab: without --via no node is read")
    collected = gather(connection, chosen, lab or "lab", nodes, target, selector)
    _write(collected.files, target, redact, map_path)
    failed = collected.info.failed
    if failed:
        report_note(f"{counted(len(failed), 'part')} could not be read: {', '.join(each.what for each in failed[:8])}")
        sys.exit(1)


def _write(files: Files, target: str, redact: bool, map_path: str | None) -> None:
    """Writes the snapshot, and what stands for what."""
    if redact:
        from kproxy.cluster.redact.redact import KEY_OCTETS, redact_snapshot

        found = redact_snapshot(files, secrets.token_bytes(KEY_OCTETS), report_note)
        files = found.files
    write_snapshot(files, target, int(time.time()))
    if redact and map_path is not None:
        write_private(Path(map_path), json.dumps(found.replaced, indent=1, ensure_ascii=False) + "\n")
    click.echo(target)
