"""The golden packets of a scenario: reading packets.yaml, and running it on the expected rules of each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.types.core import Node
from kproxy.cluster.hosts import node_host
from kproxy.cluster.inputs import read_document
from kproxy.dataplane import Index, index_ruleset
from kproxy.dataplane.model.check import check_traceable
from kproxy.dataplane.query.assumptions import Surroundings
from kproxy.dataplane.query.expectation import Expectation, ExpectationError, compare_report, read_expectations
from kproxy.dataplane.query.report import report
from kproxy.errors import InputError, Location
from kproxy.netfilter import Family, parse_save

PACKETS = "packets.yaml"


class PacketDifference(msgspec.Struct, frozen=True):
    """A golden packet that does not go where it must; `lines` begin with "- ", "+ " or a blank."""

    name: str
    node: str
    lines: Sequence[str]


class PacketsRun(NamedTuple):
    """How many golden packets there are, and those that differ."""

    total: int
    differences: Sequence[PacketDifference]


def read_packets(path: Path) -> tuple[Expectation, ...]:
    """Reads a packets.yaml.

    Raises:
        InputError: it is malformed; the message names file, line and field.
    """
    document = read_document(path)
    try:
        return read_expectations(document.value)
    except ExpectationError as error:
        where = Location(str(path), field=error.field, line=document.line_of(error.path))
        raise InputError(f"{where}: {error.expected}") from error


def run_packets(
    path: Path, expected: Mapping[str, str], nodes: Sequence[Node], config: KubeProxyConfiguration
) -> PacketsRun:
    """Runs a packets.yaml on expected rules, given by file name as in `expected/`.

    Packets of a node whose file is missing are not run: that the file is missing is a difference of its own.

    Raises:
        InputError: packets.yaml is malformed, or names a node that is not there.
    """
    expectations = read_packets(path)
    by_name = {node.metadata.name: node for node in nodes}
    indexes: dict[str, Index] = {}
    differences = []
    for index, expectation in enumerate(expectations):
        node = _node(path, index, expectation, by_name)
        family = expectation.question.packet.family
        name = f"{node.metadata.name}.v{family.version}.save"
        if name not in expected:
            continue
        around = Surroundings.known(node_host(node, config, family))
        try:
            if name not in indexes:
                indexes[name] = _index(expected[name], f"expected/{name}", family)
            lines = compare_report(expectation, report(indexes[name], around, expectation.question))
        except InputError as error:
            lines = [f"  {line}" for line in str(error).splitlines()]
        if lines:
            differences.append(PacketDifference(expectation.name, node.metadata.name, lines))
    return PacketsRun(len(expectations), differences)


def _node(path: Path, index: int, expectation: Expectation, nodes: Mapping[str, Node]) -> Node:
    if expectation.node in nodes:
        return nodes[expectation.node]
    if not expectation.node and len(nodes) == 1:
        return next(iter(nodes.values()))
    where = Location(str(path), field=f"packets[{index}].node")
    wanted = f"one of the Nodes expected ({', '.join(sorted(nodes))})"
    raise InputError(f"{where}: {wanted}{f', not {expectation.node!r}' if expectation.node else ''}")


def _index(text: str, name: str, family: Family) -> Index:
    ruleset = parse_save(text, name, family=family)
    check_traceable(ruleset)
    return index_ruleset(ruleset)
