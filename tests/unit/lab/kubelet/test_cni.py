"""The lab's container runtime: which version of CNI it speaks to the plugins of a list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kproxy.lab.kubelet.cni import NetworkList


@pytest.mark.parametrize(
    ("written", "version"),
    [
        ({"cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"]}, "1.1.0"),
        ({"cniVersion": "1.0.0", "cniVersions": ["1.0.0", "9.0.0", "0.4.0"]}, "1.0.0"),
        ({"cniVersion": "0.4.0"}, "0.4.0"),
        ({"cniVersion": "9.0.0"}, "9.0.0"),
    ],
)
def test_the_newest_version_that_both_know(tmp_path: Path, written: dict[str, Any], version: str) -> None:
    file = tmp_path / "10-x.conflist"
    file.write_text(json.dumps({**written, "name": "x", "plugins": [{"type": "recorder"}]}))
    assert NetworkList.load(file).version == version
