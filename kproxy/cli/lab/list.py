"""`kproxy lab list`."""

from __future__ import annotations

import click
import msgspec

from kproxy.cli.output import output_option, report_note, table_lines, terminal_width, write_answer, write_report
from kproxy.lab.errors import LabError
from kproxy.lab.state import LabDirectory, list_labs


class _Lab(msgspec.Struct, rename="camel"):
    """A lab. `phase` is that of its record, `unknown` without one."""

    name: str
    phase: str
    nodes: int = 0
    ip_family: str = ""
    mode: str = ""
    kubeconfig: str = ""


@click.command("list")
@output_option
def command(output_format: str) -> None:
    """Show which labs there are on this machine.

    \b
    Examples:
      kproxy lab list
      export KPROXY_LAB=$(kproxy lab list -o json | jq -r '.labs[0].name')
    """
    found = [_read(each) for each in list_labs()]
    if output_format != "text":
        write_answer("LabList", {"labs": found}, output_format)
        return
    if not found:
        report_note("no lab is there: `kproxy lab up` makes one")
        return
    rows = [("NAME", "PHASE", "NODES", "IP FAMILY", "MODE")]
    rows += [(each.name, each.phase, str(each.nodes), each.ip_family, each.mode) for each in found]
    write_report(table_lines(rows, width=terminal_width()))


def _read(lab: LabDirectory) -> _Lab:
    try:
        record = lab.record()
    except LabError as error:
        report_note(str(error))
        record = None
    if record is None:
        return _Lab(lab.name, "unknown")
    spec = record.spec
    return _Lab(lab.name, record.phase, len(record.nodes), spec.ip_family, spec.mode, str(lab.kubeconfig))
