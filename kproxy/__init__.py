"""kproxy: a kube-proxy you can read, replay and interrogate."""

__version__ = "0.1.0"
