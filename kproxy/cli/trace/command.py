"""`kproxy trace`: where a packet goes, with which chance, and why."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from kproxy.api.load.reader import RawObject
from kproxy.cli import names
from kproxy.cli.cluster_source import NAMES_NAMESPACE, ClusterSource, cluster_source
from kproxy.cli.documents import answer, text_of
from kproxy.cli.evidence import expected_exit, split_assumed, tell_unseen, unseen_lines
from kproxy.cli.live_snapshot import what_stays
from kproxy.cli.options import feature_option, mode_option, tell_unused_options
from kproxy.cli.output import report_note, working, write_files, write_output, write_report
from kproxy.cli.text_files import read_text_of, text_label
from kproxy.cli.trace.packets import Asked, read_packets, refusal_line, refusal_record
from kproxy.cli.trace.snapshot import snapshot_option, whole_cluster
from kproxy.cli.trace.sources import FileSource, LiveSource, ManifestSource, Source
from kproxy.cluster.evidence.unseen import CONNECTION_MARK, Unseen
from kproxy.cluster.hosts import read_host
from kproxy.cluster.motion import in_motion
from kproxy.cluster.names import Names
from kproxy.cluster.pods import Pod, read_pods
from kproxy.cluster.rules import read_ipsets
from kproxy.dataplane import DataplaneError, IpSet
from kproxy.dataplane.concrete.assumptions import contradiction
from kproxy.dataplane.model.packet import parse_endpoint, parse_ip
from kproxy.dataplane.query.json import report_record
from kproxy.dataplane.query.report import Report, one_of, report
from kproxy.dataplane.query.spec import Question, read_question
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.render import Features, select_target
from kproxy.words import counted

LIMITS = {"within": True, "above": False}
_USED = ("v1/Pod",)


@click.command("trace")
@click.option(
    "--rules", metavar="FILE", multiple=True, help="A dump of iptables-save or nft, or an nft script; repeatable."
)
@click.option("--ipset", "ipsets", metavar="FILE", multiple=True, help="With --rules: what ipset save printed.")
@cluster_source(NAMES_NAMESPACE, "Or those of these manifests' --node.", required=False, without=True)
@click.option("--config", "config_path", metavar="FILE", help="Of a cluster: KubeProxyConfiguration.")
@mode_option
@click.option(
    "--node", "nodes", metavar="NAME", multiple=True,
    help="Of a cluster: the node. Default: hostnameOverride, else the only one. With --via as for kproxy collect.",
)  # fmt: skip
@feature_option
@click.option(
    "--netns", metavar="NAME", help="Or those of a network namespace, live.", shell_complete=names.network_namespaces
)
@snapshot_option
@click.option("--variant", type=click.Choice(["nft", "legacy"]), help="With --netns: of both variants' rules, these.")
@click.option(
    "--host", "host_path", metavar="FILE", help="The host (documentation: Host files). Default: what the source tells."
)
@click.option("--local-ip", "local_ips", metavar="IP", multiple=True, help="An address of the host's own; repeatable.")
@click.option("--src", metavar="IP[:PORT]", help="Where the packet comes from.")
@click.option("--dst", metavar="IP:PORT", help="Where it is sent to.")
@click.option("--sport", type=click.IntRange(0, 65535), metavar="PORT", help="The port of --src.")
@click.option("--dport", type=click.IntRange(0, 65535), metavar="PORT", help="The port of --dst.")
@click.option(
    "--from", "sender", metavar="REF", help="Of a cluster, for --src: pod/NS/NAME or node/NAME.",
    shell_complete=names.senders,
)  # fmt: skip
@click.option(
    "--to", "receiver", metavar="REF", help="Of a cluster, for --dst: svc/NS/NAME:PORT, nodeport/...",
    shell_complete=names.receivers,
)  # fmt: skip
@click.option("--proto", metavar="PROTO", help="tcp, udp, sctp or icmp. Default: tcp, or the Service port's.")
@click.option("--in", "in_interface", metavar="IFACE", help="The interface it arrives on. Default: open.")
@click.option("--origin", type=click.Choice(["arriving", "local"]), help="Whether it arrives or this host sends it.")
@click.option("--mark", metavar="MARK", help="The packet's mark, 0x4000 say, or `open`. Default: 0.")
@click.option(
    "--ctstate", metavar="STATE", help="NEW, ESTABLISHED, RELATED, INVALID, UNTRACKED or open; DNAT, SNAT too."
)
@click.option("--ctmark", metavar="MARK", help="The connection's mark. Default: 0 of a new one, open of others.")
@click.option(
    "--expect", type=click.Choice(["ACCEPT", "DROP", "REJECT"]),
    help="Exit 1 if another verdict is certain, 2 if this one is not certain.",
)  # fmt: skip
@click.option("--limit", type=click.Choice(list(LIMITS)), help="Decide matches on rates. Default: left open.")
@click.option(
    "--assume", "assumed", metavar="EXPR=yes|no", multiple=True,
    help="Decide a match that is open: rpfilter=yes; or what was not seen: WHAT=empty, or complete.",
)  # fmt: skip
@click.option("--summary", is_flag=True, help="Outcomes without the way: one line a packet; in JSON no path.")
@click.option("--pcap", metavar="FILE", help="Trace the packets of a capture.")
@click.option("--packets", metavar="FILE", help="Trace packets given as JSON lines; - for stdin.")
@click.option("--paths", is_flag=True, help="Keep outcomes apart that differ only in path.")
@click.option("-o", "--output", "output_format", type=click.Choice(["text", "json", "yaml"]), help="Default: text.")
@click.option("--html", metavar="FILE", help="Write a page that shows it as a picture.")
def command(
    rules: Sequence[str],
    ipsets: Sequence[str],
    source: ClusterSource,
    config_path: str | None,
    mode: str | None,
    nodes: Sequence[str],
    features: Features,
    netns: str | None,
    snapshot: str | None,
    variant: str | None,
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

    Rules come from dumps (--rules), from manifests (-f) or a live cluster
    (--kubeconfig, --context), from a namespace (--netns), or of all hosts from
    a snapshot (SNAPSHOT), a lab (--lab) or a live cluster (--via). Of one host there may be several dumps: of both
    variants of iptables, and of nftables. What is not known of the host stays
    open, and an outcome that depends on it is INDETERMINATE.

    In a snapshot the recorded rules decide. Its objects say who is called how,
    and where Pods and nodes are: editing them changes no rule. What edited
    objects would become is asked with -f.

    \b
    Examples:
      kproxy trace --rules dump.txt --src 10.0.0.9:4000 --dst 10.96.0.1:443
      kproxy trace --rules ipt.save --rules nft.txt --dst 10.96.0.1:443 -o json
      kproxy trace -f cluster.yaml --from pod/shop/cart-0 --to svc/shop/web:http
      kproxy trace --context prod --node n1 --from node/n1 --to svc/shop/web
      kproxy trace -f c.yaml --without pod/shop/web-0 --from node/n1 --to svc/web
      kproxy trace s.tgz --from pod/shop/cart-0 --to svc/shop/web
      kproxy trace --lab lab --from pod/shop/cart-0 --to svc/shop/web
      kproxy trace --context prod --via exec --from node/n1 --to svc/shop/web
      kproxy trace s.tgz --from node/n1 --to svc/web --html way.html
      kproxy trace --netns node-1 --src 203.0.113.7 --dst 192.168.0.2:30080
      kproxy trace --rules dump.txt --packets packets.jsonl > outcomes.jsonl
    """
    gc.disable()  # many objects and next to no garbage
    read_whole = whole_cluster(source, snapshot, nodes, fields)
    node = next(iter(nodes), None)
    given = {_FIELDS[name]: value for name, value in fields.items() if value is not None}
    if read_whole is not None:
        from kproxy.cli.trace.journey import trace_hosts

        _check_summary(summary, html)
        ends = trace_hosts(read_whole, given, sport, output_format, html, live=snapshot is None, summary=summary)
        if expect is not None:
            raise click.exceptions.Exit(expected_exit(expect, ends))
        return
    cluster_given = source.is_given and not (_is_default(source) and (rules or netns is not None))
    _check_usage(
        rules,
        ipsets,
        cluster_given,
        netns,
        config_path or mode or source.namespace,
        node,
        features,
        variant,
        host_path,
        local_ips,
    )
    for end, port in (("src", sport), ("dst", dport)):
        if port is not None:
            given[end] = _with_port(given.get(end), port, end)
    many = [name for name, value in (("--pcap", pcap), ("--packets", packets)) if value is not None]
    _check_packet(given, many, output_format, html, [*rules, *ipsets], packets, source.filenames)
    empty, asserted = split_assumed(assumed)
    assumptions = _assumptions(asserted)
    host = read_host(host_path) if host_path is not None else None
    traced: Source
    resolve: Callable[[Mapping[str, object]], Mapping[str, object]] = _refuse_names
    if rules:
        traced = FileSource(rules, host, local_ips, _sets(ipsets), empty)
    elif netns is not None:
        traced = LiveSource(netns, variant, host, empty)
    else:
        with working("reading the cluster"):
            objects: list[RawObject] = []
            config, cluster = source.read(config_path, mode, narrow=False, objects=objects, used=_USED, node=node)
        tell_unused_options(config.mode)
        target = select_target(cluster.nodes, config, node)
        lacking, config = source.lacking(cluster, empty).on_node(cluster, target, config, empty)
        traced = ManifestSource(cluster, config, target, features, host, local_ips, empty, lacking)
        names = Names(cluster, target, partial(_pods, source, objects), report_note, source.default_namespace())
        resolve = names.resolve
    _check_summary(summary, html)
    asked = _asked(given, pcap, packets, resolve)
    if empty.decides(CONNECTION_MARK):
        asked = [each._replace(question=_without_connection_mark(each.question)) for each in asked]
    refused = _families_without_rules(traced, asked) if many else {}
    if pcap is not None:
        asked = _of_families_with_rules(refused, asked)

    def answers() -> list[Report | InputError]:
        return [
            refused.get(each.question.packet.family)
            or _report(traced, each, paths, LIMITS.get(limit or ""), assumptions, _told())
            for each in asked
        ]

    reports = answers()
    if netns is not None:

        def again() -> set[int]:
            nonlocal traced, reports
            traced = LiveSource(netns, variant, host, empty)
            reports = answers()
            return _other_than(expect, reports)

        first = _other_than(expect, reports)
        if moving := first - what_stays(first, again):
            report_note(in_motion(len(moving)))
    for expression in assumptions.keys() - assumptions.used:
        report_note(f"--assume {expression!r} decided nothing: no packet met it")
    if html is not None:
        from kproxy.cli.trace.text import report_text
        from kproxy.cli.trace.words import packet_words
        from kproxy.explorer.export.commands import trace_page

        only = reports[0]
        assert isinstance(only, Report)
        plain = report_text(only, traced.label, unseen_lines(traced.unseen(only.question)))
        write_files({Path(html): trace_page(only, traced.label, packet_words(only.question), plain)})
    if html is None or output_format is not None:
        unseen = [traced.unseen(each.question) for each in asked]
        shown = output_format or ("text" if packets is None or summary else "json")
        _print(reports, asked, unseen, traced.label, shown, summary=summary, lines=bool(many))
    if packets is not None and refused:
        raise click.exceptions.Exit(1)
    if expect is not None:
        raise click.exceptions.Exit(_expected(expect, reports))


def _other_than(expect: str | None, reports: Sequence[Report | InputError]) -> set[int]:
    """Of which packets another verdict than the expected one is certain, by their places."""
    return {place for place, each in enumerate(reports) if expect is not None and _expected(expect, [each]) == 1}


def _expected(expect: str, reports: Sequence[Report | InputError]) -> int:
    """The exit code of --expect."""
    outcomes = [each.outcome for item in reports if isinstance(item, Report) for each in item.outcomes]
    return expected_exit(expect, (each.verdict for each in outcomes if each.probability))


def _without_connection_mark(question: Question) -> Question:
    """The question about a connection whose mark, as far as it is not known, is 0."""
    return dataclasses.replace(question, connection=question.connection.replace(mark_known=UINT32))


def _told() -> frozenset[str]:
    """The options that were given, as they are written."""
    context = click.get_current_context()
    given = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    return frozenset(each.opts[0] for each in context.command.params if each.name in given)


def _is_default(source: ClusterSource) -> bool:
    """Whether nothing says that a cluster is meant but that kubectl runs us."""
    return not source.filenames and not source.connection.given


def _pods(source: ClusterSource, objects: Sequence[RawObject]) -> Mapping[str, Pod]:
    return read_pods([*objects, *source.read_pods()])


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


def _sets(paths: Sequence[str]) -> dict[str, IpSet]:
    found: dict[str, IpSet] = {}
    for path in paths:
        found |= read_ipsets(read_text_of(path, rules=True), text_label(path))
    return found


_FIELDS = {
    "src": "src",
    "dst": "dst",
    "sender": "from",
    "receiver": "to",
    "proto": "proto",
    "in_interface": "in",
    "origin": "origin",
    "mark": "mark",
    "ctstate": "ctstate",
    "ctmark": "ctmark",
}
_COMMON = ("in", "origin", "mark", "ctstate", "ctmark")


def _check_usage(
    rules: Sequence[str],
    ipsets: Sequence[str],
    cluster: bool,
    netns: str | None,
    config_path: str | None,
    node: str | None,
    features: Features,
    variant: str | None,
    host_path: str | None,
    local_ips: Sequence[str],
) -> None:
    if rules and cluster:
        raise click.UsageError(
            "one source of rules expected, not --rules and a cluster (-f, --kubeconfig or --context); names for "
            "recorded rules come from a snapshot (documentation: Snapshots)"
        )
    if sum((bool(rules), cluster, netns is not None)) != 1:
        raise click.UsageError(
            "one source of rules expected: --rules, -f, --kubeconfig (or --context), --netns, --snapshot or --lab"
        )
    if not cluster and (config_path or node or features != Features()):
        raise click.UsageError("--config, -n, --mode, --node and --feature go with -f, --kubeconfig or --context")
    if ipsets and not rules:
        raise click.UsageError("--ipset goes with --rules")
    if netns is None and variant is not None:
        raise click.UsageError("--variant goes with --netns")
    if local_ips and (host_path is not None or netns is not None):
        raise click.UsageError("--local-ip is short for a host: it goes with neither --host nor --netns")
    for text in local_ips:
        try:
            parse_ip(text)
        except DataplaneError as error:
            raise InputError(f"--local-ip: {error}") from error


def _check_packet(
    given: Mapping[str, str],
    many: Sequence[str],
    output_format: str | None,
    html: str | None,
    rules: Sequence[str],
    packets: str | None,
    filenames: Sequence[str],
) -> None:
    """`rules` are all files about the host's rules."""
    if len(many) > 1 or (packets is not None and given) or (many and set(given) - set(_COMMON)):
        raise click.UsageError("one source of packets expected: options, --pcap or --packets")
    if not many and "dst" not in given and "to" not in given:
        raise click.UsageError("a packet expected: --dst (or --to), --pcap or --packets")
    if html is not None and many:
        raise click.UsageError("--html shows one packet, given by options")
    if packets is not None and output_format == "text":
        raise click.UsageError("--packets answers in JSON lines")
    if [*rules, packets, *filenames].count("-") > 1:
        raise click.UsageError("only one input can be standard input")


def _check_summary(summary: bool, html: str | None) -> None:
    if summary and html is not None:
        raise click.UsageError("--summary leaves out the way, which --html shows: they exclude each other")


def _refuse_names(fields: Mapping[str, object]) -> Mapping[str, object]:
    for field in ("from", "to"):
        if fields.get(field) is not None:
            needed = "names need a cluster (-f, --kubeconfig or --context; for recorded rules a snapshot, --snapshot)"
            raise DataplaneError(f"{field}: {needed}; addresses go with src and dst")
    return fields


def _asked(
    given: Mapping[str, str],
    pcap: str | None,
    packets: str | None,
    resolve: Callable[[Mapping[str, object]], Mapping[str, object]],
) -> list[Asked]:
    if packets is not None:
        return read_packets(packets, resolve)
    if pcap is not None:
        from kproxy.cli.trace.pcap import read_capture

        return read_capture(pcap, given)
    return [Asked(read_question(resolve(given)))]


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


def _of_families_with_rules(refused: Mapping[Family, InputError], asked: Sequence[Asked]) -> list[Asked]:
    """The packets of a capture that the rules are for."""
    for family in refused:
        count = sum(each.question.packet.family is family for each in asked)
        report_note(f"skipped {counted(count, 'packet')} of {family.value}: there are no rules for them")
    return [each for each in asked if each.question.packet.family not in refused]


def _report(
    source: Source,
    asked: Asked,
    paths: bool,
    limit: bool | None,
    assumed: Mapping[str, bool],
    told: frozenset[str],
) -> Report:
    question = asked.question
    try:
        family = question.packet.family
        answer_of = partial(
            report, surroundings=source.around(question), question=question, paths=paths, limit=limit,
            assumed=assumed, told=told,
        )  # fmt: skip
        claim = source.claim(question) if isinstance(source, ManifestSource) else None
        if claim is None:
            return answer_of(source.index(family))
        assert isinstance(source, ManifestSource)
        return one_of([answer_of(source.index_of(family, service)) for service in claim.services], claim.words)
    except InputError as error:
        if not asked.source:
            raise
        raise InputError(f"{asked.source}: {error}") from error


def _print(
    reports: Sequence[Report | InputError],
    asked: Sequence[Asked],
    unseen: Sequence[Sequence[Unseen]],
    label: str,
    output_format: str,
    *,
    summary: bool,
    lines: bool,
) -> None:
    if output_format in ("json", "yaml"):
        texts = []
        for item, each, gaps in zip(reports, asked, unseen, strict=True):
            if isinstance(item, InputError):
                value = answer("Trace", refusal_record(each.question, item, each.source), gaps)
            else:
                value = answer("Trace", report_record(item, each.source), gaps)
            if summary:
                value.pop("hooks", None)
                for outcome in value["outcomes"]:
                    del outcome["path"]
            texts.append(text_of(value, output_format, indent=None if lines else 2))
        write_output(("---\n" if output_format == "yaml" else "").join(texts), None)
        return
    from kproxy.cli.trace.text import report_lines, summary_line

    if summary:
        line = "".join(
            f"{refusal_line(each.question, item)}\n" if isinstance(item, InputError) else summary_line(item)
            for item, each in zip(reports, asked, strict=True)
        )
        write_report(line.splitlines())
        answered = [item for item in reports if isinstance(item, Report)]
        for text in dict.fromkeys(text for item in answered for text in item.assumptions):
            report_note(f"assumed: {text}")
        tell_unseen(dict.fromkeys(gap for gaps in unseen for gap in gaps))
        return
    shown: list[str] = []
    for item, each, gaps in zip(reports, asked, unseen, strict=True):
        assert not isinstance(item, InputError)  # captures skip those, and other packets are answered in JSON
        shown += [""] if shown else []
        shown += [each.source] if each.source else []
        shown += report_lines(item, label, unseen_lines(gaps))
    write_report(shown)
