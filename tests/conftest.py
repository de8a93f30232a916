"""What all tests share: root-only tests, and the rule that CI allows no skip."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator

import hypothesis
import pytest

# As Ctrl-C: what tests have started ends with the run and its workers.
signal.signal(signal.SIGTERM, signal.default_int_handler)

# A busy machine takes its time; how fast something is, is measured in bench/. Everybody tries the same examples, so
# that a suite that was green is green on the next machine; `make test-soak` tries others each time.
hypothesis.settings.register_profile("kproxy", deadline=None, derandomize=not os.environ.get("KPROXY_RANDOM"))
hypothesis.settings.load_profile("kproxy")

CI = bool(os.environ.get("CI"))


def pytest_configure() -> None:
    """What tests start carries the number of the run's first process, which outlives its workers."""
    os.environ.setdefault("KPROXY_TEST_RUN", str(os.getpid()))


def pytest_unconfigure() -> None:
    """Labs end with the run, also where Ctrl-C ended workers before their fixtures."""
    if os.environ.get("KPROXY_TEST_RUN") == str(os.getpid()) and os.geteuid() == 0:
        from tests.support.lab.labtools import end_labs_of

        end_labs_of(str(os.getpid()))


def pytest_sessionstart() -> None:
    """Commands fold to $COLUMNS, which pytest-xdist sets in its workers: what is piped is not folded without it."""
    os.environ.pop("COLUMNS", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root: it makes network namespaces and loads iptables rules")
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def collector_on() -> Iterator[None]:
    """Commands switch the cyclic garbage collector off, because their process ends with them; a test's does not."""
    yield
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip in CI is a failure: it would hide a missing install step."""
    report = yield
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where nothing may skip: {report.longrepr}"
    return report
