"""A real browser for the tests that look at kproxy's pages."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@contextlib.contextmanager
def running_browser(profile: Path, height: int, *logs: str) -> Iterator[Any]:
    """Debian's Chromium, 1200 pixels wide, as a selenium session.

    Args:
        profile: an empty directory of its own.
        height: of the window, in pixels.
        logs: what is kept beside what the page says: "performance".
    """
    from selenium import webdriver

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs a browser: Debian's chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--window-size=1200,{height}", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", dict.fromkeys(("browser", *logs), "ALL"))
    session = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield session
    finally:
        session.quit()


def check_light_dark_and_narrow(browser: Any, shots: Path, narrow: int, least: int) -> None:
    """The page that is open has two colour schemes, and does not scroll sideways in a narrow window.

    Args:
        shots: where pictures of both go.
        narrow: width of the window, in pixels.
        least: bytes of a picture that shows something.
    """
    colours = []
    for scheme in ("light", "dark"):
        feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
        colours.append(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
        png = shots / f"{scheme}.png"
        assert browser.save_screenshot(str(png))
        assert png.stat().st_size > least
    assert colours[0] != colours[1]
    browser.set_window_size(narrow, 900)
    width = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert width[0] <= width[1], "the page itself does not scroll sideways; map and tables do"
