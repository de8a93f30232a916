"""The preflight of nftables mode: versions, and what is tried."""

from __future__ import annotations

import pytest

from kproxy.linux.errors import FailedLine, FeatureMissingError, RestoreFailedError, ToolFailedError
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.executor import Nft, NftExecutor, parse_version
from kproxy.linux.nftables.preflight import SKIP_KERNEL_CHECK, Preflight, run_preflight, version_problems
from kproxy.services import IPFamily


def test_versions() -> None:
    assert parse_version("nftables v1.0.6 (Lester Gooch #5)\n") == (1, 0, 6)
    assert parse_version("nftables v0.9\n") == (0, 9)
    with pytest.raises(ToolFailedError, match="tells no version"):
        parse_version("what?")


@pytest.mark.parametrize(
    ("nft", "kernel", "environment", "expected"),
    [
        ((1, 0, 1), "5.13.0-generic", {}, []),
        ((1, 1), "6.18.44", {}, []),
        ((1, 0, 0), "6.1.0-18-amd64", {}, ["nft 1.0.0 is too old: 1.0.1 or later"]),
        ((0, 9, 8), "5.10.0-28-amd64", {}, ["nft 0.9.8 is too old", "Linux 5.10.0-28-amd64 is too old: 5.13 or later"]),
        ((1, 0, 6), "4.19.0", {SKIP_KERNEL_CHECK: "1"}, []),
        ((1, 0, 6), "4.19.0", {SKIP_KERNEL_CHECK: ""}, ["Linux 4.19.0 is too old"]),
    ],
)
def test_what_is_too_old(nft: tuple[int, ...], kernel: str, environment: dict[str, str], expected: list[str]) -> None:
    problems = version_problems(nft, kernel, environment)
    assert len(problems) == len(expected)
    assert all(problem.startswith(start) for problem, start in zip(problems, expected, strict=True))


class Refusing(NftExecutor):
    """Refuses scripts that hold certain words, as a kernel without them does."""

    def __init__(self, namespace: Namespace, *words: str) -> None:
        super().__init__(namespace, Nft("/usr/sbin/nft", (1, 0, 6)), IPFamily.IPV6)
        self._words = words
        self.scripts: list[str] = []

    def check(self, script: str) -> None:
        self.scripts.append(script)
        for number, line in enumerate(script.splitlines(), 1):
            if any(word in line for word in self._words):
                reason = "Could not process rule: No such file or directory"
                raise RestoreFailedError("nft -f", reason, [FailedLine(number, line)], self.table, 0)


def test_what_is_missing_is_named_with_what_it_is_needed_for() -> None:
    with Namespace.current() as here:
        found = run_preflight(Refusing(here, "fib", "masquerade"), "6.1.0", {})
    with pytest.raises(FeatureMissingError) as raised:
        found.check()
    told = str(raised.value).splitlines()
    assert told[0] == "kube-proxy's nftables mode does not work on this host:"
    assert [line.split(":")[0].strip() for line in told[1:]] == [
        "masquerade, marks, needed for source NAT",
        "fib, needed for node ports, and traffic of the node",
    ]


def test_comments_can_be_done_without() -> None:
    with Namespace.current() as here:
        executor = Refusing(here, "comment")
        assert run_preflight(executor, "6.1.0", {}) == Preflight((), object_comments=False)
        assert run_preflight(Refusing(here), "6.1.0", {}) == Preflight()
        assert all("ip6 kproxy-preflight" in script and "ip daddr" not in script for script in executor.scripts)
