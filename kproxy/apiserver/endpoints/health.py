"""`/healthz`, `/livez`, `/readyz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from kproxy.apiserver.errors import StatusError
from kproxy.apiserver.storage.store import Store

_TEXT: Final = "text/plain; charset=utf-8"
_PATHS: Final = ("healthz", "livez", "readyz")
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


class Health:
    """The checks and counters of one server. `watching` tells how many watches there are."""

    def __init__(self, store: Store, watching: Callable[[], int]) -> None:
        self._store = store
        self.requests = 0
        self.faults = 0
        self.dropped = 0
        self.stopping = False
        self._registry = CollectorRegistry()
        self._total = Counter(
            "apiserver_request", "Requests by verb, resource and code.", ("verb", "group", "resource", "code"),
            registry=self._registry,
        )  # fmt: skip
        self._children: dict[tuple[str, str, str, int], Any] = {}
        for name, text, read in (
            ("apiserver_current_watches", "Open watches.", watching),
            ("apiserver_storage_revision", "The newest revision on disk.", lambda: store.revision),
            ("apiserver_storage_compacted_revision", "History before it is gone.", lambda: store.compacted),
            ("apiserver_dropped_watches", "Watches dropped since their client did not read.", lambda: self.dropped),
        ):
            Gauge(name, text, registry=self._registry).set_function(read)
        self._objects = Gauge(
            "apiserver_storage_objects", "Objects by resource.", ("resource",), registry=self._registry
        )

    def count(self, request: Any, code: int) -> None:
        """Counts an answered request."""
        target = request.target
        try:
            verb = request.verb
        except StatusError:
            verb = request.method.lower()  # the query that would tell is malformed
        key = (verb, target.group or "", target.resource if target.group is not None else "", code)
        child = self._children.get(key)
        if child is None:
            if len(self._children) > 2000:
                return  # names come from clients: the number of series stays bounded
            child = self._children[key] = self._total.labels(key[0], key[1], key[2], str(code))
        child.inc()

    def _results(self, base: str) -> dict[str, bool]:
        """The checks of one health path by name."""
        results = {"ping": True, "log": True, "etcd": self._store.failed is None}
        if base == "readyz":
            # Tables are read before the first request is; etcd-readiness is the same store.
            results |= {"etcd-readiness": results["etcd"], "informer-sync": True, "shutdown": not self.stopping}
        return results

    def handle(self, path: str, query: Mapping[str, str]) -> tuple[int, bytes, str] | None:
        """Status, body and media type of a health or metrics path; None for other paths."""
        if path == "/metrics":
            for name, table in self._store.tables.items():
                self._objects.labels(name).set(len(table.entries))
            return 200, generate_latest(self._registry), _METRICS
        base, _, check = path.lstrip("/").partition("/")
        if base not in _PATHS:
            return None
        results = self._results(base)
        if check:
            if check not in results:
                return 404, b"404 page not found\n", _TEXT
            results = {check: results[check]}
        healthy = all(results.values())
        if healthy and (check or "verbose" not in query):
            return 200, b"ok", _TEXT
        # kube-apiserver withholds all reasons; whoever has to free a disk needs this one.
        why = self._store.why_failed or "reason withheld"
        reasons = {"etcd": why, "etcd-readiness": why}
        lines = [
            f"[+]{name} ok" if ok else f"[-]{name} failed: {reasons.get(name, 'reason withheld')}"
            for name, ok in results.items()
        ]
        lines.append(f"{base} check {'passed' if healthy else 'failed'}")
        return 200 if healthy else 500, ("\n".join(lines) + "\n").encode(), _TEXT
