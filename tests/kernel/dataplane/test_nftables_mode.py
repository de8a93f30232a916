"""The kernel agrees about kube-proxy's nftables mode: packets through recorded and golden tables meet the model's fate.

Packets, wires and replies are those of test_model.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproxy.dataplane import Host
from kproxy.netfilter import Family
from tests.support import paths
from tests.support.examples import spread
from tests.support.kernel.dataplane_agree import Tally
from tests.support.kernel.dataplane_runs import KUBE_EXTRA, REFERENCE, node_with_sets, run_kube_table
from tests.support.kernel.dataplane_wire import Node

pytestmark = pytest.mark.root

CASES = sorted(path.name for path in (REFERENCE / "clusters").iterdir() if path.is_dir())
GOLDEN = sorted(path.parent.name for path in (paths.ROOT / "rules_golden").glob("*/cluster.yaml"))


@pytest.fixture(scope="module")
def kube() -> Iterator[tuple[Node, Host]]:
    with node_with_sets("dt", KUBE_EXTRA) as found:
        yield found


def agree(tally: Tally) -> None:
    assert not tally.disagreements, f"{tally}\n" + "\n".join(tally.disagreements[:5])
    assert tally.packets


@pytest.mark.parametrize("group", spread(range(8), 0, 2))
def test_more_recorded_tables(kube: tuple[Node, Host], group: int) -> None:
    tally = Tally()
    for case in CASES[group::16]:
        for family in Family:
            text = (REFERENCE / "clusters" / case / f"kube-proxy.v{family.version}.nft").read_text()
            run_kube_table(*kube, text, family, 30, tally, f"{case} ")
    agree(tally)


@pytest.mark.parametrize("group", spread(range(5), 0, 2))
def test_golden_tables(kube: tuple[Node, Host], group: int) -> None:
    tally = Tally()
    for scenario in GOLDEN[group::5]:
        for path in sorted((paths.ROOT / "rules_golden" / scenario / "expected").glob("node-0.*.nft")):
            family = Family.IPV6 if ".v6." in path.name else Family.IPV4
            run_kube_table(*kube, path.read_text(), family, 20, tally, f"{scenario} ")
    agree(tally)
