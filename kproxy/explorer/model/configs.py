"""Which nodes' kube-proxies have a configuration that is not known, and what counts instead, as notes of answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kproxy.explorer.model.model import Model
from kproxy.words import listed

_SHOWN: Final = 3


def config_notes(model: Model, names: Sequence[str]) -> list[str]:
    """Of some nodes. Raises InputError: rules cannot be read."""
    cluster = model.cluster
    with model.lock:
        found = cluster.config_notes(names)
        unknown = [name for name in names if cluster.config_of(cluster.hosts[name]) is None]
    if unknown and not model.known.rendered:
        shown = listed(unknown, _SHOWN)
        found.append(f"{shown}: kube-proxy's configuration is not known: its defaults count, without a cluster CIDR")
    return found
