"""`kproxy run`: the running proxy."""

from __future__ import annotations

import json
import logging
import os
import platform
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import click
import msgspec

from kproxy import KUBE_PROXY_VERSION, __version__
from kproxy.agent.config.flags import parse_boolean
from kproxy.agent.config.options import ONCE_TIMEOUT, ReadOptions, Settings, node_name, read_options
from kproxy.api import Manifests
from kproxy.api.load.reader import RawObject
from kproxy.cli.node_options import VARIANTS, confirm, netns_option, open_namespace, variant_options, yes_option
from kproxy.cli.options import SecondsRange, mode_option, parse_features, tell_unused_options
from kproxy.cli.output import report_note, write_output
from kproxy.cli.run.flags import KubeProxyCommand, given_flags, is_kube_proxys_own, kube_proxy_flags
from kproxy.cluster.facts.kubeproxy import ConfigText, find_config_text
from kproxy.cluster.inputs import read_cluster
from kproxy.render import Features, select_target
from kproxy.services import IPFamily

if TYPE_CHECKING:
    from kproxy.agent.proxy.observer import SyncObserver
    from kproxy.agent.run import Agent


def show_version(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    """`--version`, as kube-proxy takes it: true, false or raw."""
    if value is None or context.resilient_parsing:
        return
    if value == "raw":
        release = {"version": __version__, "kubeProxy": KUBE_PROXY_VERSION, "python": platform.python_version()}
        click.echo(json.dumps(release))
        context.exit()
    try:
        wanted = parse_boolean(value)
    except ValueError as error:
        raise click.UsageError(f"--version: {error}, nor raw") from error
    if wanted:
        click.echo(f"kproxy, version {__version__}, as kube-proxy {KUBE_PROXY_VERSION}")
        context.exit()


@click.command("run", cls=KubeProxyCommand)
@click.option(
    "--config", "config_path", metavar="FILE",
    help="KubeProxyConfiguration. Of the flags that it has fields for, only those for logging and --hostname-override "
    "count beside it.",
)  # fmt: skip
@mode_option()
@click.option("--node", metavar="NAME", help="This node's name. Default: hostnameOverride, else the host name.")
@click.option("--hostname-override", metavar="NAME", help="The same, as kube-proxy calls it.")
@click.option("--master", metavar="URL", help="The API server, over what the kubeconfig says.")
@click.option("--context", metavar="NAME", help="The context of the kubeconfig.")
@click.option(
    "-f", "--filename", "filenames", metavar="PATH", multiple=True,
    help="Manifests instead of an API server: a file or directory that is watched, or - for stdin; repeatable.",
)  # fmt: skip
@click.option("--use-endpoints", is_flag=True, help="Watch Endpoints instead of EndpointSlices.")
@netns_option
@variant_options
@click.option(
    "--feature", "features", metavar="NAME=on|off", multiple=True,
    callback=lambda _context, _parameter, value: parse_features(value) if value else Features(nfacct=True),
    help="Optional abilities to use if the host has them: nfacct, random-fully. Default: both.",
)  # fmt: skip
@click.option(
    "--collect-token-file", "token_file", metavar="FILE",
    help="A token: who sends it, and nobody else, may read this node at /debug/collect. Default: clients on this node.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="End when the kernel holds the rules.")
@click.option(
    "--timeout", type=SecondsRange(0, 86400), default=ONCE_TIMEOUT, show_default=True, metavar="SECONDS",
    help="How long --once tries; 0: for ever.",
)  # fmt: skip
@click.option("--init-only", is_flag=True, help="Only set up the host (sysctls), and end.")
@click.option("--cleanup", is_flag=True, help="Remove every rule of kproxy's and kube-proxy's, and end.")
@click.option("--write-config-to", metavar="FILE", help="Write the configuration that would be used, and end.")
@yes_option
@click.option(
    "--version", metavar="[raw]", is_eager=True, expose_value=False, callback=show_version,
    help="Print the version and end.",
)  # fmt: skip
@kube_proxy_flags
def command(
    config_path: str | None,
    mode: str | None,
    node: str | None,
    hostname_override: str | None,
    master: str | None,
    context: str | None,
    filenames: Sequence[str],
    use_endpoints: bool,
    netns: str | None,
    variant: str,
    families: tuple[IPFamily, ...],
    lock_wait: float,
    features: Features,
    token_file: str | None,
    once: bool,
    timeout: float,
    init_only: bool,
    cleanup: bool,
    write_config_to: str | None,
    yes: bool,
    **flags: str | Sequence[str] | None,
) -> None:
    """Keep a node's rules right: follow an API server, or manifests, and program the kernel.

    It takes kube-proxy's flags and configuration file, answers on its ports, and counts under its names. Rules are
    written when Services, endpoints and this Node are known, then whenever they change; changes of them by others
    are noticed and mended. SIGTERM ends it and leaves the rules. More is in the documentation: run.

    \b
    Examples:
      kproxy run --kubeconfig kubeconfig --node worker-1 --netns worker-1
      kproxy run -f manifests/ --node worker-1 --iptables-min-sync-period 1ms
      kproxy run --config kube-proxy.yaml --hostname-override worker-2 --yes
      kproxy run -f cluster.yaml --node worker-1 --netns worker-1 --once
    """
    yes = yes or is_kube_proxys_own(click.get_current_context(), os.environ)
    from kproxy.agent.sources.files import FileSnapshot, FileWatch

    # Before it is read, and the manifests below too: no change is missed.
    config_file = FileWatch(config_path) if config_path else None
    given = given_flags(flags)
    options = read_options(config_path, given, hostname_override, mode)
    if write_config_to or cleanup:
        for note in options.notes:
            report_note(note)
    if write_config_to:
        from kproxy.api.kubeproxyconfig.configz import configz

        write_output(msgspec.yaml.encode(configz(options.config)).decode(), write_config_to)
        return
    if cleanup:
        _clean_up(netns, lock_wait, yes)
        return
    if filenames and (use_endpoints or master or context):
        raise click.UsageError(
            "-f takes manifests instead of an API server; it excludes --use-endpoints, --master and --context"
        )
    if "-" in filenames and len(filenames) > 1:
        raise click.UsageError("-f - is read once, so it excludes other -f, which are watched")
    confirm("keeps changing", "run", netns, yes)
    if token_file is not None:
        from kproxy.cluster.snapshot.script import read_token

        read_token(token_file)  # an error before anything is started
    open_namespace(netns).close()  # an unusable namespace is an error before anything is started
    snapshot = FileSnapshot.of(filenames)
    first, config_map = _read_manifests(filenames)
    if config_map is not None and config_path is None:
        options = read_options(None, given, hostname_override, mode, config_map)
    tell_unused_options(options.config.mode)
    if first is not None and first.nodes:
        name = select_target(first.nodes, options.config, node or hostname_override).node_name
    else:
        name = node_name(node, hostname_override, options.config)
    settings = Settings(
        config=options.config,
        node_name=name,
        config_path=config_path or "",
        master=master or "",
        context=context or "",
        netns=netns,
        variant=VARIANTS[variant],
        families=families,
        features=features,
        lock_wait=lock_wait,
        filenames=tuple(filenames),
        use_endpoints=use_endpoints,
        once=once,
        timeout=timeout,
        collect_token_file=token_file or "",
    )
    _configure_logs(options)
    if init_only:
        from kproxy.agent.proxy.host import set_up_host

        set_up_host(settings.config, settings.netns)
        return
    from kproxy.agent.run import Agent

    if code := Agent(settings, first, _serve_status, snapshot, config_file).run():
        raise SystemExit(code)


def _read_manifests(filenames: Sequence[str]) -> tuple[Manifests | None, ConfigText | None]:
    """What the files hold, and the configuration in kube-proxy's ConfigMap among it; None without files."""
    if not filenames:
        return None, None
    objects: list[RawObject] = []
    cluster = read_cluster(filenames, report_note, objects=objects, used=("v1/ConfigMap",))
    return cluster, find_config_text(objects)


def _configure_logs(options: ReadOptions) -> None:
    from kproxy.agent import log

    chosen = options.config.logging
    log.configure(json=chosen.format == "json", verbosity=chosen.verbosity)
    for note in options.notes:
        log.event("note", level=logging.WARNING, note=note)


def _serve_status(agent: Agent) -> AbstractContextManager[SyncObserver]:
    # Imported when the cluster is being listed already: metrics, HTTP and the packet model take a while.
    from kproxy.agent.status.server import serve_status
    from kproxy.cli.trace.text import report_text

    return serve_status(agent, report_text)


def _clean_up(netns: str | None, lock_wait: float, yes: bool) -> None:
    from kproxy.cli.apply import describe_cleanup
    from kproxy.linux.sync.cleanup import cleanup

    confirm("cleans up", "run --cleanup", netns, yes)
    with open_namespace(netns) as namespace:
        report = cleanup(namespace, lock_wait=lock_wait)
    write_output("".join(f"{line}\n" for line in describe_cleanup(report)), None)
