"""A browser for a module's tests, and a page of `kproxy explore` for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.browser import running_browser
from tests.support.cluster.snapshots import write_files
from tests.support.explore import Page, damaged_showcase, exploring, looking


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running_browser(tmp_path_factory.mktemp("profile"), 1000, "performance") as session:
        yield session


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """The snapshot that the page is of; modules about another one have their own."""
    return damaged_showcase()


@pytest.fixture(scope="module")
def url(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("explored")
    write_files(directory / "shop", files)
    with exploring("shop", directory=directory) as found:
        yield found


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Page]:
    with looking(browser, url) as found:
        yield found
