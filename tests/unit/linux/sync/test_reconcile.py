"""The engine against the kernel in memory."""

from __future__ import annotations

import pytest

from kproxy.linux.iptables.executor import Executor
from kproxy.netfilter.hooks import Variant
from kproxy.services import IPFamily
from tests.support.linux.fake import MemoryExecutor
from tests.support.linux.suite import EngineSuite


@pytest.fixture(params=[IPFamily.IPV4, IPFamily.IPV6], ids=lambda family: str(family.value))
def executor(request: pytest.FixtureRequest) -> Executor:
    """A kernel in memory."""
    return MemoryExecutor(request.param, Variant.NFT)


class TestMemory(EngineSuite):
    """All of the suite."""
