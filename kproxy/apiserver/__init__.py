"""A small Kubernetes API server: durable, on one port, for laptops, tests and labs.

    with running_apiserver(tmp_path) as server:
        subprocess.run(["kubectl", "--kubeconfig", server.kubeconfig, "apply", "-f", "service.yaml"], check=True)

How a request goes: http (TLS, authenticate, authorize, dispatch) -> endpoints (verbs, lists, watches) -> registry
(writes) -> storage (memory, then SQLite). Resources are rows of kinds/resources.py; what they do beyond being stored is
their strategy. docs/apiserver.md is the user's page, docs/limits.md lists what differs from kube-apiserver.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kproxy.apiserver.server import ApiServer, Configuration, ServerError
    from kproxy.apiserver.testing import RunningServer, running_apiserver

__all__ = ["ApiServer", "Configuration", "RunningServer", "ServerError", "running_apiserver"]

# Imported when they are asked for: parts of the package are used by others, which need none of the server's libraries.
_HOMES = {
    "ApiServer": "server",
    "Configuration": "server",
    "RunningServer": "testing",
    "ServerError": "server",
    "running_apiserver": "testing",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(f"{__name__}.{_HOMES[name]}"), name))
