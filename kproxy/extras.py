"""The extras of the package: which modules each part of kproxy needs beyond what `pip install kube-kproxy` brings.

The lists are pyproject.toml's, by the names that are imported. A part that needs one is imported only when it is used;
whoever begins something that must not end half-way asks with `require` first.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Final

from kproxy.errors import InputError

_CLIENT: Final = ("urllib3", "websocket")
_LINUX: Final = ("pyroute2", "iptc")
_AGENT: Final = (*_CLIENT, *_LINUX, "prometheus_client")
_EXPLORE: Final = ("starlette", "uvicorn", "httptools")
_PCAP: Final = ("scapy",)
_APISERVER: Final = (
    "cryptography",
    "jsonpatch",
    "jwt",
    "re2",
    "uvicorn",
    "uvloop",
    "httptools",
    "wsproto",
    "prometheus_client",
)
_LAB: Final = tuple(dict.fromkeys((*_AGENT, *_APISERVER, *_PCAP, "dns")))
_ZSTD: Final = ("zstandard",)

EXTRAS: Final = {
    "client": _CLIENT,
    "linux": _LINUX,
    "pcap": _PCAP,
    "zstd": _ZSTD,
    "agent": _AGENT,
    "explore": _EXPLORE,
    "apiserver": _APISERVER,
    "lab": _LAB,
    "all": tuple(dict.fromkeys((*_LAB, *_EXPLORE, *_ZSTD))),
}
"""The modules of each extra. An extra stands before those that have its modules too."""

_NAMED: Final = 3
"""Modules that a message names, so that it is not longer than what is to be done about them."""


class MissingExtraError(InputError):
    """Something was asked for whose extra is not installed."""

    def __init__(self, extra: str, modules: tuple[str, ...], what: str = "") -> None:
        noun = "the Python package" if len(modules) == 1 else "the Python packages"
        more = f" and {len(modules) - _NAMED} more" if len(modules) > _NAMED else ""
        named = ", ".join(modules[:_NAMED]) + more
        super().__init__(f"{what or 'this'} needs {noun} {named}: pip install 'kube-kproxy[{extra}]'")
        self.extra = extra


def require(extra: str, what: str) -> None:
    """Raises MissingExtraError, in which `what` is who needs it, if a module of the extra is not installed.

    It looks and does not import: what is never used costs nothing.
    """
    missing = _not_installed(EXTRAS[extra])
    if missing:
        raise MissingExtraError(extra, missing, what)


@functools.cache
def _not_installed(modules: tuple[str, ...]) -> tuple[str, ...]:
    """Looked for once: a process that has given up root may not be able to read where the packages are."""
    return tuple(name for name in modules if importlib.util.find_spec(name) is None)


def missing_extra(error: Exception, what: str = "") -> MissingExtraError | None:
    """What an import that failed asks for: None if the module is of no extra, or is there and broken."""
    module = error.name if isinstance(error, ModuleNotFoundError) else None
    extra = next((name for name, modules in EXTRAS.items() if module in modules), None)
    return None if extra is None or module is None else MissingExtraError(extra, (module,), what)
