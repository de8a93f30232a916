"""kproxy: a kube-proxy you can read, replay and interrogate."""

__version__ = "0.2.0"
KUBE_PROXY_VERSION = "v1.36.2"
"""The release whose behaviour this is."""
