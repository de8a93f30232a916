"""`kproxy diff`: do two rule sets treat every packet alike?"""

from __future__ import annotations

import gc
import os
import resource
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES
from kproxy.cli.connection import Connection, connection_options
from kproxy.cli.diff.sources import Choices, SideInput
from kproxy.cli.evidence import assume_option, exit_with, unseen_lines
from kproxy.cli.objects import Reads, RenderChoices
from kproxy.cli.options import SecondsRange, both_families, exclude, feature_option, mode_option, tell_unused_options
from kproxy.cli.output import report_note, working, write_files, write_report, write_result
from kproxy.cli.sources import Sources, allocate_option, endpoints_option
from kproxy.cluster.allocate import Network
from kproxy.cluster.evidence.unseen import Assumed, Unseen, headlines, lacking_both, suspected
from kproxy.cluster.hosts import read_host
from kproxy.cluster.sources import Kind, read_name
from kproxy.dataplane.model.errors import BoundReachedError
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.render import Features
from kproxy.services import IPFamily

MEMORY: Final = 4096
"""MiB that the process may take, if the machine and the limits of the process have so much and a quarter to spare."""
_MIB: Final = 1 << 20
_OWN: Final = Path("/proc/self/statm")
_GROUP: Final = Path("/sys/fs/cgroup/memory.max")
MOST: Final = 20
_OF_OBJECTS: Final = (
    "--config, --config-a, --config-b, --mode, --mode-a, --mode-b, --feature, --allocate, "
    "--assume-endpoints and -n go with manifests or a cluster"
)
_OF_SIDES: Final = "--config-a and --mode-a, --config-b and --mode-b go with a side that is rendered"


@click.command("diff")
@click.argument("one", metavar="A")
@click.argument("other", metavar="[B]", required=False)
@connection_options(hidden=True)
@click.option("-n", "--namespace", metavar="NS", help="Of manifests and clusters, only the Services of this namespace.")
@click.option(
    "--without", metavar="REF", multiple=True,
    help="B is as if pod/NS/NAME, node/NAME, svc/NS/NAME or an endpoint's IP were gone; repeatable. B may be left out "
    "then: it is A without that.",
)  # fmt: skip
@click.option("--config", metavar="FILE", help="With manifests or a cluster: KubeProxyConfiguration of both sides.")
@click.option("--config-a", metavar="FILE", help="That of A.")
@click.option("--config-b", metavar="FILE", help="That of B.")
@mode_option(ipvs=True)
@click.option("--mode-a", type=click.Choice([MODE_IPTABLES, MODE_NFTABLES, MODE_IPVS]), help="The proxy mode of A.")
@click.option("--mode-b", type=click.Choice([MODE_IPTABLES, MODE_NFTABLES, MODE_IPVS]), help="The proxy mode of B.")
@feature_option()
@both_families
@click.option(
    "--host", "host_path", metavar="FILE", help="Only packets on this host count (documentation: Host files)."
)
@allocate_option
@endpoints_option
@assume_option
@click.option(
    "--timeout", type=SecondsRange(min=0), metavar="SECONDS",
    default=600.0, show_default=True,
    help="End after so long, and say how far it came.",
)  # fmt: skip
@click.option(
    "--memory", type=click.IntRange(16), metavar="MIB",
    help=f"End at so much memory, and say how far it came. Default: {MEMORY}, or three quarters of what there is.",
)  # fmt: skip
@click.option("--text", is_flag=True, help="Compare the texts only, as diff -u does.")
@click.option("--most", type=click.IntRange(1), default=MOST, show_default=True, help="Show so many differences.")
@click.option("--all", "everything", is_flag=True, help="Put every difference into words and show it.")
@click.option("-o", "--output", "output_format", type=click.Choice(["text", "json", "yaml"]), default="text")
@click.option("--html", metavar="FILE", help="Write a page that shows the differences, with both ways of a packet.")
def command(
    one: str,
    other: str | None,
    connection: Connection,
    namespace: str | None,
    without: tuple[str, ...],
    config: str | None,
    config_a: str | None,
    config_b: str | None,
    mode: str | None,
    mode_a: str | None,
    mode_b: str | None,
    features: Features,
    families: tuple[IPFamily, ...],
    host_path: str | None,
    allocate: tuple[Network, ...],
    endpoints: int,
    assumed: Assumed,
    timeout: float,
    memory: int | None,
    text: bool,
    most: int,
    everything: bool,
    output_format: str,
    html: str | None,
) -> None:
    """Decide whether two rule sets treat every packet alike: verdicts, rewrites, and their chances.

    Not by sampling: for all addresses, ports, protocols, marks and connection states. If they differ, each affected
    service or address is named, with a packet and its way through both. Exit 0
    alike, 1 different, 2 bad input, or it cannot be told: something is open, or was not seen of one side alone, or the
    comparison was not done in time. Packets of each family count of which a side has rules; -4 and -6 choose one.

    \b
    A and B are each one of
      FILE[,FILE...][@NODE]            one host's rules as iptables-save or nft
                                       prints them, or scripts of nft -f, each
                                       recognised by its content; - for stdin
      netns:NAME[@NODE]                what a network namespace holds now
      SNAPSHOT[@NODE]                  what a node of a snapshot had (archive or
                                       directory)
      lab:[NAME][@NODE]                what a node of a lab holds now
      manifests:PATH[,PATH...][@NODE]  what kube-proxy would program on a node;
                                       names of YAML, JSON and JSON lines files
                                       and of folders need no `manifests:`; a
                                       snapshot's objects do
      cluster:[CONTEXT][@NODE]         the same from an API server's objects;
                                       cluster: alone is the current context

    \b
    Examples:
      kproxy diff before.save after.save
      kproxy diff node.dump cluster.yaml@worker-1
      kproxy diff netns:node-1 manifests:cluster/,extra.yaml@node-1 -4
      kproxy diff cluster.yaml@n1 cluster.yaml@n1 --config-b new-config.yaml
      kproxy diff cluster.yaml@n1 cluster.yaml@n1 --mode-b nftables
      kproxy diff cluster:@n1 --without node/n2
      kproxy diff before.save after.save --html changes.html
    """
    bound = Bound(timeout, memory)
    if other is None:
        if not without:
            raise click.UsageError("Missing argument 'B'.")
        other = one
    if one == other == "-":
        raise click.UsageError("only one side can be standard input")
    names = (read_name(one), read_name(other))
    rendered = (names[0].is_rendered, names[1].is_rendered)
    of_objects = any(each is not None for each in (config, config_a, config_b, mode, mode_a, mode_b))
    of_objects = of_objects or bool(namespace or allocate or endpoints) or features != Features()
    of_sides = zip(((config_a, mode_a), (config_b, mode_b)), rendered, strict=True)
    is_live = Kind.CLUSTER in {each.kind for each in names}
    option = next(iter(connection.given), "")
    exclude(
        (text and (output_format, html) != ("text", None), "--text goes with neither -o json, -o yaml nor --html"),
        (not any(rendered) and of_objects, _OF_OBJECTS),
        (option and not is_live, f"{option} goes with a side that is a cluster, as in cluster:@NODE"),
        (any(each != (None, None) and not known for each, known in of_sides), _OF_SIDES),
        (without and not rendered[1], "--without goes with a B that is rendered, from manifests or a cluster"),
    )
    family = families[0] if len(families) == 1 else None
    gc.disable()  # many objects and next to no garbage
    host = read_host(host_path) if host_path is not None else None
    configs = [config if each is None else each for each in (config_a, config_b)]
    sources = Sources(
        (), connection=connection, namespace=namespace, allocate=allocate, endpoints=endpoints, reads=Reads()
    )
    how = RenderChoices(configs[0], mode_a or mode, features)
    common = Choices(how, sources, assumed=assumed, as_given=config_a != config_b)
    sides = (
        SideInput(one, common),
        SideInput(other, replace(common, how=RenderChoices(configs[1], mode_b or mode, features), without=without)),
    )
    labels = (sides[0].label, sides[1].label)
    for side, opposite in (sides, sides[::-1]):
        side.take_config_of(opposite)
    there, chosen, lost = _families(sides, family)
    unseen = {each: [side.unseen(each) for side in sides] for each in chosen}
    taken = {each: lacking_both(*unseen[each]) for each in chosen}
    rules = {each: [side.rules(each, taken[each]) for side in sides] for each in chosen}
    tell_unused_options(*{side.mode for side in sides if side.mode})
    first, second = (SideRules.together([rules[each][number] for each in chosen]) for number in (0, 1))
    same = frozenset().union(*taken.values())
    gaps = list(dict.fromkeys([*(gap for pair in unseen.values() for side in pair for gap in side), *lost]))
    if text:
        for line in headlines(lost):
            report_note(line)
        _print_text((first, second), labels)
        exit_with(found=False, undecided=False, unseen=lost)
        return
    from kproxy.cli.diff.text import comparison_text
    from kproxy.dataplane.compare.compare import EXAMINED, Comparison, Undecided, compare, comparison_record

    with working("comparing"):
        examine = None if everything else max(EXAMINED, most)
        found = Comparison.of(
            {each: compare(*rules[each], family=each, host=host, examine=examine, check=bound.check) for each in chosen}
        )
    if there > set(chosen):
        found = replace(found, families=tuple(chosen))
    counts = (first.rule_count, second.rule_count)
    lacking = suspected(gap for gap in gaps if gap.thing not in same)
    if lacking:
        found = replace(found, alike=False)
    lines = [*comparison_text(found, labels, counts, None if everything else most), *unseen_lines(gaps, same)]
    if html is not None:
        from kproxy.explorer.export.commands import diff_page

        # The page has no other place for what was not compared.
        left = [Undecided(f"{gap.family} packets".lstrip(), f"not seen: {gap.what} ({gap.why})") for gap in lacking]
        if not lost:
            left += [Undecided(f"{each.value} packets", "they were not compared") for each in there - set(chosen)]
        shown = replace(found, undecided=(*found.undecided, *left))
        with working("drawing the page"):
            page = diff_page(shown, labels, click.unstyle("\n".join(lines)), [each.cluster() for each in sides])
        write_files({Path(html): page})
    write_result("Comparison", comparison_record(found, labels), output_format, lines, gaps)
    exit_with(found=bool(found.differences), undecided=not found.alike, unseen=lacking)


def _families(
    sides: tuple[SideInput, SideInput], asked: Family | None
) -> tuple[frozenset[Family], list[Family], list[Unseen]]:
    """The families of which there are rules, those to compare, and the rules of the others that were not seen.

    Raises:
        InputError: there are no rules of the family that is asked for, or none of one family on both sides.
    """
    one, other = sides
    there = one.families | other.families
    if asked is not None:
        for side in sides:
            if side.told and asked not in side.told:
                held = next(iter(side.told))
                raise InputError(
                    f"{side.label}: these are rules of {held.value}, and -{asked.version} asks for the other family"
                )
        return there, [asked], []
    if one.told and other.told and not one.told & other.told:
        first, second = (next(iter(side.told)).value for side in sides)
        raise InputError(
            f"{one.label} holds rules of {first} and {other.label} of {second}: two rule sets of one family expected"
        )
    usual = one.usual_family() if not there else min(there, key=lambda family: family.version)
    chosen: list[Family] = []
    lost: list[Unseen] = []
    for family in sorted(there | {usual}, key=lambda family: family.version):
        gaps = [side.unseen_rules(family) if family is not usual or side.families else () for side in sides]
        if not any(gaps):
            chosen.append(family)
        for own, rival in zip(gaps, (other, one), strict=True):
            lost += own if rival.has_file_of(family) else ()
    return there, chosen, lost


def _print_text(rulesets: tuple[SideRules, SideRules], labels: tuple[str, str]) -> None:
    from kproxy.cli.diff.text import text_difference

    lines = list(text_difference(rulesets, labels))
    write_report(lines, fold=False)
    if lines:
        raise click.exceptions.Exit(1)


class Bound:
    """Counts from when it is made. `memory` is in MiB; None for three quarters of what there is, `MEMORY` at most."""

    def __init__(self, seconds: float, memory: int | None) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._memory = memory or min(MEMORY, _present() * 3 // 4)

    def check(self) -> None:
        """Looks at the clock and at what the process takes.

        Raises:
            BoundReachedError: one of them is at its bound.
        """
        if time.monotonic() > self._end:
            raise BoundReachedError(f"{self._seconds:g} seconds are over (--timeout)")
        if _taken() > self._memory:
            raise BoundReachedError(f"it takes more than {self._memory:,} MiB of memory (--memory)")


def _taken() -> int:
    """MiB that the process has now."""
    return int(_OWN.read_text("ascii").split()[1]) * resource.getpagesize() // _MIB if _OWN.exists() else 0


def _present() -> int:
    """MiB that the process can have: of the machine, of its control group, of its own limit."""
    found = [os.sysconf("SC_PHYS_PAGES") * resource.getpagesize(), resource.getrlimit(resource.RLIMIT_AS)[0]]
    if _GROUP.exists() and (text := _GROUP.read_text("ascii").strip()).isdigit():
        found.append(int(text))
    return min(each for each in found if each != resource.RLIM_INFINITY) // _MIB
