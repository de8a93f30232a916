"""What no cluster is without comes back when it is deleted or changed.

The `kubernetes` Service with its EndpointSlice and Endpoints, its ServiceCIDR and the system's namespaces, which
kube-apiserver looks after every ten seconds (pkg/controlplane/controller/kubernetesservice, systemnamespaces); and in
every namespace the ServiceAccount `default` and, if it is wanted, the ConfigMap `kube-root-ca.crt`, which
kube-controller-manager follows (pkg/controller/serviceaccount, pkg/controller/certificates/rootcacertpublisher). Here
all of it follows the tables' events, and is looked at every ten seconds besides.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from kproxy.apiserver.controllers import bootstrap
from kproxy.apiserver.errors import ApiError, Json
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import Options, Written
from kproxy.apiserver.storage.store import Event

log = logging.getLogger(__name__)

ROOT_CA: Final = "kube-root-ca.crt"
_EVERY: Final = 10.0
_MANAGER: Final = Options(field_manager="kproxy-apiserver")
_CA_NOTE: Final = {
    "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using "
    "internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across "
    "distributions of Kubernetes clusters."
}


class Essentials:
    """Keeps the essentials of one server. `cidrs`: ranges of cluster IPs, `port` the server's own, `address` where
    others reach it (None: nowhere), `root_ca` the CA certificate in PEM to publish in every namespace ("": nowhere,
    as with a kube-apiserver that has no controller manager beside it)."""

    def __init__(
        self, registry: Registry, catalog: Catalog, *, cidrs: tuple[str, ...], port: int, address: str | None,
        root_ca: str = "",
    ) -> None:  # fmt: skip
        self._registry = registry
        self._catalog = catalog
        self._cidrs, self._port, self._address = cidrs, port, address
        self._root_ca = root_ca
        self._wake = asyncio.Event()
        self._dirty: set[str] = set()
        """Namespaces to look at."""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Writes what is not there, and follows the tables from then on.

        Raises:
            ApiError: it cannot be written.
        """
        await bootstrap.write_roles(self._registry, self._catalog)
        await self._cluster()
        self._dirty |= set(self._namespaces.entries)
        for group, plural, concerns in (
            ("", "namespaces", self._any_namespace),
            ("", "serviceaccounts", self._named("default")),
            ("", "configmaps", self._named(ROOT_CA)),
            ("", "services", self._published),
            ("", "endpoints", self._published),
            ("discovery.k8s.io", "endpointslices", self._published),
            ("networking.k8s.io", "servicecidrs", self._published),
        ):  # fmt: skip
            self._registry.table(self._catalog.builtin(group, plural)).listeners.append(concerns)
        self._wake.set()
        self._task = asyncio.ensure_future(self._work())

    async def stop(self) -> None:
        """Stops looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _namespaces(self) -> Any:
        return self._registry.table(self._catalog.builtin("", "namespaces"))

    # --- what has changed ---

    def _any_namespace(self, event: Event) -> None:
        if event.deleted:
            self._wake.set()
        elif event.previous is None:
            self._dirty.add(event.entry.name)
            self._wake.set()

    def _named(self, name: str) -> Callable[[Event], None]:
        def listen(event: Event) -> None:
            if event.previous is not None and event.entry.name == name:
                self._dirty.add(event.entry.namespace)
                self._wake.set()

        return listen

    def _published(self, event: Event) -> None:
        if event.entry.name == "kubernetes" and event.entry.namespace in ("", "default"):
            self._wake.set()

    # --- what is done about it ---

    async def _work(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _EVERY)
            self._wake.clear()
            namespaces, self._dirty = self._dirty, set()
            try:
                await self._cluster()
                await self._in_namespaces(namespaces)
            except ApiError as error:
                log.warning("what every cluster has cannot be written: %s", error)
            except Exception:
                log.exception("what every cluster has")

    async def _cluster(self) -> None:
        await bootstrap.write_cluster(self._registry, self._catalog, self._cidrs, self._port)
        if self._address is not None:
            await bootstrap.publish_address(self._registry, self._catalog, self._address, self._port)

    async def _in_namespaces(self, namespaces: Iterable[str]) -> None:
        written: list[Written] = []
        data = {"ca.crt": self._root_ca}
        note: Json = {"metadata": {"name": ROOT_CA, "annotations": _CA_NOTE}, "data": data}
        accounts, maps = self._catalog.builtin("", "serviceaccounts"), self._catalog.builtin("", "configmaps")
        for name in sorted(namespaces):
            # The namespace may be gone, or on its way out: then nothing can be made in it.
            with contextlib.suppress(ApiError):
                if self._registry.table(accounts).head(f"{name}/default") is None:
                    account = {"metadata": {"name": "default", "namespace": name}}
                    written.append(self._registry.create(accounts, name, account, _MANAGER))
                if not self._root_ca:
                    continue
                held = self._registry.table(maps).head(f"{name}/{ROOT_CA}")
                if held is None:
                    written.append(self._registry.create(maps, name, note, _MANAGER))
                elif held.value.get("data") != data:
                    written.append(self._registry.update(maps, name, ROOT_CA, note, _MANAGER))
        await asyncio.gather(*(each.done for each in written if each.done is not None))
