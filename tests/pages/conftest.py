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
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of the showcase with its damaged node; modules about something else have their own."""
    directory = tmp_path_factory.mktemp("damaged")
    write_files(directory / "shop", damaged_showcase())
    with exploring("shop", directory=directory) as found:
        yield found


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Page]:
    with looking(browser, url) as found:
        yield found
