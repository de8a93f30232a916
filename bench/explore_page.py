"""Explore's page: from a click or a key to the painted frame that shows what came of it, in Debian's Chromium.

Two clusters: 2000x5 services and endpoints on ten nodes, and 200 nodes with the Pods of the large picture in `docs/`.
The page is loaded anew before each row of interactions, and each interaction is done several times, about other things.
Times are the page's own, have one frame (17 ms) in them, and the server's answer where the page waits for one. The
targets: 100 ms for what is on the page, 300 ms for a question to the model at 2000x5.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.generate import write_cluster
from bench.report import show

TIMES = 7
ON_PAGE = 100
QUESTION = 300
SETTLED = 20
"""Seconds in which the server makes ready what questions need."""

# When `ready` is true in a frame, what it shows has been painted in the next one.
TIMED = """
const done = arguments[arguments.length - 1];
const all = (css) => [...document.querySelectorAll(css)];
const one = (css) => document.querySelector(css);
const with_ = (css, words) => all(css).find((item) => item.textContent.includes(words));
const text = (css) => one(css)?.textContent ?? '';
const idle = () => all('.busy').every((item) => !item.textContent);
const click = () => new MouseEvent('click', {bubbles: true, cancelable: true});
const choose = (id) => one(`[data-id="${id}"]`).dispatchEvent(click());
const press = (key) => document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
const enter = (css, value) => {
    const item = one(css);
    Object.getOwnPropertyDescriptor(Object.getPrototypeOf(item), 'value').set.call(item, value);
    for (const kind of ['input', 'change']) item.dispatchEvent(new Event(kind, {bubbles: true}));
};
const maps = () => performance.getEntriesByType('resource').filter((item) => item.name.includes('api/map')).length;
const was = {place: location.hash, maps: maps(), words: text('.asked-words'), counts: text('.counts')};
const ready = () => READY;
const begin = performance.now();
DONE;
const painted = () => done(performance.now() - begin);
const look = () => (performance.now() - begin > 15000 ? done(null) : requestAnimationFrame(ready() ? painted : look));
requestAnimationFrame(look);
"""


class Step(NamedTuple):
    """One interaction: what is done, and what is true once it shows, both as JavaScript."""

    name: str
    done: str
    ready: str
    target: int = ON_PAGE


class Row(NamedTuple):
    """Interactions one after the other, from a place of the page."""

    start: str
    steps: Sequence[Step]


class Cluster(NamedTuple):
    """What interactions in one cluster are about, by the map's identifiers."""

    services: Sequence[str]
    nodes: Sequence[str]
    asker: str


def rows(cluster: Cluster, number: int) -> Iterator[Row]:
    """All interactions, about other things for each number."""

    def nth(items: Sequence[str], place: int) -> str:
        return items[place % len(items)]

    first, second = nth(cluster.services, number), nth(cluster.services, number + 1)
    (namespace, name), other_name = first.split("/")[1:], second.split("/")[2]
    node, other_node = nth(cluster.nodes, 2 * number), nth(cluster.nodes, 2 * number + 1)
    node_name = node.split("/")[1]
    whose = "label:nth-of-type(3) select"
    yield Row(
        "#/services",
        (
            Step("Services: search", f"enter('input[name=q]', '{name}')", "text('.counts') !== was.counts"),
            Step("open the map", "with_('nav a', 'Map').click()", "one('svg.map [data-id]')"),
            Step("map: choose a Service", f"choose('{first}')", f"text('.panel h2').endsWith('{name}')"),
            Step("map: another Service", f"choose('{second}')", f"text('.panel h2').endsWith('{other_name}')"),
            Step("map: choose a node", f"choose('{node}')", f"text('.panel h2').endsWith('{node_name}')"),
            Step("map: a node as a room", "with_('.panel a', 'Show as a room').click()", "one('svg.map.room')"),
            Step("map: all nodes again", "with_('.filters a', 'Clear').click()", "!one('svg.map.room')"),
            Step("map: search", f"enter('input[name=q]', '{name}')", "one('.found')"),
            Step("map: search no more", "enter('input[name=q]', '')", "!one('.found')"),
            Step("map: a namespace", f"enter('.filters select', '{namespace}')", "with_('.filters a', 'Clear')"),
            Step("map: all namespaces", "enter('.filters select', '')", "!with_('.filters a', 'Clear')"),
            Step("map: larger", "one('[aria-label=Larger]').click()", "!with_('.zoom button', '100%')"),
            Step(
                "map: chances of another node",
                f"enter('.filters {whose}', '{other_node.split('/')[1]}')",
                "maps() > was.maps && idle()",
            ),
            Step("map: as tables", "one('details.tables summary').click()", "one('details.tables table')"),
            Step("map: back", "history.back()", "location.hash !== was.place"),
        ),
    )
    yield Row(
        "#/map",
        (
            Step("open Ask", "with_('nav a', 'Ask').click()", "one('form.question') && one('svg.map')"),
            Step("Ask: whom, on the map", f"choose('{first}')", "one('.item.to')"),
            Step("Ask: a question", f"choose('{cluster.asker}')", "one('.way-item') && one('.player')", QUESTION),
            Step("Ask: a step", "press('n')", "text('.position').startsWith('2/')"),
            Step("Ask: a step again", "press('n')", "text('.position').startsWith('3/')"),
            Step("Ask: the next host", "press('N')", "!text('.position').startsWith('3/')"),
            Step("Ask: to the end", "press('End')", "one('.controls .primary').disabled"),
            Step("Ask: scrubbed", "enter('input[type=range]', '4')", "text('.position').startsWith('5/')"),
            Step("Ask: another way", "all('.way-item').at(-1).click()", "all('.way-item').at(-1).ariaCurrent"),
            Step("Ask: unmatched rules", "with_('.rules a', 'Also').click()", "one('.rule.unmatched')", QUESTION),
            Step(
                "Ask: another question",
                f"enter('input[name=to]', '{second}'); one('form.question').requestSubmit()",
                "text('.asked-words') !== was.words",
                QUESTION,
            ),
        ),
    )
    yield Row(
        "#/whatif",
        (
            Step("What if: choose a Service", f"choose('{first}')", f"text('.panel h3').endsWith('{name}')"),
            Step("What if: choose a node", f"choose('{node}')", f"text('.panel h3').endsWith('{node_name}')"),
        ),
    )
    yield Row(
        "#/map",
        (
            Step("open Services", "with_('nav a', 'Services').click()", "one('.view table')"),
            Step("a Service's page", f"location.hash = '#/service/{first[4:]}'", "one('.matrix')", QUESTION),
            Step("a Service's rules", "one('details.tables summary').click()", "one('details.tables table')"),
            Step("open What if", "with_('nav a', 'What if').click()", "one('textarea') && one('svg.map')"),
            Step("open Compare", "with_('nav a', 'Compare').click()", "one('.tab')"),
            Step("back to the map", "with_('nav a', 'Map').click()", "text('h1') === 'Map' && one('svg.map')"),
        ),
    )


def measure(page: Any, cluster: Cluster) -> dict[str, list[float]]:
    """Milliseconds of each interaction, by its name."""
    found: dict[str, list[float]] = {}
    for number in range(TIMES):
        for row in rows(cluster, number):
            page.open(row.start)
            for step in row.steps:
                script = TIMED.replace("READY", step.ready).replace("DONE", step.done)
                took = page.browser.execute_async_script(script)
                if took is None:
                    raise AssertionError(f"not seen after {step.name!r}; the page is at {page.fragment}")
                found.setdefault(step.name, []).append(took)
                page.idle()
    return found


def main() -> None:
    """Prints the table."""
    from tests.support.browser import running_browser
    from tests.support.cluster.showcase import MANY_APPS, showcase
    from tests.support.cluster.snapshots import write_files
    from tests.support.explore import Page, exploring

    asked = [f"svc/{app.namespace}/{app.name}" for app in MANY_APPS if app.replicas > 1 and len(app.ports) == 1]
    drawn = [f"svc/bench/svc-{number}" for number in range(24)]
    clusters = {
        "2000x5": Cluster(drawn, [f"node/node-{number}" for number in range(10)], "node/node-1"),
        "200 nodes": Cluster(asked, [f"node/worker-{number}" for number in range(1, 30)], "node/worker-3"),
    }
    measured = {}
    with tempfile.TemporaryDirectory() as scratch, running_browser(Path(scratch, "profile"), 1000) as browser:
        browser.set_script_timeout(SETTLED)
        write_cluster(2000, 5, Path(scratch), nodes=10).rename(Path(scratch, "2000x5"))
        write_files(Path(scratch, "many"), dict(showcase(200, MANY_APPS)))
        Path(scratch, "many", "objects").rename(Path(scratch, "200 nodes"))
        for name, cluster in clusters.items():
            with exploring("-f", name, directory=scratch) as url:
                page = Page(browser, url)
                page.size(1400, 900)
                page.open("#/map")
                time.sleep(SETTLED)
                measured[name] = measure(page, cluster)
                browser.get("about:blank")
    table = []
    for step in (step for row in rows(next(iter(clusters.values())), 0) for step in row.steps):
        cells = {"interaction": step.name, "target": str(step.target)}
        for name, found in measured.items():
            times = found[step.name]
            cells |= {f"{name}, median": f"{statistics.median(times):.0f}", f"{name}, worst": f"{max(times):.0f}"}
        table.append(cells)
    show("explore's page: milliseconds from a click or a key to the painted frame", table, 100)
