"""`kproxy version`."""

from __future__ import annotations

import platform

import click

from kproxy import KUBE_PROXY_VERSION, __version__
from kproxy.cli.output import output_option, write_result


@click.command("version")
@output_option
def command(output_format: str) -> None:
    """Show the version, and that of the kube-proxy whose rules are rendered.

    \b
    Examples:
      kproxy version
      kproxy version -o json
    """
    found = {"version": __version__, "kubeProxy": KUBE_PROXY_VERSION, "python": platform.python_version()}
    lines = [f"kproxy {__version__}, as kube-proxy {KUBE_PROXY_VERSION}"]
    write_result("Version", found, output_format, lines)
