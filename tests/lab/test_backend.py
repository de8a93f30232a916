"""Labs of other kinds than the usual one, each asked whole: every client, every Service, against the model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.lab.labtools import deployment, lab_up, service

pytestmark = pytest.mark.root


@pytest.mark.parametrize(
    ("backend", "family", "variant", "mode"),
    [
        ("host-gw", "dual", "legacy", "nftables"),
        pytest.param("host-gw", "dual", "legacy", "iptables", marks=pytest.mark.slow),
        pytest.param("vxlan", "dual", "nft", "nftables", marks=pytest.mark.slow),
    ],
)
def test_every_cell_agrees(tmp_path: Path, backend: str, family: str, variant: str, mode: str) -> None:
    ports = [(8080, "TCP"), (9000, "UDP")]
    exposed = service(
        "web", "web", [(80, 8080, "TCP"), (90, 9000, "UDP")], type="NodePort",
        ipFamilyPolicy="PreferDualStack",
    )  # fmt: skip
    manifest = tmp_path / "web.json"
    manifest.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [deployment("web", 3, ports), exposed]})
    )
    options = ["--backend", backend, "--ip-family", family, "--variant", variant, "--mode", mode, "--nodes", "2"]
    options += ["-f", str(manifest)]
    with lab_up(tmp_path / "labs", *options) as lab:
        lab.settled(lambda found: sum(item.ready for item in found.service("web").ports[0].endpoints) >= 3)
        cells = lab.json("probe", "--service", "web", "--count", "2")["cells"]
        assert [cell for cell in cells if not cell["agrees"] or cell["open"]] == []
        families = {":" in address for cell in cells for address in [cell["target"]["address"]]}
        assert families == {"ipv6": {True}, "dual": {True, False}}[family]
        assert sum(any(item["end"] == "answered" for item in cell["seen"]) for cell in cells) >= 10

        def inside(*command: str) -> str:
            done = subprocess.run(
                lab.command("exec", "node-1", "--", *command),
                env=lab.environment,
                capture_output=True,
                text=True,
                check=True,
            )
            return done.stdout

        devices, routes = inside("ip", "-br", "link"), inside("ip", "-6", "route")
        assert ("kproxy" in devices) == (backend == "vxlan")
        way = "via fd00:172:30::c dev eth0 proto 107" if backend == "host-gw" else "dev kproxy-v6.1 proto 107"
        assert any(line.startswith("fd00:10:244:2::/64") and way in line for line in routes.splitlines()), routes
