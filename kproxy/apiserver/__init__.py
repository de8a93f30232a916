"""A small Kubernetes API server: durable, on one port, for laptops, tests and labs.

    with running_apiserver(tmp_path) as server:
        subprocess.run(["kubectl", "--kubeconfig", server.kubeconfig, "apply", "-f", "service.yaml"], check=True)

How a request goes: http (TLS, authenticate, authorize, dispatch) -> endpoints (verbs, lists, watches) -> registry
(writes) -> storage (memory, then SQLite). Resources are rows of kinds/resources.py; what they do beyond being stored is
their strategy. docs/apiserver.md is the user's page, docs/limits.md lists what differs from kube-apiserver.
"""

from kproxy.apiserver.server import ApiServer, Configuration, ServerError
from kproxy.apiserver.testing import RunningServer, running_apiserver

__all__ = ["ApiServer", "Configuration", "RunningServer", "ServerError", "running_apiserver"]
