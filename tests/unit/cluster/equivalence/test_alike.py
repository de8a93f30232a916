"""What the modes do differently, found with the Services that stand for all: the report is that of all."""

from __future__ import annotations

import pytest

from kproxy.api import Manifests
from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.cluster.equivalence import services
from kproxy.cluster.equivalence.services import Alike
from kproxy.cluster.migrate.analysis import analyse
from kproxy.cluster.migrate.foreign import ForeignRules
from kproxy.cluster.migrate.report import MigrateReport, build_report
from kproxy.cluster.node import NodeFacts
from kproxy.netfilter import Family
from kproxy.render import Features, Target
from tests.support.cluster.alike_services import NODES, random_cluster
from tests.support.cluster.foreign_rules import random_rules
from tests.support.examples import spread
from tests.support.migrate import TO_NFTABLES


def _report(
    cluster: Manifests, family: Family, standing: Alike | None, foreign: ForeignRules | None = None
) -> tuple[MigrateReport, list[bool]]:
    config = KubeProxyConfiguration(cluster_cidr="10.244.0.0/16,fd00:10:244::/56")
    analyses = []
    for name in NODES:
        node = next(each for each in cluster.nodes if each.metadata.name == name)
        facts = NodeFacts.of(cluster, config, Target(name, node), family, Features())
        analyses.append(analyse(facts, TO_NFTABLES, alike=standing, foreign=foreign))
    return build_report(analyses, TO_NFTABLES), [each.is_of_fewer for each in analyses]


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("seed", spread([104, 103, 107], 1, 0))
def test_the_report_is_the_same(seed: int, family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "FEW", 0)
    cluster = random_cluster(seed, family, 16)
    whole, _ = _report(cluster, family, None)
    short, fewer = _report(cluster, family, Alike(cluster, family))
    assert short == whole
    assert any(fewer)


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("seed", spread([110, 102, 105], 0, 1))
def test_the_report_is_the_same_among_rules_of_others(
    seed: int, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "FEW", 0)
    cluster = random_cluster(seed, family, 16)
    foreign = random_rules(seed, cluster, family)
    whole, _ = _report(cluster, family, None, foreign)
    short, fewer = _report(cluster, family, Alike(cluster, family), foreign)
    assert short == whole
    assert any(fewer)


def test_few_services_are_compared_each() -> None:
    cluster = random_cluster(1, Family.IPV4, 5)
    _, fewer = _report(cluster, Family.IPV4, Alike(cluster, Family.IPV4))
    assert not any(fewer)
