"""The lab's container runtime: which version of CNI it speaks to the plugins of a list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kproxy.lab.kubelet.cni import NetworkList

PLUGIN = "import json, sys; open(sys.argv[0] + '.log', 'a').write(json.dumps(json.load(sys.stdin)) + chr(10))"


@pytest.mark.parametrize(
    ("written", "version"),
    [
        ({"cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"]}, "1.1.0"),
        ({"cniVersion": "1.0.0", "cniVersions": ["1.0.0", "9.0.0", "0.4.0"]}, "1.0.0"),
        ({"cniVersion": "0.4.0"}, "0.4.0"),
        ({"cniVersion": "9.0.0"}, "9.0.0"),
    ],
)
def test_the_newest_version_that_both_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: dict[str, Any], version: str
) -> None:
    program = tmp_path / "recorder"
    program.write_text(f"#!/usr/bin/env python3\n{PLUGIN}\n")
    program.chmod(0o755)
    file = tmp_path / "10-x.conflist"
    file.write_text(json.dumps({**written, "name": "x", "plugins": [{"type": "recorder"}]}))
    monkeypatch.setenv("CNI_PATH", str(tmp_path))
    network = NetworkList.load(file)
    network.status()
    network.collect([("c1", "eth0")])
    log = tmp_path / "recorder.log"
    asked = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    assert network.version == version
    if version < "1.1.0":
        assert asked == [], "neither STATUS nor GC"
    else:
        assert [request["cniVersion"] for request in asked] == [version] * 2
        assert asked[1]["cni.dev/valid-attachments"] == [{"containerID": "c1", "ifname": "eth0"}]
