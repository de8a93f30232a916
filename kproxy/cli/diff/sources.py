"""What `kproxy diff` compares: the two sides as the user names them, read into rule sets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kproxy.cli.output import report_note, working
from kproxy.cluster.inputs import read_inputs, read_text
from kproxy.cluster.rules import check_iptables as checked
from kproxy.errors import InputError
from kproxy.netfilter import Family, Ruleset, parse_save
from kproxy.render import Features, render_target, select_target
from kproxy.render.iptables.save import saved_ruleset

NETNS = "netns:"
MANIFESTS = "manifests:"
_MANIFEST_SUFFIXES = (".yaml", ".yml", ".json", ".jsonl")


@dataclass(frozen=True, slots=True)
class Choices:
    """What options say about a side."""

    config: str | None = None
    features: Features | None = None
    family: Family | None = None
    variant: str | None = None


def read_side(text: str, choices: Choices) -> Ruleset:
    """Reads one side: a file of rules, `-`, `netns:NAME`, or `[manifests:]PATH[,PATH...][@NODE]`.

    Raises:
        InputError: it cannot be read, holds no rules, or holds rules that no kernel would take.
        LinuxError: a namespace cannot be read.
    """
    if text.startswith(NETNS):
        return _from_namespace(text.removeprefix(NETNS), choices)
    if is_rendered(text):
        return _from_manifests(text.removeprefix(MANIFESTS), choices)
    with working(f"reading {label(text)}"):
        content = sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else read_text(Path(text))
        ruleset = parse_save(content, text)
        if choices.family is not None and ruleset.family is None:
            ruleset = parse_save(content, text, family=choices.family)
        return checked(ruleset, label(text))


def label(text: str) -> str:
    """What a side is called in messages."""
    if text == "-":
        return "standard input"
    if text.startswith(NETNS):
        return f"namespace {text.removeprefix(NETNS)}"
    return text


def is_rendered(text: str) -> bool:
    """Whether the side is rendered from manifests: said so, or told by what is named, YAML, JSON or a folder."""
    if text.startswith(MANIFESTS):
        return True
    if text.startswith(NETNS) or Path(text).is_file():
        return Path(text).suffix in _MANIFEST_SUFFIXES
    first = Path(text.rpartition("@")[0].partition(",")[0] or text.partition(",")[0])
    return first.is_dir() or first.suffix in _MANIFEST_SUFFIXES


def is_live(text: str) -> bool:
    """Whether the side is what a namespace holds."""
    return text.startswith(NETNS)


def _from_namespace(name: str, choices: Choices) -> Ruleset:
    from kproxy.cli.trace.live import read_rules

    if not name:
        raise InputError("netns: the name of a namespace expected")
    return checked(read_rules(name, choices.family or Family.IPV4, choices.variant), f"namespace {name}")


def _from_manifests(text: str, choices: Choices) -> Ruleset:
    paths, _, node = text.rpartition("@") if "@" in text else (text, "", "")
    filenames: Sequence[str] = [path for path in paths.split(",") if path]
    if not filenames:
        raise InputError(f"manifests:{text}: a path expected, as in manifests:cluster.yaml@worker-1")
    with working(f"rendering {text}"):
        config, cluster = read_inputs(choices.config, filenames, report_note)
        target = select_target(cluster.nodes, config, node or None)
        family = choices.family or target.primary_family(config)
        rendered = render_target(
            target, family, cluster.services, cluster.endpoint_slices, config, choices.features or Features()
        )
        ruleset = saved_ruleset(rendered.restore_text, rendered.options.family)
    return Ruleset(family, ruleset.tables)
