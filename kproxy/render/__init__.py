"""kube-proxy's rules from what `services` knows: iptables rules, or in nftables mode a table of nftables.

    >>> from kproxy.api.types.core import Node
    >>> from kproxy.api.types.meta import ObjectMeta
    >>> from kproxy.render import Target, render_target
    >>> from kproxy.services import IPFamily
    >>> target = Target("node-0", Node(ObjectMeta("node-0")))
    >>> rendered = render_target(target, IPFamily.IPV4, services=[], endpoint_slices=[])
    >>> rendered.restore_text.splitlines()[0]
    '*filter'

`Renderer` keeps the chains of one node and family and plans full and partial restores; `render_target` is the short way
from a cluster to one node's iptables rules, `render_table` to its nftables table (`kproxy.render.nftables`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.render.iptables.plan import Batch, Plan
from kproxy.render.iptables.renderer import Renderer
from kproxy.render.options import Features, ModeError, RenderOptions, render_options
from kproxy.render.origin import Origin, RenderedRule
from kproxy.render.target import (
    NodeError,
    RenderedTarget,
    Target,
    render_table,
    render_target,
    select_target,
)

if TYPE_CHECKING:
    from kproxy.render.nftables.table import RenderedTable

__all__ = [
    "Batch",
    "Features",
    "ModeError",
    "NodeError",
    "Origin",
    "Plan",
    "RenderOptions",
    "RenderedRule",
    "RenderedTable",
    "RenderedTarget",
    "Renderer",
    "Target",
    "render_options",
    "render_table",
    "render_target",
    "select_target",
]


def __getattr__(name: str) -> object:
    """RenderedTable, with all of nftables mode, is imported when it is first used."""
    if name != "RenderedTable":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kproxy.render.nftables.table import RenderedTable

    return RenderedTable
