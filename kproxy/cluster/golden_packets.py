"""The golden packets of a scenario: reading packets.yaml, and running it on the expected rules of each node."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES, KubeProxyConfiguration
from kproxy.api.types.core import Node
from kproxy.cluster.hosts import node_host
from kproxy.cluster.inputs import read_document
from kproxy.cluster.rules import HostRules, read_rule_file
from kproxy.dataplane import Host, Index
from kproxy.dataplane.model.pipeline import OWN_TABLES
from kproxy.dataplane.query.assumptions import Surroundings
from kproxy.dataplane.query.expectation import Expectation, ExpectationError, compare_report, read_expectations
from kproxy.dataplane.query.report import report
from kproxy.dataplane.query.spec import Question
from kproxy.errors import InputError, Location
from kproxy.render.nftables.names import TABLE

PACKETS = "packets.yaml"

_MODES = {MODE_IPTABLES: "save", MODE_NFTABLES: "nft"}
"""How the files of a mode's expected rules end; on those of IPVS mode no packets are run."""


class PacketDifference(msgspec.Struct, frozen=True):
    """A golden packet that does not go where it must in a mode; `lines` begin with "- ", "+ " or a blank."""

    name: str
    node: str
    lines: Sequence[str]
    mode: str = MODE_IPTABLES


class PacketsRun(NamedTuple):
    """How many golden packets were sent, one that both modes get twice, and those that differ."""

    total: int
    differences: Sequence[PacketDifference]


def read_packets(path: Path) -> tuple[Expectation, ...]:
    """Reads a packets.yaml. Raises InputError: it is malformed; the message names file, line and field."""
    document = read_document(path)
    try:
        return read_expectations(document.value)
    except ExpectationError as error:
        where = Location(str(path), field=error.field, line=document.line_of(error.path))
        raise InputError(f"{where}: {error.expected}") from error


def run_packets(
    path: Path, expected: Mapping[str, str], nodes: Sequence[Node], config: KubeProxyConfiguration
) -> PacketsRun:
    """Runs a packets.yaml on expected rules, given by file name as in `expected/`, of either mode.

    Packets of a node whose file is missing are not run: that the file is missing is a difference of its own.

    Raises:
        InputError: packets.yaml is malformed, or names a node that is not there.
    """
    expectations = read_packets(path)
    by_name = {node.metadata.name: node for node in nodes}
    rules: dict[str, Index] = {}
    differences = []
    sent = 0
    for index, expectation in enumerate(expectations):
        node = _node(path, index, expectation, by_name)
        family = expectation.question.packet.family
        for mode, extension in _MODES.items():
            name = f"{node.metadata.name}.v{family.version}.{extension}"
            if name not in expected:
                continue
            sent += 1
            in_mode = msgspec.structs.replace(config, mode=mode)
            wanted = expectation.in_nftables_mode() if mode == MODE_NFTABLES else expectation
            try:
                if name not in rules:
                    rules[name] = HostRules([read_rule_file(expected[name], f"expected/{name}")]).index(family)
                around = Surroundings.known(_host(node, in_mode, wanted.question))
                lines = compare_report(wanted, report(rules[name], around, wanted.question))
            except InputError as error:
                lines = [f"  {line}" for line in str(error).splitlines()]
            if lines:
                differences.append(PacketDifference(expectation.name, node.metadata.name, lines, mode))
    return PacketsRun(sent, differences)


def _host(node: Node, config: KubeProxyConfiguration, question: Question) -> Host:
    """The node as its Node object tells. In nftables mode kube-proxy leaves route_localnet as the kernel has it, and
    the packet's source is in the sets that `recent` names."""
    family, source = question.packet.family, question.packet.src
    host = node_host(node, config, family)
    if config.mode != MODE_NFTABLES:
        return host
    table = f"{OWN_TABLES[family].value} {TABLE}"
    seen: dict[tuple[str, str], Mapping[Hashable, Hashable]] = {}
    if source is not None:
        seen = {(table, name): {int(source): True} for name in question.recent}
    off = {"net.ipv4.conf.all.route_localnet": 0}
    return replace(host, sysctls=MappingProxyType(off | dict(host.sysctls)), elements=MappingProxyType(seen))


def _node(path: Path, index: int, expectation: Expectation, nodes: Mapping[str, Node]) -> Node:
    if expectation.node in nodes:
        return nodes[expectation.node]
    if not expectation.node and len(nodes) == 1:
        return next(iter(nodes.values()))
    where = Location(str(path), field=f"packets[{index}].node")
    wanted = f"one of the Nodes expected ({', '.join(sorted(nodes))})"
    raise InputError(f"{where}: {wanted}{f', not {expectation.node!r}' if expectation.node else ''}")
