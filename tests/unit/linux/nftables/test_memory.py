"""The kernel in memory does what the real one does: see `tests/kernel/nftables/test_executor.py`."""

from __future__ import annotations

import pytest

from kproxy.linux.nftables.executor import NftExecutor
from kproxy.services import IPFamily
from tests.support.linux.nft_memory import MemoryNft
from tests.support.linux.table_suite import TableExecutorSuite


@pytest.fixture(params=list(IPFamily), ids=lambda family: str(family.value))
def executor(request: pytest.FixtureRequest) -> NftExecutor:
    """Tables in memory."""
    return MemoryNft(request.param)


class TestMemory(TableExecutorSuite):
    """All of the suite."""
