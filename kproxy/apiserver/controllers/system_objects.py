"""Objects that every cluster has are restored when they are deleted or changed.

The `kubernetes` Service with its EndpointSlice and Endpoints, its ServiceCIDR and the system's namespaces, which
kube-apiserver looks after every ten seconds (pkg/controlplane/controller/kubernetesservice, systemnamespaces); and in
every namespace the ServiceAccount `default` and, if it is wanted, the ConfigMap `kube-root-ca.crt`, which
kube-controller-manager follows (pkg/controller/serviceaccount, pkg/controller/certificates/rootcacertpublisher). Here
all of it follows the tables' events, and is looked at every ten seconds besides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from kproxy.apiserver.controllers import bootstrap
from kproxy.apiserver.controllers.base import Worker
from kproxy.apiserver.errors import ApiError, Json
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import SERVER_OPTIONS
from kproxy.apiserver.storage.store import Event

ROOT_CA: Final = "kube-root-ca.crt"
_RESYNC: Final = 10.0
"""Seconds after which the cluster's objects are looked at anyway."""
_CLUSTER: Final = ""
"""The key of the objects that are of no namespace; the others are the namespaces' names."""
_CA_NOTE: Final = {
    "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using "
    "internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across "
    "distributions of Kubernetes clusters."
}


class SystemObjects:
    """Keeps the system objects of one server.

    `cidrs`: ranges of cluster IPs, `port` the server's own, `address` where others reach it (None: nowhere), `root_ca`
    the CA certificate in PEM to publish in every namespace ("": nowhere, as with a kube-apiserver that has no
    controller manager beside it), `accounts` whether every namespace gets its ServiceAccount `default`.
    """

    def __init__(
        self, registry: Registry, catalog: Catalog, *, cidrs: tuple[str, ...], port: int, address: str | None,
        root_ca: str = "", accounts: bool = True,
    ) -> None:  # fmt: skip
        self._registry = registry
        self._catalog = catalog
        self._cidrs, self._port, self._address = cidrs, port, address
        self._root_ca, self._accounts = root_ca, accounts
        self._worker: Worker[str] = Worker("system objects", self._sync)

    async def start(self) -> None:
        """Writes what is not there, and follows the tables from then on.

        Raises:
            ApiError: it cannot be written.
        """
        await bootstrap.write_roles(self._registry, self._catalog)
        await self._cluster()
        for name in (*self._registry.table(self._catalog.builtin("", "namespaces")).entries, _CLUSTER):
            self._worker.add(name)
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
        self._worker.start()

    async def stop(self) -> None:
        await self._worker.stop()

    # --- what has changed ---

    def _any_namespace(self, event: Event) -> None:
        if event.deleted:
            self._worker.add(_CLUSTER)
        elif event.previous is None:
            self._worker.add(event.entry.name)

    def _named(self, name: str) -> Callable[[Event], None]:
        def listen(event: Event) -> None:
            if event.previous is not None and event.entry.name == name:
                self._worker.add(event.entry.namespace)

        return listen

    def _published(self, event: Event) -> None:
        if event.entry.name == "kubernetes" and event.entry.namespace in ("", "default"):
            self._worker.add(_CLUSTER)

    # --- what is done about it ---

    async def _sync(self, key: str) -> None:
        """Looks after the cluster's objects or those of one namespace."""
        if key == _CLUSTER:
            self._worker.add_after(_CLUSTER, _RESYNC)
            await self._cluster()
        else:
            await self._in_namespace(key)

    async def _cluster(self) -> None:
        await bootstrap.write_cluster(self._registry, self._catalog, self._cidrs, self._port)
        if self._address is not None:
            await bootstrap.publish_address(self._registry, self._catalog, self._address, self._port)

    async def _in_namespace(self, name: str) -> None:
        """Writes what a namespace must have, without waiting until it is on disk."""
        data = {"ca.crt": self._root_ca}
        config: Json = {"metadata": {"name": ROOT_CA, "annotations": _CA_NOTE}, "data": data}
        accounts, maps = self._catalog.builtin("", "serviceaccounts"), self._catalog.builtin("", "configmaps")
        # The namespace may be gone, or on its way out: then nothing can be made in it.
        with contextlib.suppress(ApiError):
            if self._accounts:
                account = {"metadata": {"name": "default", "namespace": name}}
                await bootstrap.ensure(self._registry, accounts, name, account, SERVER_OPTIONS)
            if self._root_ca:
                await bootstrap.ensure(
                    self._registry, maps, name, config, SERVER_OPTIONS, differs=lambda held: held.get("data") != data
                )
