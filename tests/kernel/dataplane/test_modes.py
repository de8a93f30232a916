"""The kernel's word on what `kproxy diff` finds between kube-proxy's two modes: each witness, sent through both rule
sets, each in a namespace of its own, meets the fate that its side says.

All recorded clusters, both families: `pytest -m soak tests/kernel/dataplane/test_modes.py`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from kproxy.dataplane.compare.compare import compare
from kproxy.dataplane.model.packet import SCTP
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.linux.testbed.confirm import Kernels, KernelVerdict
from kproxy.linux.testbed.host import RuleText
from kproxy.netfilter import Family, canonical_ruleset
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.nftables.text import parse_nft
from tests.support.kernel.dataplane_runs import kube_ruleset
from tests.support.recorded import CLUSTERS

pytestmark = pytest.mark.root


def check(case: str, family: Family, examine: int | None = 50) -> Counter[KernelVerdict]:
    """Compare a recorded cluster's rules of both modes, and send each witness through both."""
    folder = next(path for path in CLUSTERS if path.name == case)
    text, ruleset = kube_ruleset((folder / f"kube-proxy.v{family.version}.restore").read_text(), family)
    native = (folder / f"kube-proxy.v{family.version}.nft").read_text()
    found = compare(SideRules.of(ruleset), SideRules((), parse_nft(native)), family=family, examine=examine)
    assert found.differences
    verdicts: Counter[KernelVerdict] = Counter()
    with Kernels(family, [RuleText(text, Variant.NFT)], [RuleText(native)]) as kernels:
        for difference in found.differences:
            told = kernels.confirm(difference.situations, difference.traces)
            # There is no helper that expects a connection of SCTP.
            unsent = difference.witness.packet.protocol == SCTP and difference.witness.connection.state == "RELATED"
            expected = KernelVerdict.NOT_SENT if unsent else KernelVerdict.CONFIRMED
            assert told.verdict is expected, f"{case}: {difference.statement()}: {told} {difference.witness}"
            verdicts[told.verdict] += 1
    return verdicts


ACCEPTS = "*filter\n-A FORWARD -d 10.9.9.9 -p tcp -m tcp --dport 80 -j ACCEPT\nCOMMIT\n"
REJECTS = ACCEPTS.replace("-j ACCEPT", "-j REJECT --reject-with tcp-reset")


def test_a_comparison_that_is_wrong_is_refuted() -> None:
    """Kernels that do not hold the rules which were compared do not do what the traces say."""
    family = Family.IPV4
    rules = [canonical_ruleset(text, family) for text in (ACCEPTS, REJECTS)]
    (difference,) = compare(*rules).differences
    right, wrong = RuleText(ACCEPTS, Variant.NFT), RuleText(REJECTS, Variant.NFT)
    with Kernels(family, [right], [wrong]) as kernels:
        told = kernels.confirm(difference.situations, difference.traces)
        assert told.verdict is KernelVerdict.CONFIRMED
        assert told.seen[1] == ("rejected (tcp-reset)",)
    with Kernels(family, [right], [right]) as kernels:
        told = kernels.confirm(difference.situations, difference.traces)
        assert told.verdict is KernelVerdict.REFUTED
        assert told.reason.startswith("B: ")
        same = (difference.traces[0], difference.traces[0])
        assert kernels.confirm(difference.situations, same).verdict is KernelVerdict.NOT_SHOWN


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


def test_the_highest_mark_bit_is_sent_along() -> None:
    family = Family.IPV4
    texts = ["*filter\n-A OUTPUT -d 10.9.9.9 -m mark --mark 0x80000000/0x80000000 -j DROP\nCOMMIT\n", ""]
    (difference,) = compare(*(canonical_ruleset(text, family) for text in texts)).differences
    with Kernels(family, [RuleText(texts[0], Variant.NFT)], []) as kernels:
        assert kernels.confirm(difference.situations, difference.traces).verdict is KernelVerdict.CONFIRMED
