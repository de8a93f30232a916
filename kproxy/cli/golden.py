"""`kproxy golden`: compare rendered rules with committed files, run golden packets on those, and update them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from kproxy.api import KubeProxyConfiguration, Manifests
from kproxy.api.kubeproxyconfig.types import MODE_IPVS, MODE_NFTABLES
from kproxy.api.load.reader import RawObject
from kproxy.cli.connection import Connection, connection_options
from kproxy.cli.loading import SuggestingGroup
from kproxy.cli.options import mode_option
from kproxy.cli.output import output_option, report_error, report_note, working, write_files, write_result
from kproxy.cli.sources import CURRENT, ONLY_NAMESPACE, Sources
from kproxy.cluster.golden_packets import PACKETS, PacketDifference, PacketsRun, run_packets
from kproxy.cluster.inputs import read_cluster, read_config, read_text
from kproxy.cluster.snapshot.cluster import proxy_config_of
from kproxy.errors import InputError, KproxyError
from kproxy.render.golden import PATTERNS, ChainDifference, diff_save, golden_texts

DEFAULT_DIRECTORY = "rules_golden"
CLUSTER, CONFIG, EXPECTED = "cluster.yaml", "config.yaml", "expected"

Inputs = tuple[Manifests, KubeProxyConfiguration]
"""What a scenario's rules are rendered from."""


@click.group("golden", cls=SuggestingGroup)
def command() -> None:
    """Compare what kproxy renders with golden files, one folder per scenario.

    \b
    A scenario is a folder that holds
      cluster.yaml      Services, EndpointSlices and Nodes
      config.yaml       KubeProxyConfiguration (kube-proxy's defaults without it)
      expected/         NODE.v4.save and NODE.v6.save for every Node, and the
                        same of nftables mode, NODE.v4.nft and NODE.v6.nft
      packets.yaml      packets and what must become of them; may be missing

    \b
    Examples:
      kproxy golden check
      kproxy golden check rules_golden/minikube
      kproxy golden check rules_golden/prod --context prod
      kproxy golden update rules_golden/my-scenario && git diff rules_golden/
    """


class FileDifference(msgspec.Struct, frozen=True):
    """How an expected file differs: `missing`, `extra` (no Node has that name), or `changed` in `chains`."""

    file: str
    difference: str
    chains: tuple[ChainDifference, ...] = ()


class ScenarioReport(msgspec.Struct, frozen=True, rename="camel"):
    """What a check found in one scenario.

    Attributes:
        status: `as expected`, `differs`, or `unreadable`, with the `error`.
        packets: how many golden packets were sent.
        packet_differences: those that did not go where they must.
    """

    scenario: str
    status: str = "unreadable"
    error: str = ""
    packets: int = 0
    files: tuple[FileDifference, ...] = ()
    packet_differences: tuple[PacketDifference, ...] = ()


class CheckReport(msgspec.Struct, frozen=True, rename="camel"):
    """All scenarios, in the order of their checks."""

    scenarios: tuple[ScenarioReport, ...]

    def count(self, status: str) -> int:
        return sum(each.status == status for each in self.scenarios)


@command.command("check", short_help="Print every difference between golden files and rules.")
@click.argument("directories", metavar="[DIR]...", nargs=-1)
@connection_options()
@click.option("-n", "--namespace", metavar="NS", help=ONLY_NAMESPACE)
@mode_option(ipvs=True)
@output_option
def check(
    directories: Sequence[str], connection: Connection, namespace: str | None, mode: str | None, output_format: str
) -> None:
    """Print every difference; exit 1 if there is one, 2 if a scenario cannot be read.

    Compares the rules with what kproxy renders, and sends each packet of packets.yaml through the expected rules, in
    ipvs mode excepted.

    DIR is a scenario or a folder of scenarios; the default is rules_golden. A mode of which a scenario has no
    expected file is left out, unless --mode asks for it.

    With --kubeconfig or --context, what a live cluster's rules would be now is compared with one DIR's expected files,
    and cluster.yaml and config.yaml are not read.
    """
    reports = []
    live = _live(connection, namespace, directories)
    for scenario in find_scenarios(directories or (DEFAULT_DIRECTORY,)):
        try:
            with working(f"checking {scenario}"):
                found = _check(scenario, mode, live)
        except KproxyError as error:
            # One unreadable scenario must not hide what the others say.
            report_error(error)
            found = ScenarioReport(str(scenario), error=str(error))
        reports.append(found)
    report = CheckReport(tuple(reports))
    differing = (each for each in reports if each.status == "differs")
    lines = (line for each in differing for line in _show_scenario(each))
    write_result("GoldenCheck", report, output_format, lines, fold=False)
    broken, packets = report.count("unreadable"), sum(each.packets for each in reports)
    unread = f"; {broken} could not be checked" if broken else ""
    fine = report.count("as expected")
    click.echo(f"{fine} of {len(reports)} scenarios as expected, with {packets} packets{unread}", err=True)
    if any(each.files for each in reports):
        click.echo("kproxy golden update writes the expected files as they are now.", err=True)
    if fine != len(reports):
        raise click.exceptions.Exit(2 if broken else 1)


def _check(scenario: Path, mode: str | None, live: Inputs | None) -> ScenarioReport:
    cluster, config = live or _read(scenario)
    modes = (mode,) if mode is not None else tuple(each for each in PATTERNS if _expected(scenario, (each,)))
    modes = modes or _usual_modes(scenario, config)
    wanted, rendered = _expected(scenario, modes), _render(cluster, config, modes)
    run = PacketsRun(0, ())
    if (scenario / PACKETS).exists():
        run = run_packets(scenario / PACKETS, wanted, cluster.nodes, config)
    files = tuple(each for name in sorted(wanted | rendered) for each in _compare(name, wanted, rendered))
    status = "differs" if files or run.differences else "as expected"
    return ScenarioReport(str(scenario), status, "", run.total, files, tuple(run.differences))


@command.command("update", short_help="Write the expected files anew.")
@click.argument("directories", metavar="[DIR]...", nargs=-1)
@connection_options()
@click.option("-n", "--namespace", metavar="NS", help=ONLY_NAMESPACE)
@mode_option(ipvs=True)
def update(directories: Sequence[str], connection: Connection, namespace: str | None, mode: str | None) -> None:
    """Write the expected files anew; read the difference before you commit it.

    Files of Nodes that are gone are removed. Nothing is written unless every scenario could be rendered. Without
    --mode, those of iptables and nftables mode are written; in ipvs mode, which has expected/ipvs, where it has some
    or config.yaml asks for it.

    With --kubeconfig or --context, the files of one DIR become what a live cluster's rules would be now. cluster.yaml
    and config.yaml stay as they are: `golden check` without these options compares with them.
    """
    live = _live(connection, namespace, directories)
    scenarios = find_scenarios(directories or (DEFAULT_DIRECTORY,))
    with working("rendering"):
        rendered = {}
        for scenario in scenarios:
            cluster, config = live or _read(scenario)
            modes = (mode,) if mode is not None else _usual_modes(scenario, config)
            rendered[scenario] = modes, _render(cluster, config, modes)
    for scenario, (modes, texts) in rendered.items():
        expected = _expected(scenario, modes)
        changed = {scenario / EXPECTED / name: text for name, text in texts.items() if expected.get(name) != text}
        gone = [scenario / EXPECTED / name for name in expected if name not in texts]
        if changed:
            for path in changed:
                path.parent.mkdir(parents=True, exist_ok=True)
            write_files(changed)
        for path in gone:
            path.unlink()
        if changed or gone:
            click.echo(f"{scenario}: {len(changed)} written, {len(gone)} removed", err=True)


def find_scenarios(directories: Sequence[str]) -> list[Path]:
    """The scenario folders that arguments mean, sorted.

    Raises:
        InputError: an argument is no folder, or holds no scenario.
    """
    found: list[Path] = []
    for name in directories:
        directory = Path(name)
        if (directory / CLUSTER).is_file():
            scenarios = [directory]
        elif directory.is_dir():
            scenarios = sorted(path.parent for path in directory.glob(f"*/{CLUSTER}"))
        else:
            raise InputError(f"{name}: no such directory")
        if not scenarios:
            raise InputError(f"{name}: neither it nor a folder in it holds a {CLUSTER}")
        found += scenarios
    return list(dict.fromkeys(found))


def _read(scenario: Path) -> Inputs:
    config_path = scenario / CONFIG
    config = read_config(str(config_path) if config_path.exists() else None, report_note)
    objects: list[RawObject] = []
    cluster = read_cluster([str(scenario / CLUSTER)], report_note, objects=objects, used=("v1/ConfigMap",))
    if not config_path.exists():
        config = proxy_config_of(objects, str(scenario / CLUSTER), report_note) or config
    return cluster, config


def _live(connection: Connection, namespace: str | None, directories: Sequence[str]) -> Inputs | None:
    """What a live cluster has, if options name one."""
    if not connection.given:
        if namespace is not None:
            raise click.UsageError("-n goes with --kubeconfig or --context")
        return None
    if len(directories) != 1 or not (Path(directories[0]) / CLUSTER).is_file():
        raise click.UsageError(f"{connection.given[0]} goes with one scenario: a folder with a {CLUSTER}")
    found = Sources((CURRENT,), connection=connection, namespace=namespace).read()
    return found.cluster, found.config


def _render(cluster: Manifests, config: KubeProxyConfiguration, modes: Sequence[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for mode in modes:
        in_mode = msgspec.structs.replace(config, mode=mode)
        texts |= golden_texts(
            cluster.nodes, cluster.services, cluster.endpoint_slices, in_mode, service_cidrs=cluster.service_cidrs
        )
    return texts


def _usual_modes(scenario: Path, config: KubeProxyConfiguration) -> tuple[str, ...]:
    """iptables and nftables mode, and IPVS mode where it is configured or has files."""
    ipvs = config.mode == MODE_IPVS or _expected(scenario, (MODE_IPVS,))
    return tuple(each for each in PATTERNS if each != MODE_IPVS or ipvs)


def _expected(scenario: Path, modes: Sequence[str]) -> dict[str, str]:
    folder = scenario / EXPECTED
    files = (path for mode in modes for pattern in PATTERNS[mode] for path in folder.glob(pattern))
    return {path.relative_to(folder).as_posix(): read_text(path, rules=True) for path in sorted(files)}


def _compare(name: str, wanted: Mapping[str, str], rendered: Mapping[str, str]) -> Iterator[FileDifference]:
    file = f"{EXPECTED}/{name}"
    if name not in wanted:
        yield FileDifference(file, "missing")
    elif name not in rendered:
        yield FileDifference(file, "extra")
    elif chains := diff_save(wanted[name], rendered[name]):
        yield FileDifference(file, "changed", tuple(chains))


def _show_scenario(report: ScenarioReport) -> Iterator[str]:
    yield click.style(f"{report.scenario} differs:", bold=True)
    for each in report.files:
        if each.difference == "missing":
            yield f"  {each.file} is missing"
        elif each.difference == "extra":
            yield f"  {each.file} belongs to no Node of {CLUSTER}"
        else:
            yield f"  {each.file}: {len(each.chains)} chains differ"
        for chain in each.chains:
            yield click.style(f"    {chain.table} {chain.chain}", fg="cyan")
            yield from map(_coloured, chain.lines)
    for packet in report.packet_differences:
        mode = ", nftables mode" if packet.mode == MODE_NFTABLES else ""
        yield f"  {PACKETS}: {packet.name} (node {packet.node}{mode})"
        yield from map(_coloured, packet.lines)


def _coloured(line: str) -> str:
    colour = {"-": "red", "+": "green"}.get(line[0])
    return click.style(f"      {line}", fg=colour) if colour else f"      {line}"
