"""Golden files: the rules of every node of a scenario, and a readable difference between two save texts.

A scenario is a cluster and a configuration with the rules expected for each node and family. Everything here is a
value; `kproxy golden` reads and writes the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES, KubeProxyConfiguration
from kproxy.api.types.core import Node, Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.api.types.networking import ServiceCIDR
from kproxy.render.ipvs.node import RenderedIpvs
from kproxy.render.options import Features
from kproxy.render.target import NodeError, Rendered, RenderedTarget, Target, render_in_mode
from kproxy.services.names import IPFamily

PATTERNS = {MODE_IPTABLES: ("*.save",), MODE_NFTABLES: ("*.nft",), MODE_IPVS: ("ipvs/*.*",)}
"""The files of expected rules, by mode: those of IPVS mode have a folder of their own."""


def files_of(node: Node, rendered: Rendered, release: str = "1.0.6") -> dict[str, str]:
    """A node's rules of one family, by file name: `NODE.v4.save`, in nftables mode `NODE.v4.nft`, as nft of `release`
    lists it; in IPVS mode beside `.save` `NODE.v4.ipset`, `.ipvsadm` and `.addresses`."""
    stem = f"{node.metadata.name}.v{rendered.options.family.version}"
    if isinstance(rendered, RenderedTarget):
        return {f"{stem}.save": rendered.save_text}
    if isinstance(rendered, RenderedIpvs):
        return {
            f"{stem}.save": rendered.save_text,
            f"{stem}.ipset": rendered.ipset_text,
            f"{stem}.ipvsadm": rendered.ipvsadm_text,
            f"{stem}.addresses": rendered.addresses_text,
        }
    return {f"{stem}.nft": rendered.save_text(release)}


def golden_texts(
    nodes: Iterable[Node],
    services: Iterable[Service],
    endpoint_slices: Iterable[EndpointSlice],
    config: KubeProxyConfiguration,
    features: Features | None = None,
    service_cidrs: Iterable[ServiceCIDR] = (),
) -> dict[str, str]:
    """The texts of every node and family in the configuration's mode, by file name (`files_of`), with the folder in
    which golden files of the mode are.

    Raises:
        NodeError: the cluster has no Node.
    """
    services, endpoint_slices, service_cidrs = tuple(services), tuple(endpoint_slices), tuple(service_cidrs)
    texts: dict[str, str] = {}
    folder = "ipvs/" if config.mode == MODE_IPVS else ""
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        target = Target(node.metadata.name, node)
        for family in IPFamily:
            found = render_in_mode(target, family, services, endpoint_slices, config, features, service_cidrs)
            texts |= {f"{folder}{name}": text for name, text in files_of(node, found).items()}
    if not texts:
        raise NodeError("the cluster has no Node, so there is no node to render rules for")
    return texts


class ChainDifference(msgspec.Struct, frozen=True):
    """How one chain differs.

    Attributes:
        table, chain: where.
        lines: the rules around the difference, each starting with "- " (expected, not there), "+ " (there, not
            expected) or "  " (both).
    """

    table: str
    chain: str
    lines: tuple[str, ...]


def diff_save(expected: str, actual: str) -> list[ChainDifference]:
    """The differences between two texts in save form, chain by chain; empty if they hold the same bytes.

    Of nftables, sets and maps count as chains here.
    """
    text = actual or expected
    split = _by_block if text.startswith("table ") else _by_chain if text.startswith("*") else _whole
    old, new = split(expected), split(actual)
    differences = []
    for ref in sorted(old.keys() | new.keys()):
        before, after = old.get(ref, []), new.get(ref, [])
        if before != after:
            differences.append(ChainDifference(*ref, tuple(_diff_lines(before, after))))
    if not differences and expected != actual:
        lines = tuple(_diff_lines(expected.splitlines(), actual.splitlines()))
        differences.append(ChainDifference("", "order of tables and chains", lines))
    return differences


def _whole(text: str) -> Mapping[tuple[str, str], list[str]]:
    return {("", "lines"): text.splitlines()}


def _by_chain(text: str) -> Mapping[tuple[str, str], list[str]]:
    chains: dict[tuple[str, str], list[str]] = {}
    table = ""
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":"):
            chains.setdefault((table, line[1:].split(" ", 1)[0]), []).append(line)
        elif line.startswith("-A "):
            chains.setdefault((table, line.split(" ", 2)[1]), []).append(line)
        elif line != "COMMIT":
            chains.setdefault((table, ""), []).append(line)
    return chains


def _by_block(text: str) -> Mapping[tuple[str, str], list[str]]:
    """The lines of each chain, set and map of tables as nft lists them."""
    blocks: dict[tuple[str, str], list[str]] = {}
    table = block = ""
    for line in text.splitlines():
        if line.startswith("table "):
            table, block = line.removeprefix("table ").removesuffix(" {"), ""
        elif line.startswith("\t") and not line.startswith("\t\t") and line.endswith(" {"):
            block = line.strip().removesuffix(" {")
        blocks.setdefault((table, block), []).append(line)
        if line == "\t}":
            block = ""
    return blocks


def _diff_lines(before: list[str], after: list[str]) -> Iterable[str]:
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            same = before[i1:i2]
            shown = same if len(same) <= 4 else [*same[:2], f"... {len(same) - 4} the same", *same[-2:]]
            yield from (f"  {line}" for line in shown)
        else:
            yield from (f"- {line}" for line in before[i1:i2])
            yield from (f"+ {line}" for line in after[j1:j2])
