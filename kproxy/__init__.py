"""kproxy: a kube-proxy you can read, replay and interrogate.

`read_rules`, `render_rules`, `trace_packet`, `compare_rules` and `audit_snapshot` are its face as a library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kproxy.library import audit_snapshot, compare_rules, read_rules, render_rules, trace_packet

__all__ = ["audit_snapshot", "compare_rules", "read_rules", "render_rules", "trace_packet"]
__version__ = "0.2.0"
KUBE_PROXY_VERSION = "v1.36.2"
"""The release whose behaviour this is."""


def __getattr__(name: str) -> object:
    """The functions are imported when they are first used: `import kproxy` stays light."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return globals().setdefault(name, getattr(import_module("kproxy.library"), name))
