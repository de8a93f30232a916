"""Text that a command names on its command line: a file, or `-` for standard input."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kproxy.cli.output import working
from kproxy.cluster.evidence.unseen import NOTHING, Assumed, Unseen
from kproxy.cluster.inputs import named_file, read_text
from kproxy.cluster.rules import HostRules, read_rule_file


def text_label(path: str) -> str:
    """What messages call it."""
    return "standard input" if path == "-" else path


def read_text_of(path: str, *, rules: bool = False) -> str:
    """Reads it, as `read_text` does. Raises InputError: it cannot be read, or is not UTF-8."""
    named_file(path)
    return read_text(path, rules=rules)


def read_rule_files(
    paths: Sequence[str],
    label: str = "rules",
    *,
    assumed: Assumed = NOTHING,
    sets: Collection[str] = (),
    more: Sequence[Unseen] = (),
) -> HostRules:
    """The rules of one host, of files that are recognised by their content. `label` is what progress calls them;
    `assumed`, `sets` and `more` as for `HostRules`.

    Raises:
        InputError: one cannot be read, or two say the same.
    """
    with working(f"reading {label}"):
        files = [read_rule_file(read_text_of(path, rules=True), text_label(path), path) for path in paths]
        return HostRules(files, assumed=assumed, sets=sets, more=more)
