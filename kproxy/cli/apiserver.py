"""`kproxy apiserver`: a small Kubernetes API on one port."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kproxy.cli.options import SecondsRange, parse_listen
from kproxy.cli.output import OutputError, report_note
from kproxy.errors import InputError

if TYPE_CHECKING:
    from kproxy.apiserver.server import ApiServer


@click.command("apiserver")
@click.option("--data", metavar="DIR", required=True, help="Where it keeps its state; made if it is not there.")
@click.option(
    "--listen", metavar="ADDRESS:PORT", default="127.0.0.1:6443", show_default=True, help="Port 0 picks a free one."
)
@click.option("--write-kubeconfig", metavar="FILE", help="Write an administrator's kubeconfig once it listens.")
@click.option("--token-file", metavar="FILE", help='Static tokens: lines of token,user,uid,"group1,group2".')
@click.option(
    "--service-cluster-ip-range", "cidrs", metavar="CIDR[,CIDR]", default="10.96.0.0/12,fd00:10:96::/112",
    show_default=True, help="Where cluster IPs come from, the primary family first.",
)  # fmt: skip
@click.option(
    "--history", metavar="SECONDS", type=SecondsRange(min=0), default=300.0, show_default=True,
    help="How long old versions are kept for watches and paged lists.",
)  # fmt: skip
@click.option("--root-ca-configmap", is_flag=True, help="Publish the CA's certificate as kube-root-ca.crt everywhere.")
@click.option(
    "--controllers", metavar="LIST", default="*", show_default=True,
    help="Which controllers run: '*' all, 'name', '-name'; as kube-controller-manager's flag.",
)  # fmt: skip
def command(
    data: str,
    listen: str,
    write_kubeconfig: str | None,
    token_file: str | None,
    cidrs: str,
    history: float,
    root_ca_configmap: bool,
    controllers: str,
) -> None:
    """Serve a small, durable Kubernetes API.

    It says on stderr when it is ready, and ends with exit code 0 on SIGTERM or Ctrl-C.

    A log in which acknowledged changes are missing is refused, with what is
    damaged. What was being written when the server was killed is left out.

    \b
    Examples:
      kproxy apiserver --data state --write-kubeconfig kubeconfig
      kubectl --kubeconfig kubeconfig apply -f manifests/
      kproxy apiserver --data state --listen 127.0.0.1:0 --token-file tokens.csv
      kproxy apiserver --data state --controllers '*,-endpointslice-controller'
    """
    from kproxy.apiserver.auth.authentication import load_token_file
    from kproxy.apiserver.controllers.flags import parse_controllers
    from kproxy.apiserver.server import ApiServer, Configuration, new_event_loop

    host, port = parse_listen(listen)
    tokens = load_token_file(Path(token_file)) if token_file else {}
    configuration = Configuration(
        Path(data),
        host,
        port,
        tokens,
        parse_cidrs(cidrs),
        history,
        publish_root_ca=root_ca_configmap,
        controllers=parse_controllers(controllers),
        tell=report_note,
    )
    # The writer thread needs the GIL for moments only; by default it may wait 5 ms for it, and with it every client.
    sys.setswitchinterval(0.001)
    loop = new_event_loop()
    try:
        loop.run_until_complete(_serve(ApiServer(configuration), write_kubeconfig))
    finally:
        loop.close()


def parse_cidrs(text: str) -> tuple[str, ...]:
    """One or two CIDRs of different families.

    Raises:
        InputError: they are invalid.
    """
    import ipaddress

    try:
        networks = [ipaddress.ip_network(part.strip()) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"--service-cluster-ip-range: {error}") from error
    if len({network.version for network in networks}) != len(networks):
        raise InputError("--service-cluster-ip-range: at most one range of each family")
    for network in networks:
        if network.num_addresses < 8:
            raise InputError(f"--service-cluster-ip-range: {network} is too small")
    return tuple(map(str, networks))


async def _serve(server: ApiServer, kubeconfig: str | None) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await server.start()
    try:
        if kubeconfig is not None:
            from kproxy.apiserver.auth.certs import write_private

            try:
                write_private(Path(kubeconfig), server.kubeconfig().encode())
            except OSError as error:
                raise OutputError(f"cannot write {kubeconfig}: {error.strerror or error}") from error
        click.echo(f"ready: {server.url}", err=True)
        await stop.wait()
        report_note("stopping")
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await server.stop()
