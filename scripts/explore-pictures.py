"""Makes the pictures of docs/explore.md: `kproxy explore` on fixed sources, in Debian's Chromium.

The one of Live is of a lab with fixed names and addresses, for which root is needed; times and ports in it are of the
moment.

usage: python scripts/explore-pictures.py [DIRECTORY]      (docs/pictures by default)
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import running_browser  # noqa: E402
from tests.support.cluster.showcase import MANY_APPS, showcase  # noqa: E402
from tests.support.cluster.snapshots import write_files  # noqa: E402
from tests.support.explore import Page, damaged_showcase, exploring, place, write_showcase  # noqa: E402
from tests.support.lab.labtools import lab_up, service  # noqa: E402

TERMINATING = [{"do": "endpoint", "pod": "shop/web-0", "set": {"ready": False, "serving": True, "terminating": True}}]
ASK = {"_from": "pod/shop/cart-0", "to": "svc/shop/web", "way": "1"}
PICTURES = {
    "map": (place("map", sel="svc/shop/web"), 1240, 760, "light"),
    "ask": (place("ask", **ASK, step="6"), 1240, 860, "light"),
    "ask-tunnel-dark": (place("ask", **ASK, step="8"), 1240, 760, "dark"),
    "service": (place("service/shop/web"), 1240, 1080, "light"),
    "what-if": (place("whatif", sel="svc/shop/web", edits=json.dumps(TERMINATING)), 1240, 960, "light"),
    "phone": (place("ask", **ASK, step="6"), 390, 1560, "dark"),
}
DAMAGED = {
    "services": (place("services"), 1400, 660, "light"),
    "drift": (place("compare", kind="drift"), 1400, 900, "light"),
    "migrate": (place("compare", kind="migrate"), 1400, 1240, "light"),
    "migrate-packet": (place("compare", kind="migrate", finding="3"), 1400, 900, "light"),
    "audit": (place("audit", finding="3"), 1400, 800, "light"),
}
LARGE = {"200-nodes": (place("map", sel="svc/shop/catalog"), 1240, 800, "light")}
SETTLED = 0.6
"""Seconds for what moves on the page to have arrived: only for the pictures."""


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, running_browser(Path(scratch, "profile"), 1000) as browser:
        write_showcase(Path(scratch, "shop"))
        write_showcase(Path(scratch, "shop-after"), web_0_ready=False)
        write_files(Path(scratch, "production"), damaged_showcase())
        write_files(Path(scratch, "large"), dict(showcase(200, MANY_APPS)))
        both = {"compare": (place("compare"), 1240, 1040, "light")}
        for arguments, pictures in (
            (("shop",), PICTURES),
            (("-f", "shop/objects", "--against", "shop-after/objects"), both),
            (("production",), DAMAGED),
            (("-f", "large/objects"), LARGE),
        ):
            with exploring(*arguments, directory=scratch) as url:
                take(browser, url, pictures, target)
        if os.geteuid() == 0:
            take_live(browser, Path(scratch, "labs"), target)
        else:
            print("no picture of Live: a lab needs root", file=sys.stderr)


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


def take_live(browser: Any, labs: Path, target: Path) -> None:
    """Live: a Pod that has just come, one real connection beside the model, and the rules that it met."""
    with lab_up(labs, "--nodes", "2", name="pictures") as lab:
        lab.apply(pod("cart-0", "node-1"), pod("web-0", "node-2"), service("web", "web", clusterIP="10.96.0.10"))
        lab.settled(lambda found: any(item.ready for each in found.services for item in each.ports[0].endpoints))
        with exploring("--lab", lab.name, environment=lab.environment) as url:
            page = Page(browser, url)
            page.size(1240, 1180)
            page.scheme("light")
            page.open(place("live", sel="node/node-1", _from="pod/default/cart-0", to="svc/default/web"))
            lab.apply(pod("db-0", "node-1"))
            page.shows('[data-test="log"]', "Pod default/db-0")
            page.one('[data-test="follow"] button.primary').click()
            page.shows(".sent .outcome-line", "Answered by")
            page.shows(".heat", "packet")
            page.browser.execute_script("scrollTo(0, 0)")
            time.sleep(SETTLED)
            browser.save_screenshot(str(target / "explore-live.png"))
            print(target / "explore-live.png")


def pod(name: str, node: str) -> dict[str, Any]:
    """A Pod with an echo server, of the app that its name begins with."""
    metadata = {"name": name, "namespace": "default", "labels": {"app": name.partition("-")[0]}}
    container = {"name": "echo", "image": "echo", "ports": [{"containerPort": 8080}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [container]},
    }


if __name__ == "__main__":
    main()
