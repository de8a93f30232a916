"""One thread for what takes long, and between such, for what questions will need.

Comparisons and audits of a large cluster take many seconds. They are done one after the other, so that a question
beside them shares the interpreter with one at most; their time limit, and that nobody waits any more, end them
(`Work`). While nothing of the kind is asked for, the newest state of the source is made ready in small steps, which
hold no lock for long: rules as the model reads them, and their chances. Hosts after the first are read as long as all
of them together have not too many rules.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sized
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeVar

from kproxy.errors import KproxyError
from kproxy.explorer.answers.edges import asked_rules, told_doors
from kproxy.explorer.answers.map import map_answer
from kproxy.explorer.model.model import Model, Work

MAX_RULES: Final = 200_000
"""Rules of hosts that are made ready; so many take some hundred MB."""
MAX_PORTS: Final = 20_000
"""Ports of Services whose rules are asked: some milliseconds each."""
_SLICE: Final = 0.02
_BREATH: Final = 0.01
"""Seconds between two steps, for those who ask."""

Made = TypeVar("Made")


class Worker:
    """The thread, which begins when it has something to do. What is under way ends with the process."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="explorer-worker", daemon=True)
        self._lock = threading.Lock()
        self._stopped = False
        self._preparing = Work(0.0)

    def submit(self, work: Callable[[], Made]) -> Future[Made]:
        """Does something after what was asked for before."""
        future: Future[Made] = Future()
        self._waiting.put(partial(_do, future, work))
        with self._lock:
            if self._thread.ident is None:
                self._thread.start()
        return future

    def prepare(self, model: Model, ready: Callable[[], None]) -> None:
        """Makes a state ready between the rest, and leaves the one before; `ready` is called when it is."""
        self._preparing.cancel()
        self._preparing = work = Work(float("inf"))
        self.submit(partial(self._step, steps(model, work), work, ready))

    def stop(self) -> None:
        self._preparing.cancel()
        self._stopped = True
        self._waiting.put(lambda: None)

    def _run(self) -> None:
        while not self._stopped:
            self._waiting.get()()

    def _step(self, mine: Iterator[None], work: Work, ready: Callable[[], None]) -> None:
        try:
            work.check()
            next(mine)
        except StopIteration:
            ready()
        except KproxyError:
            pass  # who asks is told
        else:
            time.sleep(_BREATH)
            self.submit(partial(self._step, mine, work, ready))  # who came meanwhile goes first


def _do(future: Future[Made], work: Callable[[], Made]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)


def steps(model: Model, work: Work) -> Iterator[None]:
    """One thing after another that questions need; each is kept by the model.

    Raises:
        KproxyError: something of the source cannot be read, or nobody waits any more.
    """
    if model.known.cluster is None:
        yield from _of_one_host(model)
        return
    # What the map needs, then the first node, from which it is drawn, then what Services' pages need, then the rest.
    first = model.node("") if model.nodes else None
    map_answer(model, "", work)
    yield
    if first is not None:
        _ready(model, first.name)
        yield
        for family in model.families:
            ports = model.rendering.facts(first, family).service_ports[:MAX_PORTS]
            yield from _until_all(partial(asked_rules, model, first, family, ports, _SLICE, work))
        for family in model.families:
            model.rendering.explained(first, family)
            yield
    rules: dict[int, int] = {}
    for name in model.cluster.hosts:
        if sum(rules.values()) > MAX_RULES:
            return
        with contextlib.suppress(KproxyError):
            rules |= _ready(model, name)
        yield


def _of_one_host(model: Model) -> Iterator[None]:
    for family in model.families:
        doors = told_doors(model, family)[:MAX_PORTS]
        for client in model.clients(family):
            yield from _until_all(partial(model.rule_chances.of, client.id, family, doors, _SLICE))


def _until_all(ask: Callable[[], Sized | None]) -> Iterator[None]:
    """Asks again until no more is known than before."""
    known = -1
    while (found := ask()) is not None and len(found) != known:
        known = len(found)
        yield


def _ready(model: Model, name: str) -> dict[int, int]:
    """Makes a host's rules ready; says how many they are. Hosts may share them: each is told by its identity."""
    for family in model.families:
        model.cluster.hosts[name].rules(family)  # what takes long, and without the lock
    with model.lock:
        host = model.network.host(name)
    return {id(index): sum(each.ruleset.rule_count for each in index.iptables) for index in host.indexes.values()}
