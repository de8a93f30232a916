"""One folder of `rules_golden/`, read for one of its nodes.

A variant, here and in the other modules, is what programs the rules: iptables-nft or iptables-legacy (`nft`, `legacy`)
in kube-proxy's iptables mode, or nft in its nftables mode (`nftables`)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from kproxy.api import KubeProxyConfiguration, Node
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES
from kproxy.cluster.golden_packets import PACKETS, read_packets
from kproxy.cluster.inputs import read_cluster, read_config
from kproxy.dataplane.query.expectation import Expectation

FAMILIES = {4: "v4", 6: "v6"}
NFTABLES = MODE_NFTABLES
"""The variant that is kube-proxy's nftables mode; the others are iptables' own."""


@dataclass(frozen=True)
class Scenario:
    """A scenario and a node of it."""

    path: Path
    node: Node
    nodes: tuple[Node, ...]
    config: KubeProxyConfiguration
    expectations: tuple[Expectation, ...]

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def node_name(self) -> str:
        return self.node.metadata.name

    @property
    def cluster_file(self) -> Path:
        return self.path / "cluster.yaml"

    @property
    def config_file(self) -> Path | None:
        path = self.path / "config.yaml"
        return path if path.exists() else None

    def rules_file(self, variant: str, family: int) -> str:
        """The name of the file that holds the node's rules in a family."""
        return f"{self.node_name}.{FAMILIES[family]}.{'nft' if variant == NFTABLES else 'save'}"

    def expected(self, variant: str, family: int) -> str:
        """The committed rules of the node in a family, as iptables-save or nft prints them."""
        return (self.path / "expected" / self.rules_file(variant, family)).read_text()

    def packets(self, variant: str, family: int) -> list[Expectation]:
        """The golden packets of a family, with what becomes of them in the variant's mode."""
        mine = (item for item in self.expectations if item.question.packet.family.version == family)
        return [item.in_nftables_mode() if variant == NFTABLES else item for item in mine]


def mode_of(variant: str) -> str:
    """The mode of kube-proxy that a variant belongs to."""
    return MODE_NFTABLES if variant == NFTABLES else MODE_IPTABLES


def read_scenario(path: Path) -> Scenario:
    """Read a scenario for the first of its nodes.

    Raises:
        InputError: a file of it is malformed; the message says where.
    """
    config_path = path / "config.yaml"
    config = read_config(str(config_path) if config_path.exists() else None, _tell)
    cluster = read_cluster([str(path / "cluster.yaml")], _tell)
    node = min(cluster.nodes, key=lambda item: item.metadata.name)
    packets = read_packets(path / PACKETS) if (path / PACKETS).exists() else ()
    own = tuple(item for item in packets if item.node in ("", node.metadata.name))
    return Scenario(path, node, tuple(cluster.nodes), config, own)


def _tell(note: str) -> None:
    sys.stderr.write(f"note: {note}\n")
