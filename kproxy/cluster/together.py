"""Dumps, manifests and live sources that were named together, as a snapshot in memory: of each node what its
dumps say, of the cluster what the objects say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kproxy.api.fielderror import ManifestError, Problem
from kproxy.api.load.manifests import SUFFIXES, load_contents, read_files
from kproxy.api.octets import read_octets
from kproxy.cluster.inputs import read_text, text_label
from kproxy.cluster.rules import RuleKind, read_ipsets, read_rule_file, recognise
from kproxy.cluster.snapshot.cluster import object_contents
from kproxy.cluster.snapshot.files import Files, MemoryFiles, open_files
from kproxy.cluster.snapshot.layout import CONFIGZ, IPSETS, IPVS, OBJECTS, host_file
from kproxy.cluster.sources import Kind, SourceName
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.netfilter.hooks import Variant


def together(
    names: Sequence[SourceName], label: str, gather: Callable[[SourceName], Files], node: str | None, config: str | None
) -> Files:
    """All that was named as one snapshot.

    Args:
        gather: reads a live source. node: whose the dumps are that do not say it.
        config: the file of kube-proxy's configuration on their nodes.

    Raises:
        InputError: something cannot be read, or whose rules a dump has is not said. KproxyError: a live source cannot.
    """
    found: dict[str, bytes] = {}
    for name in names:
        if name.kind in (Kind.RULES, Kind.MANIFESTS):
            continue
        files = open_files(name.names[0]) if name.kind is Kind.SNAPSHOT else gather(name)
        found.update((path, files.read(path) or b"") for path in files.paths())
    paths = [path for each in names if each.kind is Kind.MANIFESTS for path in each.names]
    found.update(object_files(paths, read_octets("-") if "-" in paths else b""))
    dumps: dict[str, list[str]] = {}
    for each in names:
        if each.kind is Kind.RULES:
            host = each.node or node or _only_node(each.text, MemoryFiles(label, found))
            dumps.setdefault(host, []).extend(each.names)
    for host, paths in dumps.items():
        found.update((host_file(host, name), data) for name, data in _rule_files(paths))
        if config is not None:
            found[host_file(host, CONFIGZ)] = read_text(config).encode()
    return MemoryFiles(label, found)


def object_files(paths: Sequence[str], stdin: bytes) -> Iterator[tuple[str, bytes]]:
    """Manifests by names that a snapshot may give them: their content decides what they are. `stdin` is what `-` stands
    for.

    Raises:
        ManifestError: some cannot be read.
    """
    problems: list[Problem] = []
    for name in paths:
        for path, data in read_files(name, stdin, problems):
            plain = "stdin.yaml" if path == "-" else path.replace("/", "_")
            yield f"{OBJECTS}/{plain if Path(plain).suffix in SUFFIXES else f'{plain}.yaml'}", data
    if problems:
        raise ManifestError(problems)


def _only_node(dump: str, files: Files) -> str:
    """The node that a dump is of where nobody says it: the only Node among the objects. Raises InputError."""
    contents = object_contents(files)
    nodes = [each.metadata.name for each in load_contents(contents).nodes] if contents else []
    if len(nodes) == 1:
        return nodes[0]
    if not nodes:
        raise InputError(f"{dump}: no Node among the objects; say whose rules these are, as in {dump}@NODE")
    there = ", ".join(nodes[:8])
    raise InputError(f"{dump}: the name of its node expected, as in {dump}@{nodes[0]}; there are {there}")


def _rule_files(paths: list[str]) -> Iterator[tuple[str, bytes]]:
    """The dumps of one host by the names that a snapshot gives them. Raises InputError: one cannot be read, or two say
    the same."""
    taken: dict[str, str] = {}
    for path in paths:
        text, label = read_text(path, rules=True), text_label(path)
        if recognise(text) is RuleKind.IPSET:
            read_ipsets(text, label)
            name = IPSETS
        else:
            file = read_rule_file(text, label, path)
            rules = file.iptables
            if rules is None:
                name = "nft" if file.ipvs is None else IPVS
            else:
                program = "ip6tables" if rules.ruleset.family is Family.IPV6 else "iptables"
                name = f"{program}-save"
                if name in taken:
                    name = f"{program}-{(rules.variant or Variant.LEGACY).value}-save"
        if name in taken:
            raise InputError(f"{taken[name]} and {label} are both {name} of one host: one file expected")
        taken[name] = label
        yield name, text.encode()
