"""An API server for the tests of a controller: a context manager, and fixtures for pytest.

    with api_server() as server:
        CoreV1Api(server.kubernetes).list_namespace()

For pytest, `pytest_plugins = ["kproxy.testing"]` in the outermost conftest.py gives the fixtures of fixtures.py. The
installation alone registers nothing with pytest, so a suite that does not ask for them is as it was.

Needs the extra `kube-kproxy[apiserver]`; the clients are imported when they are asked for, and only then. The guide is
docs/guides/test-your-controller.md.
"""

from kproxy.testing.server import Server, api_server

# pytest loads these beside a module that is a plugin of it; without pytest this is a list of names.
pytest_plugins = ["kproxy.testing.fixtures"]

__all__ = ["Server", "api_server"]
