"""Makes the pictures of docs/explore.md: `kproxy explore` on a fixed snapshot, in Debian's Chromium.

usage: python scripts/explore-pictures.py [DIRECTORY]      (docs/pictures by default)
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import running_browser  # noqa: E402
from tests.support.explore import Page, exploring, place, write_showcase  # noqa: E402

TERMINATING = [{"do": "endpoint", "pod": "shop/web-0", "set": {"ready": False, "serving": True, "terminating": True}}]
ASK = {"_from": "pod/shop/cart-0", "to": "svc/shop/web", "way": "1"}
PICTURES = {
    "map": (place("map", sel="svc/shop/web"), 1240, 760, "light"),
    "ask": (place("ask", **ASK, step="6"), 1240, 860, "light"),
    "ask-tunnel-dark": (place("ask", **ASK, step="8"), 1240, 760, "dark"),
    "service": (place("service/shop/web"), 1240, 1040, "light"),
    "what-if": (place("whatif", sel="svc/shop/web", edits=json.dumps(TERMINATING)), 1240, 960, "light"),
    "audit": (place("audit"), 1240, 600, "light"),
    "phone": (place("ask", **ASK, step="6"), 390, 1560, "dark"),
}
SETTLED = 0.6
"""Seconds for what moves on the page to have arrived: only for the pictures."""


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, running_browser(Path(scratch, "profile"), 1000) as browser:
        write_showcase(Path(scratch, "shop"))
        write_showcase(Path(scratch, "shop-after"), web_0_ready=False)
        both = {"compare": (place("compare"), 1240, 1040, "light")}
        for arguments, pictures in (
            (("shop",), PICTURES),
            (("-f", "shop/objects", "--against", "shop-after/objects"), both),
        ):
            with exploring(*arguments, directory=scratch) as url:
                take(browser, url, pictures, target)


def take(browser: Any, url: str, pictures: dict[str, tuple[str, int, int, str]], target: Path) -> None:
    """Pictures of one source: fragment, width, height and colours by name."""
    page = Page(browser, url)
    for name, (fragment, width, height, scheme) in pictures.items():
        page.size(width, height)
        page.scheme(scheme)
        page.open(fragment)
        time.sleep(SETTLED)
        browser.save_screenshot(str(target / f"explore-{name}.png"))
        print(target / f"explore-{name}.png")


if __name__ == "__main__":
    main()
