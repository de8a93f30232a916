"""Sources of the explorer as their names say."""

from __future__ import annotations

from kproxy.cluster.sources import read_name
from kproxy.explorer.sources.rendering import ObjectChoices
from kproxy.explorer.sources.source import StillSource, still_source


def source_of(*names: object, config: object = None, mode: str | None = None, endpoints: int = 0) -> StillSource:
    """A snapshot, manifests or rules; `config` is the file of manifests' KubeProxyConfiguration."""
    how = ObjectChoices(mode, endpoints=endpoints)
    return still_source([read_name(str(each)) for each in names], None if config is None else str(config), how)
