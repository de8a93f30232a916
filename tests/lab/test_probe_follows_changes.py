"""What changes between the model's look and the packet is no difference between model and kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.lab.inspect.follow import follow
from kproxy.lab.inspect.probe import cells_of, run_probe
from kproxy.lab.inspect.targets import find_target
from tests.support.lab.labtools import deployment, lab_up, service

pytestmark = [pytest.mark.root, pytest.mark.slow]


def test_rules_that_change_after_the_models_look(tmp_path: Path) -> None:
    with lab_up(tmp_path / "labs", "--nodes", "1") as lab:
        lab.apply(deployment("web", 1, labels={"app": "web"}), service("web", "web"))
        lab.settled(lambda found: any(i.ready for s in found.services if s.name == "web" for i in s.ports[0].endpoints))
        model = lab.model()
        target = find_target(model.cluster, "svc/web")
        cells = list(cells_of(model.cluster, [model.cluster.service("web")], ["node-1"]))
        assert follow(model, "node-1", target).agrees
        lab.kubectl("patch", "service", "web", "-p", '{"spec": {"selector": {"app": "none"}}}')
        lab.settled(lambda found: not any(s.ports[0].endpoints for s in found.services if s.name == "web"))
        found = follow(model, "node-1", target)
        assert found.answer.end == "refused"
        assert found.agrees
        assert all(cell.agrees for cell in run_probe(model, cells, count=2, timeout=1.0))
