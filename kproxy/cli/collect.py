"""`kproxy collect`: a cluster in one file; `kproxy snapshot`: what it holds."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from kproxy.cli.live_snapshot import report_unread
from kproxy.cli.output import labelled, output_option, report_note, write_files, write_output, write_result
from kproxy.cli.sources import CURRENT, Sources, sources
from kproxy.cluster.snapshot.contents import Contents, HostContents, contents_of
from kproxy.cluster.snapshot.files import Files, open_files
from kproxy.cluster.snapshot.layout import host_file
from kproxy.cluster.snapshot.script import script
from kproxy.cluster.sources import Kind
from kproxy.collect.write import write_snapshot

_MOST: Final = 12
"""Names of hosts in one line."""
_LABEL: Final = 11


@click.command("collect")
@sources((Kind.NETNS, Kind.LAB, Kind.CLUSTER), needs=(), via=True)
@click.option("-o", "--output", "path", metavar="FILE", help="A directory, or .tar.gz, .tar.zst, .tar.")
@click.option("--redact", is_flag=True, help="Replace names and addresses; the answers stay the same.")
@click.option("--redact-map", "map_path", metavar="FILE", help="With --redact: write what stands for what; keep it.")
@click.option("--from", "source_path", metavar="SNAPSHOT", help="With --redact: redact this one; ask no cluster.")
@click.option("--script", "show_script", is_flag=True, help="Print the script that reads one node.")
def command(
    sources: Sources, path: str | None, redact: bool, map_path: str | None, source_path: str | None, show_script: bool
) -> None:
    """Gather what decides a cluster's Service traffic into one file: the objects, and of each node its rules, addresses
    and routes. SOURCE is cluster:CONTEXT, lab:NAME or netns:NAME; without it, the current context.

    \b
    --via  exec   in a Pod with hostNetwork and the tools on each node:
                  kube-proxy's own, or those that --selector selects in any
                  namespace
           agent  by kproxy run on each node, which executes it: through the
                  API server, or at --agent-url
           netns  nodes are network namespaces of this machine: --node NAME,
                  or --node NAME=NAMESPACE; objects only with --kubeconfig
           lab    the nodes of a lab, its fabric and its client
           none   objects only

    Or print a script with --script, execute it on each node as root by ssh or
    Ansible (sh collect.sh [NODE [DIRECTORY]]), and put the nodes/NAME/ that it
    writes beside objects/. It changes nothing. Secrets are never read.

    \b
    Examples:
      kproxy collect lab:lab -o lab.tar.gz
      kproxy collect cluster:prod --via exec -o prod.tar.gz
      kproxy collect cluster:@worker-1 --via exec --selector app=nettools
      kproxy collect --via agent --agent-url http://{address}:10249
      kproxy collect --script | ssh worker-1 sudo sh -s worker-1 /tmp/snap
      kproxy collect --from prod/ --redact -o prod-redacted.tar.gz

    Exit code 1 if something is missing, which the file names.
    """
    if show_script:
        if any((sources.names, path, redact, map_path, source_path)):
            raise click.UsageError("--script stands alone")
        write_output(script(), None)
        return
    if (map_path or source_path) and not redact:
        raise click.UsageError(f"{'--redact-map' if map_path else '--from'} goes with --redact")
    suffix = "-redacted" if redact else ""
    target = path or time.strftime(f"kproxy-snapshot-%Y%m%d-%H%M%S{suffix}.tar.gz", time.gmtime())
    if source_path is not None:
        if sources.names:
            raise click.UsageError("--from asks no cluster: it goes with --redact, --redact-map and -o only")
        _write(open_files(source_path), target, redact, map_path)
        return
    names = sources.names or (CURRENT,)
    if len(names) > 1:
        raise click.UsageError(f"one cluster expected, not {names[0].text} and {names[1].text}")
    collected = sources.gather(names[0], target)
    _write(collected.files, target, redact, map_path)
    if report_unread(collected.info):
        sys.exit(1)


def _write(files: Files, target: str, redact: bool, map_path: str | None) -> None:
    """Writes the snapshot, and what stands for what."""
    if redact:
        from kproxy.collect.redact.redact import KEY_OCTETS, redact_snapshot

        found = redact_snapshot(files, secrets.token_bytes(KEY_OCTETS), report_note)
        files = found.files
    write_snapshot(files, target, int(time.time()))
    if redact and map_path is not None:
        text = json.dumps(found.replaced, indent=1, ensure_ascii=False)
        write_files({Path(map_path): f"{text}\n"}, mode=0o600)  # what the names are is for its owner
    click.echo(target)


@click.command("snapshot")
@sources((Kind.SNAPSHOT, Kind.LAB, Kind.CLUSTER), needs=(Kind.SNAPSHOT, Kind.LAB, Kind.CLUSTER), via=True)
@output_option
def snapshot(sources: Sources, output_format: str) -> None:
    """List what a snapshot holds: of which cluster and when, how many objects of each kind, and of each node which
    files are there and which are missing, and why.

    Nodes of which the same is there are listed together. What follows from
    what is missing is said by kproxy audit and kproxy trace, and with -o json.

    \b
    Examples:
      kproxy snapshot prod.tar.gz
      kproxy snapshot snap/ -o json | jq -r '.hosts[].name'
    """
    found = contents_of(sources.read_cluster())
    write_result("Snapshot", found, output_format, _lines(found))


def _lines(found: Contents) -> Iterator[str]:
    yield click.style(found.snapshot, bold=True)
    made = [found.created or "not said when", *([f"by {found.tool}"] if found.tool else [])]
    of = [found.cluster, *([f"API server {found.server_version}"] if found.server_version else [])]
    kinds = [f"{count:,} {kind}" for kind, count in found.objects.items()]
    facts = (
        ("collected", " ".join(made) if found.created or found.tool else ""),
        ("of", ", ".join(filter(None, of))),
        ("redacted", "yes: names and addresses were replaced" if found.redacted else ""),
        ("objects", ", ".join(kinds) or "none"),
        ("missing", "; ".join(_why(each.what.partition("/")[2], each.why) for each in found.missing)),
    )
    yield from labelled(facts, "  ", _LABEL)
    for hosts in _alike(found.hosts):
        yield ""
        yield from _hosts(hosts)


def _hosts(hosts: Sequence[HostContents]) -> Iterator[str]:
    """Hosts of which the same is there."""
    first = hosts[0]
    names = ", ".join(each.name for each in hosts[:_MOST])
    more = f" and {len(hosts) - _MOST:,} more" if len(hosts) > _MOST else ""
    kind = ("node" if first.has_node else "host beside the nodes") + ("" if len(hosts) == 1 else f" ({len(hosts):,})")
    yield from labelled([("", f"{names}{more}")], f"{kind} ", 0)
    started = sorted(each.started for each in hosts if each.started)
    when = started[0] if started else ""
    if len(started) > 1 and started[-1] != when:
        when += f" to {started[-1]}"
    begin = host_file(first.name, "")
    gone = [_why(each.what.removeprefix(begin), each.why) for each in first.missing]
    facts = (
        ("collected", when + (f" ({first.via})" if when and first.via else "")),
        ("has", ", ".join(first.files) or "nothing"),
        ("missing", "; ".join(gone) if first.files else next((each.why for each in first.missing if each.why), "")),
        ("not read", f"{', '.join(first.unread)}: not a name of a snapshot's file" if first.unread else ""),
    )
    yield from labelled(facts, "  ", _LABEL)


def _why(name: str, why: str) -> str:
    return f"{name} ({why})" if why else name


def _alike(hosts: Sequence[HostContents]) -> list[list[HostContents]]:
    """Hosts of which the same is there, together, in the order of their first."""
    groups: dict[object, list[HostContents]] = {}
    for each in hosts:
        begin = host_file(each.name, "")
        missing = tuple((item.what.removeprefix(begin.rstrip("/")), item.why) for item in each.missing)
        groups.setdefault((each.has_node, each.files, each.via, missing, each.unread), []).append(each)
    return list(groups.values())
