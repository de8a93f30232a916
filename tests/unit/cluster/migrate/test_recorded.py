"""Recorded clusters: each reason where the cluster has it and only there, judged from its objects by `Expected`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.api import load_config
from kproxy.cluster.migrate.analysis import analyse
from kproxy.cluster.node import NodeFacts
from kproxy.netfilter import Family
from kproxy.render import Features, select_target
from tests.support.migrate import TO_NFTABLES
from tests.support.migrate_expected import Expected
from tests.support.recorded import CLUSTERS, load_nftables

SOME = ("case-10002", "case-10008", "case-10011", "case-10044")
CONFIGS = ("config.yaml", "config.nftables.yaml")


def check(case: Path, config_name: str, family: Family) -> None:
    files = (case / "cluster.yaml", case / "service-cidr.yaml")
    manifests, _ = load_nftables(case)
    config = load_config(str(case / config_name)).config
    facts = NodeFacts.of(manifests, config, select_target(manifests.nodes, config), family, Features())
    done = analyse(facts, TO_NFTABLES)
    assert {each.id for each in done.found} == Expected(files, case / config_name, family.version).reasons()
    assert done.undecided == ()


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("case", SOME)
def test_some_clusters(case: str, config: str) -> None:
    folder = next(path for path in CLUSTERS if path.name == case)
    for family in Family:
        check(folder, config, family)


@pytest.mark.soak
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("case", CLUSTERS, ids=lambda path: path.name)
def test_all_clusters(case: Path, config: str) -> None:
    for family in Family:
        check(case, config, family)
