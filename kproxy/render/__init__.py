"""kube-proxy's rules from what `services` knows: iptables rules, in nftables mode a table of nftables, in IPVS mode
virtual servers, sets, addresses and rules.

    >>> from kproxy.api.types.core import Node
    >>> from kproxy.api.types.meta import ObjectMeta
    >>> from kproxy.render import Target, render_target
    >>> from kproxy.services import IPFamily
    >>> target = Target("node-0", Node(ObjectMeta("node-0")))
    >>> rendered = render_target(target, IPFamily.IPV4, services=[], endpoint_slices=[])
    >>> rendered.restore_text.splitlines()[0]
    '*filter'

`Renderer` keeps the chains of one node and family and plans full and partial restores; `render_target` is the short way
from a cluster to one node's iptables rules, `render_table` to its nftables table (`kproxy.render.nftables`),
`render_in_mode` to what the mode of its configuration makes (`kproxy.render.ipvs`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kproxy.render.iptables.plan import Batch, Plan
from kproxy.render.iptables.renderer import Renderer
from kproxy.render.options import Features, ModeError, RenderOptions, render_options
from kproxy.render.origin import Origin, RenderedRule
from kproxy.render.target import (
    NodeError,
    Rendered,
    RenderedTarget,
    Target,
    render_in_mode,
    render_state,
    render_table,
    render_target,
    select_target,
)

if TYPE_CHECKING:
    from kproxy.render.ipvs.node import RenderedIpvs
    from kproxy.render.nftables.table import RenderedTable

__all__ = [
    "Batch",
    "Features",
    "ModeError",
    "NodeError",
    "Origin",
    "Plan",
    "RenderOptions",
    "Rendered",
    "RenderedIpvs",
    "RenderedRule",
    "RenderedTable",
    "RenderedTarget",
    "Renderer",
    "Target",
    "render_in_mode",
    "render_options",
    "render_state",
    "render_table",
    "render_target",
    "select_target",
]


_LATER = {"RenderedTable": "nftables.table", "RenderedIpvs": "ipvs.node"}


def __getattr__(name: str) -> object:
    """RenderedTable and RenderedIpvs, with all of their modes, are imported when they are first used."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
