"""One explorer of a small snapshot for all tests that only ask it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.explorer.state import Explorer
from tests.support.cluster.snapshots import vxlan_cluster, write_files
from tests.support.explorer.client import Page, serving
from tests.support.explorer.sources import source_of


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of two nodes that meet by VXLAN, with the Service shop/web: one endpoint on each."""
    return write_files(tmp_path_factory.mktemp("snapshot") / "shop", vxlan_cluster())


@pytest.fixture(scope="module")
def page(snapshot: Path) -> Iterator[Page]:
    with serving(Explorer(source_of(snapshot))) as found:
        yield found
