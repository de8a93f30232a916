"""Churn on a real API server, with every detector and variant, on kernels in memory: many seeds in little time.

tests/kernel/run/test_churn.py has the real kernel, and how many seeds and operations to run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from kproxy.apiserver import running_apiserver
from kproxy.client import RestClient, load_client_config
from kproxy.netfilter.hooks import Variant
from tests.support.agent.churn_agents import FIRST, OPERATIONS, SEEDS, Proxy, configurations, memory_proxy, run_churn


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RestClient, list[Proxy]]]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_apiserver(tmp_path_factory.mktemp("churn")))
        client = RestClient(load_client_config(str(server.kubeconfig)))
        found = [
            stack.enter_context(memory_proxy(client, name, config, variant))
            for name, config in configurations().items()
            for variant in Variant
        ]
        yield client, found


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_rules_follow_churn(proxies: tuple[RestClient, list[Proxy]], seed: int) -> None:
    print(run_churn(*proxies, seed, OPERATIONS))  # noqa: T201
