"""`kproxy migrate --verify`: the kernel does what the report says, in both modes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import Run
from tests.support.migrate import NODE, endpoints, node, service, service_cidr, write
from tests.support.paths import ROOT
from tests.support.recorded import CLUSTERS

pytestmark = pytest.mark.root


def test_every_witness_is_confirmed(kproxy: Run, tmp_path: Path) -> None:
    objects = [
        node(),
        service_cidr("10.96.0.0/16"),
        service(type="NodePort", sessionAffinity="ClientIP", port={"nodePort": 30080}),
        endpoints(addresses=("10.244.0.5", "10.244.0.6"), node_name="n2"),
    ]
    cluster, config = write(tmp_path, objects, {"clusterCIDR": "10.244.0.0/16"})
    done = kproxy("migrate", "-f", cluster, "--config", config, "--node", NODE, "-4", "--verify", "-o", "json")
    assert done.returncode == 1, done.stderr
    told = {each["reason"]: each["witness"]["kernel"]["verdict"] for each in json.loads(done.stdout)["findings"]}
    assert set(told.values()) == {"confirmed"}, told
    assert len(told) == 9


@pytest.mark.slow
@pytest.mark.parametrize(("case", "to"), [("case-10006", "nftables"), ("case-10010", "iptables")])
def test_recorded_clusters(kproxy: Run, case: str, to: str) -> None:
    folder = next(path for path in CLUSTERS if path.name == case)
    files = [argument for name in ("cluster.yaml", "service-cidr.yaml") for argument in ("-f", str(folder / name))]
    config = str(folder / "config.yaml")
    done = kproxy("migrate", *files, "--config", config, "--to", to, "--verify", "-o", "json", cwd=ROOT)
    told = {each["reason"]: each["witness"]["kernel"] for each in json.loads(done.stdout)["findings"]}
    assert {answer["verdict"] for answer in told.values()} == {"confirmed"}, told
