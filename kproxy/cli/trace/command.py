"""`kproxy trace`: where a packet goes, with which chance, and why."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain, repeat
from pathlib import Path
from typing import NamedTuple

import click
from click.core import ParameterSource

from kproxy.api import Manifests
from kproxy.cli.evidence import expected_exit, split_assumed, tell_unseen, unseen_lines
from kproxy.cli.live_snapshot import settled
from kproxy.cli.objects import ReadObjects, RenderChoices
from kproxy.cli.options import exclude, rendering_options, tell_unused_options
from kproxy.cli.output import answer, report_note, text_of, write_files, write_output, write_report
from kproxy.cli.sources import EVERYTHING, NAMES_NAMESPACE, Sources, sources
from kproxy.cli.trace.packets import Asked, read_capture, read_packets
from kproxy.cli.trace.sources import FileSource, HostSource, ManifestSource, Source
from kproxy.cluster.evidence.unseen import CONNECTION_MARK, Assumed, Unseen
from kproxy.cluster.hosts import read_host
from kproxy.cluster.inputs import first_octets
from kproxy.cluster.motion import in_motion
from kproxy.cluster.names import Names
from kproxy.cluster.pods import Pod, read_pods
from kproxy.cluster.sources import Kind
from kproxy.dataplane import DataplaneError, Host
from kproxy.dataplane.concrete.assumptions import contradiction
from kproxy.dataplane.model.packet import parse_endpoint, parse_ip
from kproxy.dataplane.query.json import report_record
from kproxy.dataplane.query.report import Report, one_of, report
from kproxy.dataplane.query.spec import read_question, write_question
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.render import Target
from kproxy.words import counted

LIMITS = {"within": True, "above": False}
_USED = ("v1/Pod",)


_hidden = partial(click.option, hidden=True)
"""What --help does not show: options of older versions, and those that few need (documentation: trace)."""


@click.command("trace")
@sources(EVERYTHING, NAMES_NAMESPACE, needs=EVERYTHING, via=True, without="")
@rendering_options(ipvs=True, hidden=True)
@click.option(
    "--host", "host_path", metavar="FILE", help="The host (documentation: Host files). Default: what the source tells."
)
@click.option("--from", metavar="REF", help="Who sends: NAME of a Pod, pod/NS/NAME, node/NAME, IP[:PORT].")
@click.option("--to", metavar="REF", help="NAME of a Service, svc/NS/NAME:PORT, nodeport/..., pod/..., IP:PORT.")
@click.option("--proto", metavar="PROTO", help="tcp, udp, sctp or icmp. Default: tcp, or the Service port's.")
@click.option("--in", metavar="IFACE", help="The interface it arrives on. Default: open.")
@click.option(
    "--ctstate", metavar="STATE", help="NEW, ESTABLISHED, RELATED, INVALID, UNTRACKED or open; DNAT, SNAT too."
)
@click.option(
    "--expect", type=click.Choice(["ACCEPT", "DROP", "REJECT"], case_sensitive=False),
    help="Exit 1 if another verdict is certain, 2 if this one is not certain.",
)  # fmt: skip
@click.option(
    "--assume", "assumed", metavar="EXPR=yes|no", multiple=True,
    help="Decide a match that is open: rpfilter=yes; or what was not seen: WHAT=empty, or complete.",
)  # fmt: skip
@click.option("--summary", is_flag=True, help="Outcomes without the way: one line a packet; in JSON no path.")
@click.option("--packets", metavar="FILE", help="Trace the packets of JSON lines, - for stdin, or of a capture.")
@click.option("-o", "--output", "output_format", type=click.Choice(["text", "json", "yaml"]), help="Default: text.")
@click.option("--html", metavar="FILE", help="Write a page that shows it as a picture.")
@_hidden("--ipset", "ipsets", multiple=True)
@_hidden("--local-ip", "local_ips", multiple=True)
@_hidden("--src")
@_hidden("--dst")
@_hidden("--sport", type=click.IntRange(0, 65535))
@_hidden("--dport", type=click.IntRange(0, 65535))
@_hidden("--origin", type=click.Choice(["arriving", "local"]))
@_hidden("--mark")
@_hidden("--ctmark")
@_hidden("--limit", type=click.Choice(list(LIMITS)))
@_hidden("--pcap")
@_hidden("--paths", is_flag=True)
def command(
    sources: Sources,
    how: RenderChoices,
    ipsets: Sequence[str],
    host_path: str | None,
    local_ips: Sequence[str],
    limit: str | None,
    assumed: Sequence[str],
    expect: str | None,
    summary: bool,
    pcap: str | None,
    packets: str | None,
    paths: bool,
    output_format: str | None,
    html: str | None,
    sport: int | None,
    dport: int | None,
    **fields: str | None,
) -> None:
    """Trace a packet through a host's rules: where it goes, with which chance, by which rules, and what comes back.

    SOURCE is where the rules come from: dumps of one host (iptables-save, nft, ipset save), manifests or
    cluster:CONTEXT (what kube-proxy would write), netns:NAME, or a node of a snapshot or a lab (snap.tgz@NODE,
    lab:NAME@NODE). A snapshot or a lab without @NODE is asked over all its hosts, cluster: with --via, too. What is not
    known stays open, and an outcome that depends on it is INDETERMINATE.

    With a dump the recorded rules decide; manifests beside it only say what names stand for. More options are in the
    documentation: trace.

    \b
    Examples:
      kproxy trace node.save --from 10.0.0.9:4000 --to web
      kproxy trace cluster.yaml --from cart-0 --to web.shop.svc.cluster.local:80
      kproxy trace cluster.yaml --without pod/shop/web-0 --from node/n1 --to web
      kproxy trace snap.tgz --from pod/shop/cart-0 --to svc/shop/web
      kproxy trace lab:lab --from cart-0 --to web --html way.html
      kproxy trace node.save --packets packets.jsonl > outcomes.jsonl
      kproxy trace node.save --to web --expect accept
    """
    gc.disable()  # many objects and next to no garbage
    given = {name: value for name, value in fields.items() if value is not None}
    if packets is not None and pcap is None and first_octets(packets, 4) in _CAPTURES:
        packets, pcap = None, packets
    if summary and html is not None:
        raise click.UsageError("--summary leaves out the way, which --html shows: they exclude each other")
    if _is_whole(sources):
        from kproxy.cli.trace.journey import trace_hosts

        _check_hosts(sources)
        ends = trace_hosts(sources, given, sport, output_format, html, summary=summary)
        if expect is not None:
            raise click.exceptions.Exit(expected_exit(expect, ends))
        return
    on_host = not sources.dumps and (sources.netns is not None or not sources.kinds <= {Kind.MANIFESTS, Kind.CLUSTER})
    on_host = on_host or (sources.reading.chosen != "none" and not sources.dumps)
    of_objects = how != RenderChoices() or sources.without or sources.allocate or sources.endpoints
    exclude(
        (sources.dumps and (sources.netns is not None or sources.of(Kind.LAB)), f"one {_RULES}, not {sources.label}"),
        ((on_host or sources.dumps) and of_objects, _OF_OBJECTS_ALONE),
        (ipsets and not sources.dumps, "what ipset save prints goes with a dump"),
        (local_ips and (host_path is not None or on_host), _LOCAL_IP_ALONE),
    )
    for text in local_ips:
        try:
            parse_ip(text)
        except DataplaneError as error:
            raise InputError(f"--local-ip: {error}") from error
    for end, port in (("src", sport), ("dst", dport)):
        if port is not None:
            given[end] = _with_port(given.get(end), port, end)
    many = [each for each in (pcap, packets) if each is not None]
    one_source = "one source of packets expected: options or --packets"
    exclude(
        (len(many) > 1 or (packets is not None and given) or (many and set(given) - set(_COMMON)), one_source),
        (not many and "dst" not in given and "to" not in given, "a packet expected: --to or --packets"),
        (html is not None and many, "--html shows one packet, given by options"),
        (packets is not None and output_format == "text", "--packets answers in JSON lines"),
        (packets == "-" and any("-" in each.names for each in sources.names), "only one input can be standard input"),
    )
    empty, asserted = split_assumed(assumed)
    assumptions = _assumptions(asserted)
    host = read_host(host_path) if host_path is not None else None

    def open_source() -> tuple[Source, Resolve]:
        if sources.dumps:
            dump = FileSource(sources.dumps, host, local_ips, ipsets, empty)
            return dump, _names_of_dump(sources, dump)
        if on_host:
            return _host_source(sources, host, empty)
        return _manifest_source(sources, how, host, local_ips, empty)

    traced, resolve = open_source()
    if packets is not None:
        asked = read_packets(packets, resolve)
    else:
        asked = [Asked(read_question(resolve(given)))] if pcap is None else read_capture(pcap, given)
    if empty.decides(CONNECTION_MARK):  # as far as it is not known, it is 0
        known = (each.question.connection.replace(mark_known=UINT32) for each in asked)
        asked = [
            each._replace(question=dataclasses.replace(each.question, connection=connection))
            for each, connection in zip(asked, known, strict=True)
        ]
    refused = _families_without_rules(traced, asked) if many else {}
    for family in refused if pcap is not None else ():
        count = sum(each.question.packet.family is family for each in asked)
        asked = [each for each in asked if each.question.packet.family is not family]
        report_note(f"skipped {counted(count, 'packet')} of {family.value}: there are no rules for them")
    told = frozenset(_given_options().values())
    answer_of = partial(report, paths=paths, limit=LIMITS.get(limit or ""), assumed=assumptions, told=told)
    opened = chain((traced,), (open_source()[0] for _ in repeat(None)))

    def answers() -> tuple[Source, list[Report | InputError]]:
        source = next(opened)
        refusals = (refused.get(each.question.packet.family) for each in asked)
        return source, [
            refusal or _report(source, each, answer_of) for each, refusal in zip(asked, refusals, strict=True)
        ]

    def others(found: tuple[Source, list[Report | InputError]]) -> Iterator[int]:
        """Of which packets another verdict than the expected one is certain, by their places."""
        for place, each in enumerate(found[1]):
            if expect is not None and _expected(expect, [each]) == 1:
                yield place

    live = on_host and Kind.SNAPSHOT not in sources.kinds
    (traced, reports), _, moving = settled(answers, others, live=live)
    if moving:
        report_note(in_motion(moving))
    for expression in assumptions.keys() - assumptions.used:
        report_note(f"--assume {expression!r} decided nothing: no packet met it")
    if html is not None:
        from kproxy.cli.trace.text import packet_words, report_text
        from kproxy.explorer.export.commands import trace_page

        only = reports[0]
        assert isinstance(only, Report)
        plain = report_text(only, traced.label, unseen_lines(traced.unseen(only.question)))
        write_files({Path(html): trace_page(only, traced.label, packet_words(only.question), plain)})
    if html is None or output_format is not None:
        shown = output_format or ("text" if packets is None or summary else "json")
        unseen = (traced.unseen(each.question) for each in asked)
        _print(list(map(_Answer, asked, reports, unseen)), traced.label, shown, summary=summary, lines=bool(many))
    if packets is not None and refused:
        raise click.exceptions.Exit(1)
    if expect is not None:
        raise click.exceptions.Exit(_expected(expect, reports))


def _is_whole(sources: Sources) -> bool:
    """Whether the way over all hosts is asked for, and not what one of them does."""
    if len(sources.names) != 1 or sources.names[0].node:
        return False
    kind, read = sources.names[0].kind, sources.reading_of(sources.names[0]).chosen
    return (kind in (Kind.SNAPSHOT, Kind.LAB) and not sources.nodes) or (kind is Kind.CLUSTER and read != "none")


def _check_hosts(sources: Sources) -> None:
    """Raises click.UsageError: an option is given that says something of one host."""
    option = next((spelled for name, spelled in _given_options().items() if name in _OF_ONE_HOST), "")
    if option:
        raise click.UsageError(
            f"{option} goes with one host, as in {sources.names[0].text or 'cluster:'}@NODE; all hosts go with "
            "--from, --to, --proto, --sport, -n, --summary, --expect, -o and --html only"
        )


Resolve = Callable[[Mapping[str, object]], Mapping[str, object]]


def _namespace(sources: Sources) -> str:
    """The namespace of names that say none: of -n, else of a live cluster's context; "" for the only one."""
    if sources.namespace or Kind.CLUSTER not in sources.kinds:
        return sources.namespace or ""
    found = sources.default_namespace()
    return "" if found == "default" else found


def _names(cluster: Manifests, node: str, pods: Callable[[], Mapping[str, Pod]], namespace: str | None) -> Names:
    """What a cluster's names stand for, seen from the node of that name."""
    found = next((each for each in cluster.nodes if each.metadata.name == node), None)
    return Names(cluster, Target(node, found), pods, report_note, namespace or "")


def _host_source(sources: Sources, host: Host | None, assumed: Assumed) -> tuple[Source, Resolve]:
    """One host of a snapshot, of a lab, or a network namespace; and what names stand for there."""
    cluster = sources.read_cluster(assumed)
    spaces = sources.of(Kind.NETNS)
    name = sources.node or (spaces[0].names[0] if spaces else next(iter(cluster.hosts), ""))
    label = spaces[0].label if spaces else f"node {name} of {cluster.label}"
    names = _names(cluster.manifests, name, lambda: cluster.pods, sources.namespace)
    return HostSource(cluster, name, label, host), names.resolve


def _manifest_source(
    sources: Sources, how: RenderChoices, host: Host | None, local_ips: Sequence[str], assumed: Assumed
) -> tuple[Source, Resolve]:
    """What kube-proxy would write on a node; and what names stand for there."""
    read = sources.read(how, narrow=False, used=_USED)
    tell_unused_options(read.config.mode)
    target = read.target(sources.node)
    traced = ManifestSource(read.on_node(target.node_name, target, how.features, assumed), host, local_ips)
    return traced, _names(read.cluster, target.node_name, partial(_pods, sources, read), _namespace(sources)).resolve


def _names_of_dump(sources: Sources, dump: FileSource) -> Resolve:
    """What names stand for: the Services that rules know, or the objects that were given beside them."""

    @cache
    def of_objects() -> Names:
        read = sources.read(narrow=False, used=_USED, remark_config=False)
        nodes = read.cluster.nodes
        node = sources.node or (nodes[0].metadata.name if len(nodes) == 1 else "")
        return _names(read.cluster, node, partial(_pods, sources, read), _namespace(sources))

    def resolve(fields: Mapping[str, object]) -> Mapping[str, object]:
        named = [fields[end] for end in ("from", "to") if fields.get(end) is not None]
        if not named:
            return fields
        if sources.has_objects:
            return of_objects().resolve(fields)
        addresses = all(map(_is_address, named))
        known = Manifests() if addresses else dump.services
        try:
            return _names(known, "", dict, sources.namespace).resolve(fields)
        except DataplaneError as error:
            raise DataplaneError(f"{error}{'' if addresses else _RULES_ALONE}") from error

    return resolve


def _is_address(text: object) -> bool:
    with suppress(DataplaneError):
        parse_endpoint(str(text))
        return True
    return False


def _expected(expect: str, reports: Sequence[Report | InputError]) -> int:
    """The exit code of --expect."""
    outcomes = [each.outcome for item in reports if isinstance(item, Report) for each in item.outcomes]
    return expected_exit(expect, (each.verdict for each in outcomes if each.probability))


def _given_options() -> dict[str, str]:
    """The options that were given, by name, as they are written."""
    context = click.get_current_context()
    given = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    return {each.name: each.opts[0] for each in context.command.params if each.name in given}


def _pods(sources: Sources, read: ReadObjects) -> Mapping[str, Pod]:
    return read_pods(sources.with_pods(read.raw))


def _with_port(text: str | None, port: int, end: str) -> str:
    """An address and a port that was given apart."""
    option = f"--{end[0]}port"
    if text is None:
        raise click.UsageError(f"{option} goes with --{end}")
    try:
        endpoint = parse_endpoint(text)
    except DataplaneError as error:
        raise InputError(f"--{end}: {error}") from error
    if endpoint.port not in (None, port):
        raise click.UsageError(f"{option} and the port of --{end} differ")
    return str(endpoint._replace(port=port))


class _Assumptions(dict[str, bool]):
    """The answers of --assume by expression, and which of them were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[str] = set()

    def __getitem__(self, expression: str) -> bool:
        self.used.add(expression)
        return super().__getitem__(expression)


def _assumptions(texts: Sequence[str]) -> _Assumptions:
    """`EXPR=yes|no` of --assume."""
    found = _Assumptions()
    for text in texts:
        expression, equals, answer = text.rpartition("=")
        if not equals or not expression.strip() or answer not in ("yes", "no"):
            raise click.UsageError(f"--assume: EXPR=yes, EXPR=no, WHAT=empty or complete expected, not {text!r}")
        if found.setdefault(expression.strip(), answer == "yes") != (answer == "yes"):
            raise click.UsageError(f"--assume: {expression.strip()!r} is both yes and no")
    if against := contradiction(found):
        parts = [f"{text}={'yes' if answer else 'no'}" for text, answer in found.items() if text in against]
        raise click.UsageError(f"--assume: {' and '.join(parts)} cannot all hold")
    return found


_COMMON = ("in", "origin", "mark", "ctstate", "ctmark")
_OF_ONE_HOST = {
    "config_path", "mode", "features", "ipsets", "host_path", "local_ips", "dport", "in", "origin", "mark",
    "ctstate", "ctmark", "limit", "assumed", "pcap", "packets", "paths", "without", "allocate", "endpoints",
}  # fmt: skip
_RULES = "source of rules expected"
_OF_OBJECTS_ALONE = (
    "--config, --mode, --feature, --without, --allocate and --assume-endpoints go with manifests or a cluster "
    "alone: they say how rules are made of objects, and recorded rules are there"
)
_LOCAL_IP_ALONE = "--local-ip is short for a host: it goes with neither --host nor a host that was read"
_RULES_ALONE = "; a dump names Services alone: give an address, or the cluster's objects beside it"
_CAPTURES = frozenset(bytes.fromhex(each) for each in ("d4c3b2a1", "a1b2c3d4", "4d3cb2a1", "a1b23c4d", "0a0d0d0a"))
"""How a capture begins: pcap in both orders of octets, with microseconds and nanoseconds; pcapng."""


def _families_without_rules(source: Source, asked: Sequence[Asked]) -> dict[Family, InputError]:
    """The families of packets that the rules are not for, with why: flow logs and captures hold packets of both, dumps
    rules of one. That they are for none of them is an error."""
    refused: dict[Family, InputError] = {}
    families = dict.fromkeys(each.question.packet.family for each in asked)
    for family in families:
        try:
            source.index(family)
        except InputError as error:
            refused[family] = error
    if len(refused) == len(families):
        first = next(each for each in asked)
        raise InputError(f"{first.source}: {refused[first.question.packet.family]}")
    return refused


def _report(source: Source, asked: Asked, answer_of: Callable[..., Report]) -> Report:
    """The answer about a packet, of each of the rules that it may meet."""
    question = asked.question
    try:
        indexes, why = source.indexes(question)
        surroundings = source.around(question)
        return one_of([answer_of(each, surroundings=surroundings, question=question) for each in indexes], why)
    except InputError as error:
        if not asked.source:
            raise
        raise InputError(f"{asked.source}: {error}") from error


class _Answer(NamedTuple):
    """What became of a packet, or why it cannot be told."""

    asked: Asked
    found: Report | InputError
    unseen: tuple[Unseen, ...]

    def record(self) -> dict[str, object]:
        """For JSON."""
        if isinstance(self.found, Report):
            return report_record(self.found, self.asked.source)
        packet = write_question(self.asked.question)
        return {"packet": packet, "outcomes": [], "error": str(self.found), "source": self.asked.source}

    def line(self) -> str:
        """In one line."""
        from kproxy.cli.trace.text import flow, summary_line

        if isinstance(self.found, Report):
            return summary_line(self.found)
        return f"{flow(self.asked.question)}: error: {self.found}"


def _print(answers: Sequence[_Answer], label: str, output_format: str, *, summary: bool, lines: bool) -> None:
    if output_format in ("json", "yaml"):
        texts = []
        for each in answers:
            value = answer("Trace", each.record(), each.unseen)
            if summary:
                value.pop("hooks", None)
                for outcome in value["outcomes"]:
                    del outcome["path"]
            texts.append(text_of(value, output_format, indent=None if lines else 2))
        write_output(("---\n" if output_format == "yaml" else "").join(texts), None)
        return
    found = [each.found for each in answers if isinstance(each.found, Report)]
    if summary:
        write_report("\n".join(each.line() for each in answers).splitlines())
        for text in dict.fromkeys(text for item in found for text in item.assumptions):
            report_note(f"assumed: {text}")
        tell_unseen(dict.fromkeys(gap for each in answers for gap in each.unseen))
        return
    from kproxy.cli.trace.text import report_lines

    shown: list[str] = []
    for item, each in zip(found, answers, strict=True):  # captures skip others, and other packets are answered in JSON
        shown += [""] if shown else []
        shown += [each.asked.source] if each.asked.source else []
        shown += report_lines(item, label, unseen_lines(each.unseen))
    write_report(shown)
