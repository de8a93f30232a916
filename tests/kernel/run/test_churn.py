"""Churn on a real API server, with every detector and both variants of iptables, on the real kernel.

`make test-churn SEEDS=100 OPERATIONS=300` runs more seeds, and FIRST=n begins with another; without arguments a few of
them are part of the slow suites.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from kproxy.apiserver import running_apiserver
from kproxy.client import RestClient, load_client_config
from kproxy.netfilter.hooks import Variant
from tests.support.agent.churn_agents import FIRST, OPERATIONS, SEEDS, Proxy, configurations, kernel_proxy, run_churn

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RestClient, list[Proxy]]]:
    directory = tmp_path_factory.mktemp("churn")
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as monkeypatch:
        # Of its own: nobody else's iptables shall delay ours.
        monkeypatch.setenv("XTABLES_LOCKFILE", str(directory / "xtables.lock"))
        server = stack.enter_context(running_apiserver(directory))
        client = RestClient(load_client_config(str(server.kubeconfig)))
        found = [
            stack.enter_context(kernel_proxy(server.kubeconfig, name, config, variant))
            for name, config in configurations().items()
            for variant in Variant
        ]
        yield client, found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_the_kernel_follows_churn(proxies: tuple[RestClient, list[Proxy]], seed: int) -> None:
    print(run_churn(*proxies, seed, OPERATIONS))  # noqa: T201
