"""Recorded clusters, audited as snapshots of one node with kube-proxy's own rules: nothing may be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.cluster.audit.audit import audit
from kproxy.cluster.audit.finding_kinds import Severity
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.files import MemoryFiles
from tests.support.cluster.snapshots import recorded_snapshot
from tests.support.examples import spread
from tests.support.recorded import CLUSTERS


def check(case: Path, mode: str) -> None:
    report = audit(Cluster(MemoryFiles("recorded", recorded_snapshot(case, mode))))
    found = {each.kind for each in report.findings if each.severity is not Severity.INFO}
    assert found == ({"claimed-twice"} if case.name == "case-10022" else set())


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
@pytest.mark.parametrize("case", spread(CLUSTERS, 1, 3), ids=lambda case: case.name)
def test_recorded_clusters(case: Path, mode: str) -> None:
    check(case, mode)
