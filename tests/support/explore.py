"""`kproxy explore` with a source of its own, and a browser that looks at its page."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

from tests.support.paths import ROOT

Value = TypeVar("Value")
SECONDS: Final = 40
"""What a page may take on a machine that has other things to do."""


@contextlib.contextmanager
def exploring(
    *arguments: str, directory: str | Path = ROOT, environment: Mapping[str, str] = os.environ
) -> Iterator[str]:
    """The server, until the block ends; its URL, with the slash at its end."""
    command = [sys.executable, "-m", "kproxy", "explore", *arguments]
    variables = {**environment, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables, cwd=directory)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "http://" in line:
                yield line[line.index("http://") :].strip()
                break
        else:
            raise AssertionError(f"kproxy explore ended with {process.wait()}")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)


def place(path: str, **query: str) -> str:
    """The fragment of a view: `#/ask?from=...`."""
    words = "&".join(f"{key.removeprefix('_')}={quote(value, safe='/:@,')}" for key, value in query.items())
    return f"#/{path}{'?' if words else ''}{words}"


class Page:
    """What tests do with the page. Each method waits until it can."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser = browser
        self.url = url

    def open(self, fragment: str) -> None:
        """Loads the page anew at a fragment, and waits until it is drawn and asks nothing more."""
        self.browser.get("about:blank")
        self.browser.get(f"{self.url}{fragment}")
        self.idle()

    def leave(self) -> None:
        """Leaves the page, which may ask a server that is gone for its events, and forgets what was said."""
        self.browser.get("about:blank")
        self.requests()
        self.complaints()

    def idle(self) -> None:
        """Waits until a view is there, and all answers."""
        script = """const busy = [...document.querySelectorAll('.busy')].some((item) => item.textContent);
            return Boolean(document.querySelector('h1')) && !busy"""
        self.until(lambda: self.browser.execute_script(script), "an idle page")

    def until(self, condition: Callable[[], Value], what: str, seconds: float = SECONDS) -> Value:
        """Waits for a true value, and returns it. What is drawn anew meanwhile is looked at again."""
        from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException

        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(NoSuchElementException, StaleElementReferenceException):
                found = condition()
                if found:
                    return found
            if time.monotonic() > end:
                raise AssertionError(f"not seen: {what}; the page shows:\n{self.text('body')[:3000]}")
            time.sleep(0.03)

    def all(self, css: str) -> list[Any]:
        from selenium.webdriver.common.by import By

        return list(self.browser.find_elements(By.CSS_SELECTOR, css))

    def one(self, css: str) -> Any:
        """The first element of a selector, once it is there."""
        return self.until(lambda: (self.all(css) or [None])[0], css)

    def text(self, css: str) -> str:
        return "\n".join(item.text for item in self.all(css))

    def button(self, words: str) -> Any:
        """The button that says so, once it can be pressed."""

        def found() -> Any:
            return next((item for item in self.all("button") if item.text == words and item.is_enabled()), None)

        return self.until(found, f"the button {words!r}")

    def shows(self, css: str, words: str) -> None:
        """Waits for words in what a selector has."""
        self.until(lambda: words in self.text(css), f"{words!r} in {css}")

    def item(self, identifier: str) -> Any:
        """A thing on the map."""
        return self.one(f'.map [data-id="{identifier}"]')

    def step(self) -> None:
        """One step on in an answer, by its button."""
        before = self.text(".position")
        self.one(".controls button.primary").click()
        self.until(lambda: self.text(".position") != before, "another step")

    def press(self, *keys: str) -> None:
        """Presses keys where the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains

        for key in keys:
            ActionChains(self.browser).send_keys(key).perform()

    @property
    def fragment(self) -> str:
        return str(self.browser.execute_script("return decodeURIComponent(location.hash)"))

    def requests(self) -> list[str]:
        """URLs asked for since the last call; of a session with the log "performance"."""
        found = []
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(str(message["params"]["request"]["url"]))
        return found

    def complaints(self) -> list[str]:
        """What the console says, and violations of the content security policy."""
        return [str(entry["message"]) for entry in self.browser.get_log("browser")]

    def size(self, width: int, height: int) -> None:
        """The viewport, in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, name: str) -> None:
        """light or dark."""
        feature = {"features": [{"name": "prefers-color-scheme", "value": name}]}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)


@contextlib.contextmanager
def looking(browser: Any, url: str) -> Iterator[Page]:
    """The page, empty and large; at the end it has no error, and has asked nothing from elsewhere."""
    found = Page(browser, url)
    found.size(1400, 1000)
    found.leave()
    yield found
    complaints = found.complaints()
    assert not complaints, complaints
    elsewhere = [each for each in found.requests() if not each.startswith((url, "data:", "about:", "blob:"))]
    assert not elsewhere, elsewhere


def write_showcase(directory: Path, *, web_0_ready: bool = True) -> Path:
    """The snapshot that tests and pictures are made of; and another one, in which the Pod web-0 is not ready."""
    from tests.support.cluster.showcase import showcase
    from tests.support.cluster.snapshots import write_files

    files = dict(showcase())
    if not web_0_ready:
        slices = json.loads(files["objects/EndpointSlice.json"])
        for item in slices["items"]:
            for endpoint in item["endpoints"]:
                if endpoint["targetRef"]["name"] == "web-0":
                    endpoint["conditions"] = {"ready": False}
        files["objects/EndpointSlice.json"] = json.dumps(slices).encode()
    return write_files(directory, files)


CONFIGURATION: Final = """apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clusterCIDR: 10.244.0.0/16
"""


def damaged_showcase(*, known: bool = True) -> dict[str, bytes]:
    """The showcase with damage on several nodes: worker-1 and worker-2 lack the jump to shop/web's chain, worker-2
    drops in KUBE-FORWARD what it forwards, worker-3 sends a connection of shop/web elsewhere.

    Args:
        known: whether the snapshot has kube-proxy's configuration.
    """
    from tests.support.cluster.showcase import showcase

    files = dict(showcase())
    for node, pattern, change in (
        ("worker-1", r'-A KUBE-SERVICES .*"shop/web:http cluster IP".*\n', ""),
        ("worker-2", r'-A KUBE-SERVICES .*"shop/web:http cluster IP".*\n', ""),
        ("worker-2", r"(?=-A KUBE-FORWARD )", "-A KUBE-FORWARD -j DROP\n"),
        ("worker-3", r"(?<=--to-destination )10\.244\.0\.5:8080", "10.244.2.77:8080"),
    ):
        path = f"nodes/{node}/iptables-save"
        found, times = re.subn(pattern, change, files[path].decode(), count=1)
        assert times == 1, f"{node}: {pattern}"
        files[path] = found.encode()
    if known:
        metadata = {"name": "kube-proxy", "namespace": "kube-system"}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.conf": CONFIGURATION}}
        files["objects/ConfigMap.json"] = json.dumps(
            {"apiVersion": "v1", "kind": "ConfigMapList", "items": [config]}
        ).encode()
    return files


def serious(page: Page, options: str = "{}") -> list[tuple[str, list[str]]]:
    """What axe finds that is serious on the page as it is; its tool is installed by `scripts/web.sh tools`."""
    page.browser.execute_script((ROOT / "web/node_modules/axe-core/axe.min.js").read_text())
    result = page.browser.execute_async_script(f"axe.run({options}).then(arguments[0])")
    return [
        (item["id"], [node["html"][:200] for node in item["nodes"][:3]])
        for item in result["violations"]
        if item["impact"] in ("serious", "critical")
    ]


# Of lines to what is outside, every few pixels; what stands on the map must not hide them.
_CROSSED = """
const hidden = [...document.querySelectorAll('.map .item.room > rect, .map .item.tile > rect, .map .item.dot > rect')];
const found = [];
for (const line of document.querySelectorAll('.map .edges:first-of-type .edge > path')) {
    for (let along = 0; along < line.getTotalLength(); along += 4) {
        const {x, y} = line.getPointAtLength(along);
        const box = hidden.map((item) => [item, item.getBBox()])
            .find(([, at]) => x > at.x && x < at.x + at.width && y > at.y && y < at.y + at.height);
        if (box) { found.push(box[0].parentNode.dataset.id); break; }
    }
}
if (!document.querySelector('.map .edges:first-of-type .edge > path')) found.push('there is no line');
return found;
"""


def crossed(page: Page) -> list[str]:
    """The nodes under which a line from an endpoint outside to its Service is hidden."""
    return list(page.browser.execute_script(_CROSSED))
