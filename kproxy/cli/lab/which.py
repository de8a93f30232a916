"""`kproxy lab list` and `kproxy lab env`: which labs there are, and how to speak to one."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click
import msgspec

from kproxy.cli.lab.common import name_option
from kproxy.cli.output import output_option, report_note, table_lines, terminal_width, write_output, write_result
from kproxy.lab.errors import LabError
from kproxy.lab.lifecycle.down import all_labs
from kproxy.lab.spec import check_name
from kproxy.lab.state import LabDirectory, lab_root


class _Lab(msgspec.Struct, rename="camel"):
    """A lab. `phase` is that of its record, `unknown` without one. `directory` is where it is kept."""

    name: str
    phase: str
    nodes: int = 0
    ip_family: str = ""
    mode: str = ""
    kubeconfig: str = ""
    directory: str = ""


@click.command("list")
@output_option
def list_command(output_format: str) -> None:
    """Show which labs there are on this machine.

    \b
    Examples:
      kproxy lab list
      export KPROXY_LAB=$(kproxy lab list -o json | jq -r '.labs[0].name')
    """
    found = [_read(each) for each in all_labs()]
    notes = [
        f"lab {each.name} is kept in {each.directory}: `kproxy lab down --all` ends it, too"
        for each in found
        if Path(each.directory).parent != lab_root()
    ]
    rows = [("NAME", "PHASE", "NODES", "IP FAMILY", "MODE")]
    rows += [(each.name, each.phase, str(each.nodes), each.ip_family, each.mode) for each in found]
    lines = table_lines(rows, width=terminal_width()) if found else ()
    notes = notes if found else ["no lab is there: `kproxy lab up` makes one"]
    write_result("LabList", {"labs": found}, output_format, lines, notes=notes)


def _read(lab: LabDirectory) -> _Lab:
    try:
        record = lab.record()
    except LabError as error:
        report_note(str(error))
        record = None
    if record is None:
        return _Lab(lab.name, "unknown", directory=str(lab.path))
    spec = record.spec
    return _Lab(
        lab.name, record.phase, len(record.nodes), spec.ip_family, spec.mode, str(lab.kubeconfig), str(lab.path)
    )


@click.command("env")
@name_option
def env(name: str) -> None:
    """Print the line that makes kubectl speak to the lab.

    The kubeconfig belongs to the user who made the lab: root, or the one who ran `sudo kproxy lab up`.

    \b
    Examples:
      eval "$(kproxy lab env)"
      kubectl get nodes -o wide
    """
    lab = LabDirectory(check_name(name))
    lab.running()
    if not os.access(lab.kubeconfig, os.R_OK):
        raise LabError(f"{lab.kubeconfig}: only root, and the user who made the lab by sudo, can read it")
    write_output(f"export KUBECONFIG={shlex.quote(str(lab.kubeconfig))}\n", None)
