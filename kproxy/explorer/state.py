"""What the explorer holds: the source as it was last read, copies of it with edits, and who listens to its changes."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

import msgspec

from kproxy import __version__
from kproxy.cluster.audit.report import AuditReport
from kproxy.cluster.edits import Edit
from kproxy.cluster.evidence.unseen import suspected
from kproxy.cluster.sources import Kind
from kproxy.errors import KproxyError
from kproxy.explorer.answer_cache import MAX_KEPT, AnswerCache
from kproxy.explorer.errors import Refusal, bad_input, cannot
from kproxy.explorer.model.model import Model, Work
from kproxy.explorer.sources.live import LabSource
from kproxy.explorer.sources.rendering import RenderedCluster
from kproxy.explorer.sources.source import AGAINST, AGAINST_BY_OBJECTS, BY_OBJECTS, Source, SourceState
from kproxy.explorer.worker import Worker

MAX_NOTES: Final = 50
MAX_LISTENERS: Final = 32

_JUDGED: Final = re.compile(r"\((\d+) of \d+\)$")
_CHECKING: Final = 86_400.0
"""Seconds that an audit in the background may take: it ends with its state of the source."""

Listener = Callable[["Event"], None]


class Event(msgspec.Struct, frozen=True):
    """Something that the page is told: a new revision, with what changed; or that the source is away, and why."""

    kind: str
    data: dict[str, object]


class Abilities(msgspec.Struct, frozen=True):
    """What can be asked of the source."""

    ask: bool
    services: bool
    whatif: bool
    compare: bool
    audit: bool
    events: bool
    lab: bool
    counters: bool


class Checked(msgspec.Struct, frozen=True):
    """How far an audit is. `known`: whether it has been made; `done` of so many nodes; `failed`: why it ended."""

    revision: int
    known: bool
    done: int
    of: int
    failed: str = ""


class SeenSource(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of each source. `away`: why it cannot be read now; what is shown is of `revision`."""

    kind: str
    label: str
    revision: int
    created: str
    modes: tuple[str, ...]
    families: tuple[str, ...]
    nodes: int
    pods: int
    services: int
    warnings: tuple[str, ...]
    missing: tuple[str, ...]
    away: str


class SourceView(SeenSource, frozen=True, kw_only=True):
    """The source, as docs/explore.md has it; `against`: the second one. `unseen`: what one host's rules point to and do
    not show; of nodes the audit says it."""

    live: bool
    writable: bool
    namespaces: tuple[str, ...]
    namespace: str
    notes: tuple[str, ...]
    unseen: tuple[str, ...]
    can: Abilities
    compares: tuple[str, ...]
    against: SeenSource | None
    version: str


class Explorer:
    """A source and what is known of it, and maybe a second one to compare it with. Thread-safe.

    Attributes:
        source: never written to, unless it is a lab.
        against: the second source, which is read once; None if there is none.
        model, second: what is known of each: of the first as it was last read.
        worker: does what takes long.
    """

    def __init__(self, source: Source, namespace: str = "", against: Source | None = None) -> None:
        """
        Args:
            namespace: that the page shows first; "" for all.

        Raises:
            KproxyError: a source cannot be read.
        """
        self.source = source
        self.against = against
        self.namespace = namespace
        self.worker = Worker()
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._away = ""
        self._ready: Callable[[], None] | None = None
        self._listeners: list[Listener] = []
        self._copies: AnswerCache[Model] = AnswerCache(MAX_KEPT)
        self._checking: tuple[Model | None, Work, Future[AuditReport] | None] = (None, Work(0), None)
        self.model = Model(source.read(), 1)
        self.second = None if against is None else Model(against.read(), 1)

    def start(self, ready: Callable[[], None] = lambda: None) -> None:
        """Follows the source, if it changes by itself, and makes ready what questions need.

        Args:
            ready: called when all is ready for a revision.
        """
        self._ready = ready
        self.worker.prepare(self.model, ready)
        self.source.start(self.changed, self.went_away)

    def check(self) -> Checked:
        """How far the audit of the source as it is now is; begins it if nobody has. Raises Refusal: there is none."""
        model = self.model
        if model.known.cluster is None or model.known.rendered:
            raise cannot("there is no audit of this source: it needs a snapshot with rules, or a lab")
        with self._lock:
            if model.audited is None and self._checking[0] is not model:
                work = Work(_CHECKING)
                self._checking = (model, work, self.worker.submit(partial(model.audit, work)))
            found = self._checking[2]
        error = found.exception() if found is not None and found.done() and model.audited is None else None
        number = _JUDGED.search(model.judging)
        done = len(model.nodes) if model.audited is not None else int(number[1]) - 1 if number is not None else 0
        failed = "" if error is None else " ".join(str(error).splitlines())
        return Checked(model.revision, model.audited is not None, done, len(model.nodes), failed)

    def stop(self) -> None:
        self.source.stop()
        self._checking[1].cancel()
        self.worker.stop()

    # --- the source changes ---

    def changed(self, what: Sequence[str]) -> None:
        """Reads the source again and tells everybody."""
        with self._reading:
            try:
                known = self.source.read()
            except KproxyError as error:
                self.went_away(str(error))
                return
            with self._lock:
                self._away = ""
                self.model = Model(known, self.model.revision + 1)
                self._copies = AnswerCache(MAX_KEPT)
                self._checking[1].cancel()
                revision = self.model.revision
                if self._ready is not None:
                    self.worker.prepare(self.model, self._ready)
        self._tell(Event("revision", {"revision": revision, "changed": list(what)[:MAX_NOTES]}))

    def went_away(self, why: str) -> None:
        """The source cannot be reached, or can again (""): what is known of it stays."""
        with self._lock:
            if self._away == why:
                return
            self._away = why
        self._tell(Event("away", {"message": why}))

    @property
    def away(self) -> str:
        return self._away or self.source.away()

    def _tell(self, event: Event) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for each in listeners:
            each(event)

    def listen(self, listener: Listener) -> Event:
        """Calls back with each event from now on, from any thread; the present revision as the first one.

        Raises:
            Refusal: too many listen.
        """
        with self._lock:
            if len(self._listeners) >= MAX_LISTENERS:
                raise Refusal(503, "too many pages are open")
            self._listeners.append(listener)
            return Event("revision", {"revision": self.model.revision, "changed": []})

    def forget(self, listener: Listener) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    # --- what is asked ---

    def state(self, source: str = "", edits: Sequence[Edit] = ()) -> Model:
        """What a question asks: a source as it is, or a copy with edits.

        Args:
            source: "" for the page's, `against` for the second one, `objects` and `against-objects` for what their
                objects ask for.

        Raises:
            Refusal: there is no such source, or an edit cannot be made.
        """
        model = self._named(source)
        if edits or (source in (BY_OBJECTS, AGAINST_BY_OBJECTS) and not model.known.rendered):
            return self._copy(model, edits)
        return model

    def _named(self, source: str) -> Model:
        if source in ("", BY_OBJECTS):
            return self.model
        if source not in (AGAINST, AGAINST_BY_OBJECTS):
            raise bad_input(f'source: "", {AGAINST}, {BY_OBJECTS} or {AGAINST_BY_OBJECTS} expected', "source")
        if self.second is None:
            raise cannot("there is no second source: kproxy explore ... --against PATH")
        return self.second

    def copy_with(self, edits: Sequence[Edit]) -> Model:
        """A copy with edits, be it none. Raises Refusal."""
        return self._copy(self.model, edits)

    def _copy(self, model: Model, edits: Sequence[Edit]) -> Model:
        key = (model is self.second, model.revision, msgspec.json.encode(list(edits)))
        # One of a source that has been read again meanwhile is not kept.
        return self._copies.get(key, lambda: model.copy(edits), lambda _copy: model in (self.model, self.second))

    def view(self) -> SourceView:
        """What the page says of the source."""
        model, kind, second = self.model, self.source.kind, self.second
        known, cluster = model.known, model.known.cluster
        has_cluster = cluster is not None
        if cluster is not None:
            spaces = {each.metadata.namespace for each in cluster.manifests.services}
            spaces |= {name.partition("/")[0] for name in cluster.pods}
        else:
            spaces = {door.service.partition("/")[0] for door in model.told}
        against = None
        if self.against is not None and second is not None:
            against = SeenSource(**_seen(self.against, second), away=self.against.away())
        return SourceView(
            **_seen(self.source, model),
            live=self.source.live,
            writable=kind is Kind.LAB,
            namespaces=tuple(sorted(spaces)),
            namespace=self.namespace,
            notes=tuple(model.network.notes)[:MAX_NOTES] if has_cluster else (),
            away=self.away,
            unseen=_unseen(known),
            can=Abilities(
                ask=True,
                services=has_cluster,
                whatif=has_cluster,
                compare=has_cluster or second is not None,
                audit=has_cluster and not known.rendered,
                events=self.source.live,
                lab=kind is Kind.LAB,
                counters=kind is Kind.LAB,
            ),
            compares=_compares(has_cluster, known.rendered, second is not None),
            against=against,
            version=f"kproxy {__version__}",
        )

    def lab(self) -> LabSource:
        """The source, if it is a lab. Raises Refusal."""
        if not isinstance(self.source, LabSource):
            raise cannot("only of a lab: its connections, faults and counters (kproxy explore lab:NAME)")
        return self.source


def _seen(source: Source, model: Model) -> dict[str, Any]:
    """What is said of each source, by the names of `SeenSource`."""
    known, cluster = model.known, model.known.cluster
    return {
        "kind": source.kind,
        "label": source.label,
        "revision": model.revision,
        "created": "" if cluster is None else cluster.info.created,
        "modes": _modes(model),
        "families": tuple(each.value for each in model.families),
        "nodes": len(model.nodes),
        "pods": 0 if cluster is None else len(cluster.pods),
        # Of a dump those that its rules tell of.
        "services": len({door.service for door in model.told} if cluster is None else cluster.manifests.services),
        "warnings": known.warnings[:MAX_NOTES],
        "missing": () if cluster is None else tuple(map(str, cluster.missing))[:MAX_NOTES],
    }


def _unseen(known: SourceState) -> tuple[str, ...]:
    """What rules or manifests point to and do not show, each once for both families."""
    unseen = () if known.rules is None else known.rules.unseen
    if isinstance(known.cluster, RenderedCluster):
        unseen = known.cluster.rendering.lacking.unseen("")
    found: dict[str, None] = {}
    for each in suspected(unseen):
        found[f"{each.what}: {each.why}"] = None
    return tuple(found)


def _compares(has_cluster: bool, rendered: bool, has_second: bool) -> tuple[str, ...]:
    """The kinds of comparisons that the sources allow."""
    if not has_cluster:
        return ("diff",) if has_second else ()
    return ("diff", "migrate") if rendered else ("diff", "drift", "migrate")


def _modes(model: Model) -> tuple[str, ...]:
    if model.known.cluster is None:
        return model.modes_told
    modes: dict[str, None] = {}
    for name in model.nodes:
        try:
            modes[model.rendering.mode_of(model.cluster.hosts[name])] = None
        except KproxyError:
            continue
    return tuple(modes)
