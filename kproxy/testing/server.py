"""`api_server`, for the tests of controllers: an API server whose data go with it, and the clients of users.

It runs `running_apiserver` of `kproxy.apiserver.testing`, which is for kproxy's own tests: of any configuration, with
data that stay.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kproxy.errors import InputError
from kproxy.extras import require

if TYPE_CHECKING:
    import lightkube
    from kubernetes.client import ApiClient

    from kproxy.apiserver import RunningServer

# Where the official clients keep $KUBECONFIG from the moment they were imported.
_REMEMBERED: Final = (
    "kubernetes.config",
    "kubernetes.config.kube_config",
    "kubernetes_asyncio.config",
    "kubernetes_asyncio.config.kube_config",
)
_DEFAULT: Final = "KUBE_CONFIG_DEFAULT_LOCATION"


@dataclass(frozen=True)
class Server:
    """A running API server, as one user sees it: at first a member of `system:masters`, who may do everything.

    `kubeconfig` is a file that names the server and holds the user's client certificate.
    """

    kubeconfig: Path
    _running: RunningServer
    _closing: contextlib.ExitStack

    @property
    def url(self) -> str:
        """`https://127.0.0.1:PORT`."""
        return self._running.url

    @property
    def ca(self) -> Path:
        """The file with the certificate of the server's authority (PEM), for clients without kubeconfig."""
        return self._running.ca

    @cached_property
    def kubernetes(self) -> ApiClient:
        """The official client: `kubernetes.client.CoreV1Api(server.kubernetes)`.

        Raises:
            InputError: the package kubernetes is not installed.
        """
        _need("kubernetes")
        from kubernetes.config import new_client_from_config

        untyped: Any = new_client_from_config
        client: ApiClient = untyped(config_file=str(self.kubeconfig))
        self._closing.callback(client.close)
        return client

    @cached_property
    def lightkube(self) -> lightkube.Client:
        """lightkube's client, with the field manager `kproxy-testing` for server-side apply.

        Raises:
            InputError: the package lightkube is not installed.
        """
        _need("lightkube")
        import lightkube

        config = lightkube.KubeConfig.from_file(self.kubeconfig)
        client = lightkube.Client(config=config, field_manager="kproxy-testing", trust_env=False)
        self._closing.callback(client.close)
        return client

    def as_user(self, user: str, *groups: str) -> Server:
        """The same server as another user sees it, who may do what RBAC grants him.

        A service account is the user `system:serviceaccount:NAMESPACE:NAME`, whose groups are
        `system:serviceaccounts` and `system:serviceaccounts:NAMESPACE`.
        """
        handle, name = tempfile.mkstemp(prefix="kubeconfig-", dir=self.kubeconfig.parent)
        with os.fdopen(handle, "w") as file:
            file.write(self._running.kubeconfig_for(user, *groups))
        return Server(Path(name), self._running, self._closing)

    @contextlib.contextmanager
    def as_default(self) -> Iterator[Server]:
        """Makes it the cluster of every client in this process, and of its children, that is told of no other.

        That is `$KUBECONFIG`, what the official client keeps of it, and no `$KUBERNETES_SERVICE_HOST`, by which a
        client would find the cluster whose Pod it runs in. All of it is put back at the end.
        """
        with contextlib.ExitStack() as stack:
            for name, value in (("KUBECONFIG", str(self.kubeconfig)), ("KUBERNETES_SERVICE_HOST", None)):
                stack.callback(_set_variable, name, os.environ.get(name))
                _set_variable(name, value)
            for module in filter(None, map(sys.modules.get, _REMEMBERED)):
                stack.callback(setattr, module, _DEFAULT, getattr(module, _DEFAULT))
                setattr(module, _DEFAULT, str(self.kubeconfig))
            yield self


@contextlib.contextmanager
def api_server(*, controllers: frozenset[str] | None = None) -> Iterator[Server]:
    """Runs an API server on a free port of the loopback in a thread of this process; its data are gone at the end.

    It is up in well under a second, holds what a new cluster holds (namespaces, the Service `kubernetes`, RBAC's
    roles), and neither schedules nor runs Pods. Writes do not wait for the disk.

    Args:
        controllers: which controllers run, by kube-controller-manager's names (docs/apiserver.md lists them); None for
            all that there are, `frozenset()` for none.

    Raises:
        MissingExtraError: the extra `apiserver` is not installed.
    """
    require("apiserver", "kproxy.testing")
    from kproxy.apiserver import running_apiserver

    options: dict[str, Any] = {} if controllers is None else {"controllers": controllers}
    with (
        tempfile.TemporaryDirectory(prefix="kproxy-testing-") as directory,
        running_apiserver(Path(directory), synchronous="OFF", **options) as running,
        contextlib.ExitStack() as closing,
    ):
        yield Server(running.kubeconfig, running, closing)


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _need(package: str) -> None:
    """Raises InputError: the package of a client is not installed."""
    if importlib.util.find_spec(package) is None:
        raise InputError(
            f"the client {package} of kproxy.testing needs the Python package {package}: pip install {package}"
        )
