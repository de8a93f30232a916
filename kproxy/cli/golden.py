"""`kproxy golden`: compare rendered rules with committed files, run golden packets on those, and update them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from kproxy.api import KubeProxyConfiguration, Manifests
from kproxy.cli.output import colour_stdout, report_error, report_note, working, write_files
from kproxy.cluster.golden_packets import PACKETS, PacketDifference, PacketsRun, run_packets
from kproxy.cluster.inputs import read_cluster, read_config, read_text
from kproxy.errors import InputError, KproxyError
from kproxy.render.golden import ChainDifference, diff_save, golden_texts

DEFAULT_DIRECTORY = "rules_golden"
CLUSTER, CONFIG, EXPECTED = "cluster.yaml", "config.yaml", "expected"


@click.group("golden")
def command() -> None:
    """Compare what kproxy renders with golden files, one folder per scenario.

    \b
    A scenario is a folder that holds
      cluster.yaml      Services, EndpointSlices and Nodes
      config.yaml       KubeProxyConfiguration (kube-proxy's defaults without it)
      expected/         NODE.v4.save and NODE.v6.save for every Node
      packets.yaml      packets and what must become of them, written by hand (may be missing)

    \b
    Examples:
      kproxy golden check
      kproxy golden check rules_golden/minikube
      kproxy golden update rules_golden/my-scenario && git diff rules_golden/
    """


@command.command("check")
@click.argument("directories", metavar="[DIR]...", nargs=-1)
def check(directories: Sequence[str]) -> None:
    """Print every difference; exit 1 if there is one, 2 if a scenario cannot be read.

    Compares the rules with what kproxy renders, and sends each packet of packets.yaml through the expected rules.

    DIR is a scenario or a folder of scenarios; the default is rules_golden.
    """
    different = broken = packets = 0
    scenarios = find_scenarios(directories or (DEFAULT_DIRECTORY,))
    for scenario in scenarios:
        try:
            with working(f"checking {scenario}"):
                differences, sent = _check(scenario)
        except KproxyError as error:
            # One unreadable scenario must not hide what the others say.
            broken += 1
            report_error(error)
            continue
        packets += sent
        if differences:
            different += 1
            click.echo(click.style(f"{scenario} differs:", bold=True), color=colour_stdout())
            for text in differences:
                click.echo(text, color=colour_stdout())
    fine = len(scenarios) - different - broken
    unread = f"; {broken} could not be checked" if broken else ""
    click.echo(f"{fine} of {len(scenarios)} scenarios as expected, with {packets} packets{unread}", err=True)
    if broken or different:
        raise click.exceptions.Exit(2 if broken else 1)


def _check(scenario: Path) -> tuple[list[str], int]:
    """What differs in a scenario, as lines, and how many packets were sent."""
    cluster, config = _read(scenario)
    wanted, rendered = _expected(scenario), _render(cluster, config)
    run = PacketsRun(0, ())
    if (scenario / PACKETS).exists():
        run = run_packets(scenario / PACKETS, wanted, cluster.nodes, config)
    differences = [text for name in sorted(wanted | rendered) for text in _compare(name, wanted, rendered)]
    differences += [line for packet in run.differences for line in _show_packet(packet)]
    return differences, run.total


@command.command("update")
@click.argument("directories", metavar="[DIR]...", nargs=-1)
def update(directories: Sequence[str]) -> None:
    """Write the expected files anew; read the difference before you commit it.

    Files of Nodes that are gone are removed. Nothing is written unless every scenario could be rendered.
    """
    scenarios = find_scenarios(directories or (DEFAULT_DIRECTORY,))
    with working("rendering"):
        rendered = {scenario: _render(*_read(scenario)) for scenario in scenarios}
    for scenario, texts in rendered.items():
        expected = _expected(scenario)
        changed = {scenario / EXPECTED / name: text for name, text in texts.items() if expected.get(name) != text}
        gone = [scenario / EXPECTED / name for name in expected if name not in texts]
        if changed:
            (scenario / EXPECTED).mkdir(exist_ok=True)
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


def _read(scenario: Path) -> tuple[Manifests, KubeProxyConfiguration]:
    config_path = scenario / CONFIG
    config = read_config(str(config_path) if config_path.exists() else None, report_note)
    return read_cluster([str(scenario / CLUSTER)], report_note), config


def _render(cluster: Manifests, config: KubeProxyConfiguration) -> dict[str, str]:
    return golden_texts(cluster.nodes, cluster.services, cluster.endpoint_slices, config)


def _expected(scenario: Path) -> dict[str, str]:
    return {path.name: read_text(path) for path in sorted((scenario / EXPECTED).glob("*.save"))}


def _compare(name: str, wanted: Mapping[str, str], rendered: Mapping[str, str]) -> Iterator[str]:
    if name not in wanted:
        yield f"  {EXPECTED}/{name} is missing (kproxy golden update writes it)"
    elif name not in rendered:
        yield f"  {EXPECTED}/{name} belongs to no Node of {CLUSTER}"
    else:
        differences = diff_save(wanted[name], rendered[name])
        if differences:
            yield f"  {EXPECTED}/{name}: {len(differences)} chains differ"
        for difference in differences:
            yield from _show(difference)


def _show_packet(packet: PacketDifference) -> Iterator[str]:
    yield f"  {PACKETS}: {packet.name} (node {packet.node})"
    for line in packet.lines:
        colour = {"-": "red", "+": "green"}.get(line[0])
        yield click.style(f"      {line}", fg=colour) if colour else f"      {line}"


def _show(difference: ChainDifference) -> Iterator[str]:
    yield click.style(f"    {difference.table} {difference.chain}", fg="cyan")
    for line in difference.lines:
        colour = {"-": "red", "+": "green"}.get(line[0])
        yield click.style(f"      {line}", fg=colour) if colour else f"      {line}"
