"""The engine against the real kernel, both variants and families."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproxy.linux.iptables.executor import Executor, IptablesExecutor, find_iptables
from kproxy.linux.namespace import Namespace
from kproxy.netfilter.hooks import Variant
from kproxy.services import IPFamily
from tests.support.kernel.namespaces import fresh_namespace
from tests.support.linux.suite import EngineSuite

pytestmark = pytest.mark.root

COMBINATIONS = [(family, variant) for family in IPFamily for variant in Variant]


@pytest.fixture(params=COMBINATIONS, ids=lambda each: f"{each[0].value}-{each[1].value}")
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """iptables in a fresh namespace."""
    family, variant = request.param
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        yield IptablesExecutor(namespace, find_iptables(family, variant))


class TestKernel(EngineSuite):
    """All of the suite."""
