"""The kernel's word on what `kproxy diff` finds between kube-proxy's two modes: each witness, sent through both rule
sets, each in a namespace of its own, meets the fate that its side says.

All recorded clusters, both families: `pytest -m soak tests/kernel/dataplane/test_modes.py`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from kproxy.dataplane.compare.compare import compare
from kproxy.dataplane.symbolic.side import SideRules
from kproxy.linux.testbed.confirm import Kernels, Verdict
from kproxy.linux.testbed.host import RuleText
from kproxy.netfilter import Family
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.nftables.text import parse_nft
from tests.support.kernel.dataplane_runs import kube_ruleset
from tests.support.recorded import CLUSTERS

pytestmark = pytest.mark.root


def check(case: str, family: Family, examine: int | None = 50) -> Counter[Verdict]:
    """Compare a recorded cluster's rules of both modes, and send each witness through both."""
    folder = next(path for path in CLUSTERS if path.name == case)
    text, ruleset = kube_ruleset((folder / f"kube-proxy.v{family.version}.restore").read_text(), family)
    native = (folder / f"kube-proxy.v{family.version}.nft").read_text()
    found = compare(SideRules.of(ruleset), SideRules((), parse_nft(native)), family=family, examine=examine)
    assert found.differences
    verdicts: Counter[Verdict] = Counter()
    with Kernels(family, [RuleText(text, Variant.NFT)], [RuleText(native)]) as kernels:
        for difference in found.differences:
            told = kernels.confirm(difference)
            right = told.verdict is Verdict.CONFIRMED or difference.witness.connection.state == "RELATED"
            assert right, f"{case}: {difference.statement()}: {told} {difference.witness}"
            verdicts[told.verdict] += 1
    return verdicts


@pytest.mark.parametrize("family", list(Family), ids=lambda family: f"v{family.version}")
def test_a_recorded_cluster(family: Family) -> None:
    assert check("case-10044", family, 5)


@pytest.mark.slow
@pytest.mark.parametrize("family", list(Family), ids=lambda family: f"v{family.version}")
@pytest.mark.parametrize("case", ["case-10001", "case-10022"])
def test_recorded_clusters(case: str, family: Family) -> None:
    assert check(case, family)


@pytest.mark.soak
@pytest.mark.parametrize("family", list(Family), ids=lambda family: f"v{family.version}")
@pytest.mark.parametrize("case", [path.name for path in CLUSTERS])
def test_all_recorded_clusters(case: str, family: Family) -> None:
    assert check(case, family)
