"""What questions need, made ready before they come: rules as the model reads them, and their chances.

One thread works for the newest state of the source only, in small steps, and holds no lock for long; who asks meanwhile
waits for at most the step that is under way. Hosts after the first are read as long as all of them together have not
too many rules.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sized
from functools import partial
from typing import Final

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


class Warmer:
    """Makes a model ready, and then the next one."""

    def __init__(self, rest: Callable[[], None]) -> None:
        """
        Args:
            rest: called when a model is ready.
        """
        self._rest = rest
        self._changed = threading.Condition()
        self._model: Model | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="explorer-warm", daemon=True)

    def start(self, model: Model) -> None:
        self._model = model
        self._thread.start()

    def take(self, model: Model) -> None:
        """Leaves what it does, and makes this one ready."""
        with self._changed:
            self._model = model
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)  # a step under way may take longer: it ends with the process

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._model is None and not self._stopped:
                    self._changed.wait()
                model, self._model = self._model, None
            if self._stopped or model is None:
                return
            with contextlib.suppress(KproxyError):  # who asks is told
                for _ in steps(model):
                    if self._stopped or self._model is not None:
                        break
                    time.sleep(_BREATH)
                else:
                    self._rest()


def steps(model: Model) -> Iterator[None]:
    """One thing after another that questions need; each is kept by the model.

    Raises:
        KproxyError: something of the source cannot be read.
    """
    if model.known.cluster is None:
        yield from _of_one_host(model)
        return
    # What the map needs, then the first node, from which it is drawn, then what Services' pages need, then the rest.
    work = Work(float("inf"))
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
