"""Where things stand on the page, measured in a browser: what fits the window, what lies over what."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.browser import running_browser
from tests.support.cluster.snapshots import write_files
from tests.support.explore import Page, damaged_showcase, exploring, looking, place

pytestmark = pytest.mark.slow

UNREADY = json.dumps([{"do": "endpoint", "pod": "shop/web-0", "set": {"ready": False}}])
SWITCHED = json.dumps([{"do": "mode", "mode": "nftables"}])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    directory = tmp_path_factory.mktemp("damaged")
    write_files(directory / "shop", damaged_showcase())
    with (
        exploring("shop", directory=directory) as url,
        running_browser(tmp_path_factory.mktemp("profile"), 1000, "performance") as session,
        looking(session, url) as found,
    ):
        yield found


TOP_AND_HEIGHT = """return [document.querySelector('.map-frame').getBoundingClientRect().top,
    document.documentElement.scrollHeight]"""
FINDINGS = (
    place("compare", kind="drift"),
    place("compare", kind="migrate"),
    place("audit"),
    place("whatif", edits=UNREADY),
    place("whatif", edits=SWITCHED),
)


@pytest.mark.parametrize("view", FINDINGS)
def test_the_map_of_findings_is_not_pushed_down_and_the_page_fits_the_window(page: Page, view: str) -> None:
    page.size(1400, 900)
    page.open(view)
    page.until(lambda: page.all(".finding.chosen, .finding.open-card"), "a finding that is open")
    page.until(lambda: page.all(".map .end-label, .map .share"), "what becomes of its packet")
    top, height = page.browser.execute_script(TOP_AND_HEIGHT)
    assert top <= 230
    assert height <= 900


def test_what_can_be_compared_is_one_row_of_tabs(page: Page) -> None:
    page.size(1400, 900)
    page.open(place("compare"))
    tabs = page.all("nav.tabs a")
    assert len({each.location["y"] for each in tabs}) == 1
    assert [each.get_attribute("aria-current") for each in tabs] == ["true", None]
    page.shows(".about", "kproxy drift")
    tabs[1].click()
    page.shows(".about", "kproxy migrate")
    page.until(lambda: page.text(".tab[aria-current=true]") == "Today, and in nftables mode", "the other tab")
