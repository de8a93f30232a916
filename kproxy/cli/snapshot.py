"""`kproxy snapshot`: what a snapshot holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import click

from kproxy.cli.output import labelled, output_option, report_width, write_result
from kproxy.cli.sources import Sources, sources
from kproxy.cluster.snapshot.contents import Contents, HostContents, contents_of
from kproxy.cluster.snapshot.layout import host_file
from kproxy.cluster.sources import Kind

_MOST: Final = 12
"""Names of hosts in one line."""
_LABEL: Final = 11


@click.command("snapshot")
@sources((Kind.SNAPSHOT, Kind.LAB, Kind.CLUSTER), needs=(Kind.SNAPSHOT, Kind.LAB, Kind.CLUSTER), via=True)
@output_option
def command(sources: Sources, output_format: str) -> None:
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
    width = report_width()
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
    yield from _facts(facts, width)
    for hosts in _alike(found.hosts):
        yield ""
        yield from _hosts(hosts, width)


def _hosts(hosts: Sequence[HostContents], width: int) -> Iterator[str]:
    """Hosts of which the same is there."""
    first = hosts[0]
    names = ", ".join(each.name for each in hosts[:_MOST])
    more = f" and {len(hosts) - _MOST:,} more" if len(hosts) > _MOST else ""
    kind = ("node" if first.has_node else "host beside the nodes") + ("" if len(hosts) == 1 else f" ({len(hosts):,})")
    yield from labelled(f"{kind} ", "", f"{names}{more}", width)
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
    yield from _facts(facts, width)


def _facts(facts: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    """Those that are known, each beside its label."""
    for label, text in facts:
        if text:
            yield from labelled(f"  {label:<{_LABEL}}", label, text, width)


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
